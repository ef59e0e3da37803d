"""Where references are kept: a row for each subject and form, so that no failsoft spoils another's.

Two failsofts that share a store may ask other probes, or write a reference another way: each
has rows of its own. Every function raises StoreError when the store refuses.
"""

import logging

from failsoft.fallback.fingerprint.probes import PROBES_ID
from failsoft.fallback.fingerprint.records import Reference
from failsoft.fallback.fingerprint.stored import SCHEMA, from_json, to_json
from failsoft.store.fingerprints import FingerprintStore

_log = logging.getLogger(__name__)


def row_key(subject: str) -> str:
    """Return what the reference of *subject* is stored under."""
    return f"{subject}#{SCHEMA}.{PROBES_ID}"


def find(store: FingerprintStore, subject: str) -> Reference | None:
    """Return the reference of *subject*; None when none is kept.

    One that cannot be read is deleted, and its loss is logged: what it would have shown is lost.
    """
    kept = store.find(row_key(subject))
    if kept is None:
        return None
    reference = from_json(kept.reference_json)
    if reference is None:
        _log.warning("the fingerprint reference of %s is spoilt; it is taken anew", subject)
        store.forget(row_key(subject))
    return reference


def keep(store: FingerprintStore, subject: str, reference: Reference) -> None:
    """Keep a first *reference* of *subject*, unless another process was first."""
    store.keep(row_key(subject), to_json(reference), schema=SCHEMA)


def replace(store: FingerprintStore, subject: str, reference: Reference) -> None:
    """Keep *reference* of *subject* in place of any other."""
    store.replace(row_key(subject), to_json(reference), schema=SCHEMA)
