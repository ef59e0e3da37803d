"""The arithmetic of ``failsoft bench documents`` in a terminal, beside what was measured."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape
from rich.table import Table

from failsoft.cli.bench_tables import (
    NOTHING,
    heading,
    make_console,
    seconds,
    spread,
    warn_of_others,
)

if TYPE_CHECKING:
    from failsoft.engine.bench.documents import Account, KeyValues, Shape, Window


def show_documents(
    machine: Mapping[str, Any],
    accounts: "Sequence[Account]",
    shape: "Shape",
    kv: "KeyValues",
    waiting: "Window",
) -> None:
    """Print what each mode should take and took, then padding, memory and waiting."""
    out = make_console()
    out.print(escape(heading(machine)))
    out.print(
        f"{shape.num_prompt:,} prompt tokens (longest {shape.longest_prompt}), "
        f"{shape.num_output:,} output tokens (longest {shape.longest_output})\n"
    )
    _print_accounts(out, accounts)
    _print_shape(out, shape, kv, waiting)
    warn_of_others(out, machine)


def _print_accounts(out: Console, accounts: "Sequence[Account]") -> None:
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for title in ("arithmetic", "measured", "speed", "reply after p50 / p95"):
        table.add_column(title, justify="right", no_wrap=True)
    base = next((one.measured_s for one in accounts if one.mode == "sequential"), None)
    for one in accounts:
        table.add_row(
            one.mode,
            seconds(one.expected_s),
            seconds(one.measured_s),
            NOTHING if base is None else f"{base / one.measured_s:.2f}x",
            spread(one.reply_s),
        )
    out.print(table)
    out.print("\narithmetic, from each mode's own median costs:")
    for one in accounts:
        out.print(
            f"  {one.mode}: {one.rule} = {one.num_prefill:,} x "
            f"{seconds(one.cost.prefill_token_s)} + {one.num_steps:,} steps x "
            f"{seconds(one.cost.decode_step_s)}"
        )


def _print_shape(out: Console, shape: "Shape", kv: "KeyValues", waiting: "Window") -> None:
    def share(part: int, whole: int) -> str:
        return f"{100 * part / whole:.0f} %"

    prompts = shape.num_requests * shape.longest_prompt
    outputs = shape.num_requests * shape.longest_output
    out.print(
        f"padding avoided: {shape.prompt_padding:,} of {prompts:,} prompt places "
        f"({share(shape.prompt_padding, prompts)}), {shape.output_padding:,} of {outputs:,} "
        f"output places ({share(shape.output_padding, outputs)})"
    )
    bound = "" if kv.num_fitting is None else f"; the pool holds {kv.num_fitting:,} such rows"
    out.print(
        f"keys and values: {decimal(kv.per_token)} a token; padded {decimal(kv.rectangle)}{bound}"
    )
    peak = NOTHING if kv.peak is None else decimal(kv.peak)
    pool = NOTHING if kv.pool is None else decimal(kv.pool)
    out.print(f"  packed {decimal(kv.packed)} in all, {peak} held at once, pool {pool}")
    out.print(
        f"window: collecting for {seconds(waiting.window_s)} adds "
        f"{seconds(waiting.window_s / 2)} to a caller's wait on average and "
        f"{seconds(waiting.window_s)} at most; joining the next step adds at most the step "
        f"under way, p50 / p95 {spread(waiting.step_s)}"
    )
