"""References of fingerprints: kept once, replaced when asked, gone when forgotten."""

from tests.store.conftest import Clock, OpenStore


def test_the_first_reference_stays(open_store: OpenStore, clock: Clock) -> None:
    """Two processes may take one at the same time; both then compare with the same."""
    store, other = open_store().fingerprints, open_store().fingerprints

    kept = store.keep("d" * 64, '{"n": 1}', schema=1)
    again = other.keep("d" * 64, '{"n": 2}', schema=1)

    found = other.find("d" * 64)
    assert (kept, again) == (True, False)
    assert found is not None
    assert (found.reference_json, found.schema, found.taken_at_ms) == ('{"n": 1}', 1, clock.now_ms)


def test_a_replaced_reference_carries_its_own_time(open_store: OpenStore, clock: Clock) -> None:
    """And its schema."""
    store = open_store().fingerprints
    store.keep("s", "{}", schema=1)
    clock.now_s += 10

    store.replace("s", '{"n": 2}', schema=2)
    store.replace("new", "{}", schema=2)

    found = store.find("s")
    assert found is not None
    assert (found.reference_json, found.schema, found.taken_at_ms) == ('{"n": 2}', 2, clock.now_ms)
    assert store.find("new") is not None


def test_what_is_forgotten_is_not_found(open_store: OpenStore) -> None:
    """Forgetting twice says so."""
    store = open_store().fingerprints
    store.keep("s", "{}", schema=1)

    assert store.forget("s")
    assert not store.forget("s")
    assert store.find("s") is None
