"""Real processes are killed, stopped and told; the supervisor is one itself."""

import json
import os
import signal
import time
from pathlib import Path

import httpx2

from failsoft.config.run_files import is_alive
from failsoft.fallback.discovery import EngineFinder, RunningEngine
from tests.engine.http.rig import wait_until
from tests.serving.supervisor.rig import ONE_ENGINE, SETTINGS, SHORT, running_up

FOUR = ("front", "ops", "primary", "small")


def kinds(events: object) -> list[str]:
    """Return the kinds of events with their subjects."""
    return [f"{event.kind} {event.subject}" for event in events]  # type: ignore[attr-defined]


def runs(pid: int) -> bool:
    """Whether it is there, and not only waits for init to take note of its end."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_killed_engine_comes_back_with_a_new_token(tmp_path: Path) -> None:
    """The others never notice; the state, the events and people are told."""
    with running_up(tmp_path) as up:
        up.wait_running(*FOUR)
        before = {name: up.pid(name) for name in FOUR}
        finder = EngineFinder(up.home)
        old = finder.find("primary")
        up.wait_back("primary", up.kill("primary"))
        up.wait_said("engine primary: died: exit -9 (SIGKILL); restarting in ")
        new, child = finder.find("primary"), up.child("primary")
        after = {name: up.pid(name) for name in FOUR}
        assert up.end() == 0
        events = up.events()

    assert {name for name in FOUR if before[name] != after[name]} == {"primary"}
    assert isinstance(old, RunningEngine)
    assert isinstance(new, RunningEngine)
    assert old.token
    assert new.token
    assert old.token != new.token
    assert child is not None
    assert (child.num_restarts, child.last_exit) == (1, "exit -9 (SIGKILL)")
    assert kinds(events) == ["engine.died primary", "engine.restarted primary"]
    assert json.loads(events[0].detail_json)["why"] == "exit -9 (SIGKILL)"


def test_a_stopped_engine_is_killed_and_comes_back(tmp_path: Path) -> None:
    """SIGSTOP: alive, silent. One that says it is stuck goes the same way."""
    with running_up(tmp_path, watch=SHORT) as up:
        up.wait_running(*FOUR)
        stopped = up.kill("primary", signal.SIGSTOP)
        up.wait_said("engine primary: hung: it answered nothing for ")
        up.wait_back("primary", stopped)
        (tmp_path / "small.health").write_text('{"reason": "stuck"}')
        stuck = up.pid("small")
        up.wait_said("engine small: hung: it has work and makes no progress for ")
        (tmp_path / "small.health").unlink()
        up.wait_back("small", stuck)
        assert not is_alive(stopped)
        assert not is_alive(stuck)
        up.end()
        events = up.events()

    seen = kinds(events)
    assert seen.index("engine.hung primary") < seen.index("engine.restarted primary")
    assert seen.index("engine.hung small") < seen.index("engine.restarted small")
    assert "engine.died primary" not in seen


def test_a_crash_loop_is_given_up_loudly_and_tried_again_on_sighup(tmp_path: Path) -> None:
    """What the child said last is shown; the others go on."""
    children = {"v1": {"exits": 1, "says": ["loading", "RuntimeError: no such layer"]}}
    with running_up(tmp_path, children=children, restart={"first_s": 0.01}) as up:
        up.wait_said("gave up: exit 1; its last line: RuntimeError: no such layer")
        up.wait_running("front", "ops", "small")
        up.wait_for(lambda: (tried := up.child("primary")) is not None and tried.phase == "gave_up")
        child = up.child("primary")
        assert child is not None
        assert child.num_restarts == 4
        assert child.last_exit == "exit 1: RuntimeError: no such layer"
        assert any("SIGHUP" in line for line in up.said)
        assert sum("primary | RuntimeError" in line for line in up.said) == 5

        up.reload(SETTINGS.replace('primary = "v1"', 'primary = "v3"'))
        up.wait_running("primary")

        assert up.end() == 0
        events = up.events()

    assert kinds(events).count("engine.died primary") == 5
    assert "engine.gave_up primary" in kinds(events)
    assert "no such layer" not in str(events)


def test_an_engine_that_refuses_its_settings_is_not_tried_five_times(tmp_path: Path) -> None:
    """Exit code 2: they will be the same next time."""
    children = {"v1": {"exits": 2, "says": ["error: max_model_len = 9 is not allowed"]}}
    with running_up(tmp_path, children=children) as up:
        up.wait_said("gave up: exit 2; its last line: error: max_model_len = 9 is not allowed")
        up.wait_running("front", "small")

        assert sum(line.startswith("primary start") for line in up.log()) == 1
        up.end()


def test_callers_wait_for_a_front_that_died(tmp_path: Path) -> None:
    """Its socket stays open here: who connects meanwhile is served, not refused."""
    children = {"front": {"start_s": 0.3}}
    with running_up(tmp_path, children=children) as up:
        up.wait_running(*FOUR)
        ops, old = up.kill("ops"), up.kill("front")
        up.wait_for(lambda: not is_alive(old))

        answering = up.asks_front()

        up.wait_back("front", old)
        up.wait_back("ops", ops)
        assert answering == up.pid("front") != old
        assert any("front: died: exit -9 (SIGKILL); restarting at once" in s for s in up.said)
        up.end()
        events = up.events()

    assert sorted(kinds(events)) == ["front.died front", "ops.died ops"]


def test_a_hanging_front_is_replaced(tmp_path: Path) -> None:
    """Nothing is served while it hangs, so it is watched like an engine."""
    with running_up(tmp_path, watch=SHORT) as up:
        up.wait_running(*FOUR)
        old = up.kill("front", signal.SIGSTOP)

        assert up.asks_front() != old

        up.end()
        assert "front.died front" in kinds(up.events())


def test_a_good_file_replaces_an_engine_by_one_that_is_ready(tmp_path: Path) -> None:
    """Old and new run side by side until then; the others stay, front and ops are told."""
    with running_up(tmp_path, children={"v3": {"start_s": 0.3}}) as up:
        up.wait_running(*FOUR)
        old, small = up.pid("primary"), up.pid("small")
        finder = EngineFinder(up.home)

        up.reload(SETTINGS.replace('primary = "v1"', 'primary = "v3"'))

        assert up.state.last_reload is not None
        assert up.state.last_reload.error is None
        assert up.child("primary.new") is not None
        assert up.pid("primary") == old
        up.wait_for(lambda: not is_alive(old))
        up.wait_for(lambda: up.child("primary.old") is None)
        engine, child = finder.find("primary"), up.child("primary")
        assert isinstance(engine, RunningEngine)
        assert child is not None
        assert (engine.pid, engine.version) == (child.pid, "v3")
        assert (child.version, child.phase, up.pid("small")) == ("v3", "running", small)
        log = up.log()
        assert log.index("primary term") > len(log) - 1 - log[::-1].index("primary ready")
        assert sum(line.startswith("front hup") for line in log) == 1
        assert sum(line.startswith("ops hup") for line in log) == 1
        assert up.end() == 0
        events = up.events()

    assert kinds(events) == ["settings.reloaded settings"]
    assert json.loads(events[0].detail_json) == {"engines": "replaced: primary"}


def test_a_successor_that_loads_is_kept_when_the_engine_before_it_dies(tmp_path: Path) -> None:
    """A second SIGHUP meanwhile has it take the empty seat, not begin anew."""
    new = ONE_ENGINE.replace('primary = "v1"', 'primary = "v3"')
    slow = {"first_s": 30.0, "cap_s": 30.0}
    with running_up(tmp_path, settings=ONE_ENGINE, restart=slow) as up:
        up.wait_running("front", "ops", "primary")
        loads = up.folder / "v3.stall"
        loads.write_text("starting")
        up.reload(new)
        up.wait_for(lambda: (heir := up.child("primary.new")) is not None and heir.pid is not None)
        heir = up.pid("primary.new")
        up.kill("primary")
        up.wait_for(lambda: (old := up.child("primary")) is not None and old.phase == "waiting")

        up.reload(new)
        loads.unlink()
        up.wait_running("primary")

        assert up.pid("primary") == heir
        up.end()


def test_a_bad_file_changes_nothing(tmp_path: Path) -> None:
    """It is told, recorded and kept in the state; also a restart goes by the old settings."""
    with running_up(tmp_path) as up:
        up.wait_running(*FOUR)
        before = {name: up.pid(name) for name in FOUR}

        up.reload(SETTINGS.replace('primary = "v1"', 'primary = "v9"'))

        assert {name: up.pid(name) for name in FOUR} == before
        assert up.state.last_reload is not None
        assert "pins.primary" in str(up.state.last_reload.error)
        up.wait_said("settings: refused as a whole; the old ones stay")
        assert not any("hup" in line for line in up.log())
        up.wait_back("primary", up.kill("primary"))
        assert 'primary = "v1"' in (up.home / "run/processes/settings.toml").read_text()
        up.end()
        events = up.events()

    assert "settings.refused settings" in kinds(events)


def test_slots_come_and_go_with_the_settings(tmp_path: Path) -> None:
    """One that no ladder uses any more is stopped; a new one is started."""
    with running_up(tmp_path) as up:
        up.wait_running(*FOUR)
        small = up.pid("small")

        up.reload(ONE_ENGINE)
        up.wait_for(lambda: not is_alive(small))
        up.wait_for(lambda: up.child("small.old") is None)
        assert up.child("small") is None

        up.reload(SETTINGS)
        up.wait_running("small")
        up.end()


def test_the_front_stops_first(tmp_path: Path) -> None:
    """What it has open still finds its engines; exit 0, 130 after Ctrl-C; nothing is left."""
    with running_up(tmp_path, children={"front": {"drain_s": 0.2}}) as up:
        up.wait_running(*FOUR)
        pids = [up.pid(name) for name in FOUR]

        assert up.end(signal.SIGINT) == 130

        log = up.log()
        assert not any(map(is_alive, pids))
        others = {f"{name} term" for name in ("ops", "primary", "small")}
        assert min(map(log.index, others)) > log.index("front gone")
        left = [path.name for path in (up.home / "run").rglob("*") if path.is_file()]
        assert left == ["supervisor.lock"]


def test_who_drains_need_not_answer(tmp_path: Path) -> None:
    """Longer than anything else may be silent."""
    with running_up(
        tmp_path, settings=ONE_ENGINE, children={"front": {"drain_s": 1.5}}, watch=SHORT
    ) as up:
        up.wait_running("front", "ops", "primary")

        assert up.end() == 0

        assert "front gone" in up.log()


def test_one_that_does_not_stop_is_killed_at_its_cap(tmp_path: Path) -> None:
    """The exit code is still 0."""
    with running_up(
        tmp_path,
        settings=ONE_ENGINE,
        children={"primary": {"ignores_term": True}},
        rules={"engine_stop_s": 0.2},
    ) as up:
        up.wait_running("front", "ops", "primary")

        assert up.end() == 0

        assert any("did not stop in time" in line for line in up.said)


def test_a_second_signal_means_now(tmp_path: Path) -> None:
    """The front hears it too."""
    children = {"front": {"ignores_term": True}}
    with running_up(tmp_path, settings=ONE_ENGINE, children=children) as up:
        up.wait_running("front", "ops", "primary")
        up.popen.send_signal(signal.SIGTERM)
        up.wait_for(lambda: "front term" in up.log())
        started_s = time.monotonic()

        assert up.end() == 0

        assert time.monotonic() - started_s < 10
        assert up.log().count("front term") == 2


def test_nothing_outlives_a_killed_supervisor_and_a_new_one_starts_clean(tmp_path: Path) -> None:
    """Also what ignores SIGTERM; stale files of the dead lead nobody astray."""
    children = {"primary": {"ignores_term": True, "grace_s": 0.5}}
    with running_up(tmp_path, children=children) as up:
        up.wait_running(*FOUR)
        pids = [up.pid(name) for name in FOUR]
        up.popen.kill()
        up.popen.wait(10)

        with running_up(tmp_path) as again:
            again.wait_running(*FOUR)
            assert not any(map(runs, pids))
            assert again.end() == 0


def test_nothing_is_started_twice_for_a_stop_in_the_middle_of_starting(tmp_path: Path) -> None:
    """Engines that wait for their turn to load never start."""
    children = {"primary": {"start_s": 30}}
    with running_up(tmp_path, children=children, rules={"patience_s": 30}) as up:
        up.wait_running("front", "ops")
        up.wait_for(lambda: any(line.startswith("primary start") for line in up.log()))

        assert up.end() == 0

        assert not any(line.startswith("small start") for line in up.log())


def test_a_start_that_takes_too_long_is_begun_anew(tmp_path: Path) -> None:
    """No hang verdict before it is ready, but this one."""
    with running_up(
        tmp_path,
        settings=ONE_ENGINE,
        children={"primary": {"start_s": 30}},
        watch={"start_s": 1.0, "hang_s": 0.1},
    ) as up:
        up.wait_said("engine primary: hung: its start took longer than 1 s")
        up.end()


def test_a_front_that_refuses_its_settings_ends_everything(tmp_path: Path) -> None:
    """Exit code 2 and its own words: nothing would be served."""
    children = {"front": {"exits": 2, "says": ["error: keys.team is not set"]}}
    with running_up(tmp_path, children=children) as up:
        assert up.popen.wait(15) == 2
        assert wait_until(
            lambda: any("nothing can be served; the front says: error: keys" in s for s in up.said)
        )


def test_pages_are_served_at_lower_priority(tmp_path: Path) -> None:
    """On a socket of their own; they give way to users' calls."""
    with running_up(tmp_path, settings=ONE_ENGINE) as up:
        up.wait_running("front", "ops", "primary")
        answering = httpx2.get(up.state.ops_url).headers["x-pid"]
        assert int(answering) == up.pid("ops")
        nice = {name: os.getpriority(os.PRIO_PROCESS, up.pid(name)) for name in FOUR[:3]}
        up.end()

    assert nice["ops"] == nice["front"] + 3 == nice["primary"] + 3
