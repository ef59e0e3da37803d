"""The root, and the errors of what all parts share: settings, store, processes, pins."""


class FailsoftError(Exception):
    """Root of everything failsoft raises on purpose.

    The message is one line, names what was wrong and says the next step.
    """


class ConfigError(FailsoftError):
    """A setting is unknown, missing or out of range; never retried.

    Attributes:
        key: Dotted name of the setting, as the user writes it.
        value: What was given; None when nothing was.
        allowed: The allowed values or range, in words.
    """

    def __init__(
        self, *, key: str, value: object, allowed: str, message: str | None = None
    ) -> None:
        super().__init__(message or f"{key} = {value!r} is not allowed: {allowed}")
        self.key = key
        self.value = value
        self.allowed = allowed


class StoreError(FailsoftError):
    """The database could not be opened, read or written.

    Attributes:
        url: Which database, its password masked.
        may_pass: Whether the database itself refused, as one that is unreachable, locked or full
            does: the same may work later. What a person must mend does not pass.
    """

    def __init__(self, message: str, *, url: str, may_pass: bool = False) -> None:
        super().__init__(message)
        self.url = url
        self.may_pass = may_pass


class DemoError(FailsoftError):
    """The demo could not be staged, or what it started ended by itself.

    Attributes:
        log: The last lines that ``failsoft up`` wrote.
    """

    def __init__(self, message: str, *, log: tuple[str, ...]) -> None:
        last = next((line for line in reversed(log) if line.strip()), None)
        said = f", its last words were: {last.strip()}" if last else ""
        super().__init__(f"{message}{said}; run `failsoft up` by itself to see all it says")
        self.log = log


class BenchError(FailsoftError):
    """A benchmark could not be run to its end; a figure of half a run would be none."""


class AlreadyRunningError(FailsoftError):
    """A `failsoft up` runs on this folder of failsoft already.

    Attributes:
        home: The folder.
        pid: Its process; None when it has only just begun.
        url: Its API; None when that is not up yet.
    """

    def __init__(self, *, home: str, pid: int | None, url: str | None) -> None:
        who = "just begins" if pid is None else f"pid {pid}"
        where = "" if url is None else f", {url}"
        super().__init__(
            f"`failsoft up` already runs on {home} ({who}{where}); stop that one first, or give "
            "this one another folder by FAILSOFT_HOME"
        )
        self.home = home
        self.pid = pid
        self.url = url


class PinError(FailsoftError):
    """A pin cannot be moved, or not in this way; it stays where it is.

    Attributes:
        slot: The slot.
    """

    def __init__(self, message: str, *, slot: str) -> None:
        super().__init__(message)
        self.slot = slot


class PinConflictError(PinError):
    """A move of this slot is under way; the first one wins.

    Attributes:
        move: It (`failsoft.pin_records.PinMove`).
    """

    def __init__(self, *, slot: str, move: object, words: str, then: str) -> None:
        look = f"wait for its end (`failsoft pin show {slot}`)"
        super().__init__(f"pin {slot}: {words}; {look}{then}", slot=slot)
        self.move = move
