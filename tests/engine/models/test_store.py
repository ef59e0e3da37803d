"""The store's folder, what verify finds, and what remove takes along."""

from pathlib import Path

import pytest

from failsoft.config.sources import FileSource
from failsoft.engine.models.fetch import fetch_model
from failsoft.engine.models.store import ModelStore, StoredModel, default_root
from failsoft.engine.models.verify import verify_model


@pytest.fixture
def stored(store: ModelStore, tiny_gguf: Path) -> StoredModel:
    """Return the tiny GGUF model, stored."""
    return fetch_model(FileSource(tiny_gguf), store=store)


def test_store_is_in_the_users_cache_unless_moved(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """FAILSOFT_HOME wins over XDG_CACHE_HOME, which wins over ~/.cache."""
    for name in ("FAILSOFT_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))

    plain = default_root()
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    cache = default_root()
    monkeypatch.setenv("FAILSOFT_HOME", "/elsewhere")

    assert (plain, cache) == (tmp_path / ".cache" / "failsoft", Path("/cache/failsoft"))
    assert default_root() == Path("/elsewhere")


def test_verify_reads_every_byte(store: ModelStore, stored: StoredModel) -> None:
    """One flipped bit, at the same size, is found by its digest."""
    path = stored.folder / "model.gguf"
    data = bytearray(path.read_bytes())
    assert all(check.is_good for check in verify_model(stored.digest, store=store))

    data[-1] ^= 1
    path.write_bytes(data)

    bad = [check for check in verify_model(stored.digest, store=store) if not check.is_good]
    assert [check.path for check in bad] == [f"models/{stored.digest}/files/model.gguf"]
    assert bad[0].expected == stored.digest
    assert bad[0].actual not in (None, stored.digest)


def test_verify_covers_conversions_and_missing_files(
    store: ModelStore, stored: StoredModel
) -> None:
    """A conversion's noted file that is gone is bad, with no digest."""
    folder = store.root / "conversions" / f"{stored.digest}-float32-v1"
    folder.mkdir(parents=True)
    record = '{"files": [{"path": "gone", "sha256": "00", "size_bytes": 1}]}'
    (folder / "conversion.json").write_text(record)

    bad = [check for check in verify_model(stored.digest, store=store) if not check.is_good]

    assert [(check.expected, check.actual) for check in bad] == [("00", None)]


def test_verify_notices_a_manifest_of_another_model(store: ModelStore, stored: StoredModel) -> None:
    """Good files under the wrong digest are the wrong model."""
    moved = store.root / "models" / ("0" * 64)
    (store.root / "models" / stored.digest).rename(moved)

    first, *files = verify_model("0" * 64, store=store)

    assert (first.expected, first.actual) == ("0" * 64, stored.digest)
    assert all(check.is_good for check in files)


def test_remove_takes_conversions_choices_and_sources_along(
    store: ModelStore, stored: StoredModel
) -> None:
    """Nothing that names the digest is left."""
    conversion = store.root / "conversions" / f"{stored.digest}-float32-v1"
    conversion.mkdir(parents=True)
    choice = store.root / "dtypes" / f"{stored.digest}-0.json"
    store.write(choice, b"{}")

    store.remove(stored.digest)

    assert store.digests() == []
    assert store.model(stored.digest) is None
    assert not conversion.exists()
    assert not choice.exists()
    assert store.sources_of(stored.digest) == []
