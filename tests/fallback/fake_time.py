"""A clock that stands still until told, and a sleep that moves it."""


class FakeTime:
    """Monotonic and wall seconds in one."""

    def __init__(self, now_s: float = 1000.0) -> None:
        self.now_s = now_s
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now_s

    def advance(self, seconds: float) -> None:
        """Move on."""
        self.now_s += seconds

    async def sleep(self, seconds: float) -> None:
        """Note the sleep and move on by it."""
        self.slept.append(seconds)
        self.now_s += seconds
