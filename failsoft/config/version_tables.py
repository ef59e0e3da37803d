"""The ``[versions.NAME]`` tables: their keys, their sources and their prices.

What a manifest means, and its digest, is not known here: this refuses a
moving source, a misspelt key and a bad price at load.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from failsoft.config.allowed import check_fields, matching
from failsoft.config.price import Price
from failsoft.config.tables import Problems, as_table, read_table

Source = Annotated[
    str,
    matching(
        r"hf:[^/@\s]+/[^/@\s]+@[0-9a-f]{40}|file:\S.*|pypi:[\w.-]+==[^:=*\s]+:\S+",
        "hf:ORG/NAME@COMMIT with 40 hex digits, file:PATH or pypi:DIST==VERSION:PATH/IN/WHEEL",
    ),
]
Sha256 = Annotated[str, matching(r"[0-9a-f]{64}", "64 lower-case hex digits")]


@dataclass(frozen=True, slots=True, kw_only=True)
class _VersionTable:
    """What one table may hold, price apart."""

    source: Source
    sha256: Sha256 | None = None
    dtype: str = "auto"
    template: str | None = None
    system_prompt: str | None = None
    engine: dict[str, Any] | None = None
    price: Price | None = None

    def __post_init__(self) -> None:
        check_fields(self)


def read_versions(
    raw: object, problems: Problems
) -> tuple[dict[str, Mapping[str, Any]], dict[str, Price]]:
    """Check every version table.

    Args:
        raw: The file's ``versions`` table.
        problems: Gets every problem found.

    Returns:
        The tables as written, and the prices, both by version name.
    """
    tables: dict[str, Mapping[str, Any]] = {}
    prices: dict[str, Price] = {}
    for name, table in as_table(raw, at="versions", problems=problems).items():
        at = f"versions.{name}"
        price = read_price(table, at=at, problems=problems)
        read_table(_VersionTable, table, at=at, problems=problems, parts=price)
        tables[name] = table
        if isinstance(found := price.get("price"), Price):
            prices[name] = found
    return tables, prices


def read_price(table: object, *, at: str, problems: Problems) -> dict[str, Price | None]:
    """Return ``{"price": Price}`` when *table* has one, else ``{}``; None stands for a bad one."""
    if not isinstance(table, dict) or "price" not in table:
        return {}
    return {"price": read_table(Price, table["price"], at=f"{at}.price", problems=problems)}
