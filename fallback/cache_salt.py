"""The salt that keeps one tenant's prefix cache from another's on a local engine.

An engine shares the KV blocks of equal prompt beginnings only under equal salts, and a
hit shows in the time to the first token. So what reaches a local engine as ``cache_salt``
is never what a caller wrote: it is an HMAC over tenant and the caller's own salt under
the engine's token, which every ladder of this machine reads and no caller knows. An
endpoint elsewhere gets no salt: ours means nothing there, and a caller's own could name
another tenant's. Knows nothing of HTTP.
"""

import hashlib
import hmac

from failsoft.fallback.cache_key import canonical_json

SALT_FIELD = "cache_salt"


def cache_salt(secret: str, *, tenant: str, own: object) -> str:
    """Return the salt of *tenant*, 64 hex digits.

    HMAC-SHA256 (RFC 2104) over the JSON list of both parts, so that they cannot blur.

    Args:
        secret: The engine's token; empty for an engine without one, which then keeps tenants
            apart only from each other and not from who asks it directly.
        tenant: Set by the server, never taken from a body.
        own: The caller's own salt, any JSON; None when there is none.
    """
    message = canonical_json([tenant, own]).encode("utf-8", "surrogatepass")
    return hmac.new(secret.encode(), message, hashlib.sha256).hexdigest()
