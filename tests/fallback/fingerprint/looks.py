"""One look at an endpoint elsewhere."""

import asyncio

from failsoft.fallback.fingerprint.check import check
from failsoft.fallback.fingerprint.records import FingerprintProof
from failsoft.fallback.fingerprint.take import Asked
from failsoft.store.fingerprints import FingerprintStore
from tests.fallback.fingerprint.foreign import Foreign

SOURCE = "s" * 64


def look(foreign: Foreign, store: FingerprintStore) -> FingerprintProof:
    """Check an endpoint elsewhere once."""
    asked = Asked(url=foreign.url, model="hosted")
    return asyncio.run(check(asked, subject=SOURCE, store=store))
