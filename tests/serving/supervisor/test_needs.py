"""Which engines a settings file asks for."""

from pathlib import Path

import pytest

from failsoft.serving.supervisor.needs import engines_needed
from tests.serving.supervisor.builders import ladders_of, read


@pytest.mark.parametrize(
    ("ladders", "slots"),
    [
        ({"chat": ["a", "b", "cache"]}, ["a", "b"]),
        ({"chat": ["a", "b"], "code": ["c", "b", "a"]}, ["a", "c", "b"]),
        ({"chat": ["at-x", "a"]}, ["a"]),
        ({"chat": ["at-x", "cache"]}, []),
    ],
)
def test_every_slot_that_a_ladder_uses_gets_one(
    ladders: dict[str, list[str]], slots: list[str], tmp_path: Path
) -> None:
    """First rungs first, each slot once; URLs and the cache need none."""
    settings = read(tmp_path, ladders_of(ladders))

    assert [need.slot for need in engines_needed(settings, num_cores=2)] == slots


def test_an_endpoint_that_no_ladder_uses_gets_no_engine(tmp_path: Path) -> None:
    """It would cost memory and answer nobody."""
    text = ladders_of({"chat": ["at-x"], "old": ["a"]})
    unused = text.replace("[ladders.old]\nrungs = ['a']", "")

    assert engines_needed(read(tmp_path, unused), num_cores=2) == []


def test_the_first_engine_below_a_url_gets_the_cores(tmp_path: Path) -> None:
    """It is the first that runs here."""
    settings = read(tmp_path, ladders_of({"chat": ["at-x", "a", "b"]}))

    assert [need.threads for need in engines_needed(settings, num_cores=8)] == [7, 4]


def test_a_versions_own_threads_are_its_own_affair(tmp_path: Path) -> None:
    """The command line would override them."""
    text = ladders_of({"chat": ["a", "b"]}) + "\n[versions.v-a.engine]\nnum_threads = 5\n"

    needs = engines_needed(read(tmp_path, text), num_cores=8)

    assert [need.threads for need in needs] == [None, 4]


def test_what_makes_another_engine(tmp_path: Path) -> None:
    """Another name, or another meaning of the name; no other price and no other threads."""
    text = ladders_of({"chat": ["a"]})
    price = "\n[versions.v-a.price]\ninput_per_mtok = 1\noutput_per_mtok = 2\n"
    variants = {
        "same": text,
        "price": text + price,
        "prompt": text.replace("[pins]", 'system_prompt = "be kind"\n[pins]'),
        "pin": text.replace('a = "v-a"', 'a = "smollm2-135m-instruct"'),
    }

    needs = {
        name: engines_needed(read(tmp_path, variant), num_cores=2)[0]
        for name, variant in variants.items()
    }

    before = engines_needed(read(tmp_path, text), num_cores=16)[0]
    assert {name: need == before for name, need in needs.items()} == {
        "same": True,
        "price": True,
        "prompt": False,
        "pin": False,
    }
