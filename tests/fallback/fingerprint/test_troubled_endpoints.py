"""Checks of endpoints that are down, slow, or say more than anybody asked for."""

import asyncio
import threading
import time
from typing import Any

import pytest

from failsoft.errors import FingerprintError, FirstLookError
from failsoft.fallback.fingerprint import check as checks
from failsoft.fallback.fingerprint import references
from failsoft.fallback.fingerprint.check import check
from failsoft.fallback.fingerprint.noise import NUM_TAKINGS, make_reference
from failsoft.fallback.fingerprint.probes import MAX_TOKENS
from failsoft.fallback.fingerprint.records import Method, Taking
from failsoft.fallback.fingerprint.take import MAX_REPLY_BYTES, Asked
from failsoft.fallback.fingerprint.wire import MAX_NAME
from failsoft.store.fingerprints import FingerprintStore
from tests.fallback.fingerprint.foreign import Foreign, only_chats
from tests.fallback.fingerprint.looks import SOURCE, look
from tests.fallback.fingerprint.takings import greedy
from tests.fallback.rig import refused_port


@pytest.mark.parametrize("status", [429, 500, 503])
def test_an_endpoint_in_trouble_is_down_and_not_changed(
    status: int, store: FingerprintStore
) -> None:
    """Its reference stays what it was."""
    with Foreign() as foreign:
        look(foreign, store)
        foreign.refuses = lambda _path, _body: status

        with pytest.raises(FingerprintError) as caught:
            look(foreign, store)

    assert caught.value.is_down
    assert references.find(store, SOURCE) is not None


def test_a_refused_connection_is_down(store: FingerprintStore) -> None:
    """And gives no reference."""
    with refused_port() as port, pytest.raises(FingerprintError) as caught:
        asyncio.run(check(Asked(url=f"http://127.0.0.1:{port}/v1"), subject=SOURCE, store=store))

    assert caught.value.is_down
    assert references.find(store, SOURCE) is None


def test_a_refused_key_is_no_other_method(store: FingerprintStore) -> None:
    """401 says nothing about routes: it is raised as it is, and as nothing that passes."""
    refusing = Foreign(refuses=lambda _path, _body: 401)
    with refusing as foreign, pytest.raises(FingerprintError, match="HTTP 401") as caught:
        look(foreign, store)

    assert not caught.value.is_down
    assert len(foreign.bodies) == 1


def test_an_endpoint_that_hangs_is_given_up(
    store: FingerprintStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the limit, as one that is busy."""
    monkeypatch.setattr(checks, "LIMIT_S", 0.2)
    let_go = threading.Event()
    with Foreign(refuses=lambda _path, _body: None if let_go.wait(5) else 500) as foreign:
        with pytest.raises(FingerprintError, match="it is busy, or hangs") as caught:
            look(foreign, store)
        let_go.set()

    assert caught.value.is_down


def test_a_change_at_a_slow_endpoint_is_found_too(
    store: FingerprintStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its repeats ask fewer at once: they took it over the limit, so it was busy and the same."""
    slow_s = 0.0

    def waits(path: str, body: dict[str, Any]) -> int | None:
        time.sleep(slow_s)
        return only_chats(path, body)

    with Foreign(refuses=waits) as foreign:
        look(foreign, store)
        foreign.weights = "two"
        # Two waves of four take 0.4 s, six after one another 1.2 s, three pairs 0.6 s.
        monkeypatch.setattr(checks, "LIMIT_S", 1.5)
        slow_s = 0.2

        found = look(foreign, store)

    assert (found.is_changed, found.num_takings) == (True, 3)


def test_a_reply_without_end_is_not_read_to_its_end(store: FingerprintStore) -> None:
    """It would fill the memory of who watches, and its reference the store."""
    with Foreign(refuses=only_chats) as foreign:
        foreign.padding = "x" * (MAX_REPLY_BYTES + 1)
        with pytest.raises(FingerprintError, match="over 1,048,576 bytes came") as caught:
            look(foreign, store)

    assert not caught.value.is_down


def test_a_name_without_end_is_kept_by_its_beginning(store: FingerprintStore) -> None:
    """A reference holds what the endpoint calls itself, and nobody reads more of it."""
    with Foreign(refuses=only_chats) as foreign:
        foreign.weights = "x" * 100_000
        found = look(foreign, store)

    kept = store.find(references.row_key(SOURCE))
    assert kept is not None
    assert len(kept.reference_json) < 20_000
    assert len(found.reported.system_fingerprint or "") == MAX_NAME


def test_an_endpoint_that_ignores_max_tokens_gives_no_longer_reference(
    store: FingerprintStore,
) -> None:
    """What was not asked for does not count."""
    with Foreign(refuses=only_chats, ignores_limits=True) as foreign:
        look(foreign, store)

    reference = references.find(store, SOURCE)
    assert reference is not None
    assert {len(probe.tokens) for probe in reference.probes} == {MAX_TOKENS}


def test_a_reference_that_is_broken_off_says_so(store: FingerprintStore) -> None:
    """What it had asked is paid for; a first request that is refused cost nothing."""
    with Foreign() as foreign:
        foreign.refuses = lambda _path, _body: 429 if len(foreign.bodies) > 10 else None
        with pytest.raises(FirstLookError, match="HTTP 429") as caught:
            look(foreign, store)
        with pytest.raises(FingerprintError) as later:
            look(foreign, store)

    assert caught.value.is_down
    assert not isinstance(later.value, FirstLookError)


class Takings:
    """A `Taker` that gives what a test says, one after the other."""

    def __init__(self, *takings: Taking) -> None:
        self._takings = list(takings)

    async def take(self, _method: Method, *, at_once: int) -> Taking:
        """Return the next one."""
        assert at_once >= 1
        return self._takings.pop(0)


CLOSE = [0.0] * 12
"""Margins of answers that may part anywhere by chance."""
WHOLE, PARTED = (greedy(text, margins=CLOSE) for text in ("abcdefghijkl", "aXXXXXXXXXXX"))
OTHER = greedy("Zbcdefghijkl", margins=CLOSE)
REFERENCES = {
    "chance": make_reference([greedy("abcdefghijkl", margins=CLOSE)] * NUM_TAKINGS),
    "clear": make_reference([greedy("abcdefghijkl")] * NUM_TAKINGS),
}


@pytest.mark.parametrize(
    ("reference", "takings", "was_unclear", "is_changed", "num_takings"),
    [
        pytest.param("chance", [PARTED, WHOLE], False, False, 2, id="once is no news"),
        pytest.param("chance", [PARTED] * 3, False, None, 3, id="three times is"),
        pytest.param("chance", [PARTED], True, None, 1, id="and then costs no more"),
        pytest.param("clear", [OTHER, OTHER, OTHER], False, True, 3, id="a change"),
    ],
)
def test_answers_that_part_early_are_asked_again_before_it_is_said(
    reference: str,
    takings: list[Taking],
    was_unclear: bool,
    is_changed: bool | None,
    num_takings: int,
) -> None:
    """An unchanged endpoint with noise of 0.1 nats was unclear at every twentieth look."""
    by: Any = Takings(*takings)

    made, said = asyncio.run(
        checks._compare(REFERENCES[reference], by, None, was_unclear=was_unclear)
    )

    assert (said.is_changed, len(made)) == (is_changed, num_takings)
