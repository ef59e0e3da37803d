"""What a database needs before its first transaction, done as soon as it can be.

A program that answers users starts while its database is down, and finds it later: until then
every transaction fails as it does in an outage. Knows nothing of SQL.
"""

import threading
import time
from collections.abc import Callable

from failsoft.errors import StoreError

RETRY_S = 1.0
"""How long a failure holds: whoever waited for it need not wait for the same again."""


class FirstUse:
    """Work that must succeed once; any thread, survives a fork."""

    def __init__(self) -> None:
        self._work: Callable[[], None] | None = None
        self._failure: tuple[float, StoreError] | None = None
        self.renew()

    def renew(self) -> None:
        """Make locks anew, as a forked child must."""
        self._lock = threading.Lock()
        self._doing = threading.local()

    def put_off(self, work: Callable[[], None], failure: StoreError) -> None:
        """Have *work*, which just failed, done before a later transaction, until it succeeds."""
        self._failure = (time.monotonic(), failure)
        self._work = work

    def settle(self) -> None:
        """Do what is put off; *work*'s own transactions pass.

        Raises:
            StoreError: It failed, now or less than `RETRY_S` ago.
        """
        if self._work is None or getattr(self._doing, "is_on", False):
            return
        with self._lock:
            self._settle()

    def _settle(self) -> None:
        if self._work is None:
            return
        if self._failure is not None and time.monotonic() - self._failure[0] < RETRY_S:
            failure = self._failure[1]
            raise StoreError(str(failure), url=failure.url, may_pass=failure.may_pass) from failure
        self._doing.is_on = True
        try:
            self._work()
        except StoreError as exc:
            self._failure = (time.monotonic(), exc)
            raise
        finally:
            self._doing.is_on = False
        self._work = self._failure = None
