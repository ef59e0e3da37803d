"""Whether a grammar allows a text: its tokens are offered one by one, as an engine would."""

from failsoft.engine.structured.constraint import Constraint
from tests.engine.http.rig import ids_of, tiny_compiler


def follow(constraint: Constraint, text: str) -> str:
    """Return what becomes of *text*: ``over``, ``may end``, ``open``, or ``no: `` and the rest."""
    follower = tiny_compiler().compile(constraint).start()
    ids = ids_of(text)
    for place, token in enumerate(ids):
        if follower.is_over or not is_allowed(follower.allowed(), token):
            return f"no: {len(ids) - place} tokens left"
        follower.advance(token)
    if follower.is_over:
        return "over"
    return "may end" if is_allowed(follower.allowed(), END) else "open"


def is_allowed(mask: bytes, token: int) -> bool:
    """Whether *mask* lets *token* through."""
    return bool(mask[token // 8] >> (token % 8) & 1)


END = 2
"""The tiny tokenizer's ``<|im_end|>``."""
