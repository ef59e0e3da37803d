"""What hangs is told from what works hard, by a fake clock."""

import pytest

from failsoft.serving.supervisor.watch import Answer, HealthWatch, WatchRules

RULES = WatchRules()


def seconds_until_verdict(
    answer: Answer, *, cores: float | None, every_s: float = 1.0, limit_s: float = 1000.0
) -> float | None:
    """Return when a process that always says *answer* and uses *cores* is given up."""
    start_cpu_s = None if cores is None else 0.0
    watch = HealthWatch(RULES, now_s=0.0, cpu_s=start_cpu_s)
    now_s = 0.0
    while now_s < limit_s:
        now_s += every_s
        cpu_s = None if cores is None else cores * now_s
        if watch.verdict(answer, now_s=now_s, cpu_s=cpu_s) is not None:
            return now_s
    return None


@pytest.mark.parametrize("answer", ["silent", "stuck"])
def test_without_progress_and_without_cpu_it_hangs(answer: Answer) -> None:
    """A stopped process, a deadlock: 8 s."""
    assert seconds_until_verdict(answer, cores=0.0) == 8.0


@pytest.mark.parametrize("answer", ["silent", "stuck"])
def test_a_process_that_uses_the_cpu_gets_two_minutes(answer: Answer) -> None:
    """One forward of a large model on few cores may take longer than any clock of ours."""
    assert seconds_until_verdict(answer, cores=1.9) == 120.0


def test_answering_health_questions_is_no_work() -> None:
    """Else an engine that says "stuck" would be believed to work because it says so."""
    assert seconds_until_verdict("stuck", cores=0.003) == 8.0


def test_a_starved_process_that_gets_a_tenth_of_a_core_is_not_killed() -> None:
    """It would only have to load again on the same busy machine."""
    assert seconds_until_verdict("silent", cores=0.1, limit_s=60) is None


def test_where_cpu_time_is_not_told_silence_alone_counts() -> None:
    """Not every system has /proc."""
    assert seconds_until_verdict("silent", cores=None) == 8.0


def test_forwards_that_all_fail_are_no_work_however_busy() -> None:
    """A broken CUDA context answers fast and always wrong."""
    assert seconds_until_verdict("failing", cores=1.0) == 8.0


def test_a_dead_engine_thread_is_no_matter_of_time() -> None:
    """Nothing brings it back."""
    assert seconds_until_verdict("engine_dead", cores=1.0) == 1.0


@pytest.mark.parametrize("answer", ["ready", "not_ready"])
def test_whoever_answers_is_left_alone(answer: Answer) -> None:
    """Also one that drains."""
    assert seconds_until_verdict(answer, cores=0.0) is None


def test_one_good_answer_wipes_the_bad_ones_out() -> None:
    """7 s of silence, a word, 7 s of silence."""
    watch = HealthWatch(RULES, now_s=0.0, cpu_s=0.0)
    verdicts = [watch.verdict("silent", now_s=s, cpu_s=0.0) for s in range(1, 8)]
    verdicts.append(watch.verdict("ready", now_s=8.0, cpu_s=0.0))

    verdicts += [watch.verdict("silent", now_s=s, cpu_s=0.0) for s in range(9, 16)]

    assert set(verdicts) == {None}


def test_time_in_which_nobody_looked_does_not_count() -> None:
    """The supervisor itself was stopped for an hour, and so perhaps was everything."""
    watch = HealthWatch(RULES, now_s=0.0, cpu_s=0.0)

    first = watch.verdict("silent", now_s=3600.0, cpu_s=0.0)
    second = watch.verdict("silent", now_s=3601.0, cpu_s=0.0)

    assert (first, second) == (None, None)


def test_the_verdict_says_what_was_seen() -> None:
    """People read it."""
    watch = HealthWatch(RULES, now_s=0.0, cpu_s=0.0)

    verdicts = [watch.verdict("stuck", now_s=s, cpu_s=0.0) for s in range(1, 9)]

    assert verdicts[-1] == "it has work and makes no progress for 8 s"
