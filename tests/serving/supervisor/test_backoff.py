"""Restarts wait longer each time, and stop being tried when that is of no use."""

from failsoft.serving.supervisor.backoff import RestartPolicy, RestartRules


def make_policy(random: float = 0.0, **rules: object) -> RestartPolicy:
    """Return a policy whose dice always show the same."""
    return RestartPolicy(RestartRules(**rules), random=lambda: random)  # type: ignore[arg-type]


def delays(policy: RestartPolicy, num: int, *, every_s: float) -> list[float | None]:
    """Return the delays after *num* ends of a process that is never ready."""
    return [policy.delay_after(ended_s=index * every_s, ready_for_s=None) for index in range(num)]


def test_the_wait_doubles_up_to_its_cap() -> None:
    """1 s, then 30 s at most, for a process that takes a while to die."""
    assert delays(make_policy(max_ends=None), 7, every_s=100) == [1, 2, 4, 8, 16, 30, 30]


def test_jitter_only_adds() -> None:
    """The first second after a crash belongs to the rung below."""
    assert make_policy(0.5).delay_after(ended_s=0, ready_for_s=None) == 1.125


def test_the_fifth_end_within_five_minutes_is_the_last() -> None:
    """None of the five was ready for a minute."""
    assert delays(make_policy(), 5, every_s=70) == [1, 2, 4, 8, None]


def test_ends_further_apart_than_that_are_no_crash_loop() -> None:
    """Only four lie within any five minutes."""
    assert None not in delays(make_policy(), 20, every_s=76)


def test_a_healthy_minute_makes_earlier_ends_forgotten() -> None:
    """The next wait is the first one again, and the loop's count begins anew."""
    policy = make_policy()
    delays(policy, 4, every_s=1)

    after = [policy.delay_after(ended_s=s, ready_for_s=60.0) for s in (70, 140, 210)]

    assert after == [1, 1, 1]


def test_a_run_that_was_ready_for_less_counts() -> None:
    """A model that dies of every request is ready for a while each time."""
    policy = make_policy()

    after = [policy.delay_after(ended_s=s, ready_for_s=59.0) for s in range(0, 300, 60)]

    assert after[-1] is None


def test_the_first_restart_may_be_free() -> None:
    """What everything waits for comes back at once, but does not spin."""
    policy = make_policy(is_first_free=True, max_ends=None)

    assert delays(policy, 4, every_s=1) == [0, 1, 2, 4]


def test_asked_to_try_again_it_begins_anew() -> None:
    """After a gave-up, too."""
    policy = make_policy()
    delays(policy, 5, every_s=1)

    policy.forget()

    assert policy.delay_after(ended_s=6, ready_for_s=None) == 1
