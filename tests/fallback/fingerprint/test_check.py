"""Checks over HTTP: endpoints that are not ours, and a real engine of ours with a tiny model."""

import asyncio
import json
from functools import partial
from typing import Any

import pytest
import torch

from failsoft.config.engine import EngineConfig
from failsoft.errors import FingerprintError
from failsoft.fallback.fingerprint import machine, references
from failsoft.fallback.fingerprint.check import check_running, renew_reference
from failsoft.fallback.fingerprint.machine import local_subject
from failsoft.fallback.fingerprint.noise import NUM_TAKINGS
from failsoft.fallback.fingerprint.records import FingerprintProof, Method
from failsoft.fallback.fingerprint.take import Asked
from failsoft.fallback.fingerprint.wire import PRIORITY, SALT
from failsoft.store.fingerprints import FingerprintStore
from tests.engine.http.real_rig import serving_model, tiny_model
from tests.engine.http.rig import DIGEST, make_served
from tests.fallback.fingerprint.foreign import Foreign, only_chats
from tests.fallback.fingerprint.looks import SOURCE, look


def method_of(store: FingerprintStore) -> Method:
    """Return how the kept reference was taken."""
    reference = references.find(store, SOURCE)
    assert reference is not None
    return reference.method


SERVERS: list[Any] = [
    pytest.param({}, Method.SCORED, id="scored"),
    pytest.param({"refuses": only_chats}, Method.GREEDY, id="greedy"),
    pytest.param({"refuses": only_chats, "has_logprobs": False}, Method.TEXT, id="text"),
]


@pytest.mark.parametrize(("options", "method"), SERVERS)
def test_each_endpoint_is_asked_in_the_best_way_it_knows(
    options: dict[str, Any], method: Method, store: FingerprintStore
) -> None:
    """First the reference is taken, then it is the same, then it is another model."""
    with Foreign(noise=0.002, **options) as foreign:
        first, again = look(foreign, store), look(foreign, store)
        foreign.weights = "two"
        other = look(foreign, store)

    assert (first.is_new_reference, first.num_takings) == (True, NUM_TAKINGS)
    assert method_of(store) is method
    assert (again.is_changed, again.num_takings) == (False, 1)
    assert (other.is_changed, other.num_takings) == (True, 3)
    assert other.reported.system_fingerprint == "fp_two"
    assert other.reported.model == "hosted-2026-01"


def test_endpoints_elsewhere_get_no_field_of_ours(store: FingerprintStore) -> None:
    """OpenAI refuses what it does not know, and a sampled token is paid for."""
    with Foreign() as foreign:
        look(foreign, store)

    assert {field for body in foreign.bodies for field in body} == {
        "model",
        "temperature",
        "prompt",
        "echo",
        "logprobs",
        "max_tokens",
    }
    assert {body["max_tokens"] for body in foreign.bodies} == {1}


def test_what_only_one_of_three_takings_shows_is_no_change(store: FingerprintStore) -> None:
    """It was a wobble: the repeats come at once, at other batch make-ups."""
    with Foreign() as foreign:
        look(foreign, store)
        foreign.weights = "two"
        num_before = len(foreign.bodies)
        foreign.refuses = partial(_back_after, foreign, num_before + 4)

        seen = look(foreign, store)

    assert seen.is_changed is False
    assert seen.num_takings == 2


def _back_after(foreign: Foreign, number: int, _path: str, _body: dict[str, Any]) -> int | None:
    """Be the first model again from the request of that *number* on."""
    if len(foreign.bodies) > number:
        foreign.weights = "one"
    return None


def test_a_renewed_reference_is_what_counts_from_then_on(store: FingerprintStore) -> None:
    """What an endpoint elsewhere has become is what its next change is told from."""
    with Foreign() as foreign:
        look(foreign, store)
        foreign.weights = "two"
        asked = Asked(url=foreign.url, model="hosted")
        asyncio.run(renew_reference(asked, subject=SOURCE, store=store))

        assert look(foreign, store).is_changed is False
        foreign.weights = "one"
        assert look(foreign, store).is_changed


def test_another_failsoft_on_the_same_store_keeps_its_own_reference(
    store: FingerprintStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks other probes: each deleted the other's, so that both began anew at every round."""
    with Foreign() as foreign:
        look(foreign, store)
        monkeypatch.setattr(references, "PROBES_ID", "other probes")
        there = look(foreign, store)
        monkeypatch.undo()

        assert there.is_new_reference
        assert look(foreign, store).is_changed is False


@pytest.mark.parametrize("spoil", [lambda _raw: {}, lambda raw: {**raw, "probes": []}])
def test_a_spoilt_reference_is_taken_anew_and_its_loss_is_said(
    store: FingerprintStore, spoil: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """What it would have shown is lost."""
    with Foreign() as foreign:
        look(foreign, store)
        key = references.row_key(SOURCE)
        kept = store.find(key)
        assert kept is not None
        store.replace(key, json.dumps(spoil(json.loads(kept.reference_json))), schema=kept.schema)

        assert look(foreign, store).is_new_reference
        assert look(foreign, store).is_changed is False

    assert "is spoilt; it is taken anew" in caplog.text


# Our own engine.

CONFIG = EngineConfig(block_size=4, num_kv_blocks=320, max_step_tokens=64)


def nudged_model() -> Any:
    """Return the tiny model with one matrix half as large again."""
    model = tiny_model()
    with torch.no_grad():
        model.model.layers[0].mlp.down_proj.weight.mul_(1.5)
    return model


def look_at_ours(url: str, store: FingerprintStore, digest: str = DIGEST) -> FingerprintProof:
    """Check an engine of ours once."""
    return asyncio.run(check_running(f"{url}/v1", None, digest, store))


def test_our_engine_is_scored_and_other_weights_under_its_digest_are_found(
    store: FingerprintStore,
) -> None:
    """The header lies: the numbers do not."""
    with serving_model(tiny_model, make_served(), CONFIG) as (_engine, _served, url, _client):
        first, again = look_at_ours(url, store), look_at_ours(url, store)
        with pytest.raises(FingerprintError, match=f"reports version {DIGEST[:16]}, not eeee"):
            look_at_ours(url, store, digest="e" * 64)
    with serving_model(nudged_model, make_served(), CONFIG) as (_engine, _served, url, _client):
        other = look_at_ours(url, store)

    assert first.is_new_reference
    assert first.reported.version_digest == DIGEST
    assert again.is_changed is False
    assert other.is_changed
    assert references.find(store, local_subject("e" * 64)) is None


def test_our_engine_takes_the_probes_behind_its_callers_and_apart_from_their_prefixes(
    store: FingerprintStore,
) -> None:
    """Low priority and a salt of their own; what a tenant's prompt began with is not read."""
    with serving_model(tiny_model, make_served(), CONFIG) as (engine, _served, url, _client):
        asked: list[Any] = []
        submit = engine.submit

        def spy(request: Any, sink: Any) -> None:
            asked.append(request)
            submit(request, sink)

        engine.submit = spy  # type: ignore[method-assign, assignment]
        look_at_ours(url, store)

    assert {(request.priority, request.cache_salt) for request in asked} == {(PRIORITY, SALT)}


def test_a_version_has_a_reference_for_each_machine(
    store: FingerprintStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hardware bfloat16 is another arithmetic: what one machine computed is no measure there."""
    with serving_model(tiny_model, make_served(), CONFIG) as (_engine, _served, url, _client):
        here = look_at_ours(url, store)
        monkeypatch.setattr(machine, "machine_key", lambda: "another one")
        there = look_at_ours(url, store)

    assert here.is_new_reference
    assert there.is_new_reference
    assert there.subject == f"{DIGEST}@another one"
