"""Makes what is stored good again: damaged files go, so that they are fetched or converted anew.

Loads no torch.
"""

import uuid

from failsoft.config.sources import ModelSource
from failsoft.engine.models.fetch import fetch_model, known_digest
from failsoft.engine.models.progress import notice
from failsoft.engine.models.store import ModelStore, StoredModel
from failsoft.engine.models.verify import verify_model
from failsoft.errors import UnsupportedModelError


def add_model(source: ModelSource, *, store: ModelStore, sha256: str | None = None) -> StoredModel:
    """Return the stored model that *source* names, every byte of it read and found right.

    What is stored and damaged is deleted first and fetched again; a damaged conversion
    is only deleted, to be made again from the model. Takes ``fetch_model``'s arguments.

    Raises:
        ModelError: As ``fetch_model``.
    """
    digest = known_digest(source, store=store, sha256=sha256)
    if digest is not None and digest in store.digests():
        discard_damaged(digest, store=store)
    return fetch_model(source, store=store, sha256=sha256)


def discard_damaged(digest: str, *, store: ModelStore) -> list[str]:
    """Delete the damaged ones among a model and its conversions.

    Returns:
        The deleted folders, below the store's.
    """
    try:
        bad = [check.path for check in verify_model(digest, store=store) if not check.is_good]
    except UnsupportedModelError:  # a manifest that is no JSON: nothing says what the files are
        bad = [f"models/{digest}/manifest.json"]
    folders = sorted({"/".join(path.split("/")[:2]) for path in bad})
    for folder in folders:
        notice(f"{folder} is damaged and makes way for a good copy")
    with store.lock(f"model-{digest}"), store.scratch() as graveyard:
        for folder in folders:
            (store.root / folder).rename(graveyard / uuid.uuid4().hex)
    return folders
