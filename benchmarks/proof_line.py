"""One line of a proof: what was measured, what it had to be, whether it holds."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One measured promise."""

    name: str
    figure: str
    limit: str
    holds: bool

    def __str__(self) -> str:
        return f"{'pass' if self.holds else 'FAIL'}  {self.name}: {self.figure} ({self.limit})"


def exactly(name: str, figure: int, expected: int) -> Line:
    """Return the line of a count that must be *expected*."""
    return Line(name=name, figure=str(figure), limit=f"= {expected}", holds=figure == expected)
