"""One look: what each source says comes together, and what is silent stays unknown."""

import time

import pytest

from failsoft.call_records import CallOutcome
from failsoft.dashboard.document import to_document
from failsoft.dashboard.standing import Answers, LastReply, Queue, Unknown, Window
from failsoft.dashboard.words import warnings
from failsoft.fallback.pins.pinned import pinned_version
from failsoft.run_state import Reload
from failsoft.store import Store
from tests.dashboard.conftest import Running
from tests.dashboard.home import NOW_MS, START_MS, Home, call, child, event, failed_attempt
from tests.dashboard.stand_in import HANG, READY, engine, front, metrics, status, tell, three
from tests.fallback.pins.moves import ask_for, carry_out


def test_when_all_is_well_the_first_rung_answers_since_the_start(running: Running) -> None:
    """Rung, version and moment come with the verdict."""
    verdict = running.observer.look().verdict

    assert verdict.answers is Answers.YES
    assert (verdict.rung, verdict.version_name) == ("primary", "primary-v1")
    assert verdict.version_digest == "ab" * 32
    assert verdict.since_ms == START_MS


def test_a_dead_first_rung_is_degraded_since_it_died(running: Running) -> None:
    """The event says since when, not the restart attempts after it."""
    running.home.record(
        event("engine.died", "primary", age_s=300),
        event("breaker.open", "primary", age_s=298),
        event("engine.died", "primary", age_s=100),
    )
    down = {"can_serve": False, "why_not": "the engine has died", "breaker": "open"}
    tell(running.front, status(*three(primary={**down, "retry_in_s": 8.0})))

    verdict = running.observer.look().verdict

    assert verdict.answers is Answers.DEGRADED
    assert (verdict.rung, verdict.reason) == ("small", "primary: the engine has died")
    assert verdict.since_ms == NOW_MS - 300_000


def test_queues_come_from_the_engines_themselves(running: Running) -> None:
    """With the token of each slot's file."""
    running.primary.answers["/metrics"] = metrics(running=3, waiting=7)

    engines = {engine.slot: engine for engine in running.observer.look().engines}

    assert engines["primary"].queue == Queue(
        num_running=3, num_waiting=7, kv_used_ratio=0.25, why_not_ready=None
    )
    assert engines["primary"].version_name == "primary-v1"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (HANG, "did not answer within 1 s"),
        ((500, ""), "HTTP 500"),
        ((200, "<html>not metrics</html>"), "do not tell its queue"),
    ],
)
def test_an_engine_that_cannot_be_asked_is_unknown_and_its_rung_not_believed(
    running: Running, answer: tuple[int, str] | str, reason: str
) -> None:
    """The front may not have noticed yet; unknown is never green."""
    running.primary.answers["/metrics"] = answer

    standing = running.observer.look()

    queue = standing.engines[0].queue
    assert isinstance(queue, Unknown)
    assert reason in queue.reason
    assert standing.ladders[0].rungs[0].can_serve is None
    assert (standing.verdict.answers, standing.verdict.rung) == (Answers.DEGRADED, "small")


def test_an_engine_that_says_it_is_stuck_does_not_serve(running: Running) -> None:
    """Whatever the front still believes."""
    running.primary.answers["/health/ready"] = (503, '{"status": "not_ready", "reason": "stuck"}')

    rung = running.observer.look().ladders[0].rungs[0]

    assert (rung.can_serve, rung.why_not) == (False, "its engine says stuck")


def test_only_silent_engines_are_unknown_and_not_down(running: Running) -> None:
    """Nobody measured that they cannot answer."""
    running.primary.answers["/metrics"] = running.small.answers["/metrics"] = (500, "")
    tell(running.front, status(*three(cache={"can_serve": False, "why_not": "no reply is kept"})))

    assert running.observer.look().verdict.answers is Answers.UNKNOWN


def test_sources_are_asked_at_the_same_moment(running: Running) -> None:
    """Three that hang cost one wait: 1.5 s, and a loaded machine's slack."""
    for server in (running.front, running.primary, running.small):
        server.answers = dict.fromkeys((*server.answers, "/internal/status"), HANG)
    begun_s = time.monotonic()

    standing = running.observer.look()

    assert time.monotonic() - begun_s < 2.5
    assert isinstance(standing.front, Unknown)
    assert standing.verdict.answers is Answers.UNKNOWN
    assert [engine.pid is not None for engine in standing.engines] == [True, True]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((401, ""), "HTTP 401"),
        ((200, "garbage"), "no document of schema 1"),
        ((200, '{"schema": 2}'), "no document of schema 1"),
    ],
)
def test_a_front_that_talks_nonsense_is_unknown(
    running: Running, answer: tuple[int, str], reason: str
) -> None:
    """Its rungs are those of the settings, and nobody knows whether they serve."""
    running.front.answers["/internal/status"] = answer

    standing = running.observer.look()

    assert isinstance(standing.front, Unknown)
    assert reason in standing.front.reason
    assert standing.verdict.answers is Answers.UNKNOWN
    assert [rung.name for rung in standing.ladders[0].rungs] == ["primary", "small", "cache"]
    assert {rung.can_serve for rung in standing.ladders[0].rungs} == {None}


def test_fields_of_a_newer_front_are_ignored(running: Running) -> None:
    """An upgrade in steps must not blind the page."""
    document = status(*three(primary={"new_field": 1}), another_field={})
    tell(running.front, document)

    assert running.observer.look().verdict.answers is Answers.YES


def test_a_front_that_stops_answers_no_more(running: Running) -> None:
    """It refuses new calls, however well its rungs are."""
    tell(running.front, status(*three(), is_draining=True))

    verdict = running.observer.look().verdict

    assert verdict.answers is Answers.NO
    assert "stopping" in verdict.reason


def test_a_front_that_is_gone_is_not_answering_and_the_supervisor_says_why(home: Home) -> None:
    """Callers come through it alone."""
    gone = child("front", phase="waiting", pid=None, last_exit="killed by SIGKILL")
    home.publish_supervisor(gone)

    verdict = home.observer().look().verdict

    assert verdict.answers is Answers.NO
    assert verdict.reason == "the front is down: waiting (killed by SIGKILL)"
    assert verdict.since_ms == START_MS


def test_nothing_at_all_runs(home: Home) -> None:
    """The next step is in the verdict; no part claims a zero."""
    standing = home.observer().look()

    assert standing.verdict.answers is Answers.NO
    assert standing.verdict.reason == "nothing runs; start it with `failsoft up`"
    assert isinstance(standing.supervisor, Unknown)
    assert isinstance(standing.incidents, Unknown)
    assert isinstance(standing.ladders[0].traffic, Unknown)
    assert isinstance(standing.engines[0].queue, Unknown)
    assert not (home.folder / "failsoft.db").exists()  # a look makes no store


def test_embedded_clients_without_a_front_are_judged_by_their_calls(home: Home) -> None:
    """A library's users have no front; their calls are what tells."""
    home.record(call(1, age_s=50, rung=None), call(2, age_s=5, rung="small"))

    verdict = home.observer().look().verdict

    assert (verdict.answers, verdict.rung) == (Answers.DEGRADED, "small")
    assert "embedded clients" in verdict.reason


def test_shares_are_of_calls_that_wanted_an_answer(running: Running) -> None:
    """A caller's own fault and a caller who left are apart; a window without calls has none."""
    running.home.record(
        *(call(i, age_s=400 + i) for i in range(6)),
        call(10, age_s=410, rung="small"),
        call(11, age_s=411, rung=None),
        call(12, age_s=412, rung=None, outcome=CallOutcome.REJECTED),
        call(13, age_s=413, rung=None, outcome=CallOutcome.CANCELLED),
        call(14, age_s=414, rung="retired"),
        call(15, age_s=415, ladder="another"),
    )

    traffic = running.observer.look().ladders[0].traffic

    assert not isinstance(traffic, Unknown)
    short, hour, _day = traffic.windows
    assert isinstance(short, Window)
    assert isinstance(hour, Window)
    assert (short.num_calls, short.share("primary"), short.failed_share) == (0, None, None)
    assert hour.num_calls == 9
    assert hour.replies == {"primary": 6, "small": 1, "cache": 0, "other rungs": 1}
    assert (hour.share("cache"), hour.failed_share) == (0.0, 1 / 9)
    assert (hour.num_rejected, hour.num_cancelled) == (1, 1)
    assert isinstance(traffic.last_reply, LastReply)
    assert (traffic.last_reply.rung, traffic.last_reply.at_ms) == ("primary", NOW_MS - 400_000)


def test_calls_that_all_fail_are_not_answering_whatever_the_rungs_claim(running: Running) -> None:
    """The last five of the last minute; one reply among them would be enough."""
    running.home.record(*(call(i, age_s=i, rung=None) for i in range(4)))
    failing = running.observer.look().verdict

    running.home.record(call(9, age_s=0))
    mended = running.observer.look().verdict

    assert failing.answers is Answers.NO
    assert failing.reason == "the last 4 calls all failed"
    assert mended.answers is Answers.DEGRADED
    assert mended.reason == "4 of the last 5 calls failed"


def test_the_last_error_is_the_newer_of_the_fronts_and_the_stores(running: Running) -> None:
    """The front forgets at a restart, the store lags by a moment."""
    running.home.record(
        failed_attempt("primary", age_s=30, message="newer"),
        failed_attempt("small", age_s=30, message="older"),
    )
    told = {"at_ms": NOW_MS - 20_000, "outcome": "cut", "message": "by the front"}
    tell(running.front, status(*three(small={"last_error": told})))

    primary, small, cache = running.observer.look().ladders[0].rungs

    assert primary.last_error is not None
    assert (primary.last_error.message, primary.last_error.outcome) == ("newer", "reset")
    assert small.last_error is not None
    assert small.last_error.message == "by the front"
    assert cache.last_error is None


def test_a_store_that_cannot_be_read_is_unknown_and_the_rest_is_shown(running: Running) -> None:
    """A file that is no database."""
    running.observer.close()
    for path in running.home.folder.glob("failsoft.db*"):
        path.write_bytes(b"not a database" * 100)

    standing = running.home.observer().look()

    assert isinstance(standing.incidents, Unknown)
    assert isinstance(standing.dropped_24h, Unknown)
    assert isinstance(standing.ladders[0].traffic, Unknown)
    assert standing.verdict.answers is Answers.YES


def test_dropped_records_are_summed_over_processes(running: Running) -> None:
    """The front's own since it started, everybody's of a day from their events."""
    detail = '{"dropped": {"call": 4, "attempt": 1}, "error": "disk full"}'
    running.home.record(event("store.recovered", "store", age_s=60, detail=detail))
    tell(running.front, status(*three(), dropped_records={"call": 2, "event": 0}))

    standing = running.observer.look()

    assert standing.dropped_24h == {"call": 4, "attempt": 1}
    assert not isinstance(standing.front, Unknown)
    assert standing.front.dropped_records == {"call": 2}


def test_a_store_that_takes_no_records_is_a_warning(running: Running) -> None:
    """The feature answers: nobody would look for it."""
    tell(running.front, status(*three(), store_trouble="the store is locked"))

    said = warnings(running.observer.look())

    assert "the front answers, but its store takes no records: the store is locked" in said


def test_the_processes_and_the_last_reload_are_the_supervisors_word(running: Running) -> None:
    """With restarts and exits, as it wrote them."""
    primary = child("primary", num_restarts=2, last_exit="killed by SIGKILL")
    reload = Reload(at_ms=NOW_MS, error="ladders.chat.rungs is empty")
    running.home.publish_supervisor(primary, last_reload=reload)

    supervisor = running.observer.look().supervisor

    assert not isinstance(supervisor, Unknown)
    assert supervisor.children == (primary,)
    assert supervisor.last_reload == reload


def test_the_worst_ladder_gives_the_verdict_and_is_named(running: Running) -> None:
    """Its callers get nothing, however well the others are."""
    down = {"can_serve": False, "why_not": "gone"}
    document = status(*three())
    other = status(*three(primary=down, small=down, cache=down), ladder="summary")
    document["ladders"] += other["ladders"]
    tell(running.front, document)

    standing = running.observer.look()

    assert [ladder.verdict.answers for ladder in standing.ladders] == [Answers.YES, Answers.NO]
    assert standing.verdict.answers is Answers.NO
    assert standing.verdict.reason.startswith("ladder summary: ")


def test_an_engine_that_comes_back_is_asked_at_its_new_place(running: Running) -> None:
    """A restart publishes another port; nothing is kept from before."""
    running.observer.look()
    with engine(running=5) as fresh:
        running.home.publish_engine("primary", fresh)

        queue = running.observer.look().engines[0].queue

    assert isinstance(queue, Queue)
    assert queue.num_running == 5
    assert running.primary.answers["/health/ready"] == READY


def test_a_front_that_comes_back_is_asked_with_its_new_token(running: Running) -> None:
    """The token is made anew at each start."""
    with front(status(*three(), pid=99)) as fresh:
        fresh.token = "another"
        running.home.publish_front(fresh)

        told = running.observer.look().front

    assert not isinstance(told, Unknown)
    assert told.pid == 99


def test_a_moved_pin_and_a_move_under_way_are_the_stores_word(home: Home) -> None:
    """The front is down, so nobody else says what the slot would run."""
    target = pinned_version("gemma-3-270m", {}, digest="2" * 64)
    first = pinned_version("smollm2-135m-instruct", {}, digest="1" * 64)
    assert target is not None
    assert first is not None
    with Store(home.settings.store, clock=lambda: NOW_MS / 1000 - 90) as store:
        store.pins.note_file_pin("primary", first)
        carry_out(store, ask_for(target))
        store.pins.ask(ask_for(first, why="it is slow"))

    standing = home.observer().look()

    assert not isinstance(standing.pins, Unknown)
    (pin,) = standing.pins
    assert (pin.version_name, pin.version_digest, pin.is_moved) == ("gemma-3-270m", "2" * 64, True)
    assert standing.ladders[0].rungs[0].version_name == "gemma-3-270m"
    under_way, differs = warnings(standing)
    assert under_way == (
        "pin primary is being moved: set to smollm2-135m-instruct 111111111111, asked for 1 min, "
        "asked 1 min ago by ann: it is slow"
    )
    assert differs.startswith("pin primary: gemma-3-270m is pinned, the settings file says ")
    document = to_document(standing)["pins"][0]
    assert (document["move"]["state"], document["move"]["who"]) == ("asked", "ann")


def test_a_version_answers_since_its_pin_moved_and_not_since_its_engine_ran_on_trial(
    running: Running,
) -> None:
    """A minute of the old version's answers was put down to the new one."""
    version = pinned_version("smollm2-135m-instruct", {}, digest="1" * 64)
    assert version is not None
    running.home.publish_supervisor(child("primary", since_ms=NOW_MS - 90_000))
    with Store(running.home.settings.store, clock=lambda: NOW_MS / 1000 - 30) as store:
        carry_out(store, ask_for(version))

    standing = running.observer.look()

    assert standing.verdict.since_ms == NOW_MS - 30_000


def test_a_store_that_cannot_be_read_leaves_the_pins_unknown(home: Home) -> None:
    """Not empty: nobody knows."""
    assert to_document(home.observer().look())["pins"].keys() == {"unknown"}
