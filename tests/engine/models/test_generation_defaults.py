"""Which of a model's own sampling values become defaults."""

import logging

import pytest

from failsoft.engine.models.generation_defaults import generation_defaults


def test_supported_values_are_taken_as_their_own_kind() -> None:
    """A top_k of 20.0 and of 20 are one default; they must give one digest."""
    found = generation_defaults(
        {"temperature": 1, "top_k": 20.0, "top_p": 0.8, "repetition_penalty": 1.1}, model="x"
    )

    assert list(found) == [
        ("repetition_penalty", 1.1),
        ("temperature", 1.0),
        ("top_k", 20),
        ("top_p", 0.8),
    ]
    assert [type(value).__name__ for _, value in found] == ["float", "float", "int", "float"]


def test_greedy_model_stays_greedy() -> None:
    """``do_sample: false`` beats the temperature beside it."""
    assert generation_defaults({"do_sample": False, "temperature": 0.6}, model="x") == (
        ("temperature", 0.0),
    )


def test_what_the_engine_cannot_do_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A neutral value is nothing to speak of."""
    with caplog.at_level(logging.WARNING):
        generation_defaults({"no_repeat_ngram_size": 0, "typical_p": None}, model="x")
        generation_defaults({"typical_p": 0.9}, model="x")

    assert caplog.messages == ["x asks for typical_p = 0.9: not supported"]
