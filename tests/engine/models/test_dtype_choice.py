"""What ``auto`` means: measured once, recorded, float32 where bfloat16 cannot win."""

from pathlib import Path

import pytest

from failsoft.config.sources import FileSource
from failsoft.engine.models.dtype_choice import (
    ROWS,
    Measure,
    Widths,
    choose_dtype,
    layer_widths,
    time_layer,
)
from failsoft.engine.models.fetch import fetch_model
from failsoft.engine.models.store import ModelStore, StoredModel


@pytest.fixture
def stored(store: ModelStore, tiny_gguf: Path) -> StoredModel:
    """Return the tiny GGUF model, stored."""
    return fetch_model(FileSource(tiny_gguf), store=store)


def fixed(**seconds: float) -> Measure:
    """Return a measure that takes these seconds for each dtype."""

    def measure(widths: Widths, dtype: str, rows: int, device: str) -> float:
        assert rows in ROWS.values()
        return seconds[dtype]

    return measure


def forbidden(widths: Widths, dtype: str, rows: int, device: str) -> float:
    """Stand for a timing that must not happen."""
    raise AssertionError


@pytest.mark.parametrize(("half", "chosen"), [(0.5, "bfloat16"), (2.0, "float32")])
def test_the_faster_dtype_is_chosen_with_its_numbers(
    store: ModelStore, stored: StoredModel, half: float, chosen: str
) -> None:
    """The choice keeps the seconds it was made on."""
    measure = fixed(float32=1.0, bfloat16=half)

    choice = choose_dtype(stored, store=store, measure=measure, has_bfloat16=True)

    assert choice.dtype == chosen
    assert choice.seconds["bfloat16"] == dict.fromkeys(ROWS, half)
    assert f"{half:.2f} times" in choice.reason


def test_choice_is_made_once_for_each_machine_and_model(
    store: ModelStore, stored: StoredModel
) -> None:
    """A second measurement could fall the other way and change the version's digest."""
    measure = fixed(float32=1.0, bfloat16=0.5)
    first = choose_dtype(stored, store=store, measure=measure, has_bfloat16=True)

    second = choose_dtype(stored, store=store, measure=forbidden, has_bfloat16=True)

    assert second == first


def test_device_without_bfloat16_takes_float32_untimed(
    store: ModelStore, stored: StoredModel
) -> None:
    """Emulated bfloat16 is float32 arithmetic on rounded weights: never faster."""
    choice = choose_dtype(stored, store=store, measure=forbidden, has_bfloat16=False)

    assert (choice.dtype, choice.seconds) == ("float32", {})
    assert "no bfloat16 arithmetic" in choice.reason


def test_widths_come_from_the_model(store: ModelStore, tiny_gguf: Path, tiny_folder: Path) -> None:
    """Both kinds of model tell their sizes: hidden 32, feed-forward 64."""
    models = [fetch_model(FileSource(path), store=store) for path in (tiny_gguf, tiny_folder)]

    assert [layer_widths(model) for model in models] == [Widths(32, 64)] * 2


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_real_timing_gives_seconds(dtype: str) -> None:
    """A layer's products take some time, and less than a second at these sizes."""
    assert 0 < time_layer(Widths(32, 64), dtype, 8, "cpu") < 1
