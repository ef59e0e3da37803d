"""What a process that forks must do so that its child's SQLite works.

SQLite keeps a process's locks in memory. A child forked while a connection is
open inherits that memory, and may wait for ever for a lock that its parent
held. So before a fork all transactions end and all connections are closed.
"""

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_WAIT_S = 2.0
"""How long a fork waits for transactions under way."""


class ForkGate:
    """Counts transactions under way, and lets a fork in only between them.

    Args:
        before: Called in the parent just before a fork: close connections.
        in_child: Called in the child: make locks and threads anew.
    """

    def __init__(self, *, before: Callable[[], None], in_child: Callable[[], None]) -> None:
        self._before = before
        self._in_child = in_child
        self._is_shut = False
        self._num_inside = 0
        self._changed = threading.Condition()
        _gates.add(self)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Hold a fork off; wait while one is under way."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_shut)
            self._num_inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._num_inside -= 1
                self._changed.notify_all()

    def shut(self) -> None:
        """Wait for transactions to end, then run *before*; a stuck one is left behind."""
        with self._changed:
            self._is_shut = True
            self._changed.wait_for(lambda: self._num_inside == 0, timeout=_WAIT_S)
        self._before()

    def reopen(self, *, is_child: bool) -> None:
        """Let transactions in again; the child starts with none."""
        if is_child:
            self._changed = threading.Condition()
            self._num_inside = 0
            self._in_child()
        with self._changed:
            self._is_shut = False
            self._changed.notify_all()


_gates: "weakref.WeakSet[ForkGate]" = weakref.WeakSet()


def _shut_all() -> None:
    for gate in list(_gates):
        gate.shut()


def _reopen_all(*, is_child: bool) -> None:
    for gate in list(_gates):
        gate.reopen(is_child=is_child)


os.register_at_fork(
    before=_shut_all,
    after_in_parent=lambda: _reopen_all(is_child=False),
    after_in_child=lambda: _reopen_all(is_child=True),
)
