"""Who sat where: seats are kept, gaps are seen, kept rows are told apart."""

from failsoft.engine.bench.slots import Row, SlotBoard, Span, Work


def span(slot: int, request: int, work: Work, from_s: float, to_s: float) -> Span:
    return Span(slot=slot, request=request, work=work, from_s=from_s, to_s=to_s)


def play(board: SlotBoard, *steps: list[tuple[int, Work]]) -> None:
    """Note steps of one second each, the n-th from n to n + 1."""
    for number, rows in enumerate(steps):
        board.note([Row(*row) for row in rows], start_s=number, end_s=number + 1)


def test_a_newcomer_takes_the_seat_of_whoever_left() -> None:
    """And nobody moves."""
    board = SlotBoard(num_slots=2)

    play(
        board,
        [(0, Work.PREFILL), (1, Work.PREFILL)],
        [(0, Work.DECODE), (1, Work.DECODE)],
        [(1, Work.DECODE), (2, Work.PREFILL)],
    )

    assert set(board.spans()) == {
        span(0, 0, Work.PREFILL, 0, 1),
        span(1, 1, Work.PREFILL, 0, 1),
        span(0, 0, Work.DECODE, 1, 2),
        span(1, 1, Work.DECODE, 1, 3),
        span(0, 2, Work.PREFILL, 2, 3),
    }


def test_a_row_that_sits_a_forward_out_leaves_a_gap() -> None:
    """It keeps its seat as long as nobody needs one."""
    board = SlotBoard(num_slots=2)

    play(board, [(0, Work.DECODE), (1, Work.DECODE)], [(1, Work.DECODE)], [(0, Work.DECODE)])

    assert [one for one in board.spans() if one.request == 0] == [
        span(0, 0, Work.DECODE, 0, 1),
        span(0, 0, Work.DECODE, 2, 3),
    ]


def test_a_preempted_request_may_come_back_to_another_seat() -> None:
    """Its own is taken when somebody else needs one first."""
    board = SlotBoard(num_slots=1)

    play(board, [(0, Work.DECODE)], [(1, Work.DECODE)], [(0, Work.PREFILL)])

    assert [(one.slot, one.request) for one in board.spans()] == [(0, 0), (0, 1), (0, 0)]


def test_tokens_that_are_thrown_away_begin_a_span_of_their_own() -> None:
    """They count as idle."""
    board = SlotBoard(num_slots=1)

    play(board, [(0, Work.DECODE)], [(0, Work.KEPT)], [(0, Work.KEPT)])

    assert board.spans() == (span(0, 0, Work.DECODE, 0, 1), span(0, 0, Work.KEPT, 1, 3))
