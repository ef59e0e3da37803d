"""The exact key of a reply: one hash over everything that decides what a model answers.

Knows nothing of the store. A field that nobody listed is in the key, so a new
sampling field can never make two different calls share a reply. Canonical JSON
after RFC 8785 in what matters here: sorted keys, no spaces, 1.0 and 1 alike; parts
are length-prefixed, so that they cannot blur into each other.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal

SCHEMA = b"failsoft-reply-1"

EXCLUDED_FIELDS = frozenset(
    {
        "model",  # the version digest stands for it
        "stream",
        "stream_options",
        "user",
        "safety_identifier",
        "metadata",
        "store",
        "service_tier",
        "priority",
        "cache_salt",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "request_id",
        "timeout",
    }
)
"""They say who asks, how it travels or how fast; none changes the answer."""

SAMPLING_FIELDS = frozenset(
    {
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "typical_p",
        "seed",
        "frequency_penalty",
        "presence_penalty",
        "repetition_penalty",
        "logit_bias",
        "allowed_token_ids",
        "max_tokens",
        "max_completion_tokens",
        "min_tokens",
        "stop",
        "stop_token_ids",
        "ignore_eos",
    }
)
"""What ``match = "messages"`` leaves out; fields that change a reply's shape stay in."""


def reply_key(
    body: Mapping[str, Any],
    *,
    kind: str,
    tenant: str,
    version: str,
    match: Literal["exact", "messages"],
) -> str:
    """Return the key of *body*'s reply, sha256 in hex.

    Args:
        body: The OpenAI-shaped request.
        kind: ``"chat"`` or ``"completion"``.
        tenant: Set by the server; two tenants never share a key.
        version: Digest of what answers.
        match: ``messages`` leaves `SAMPLING_FIELDS` out.
    """
    left_out = EXCLUDED_FIELDS | SAMPLING_FIELDS if match == "messages" else EXCLUDED_FIELDS
    effective = {k: v for k, v in body.items() if k not in left_out and v is not None}
    digest = hashlib.sha256(SCHEMA)
    # Another match mode is another question: its replies must not answer this one.
    for part in (match, kind, tenant, version, canonical_json(effective)):
        raw = part.encode("utf-8", "surrogatepass")
        digest.update(len(raw).to_bytes(8, "big"))
        digest.update(raw)
    return digest.hexdigest()


def fingerprint(body: Mapping[str, Any], *, kind: str, ladder: str) -> str:
    """Return the hash that tells one idempotent call's body from another's, in hex.

    Nothing is left out but how it travels: the same key with any other body is a conflict.
    """
    effective = {k: v for k, v in body.items() if k not in ("stream", "stream_options")}
    return hashlib.sha256(canonical_json([kind, ladder, effective]).encode()).hexdigest()


def canonical_json(value: object) -> str:
    """Return one text for equal JSON values.

    >>> canonical_json({"b": 1.0, "a": [True, None]})
    '{"a":[true,null],"b":1}'

    Raises:
        ValueError: A number is not finite.
        TypeError: It is not JSON.
    """
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def _plain(value: object) -> object:
    if isinstance(value, str):  # most values; the looks below cost more
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value
