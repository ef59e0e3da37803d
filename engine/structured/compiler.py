"""Compiles constraints into grammars for one tokenizer, and follows them token by token.

The only place that runs llguidance. Compiling lets other threads run, takes a millisecond
for a usual schema and is bounded for any; one at a time, so that a burst of hard ones leaves
a core to the forward. Any thread.
"""

import re
import threading
from collections import OrderedDict

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from failsoft.engine.structured.constraint import Constraint
from failsoft.errors import ForwardError, InvalidRequestError

MAX_KEPT = 64
"""Compiled grammars kept for the next request that sends the same one."""

_LIMITS = LLParserLimits(
    # A mask that would take longer than some 15 ms fails its request, not its neighbours' pace.
    step_lexer_fuel=200_000,
    step_max_items=50_000,
    max_lexer_states=100_000,
    max_grammar_size=200_000,
    verbose_errors=False,
)
_UNKNOWN_WORDS = re.compile(r"Unimplemented keys: \[(.*)\]")
_OVERLAP = "oneOf whose branches may overlap cannot be enforced; use anyOf"
_PLACE = re.compile(r"^at \d+\(\d+\): ")


class Compiler:
    """Compiles for one model.

    Args:
        table: Its tokens.
        vocab_size: Width of its logits.
    """

    def __init__(self, table: LLTokenizer, *, vocab_size: int) -> None:
        self._table = table
        self._num_bytes = -(-vocab_size // 8)
        self._kept: OrderedDict[tuple[str, ...], CompiledGrammar] = OrderedDict()
        self._lock = threading.Lock()

    def compile(self, constraint: Constraint) -> "CompiledGrammar":
        """Return the grammar of *constraint*; blocks while it, or another, is compiled.

        Raises:
            InvalidRequestError: It is malformed, impossible, beyond what can be enforced or too
                complex; ``param`` is the constraint's, and the message says which.
        """
        with self._lock:
            kept = self._kept.get(constraint.texts)
            if kept is None:
                kept = self._kept[constraint.texts] = self._compile(constraint)
            self._kept.move_to_end(constraint.texts)
            if len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
            return kept

    def _compile(self, constraint: Constraint) -> "CompiledGrammar":
        error = ""
        for text in constraint.texts:
            matcher = LLMatcher(self._table, text, log_level=0, limits=_LIMITS)
            # The first mask finds what only following it finds, and warms what each copy reuses.
            is_sound = not matcher.is_error() and any(matcher.compute_bitmask())
            if is_sound and not matcher.is_error():
                return CompiledGrammar(matcher, num_bytes=self._num_bytes)
            error = matcher.get_error() or "it allows no token"
        for part in constraint.parts:
            self._compile(part)
        raise InvalidRequestError(
            f"{constraint.param} cannot be followed: {_explain(error)}", param=constraint.param
        )


class CompiledGrammar:
    """See `failsoft.engine.structured.grammar.Grammar`."""

    def __init__(self, matcher: LLMatcher, *, num_bytes: int) -> None:
        self._matcher = matcher
        self._num_bytes = num_bytes

    def start(self) -> "Follower":
        """See `Grammar.start`."""
        return Follower(self._matcher.deep_copy(), num_bytes=self._num_bytes)


class Follower:
    """See `failsoft.engine.structured.grammar.TokenGrammar`."""

    def __init__(self, matcher: LLMatcher, *, num_bytes: int) -> None:
        self._matcher = matcher
        self._num_bytes = num_bytes

    @property
    def is_over(self) -> bool:
        """See `TokenGrammar.is_over`."""
        return bool(self._matcher.is_stopped())

    def allowed(self) -> bytes:
        """See `TokenGrammar.allowed`."""
        mask = bytes(self._matcher.compute_bitmask())
        self._check()
        return mask[: self._num_bytes]

    def advance(self, token_id: int) -> None:
        """See `TokenGrammar.advance`."""
        self._matcher.consume_token(token_id)
        self._check()

    def _check(self) -> None:
        if self._matcher.is_error():
            raise ForwardError(
                f"the reply's grammar failed: {_explain(self._matcher.get_error())}",
                kind="grammar",
            )


def _explain(error: str) -> str:
    """Return llguidance's words as one line that names what is wrong."""
    if found := _UNKNOWN_WORDS.search(error):
        words = found[1].replace('"', "")
        return f"keywords that cannot be enforced: {words}; leave them out"
    if error.startswith("oneOf"):
        return _OVERLAP
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    reason = next((line for line in lines if line.startswith("error: ")), None)
    head = _PLACE.sub("", lines[0]) if lines else "no reason was given"
    return f"{head} {reason.removeprefix('error: ')}" if reason else head
