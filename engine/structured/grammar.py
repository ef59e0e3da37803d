"""What the engine must know of a grammar: which tokens may come next, and when it is over.

Pure Python, and of no library: the step loop and the runner see these two protocols only.
A mask is bytes: bit ``token % 8`` of byte ``token // 8`` says whether the token may come.
"""

from typing import Protocol


class Grammar(Protocol):
    """A compiled grammar. Shared by any number of requests; may be started on any thread."""

    def start(self) -> "TokenGrammar":
        """Return a follower that stands at the beginning. Never raises."""


class TokenGrammar(Protocol):
    """Where one reply stands in its grammar; owned by the engine's thread.

    Asking changes nothing, so a step may be run again; only `advance` moves on, once for
    each token that was settled. It outlives a preemption, as the tokens do.
    """

    @property
    def is_over(self) -> bool:
        """Whether nothing may follow: the reply is complete."""

    def allowed(self) -> bytes:
        """Return the mask of the tokens that may come next, one bit for each of the logits.

        An end-of-sequence token may come where the grammar may end.

        Raises:
            ForwardError: It became too large to follow.
        """

    def advance(self, token_id: int) -> None:
        """Take in the token that was sampled.

        Raises:
            ForwardError: It became too large to follow, or the token was not allowed.
        """
