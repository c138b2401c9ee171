"""The timeline in situations that other tools got wrong, five lines each (style section 4).

Cases named Cnn are of captures/CASES.md; sections in brackets are of the kernel semantics, F of
the formats. The text form is that of ``oracle.tiny``; times in it are us, in results ns.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from oracle.tiny import build, events, run, tables

from traceana.columns import EventColumns, NameChange
from traceana.schema import (
    DurSource,
    EndReason,
    Quality,
    Queueing,
    State,
    TaskClass,
    WakeContext,
    WakeKind,
)
from traceana.start_state import StartState, TaskSeed
from traceana.timeline import TimelineBuilder, kernel_number

US = 1000
MS = 1_000_000


def adds_up(got) -> None:
    """Idle, busy and unknown of each CPU are the capture's span, none of them negative."""
    for row in got.tables["cpus"].to_pylist():
        assert min(row["idle_ns"], row["busy_ns"], row["unknown_ns"]) >= 0
        assert row["idle_ns"] + row["busy_ns"] + row["unknown_ns"] == got.span, row


# --- CASES.md -------------------------------------------------------------------------------


def test_c12_idle_tasks_of_two_cpus_are_two_tasks() -> None:
    got = run("""
        100  0  10  .  switch S 0
        100  2  12  .  switch S 0
        160  2   0  .  switch R 12
        190  0   0  .  switch R 10
    """)
    idle = [(t["comm"], t["cpu"]) for t in got.tasks if t["pid"] == 0]
    assert idle == [("swapper/0", 0), ("swapper/2", 2)]
    assert "ran_on_two_cpus" not in got.issues
    assert [(g["start"], g["end"]) for g in got.gaps(0)] == [(100 * US, 190 * US)]
    assert [(g["start"], g["end"]) for g in got.gaps(2)] == [(100 * US, 160 * US)]
    adds_up(got)


def test_c13_state_i_is_a_sleep_and_no_uninterruptible_block() -> None:
    got = run("""
        100  0   0  .  switch R 10
        150  0  10  .  switch I 0
        200  0   0  .  switch R 11
        250  0  11  .  switch D 0
    """)
    (kworker,), (blocked,) = got.slices(10), got.slices(11)
    assert (kworker["end_reason"], kworker["state"]) == (EndReason.SLEEP, State.IDLE)
    assert blocked["end_reason"] == EndReason.BLOCK
    assert got.task(10)["voluntary"] == 1


C17 = """
    100  0  10  .  switch S 20
    200  0  20  .  switch S 0
    900  1   0  .  begin
    900  1  20  .  switch S 0
"""


def test_c17_ring_that_begins_later_invents_no_run() -> None:
    # b: [100, 200] on CPU0; on CPU1 it ran until 900 since an unknown time, not since 200.
    # CPU1 has a window of no length, so all 800 us of the capture's span are unknown there;
    # CPU0: b runs 100 us, idle 700.
    got = run(C17)
    assert [(s["cpu"], s["start"], s["end"]) for s in got.slices(20)] == [
        (0, 100 * US, 200 * US),
        (1, None, 900 * US),
    ]
    assert got.task(20)["runtime_ns"] == 100 * US
    assert (got.cpu(1)["begin"], got.cpu(1)["unknown_ns"]) == (900 * US, 800 * US)
    assert (got.cpu(0)["busy_ns"], got.cpu(0)["idle_ns"]) == (100 * US, 700 * US)
    adds_up(got)


def test_c17_wakeup_in_a_part_that_was_overwritten_is_no_called_off_sleep() -> None:
    # 10 blocks at 200 and runs again at 950. Its waking may have been recorded by CPU1, whose
    # data begin at 900 only: not a loss-free stretch, so R4 must not take the sleep back.
    got = run(
        """
        100  0  10  .  waking 11 0
        200  0  10  .  switch S 0
        900  1   0  .  begin
        900  1  12  .  waking 13 1
        950  0   0  .  switch R 10
        """,
        kernel=6001,
    )
    assert got.task(10)["voluntary"] == 1
    assert "false_blocking" not in got.issues
    assert got.issues["lost_wakeup"] == 1


C22 = """
    5000008  0   0  .  switch R 30
    5000010  1   0  h  waking 30 0
"""


def test_c22_waking_stamped_after_its_switch_is_skew_not_2_to_the_64() -> None:
    got = run(C22)
    wake = got.wake(30)
    assert wake["wakeup_latency_ns"] == 0
    assert wake["quality"] & Quality.SKEW
    assert (wake["run_ts"], wake["ran_cpu"]) == (5000008 * US, 0)
    assert got.issues["clock_skew"] == 1
    # The idle task is never woken and never waits.
    assert not got.wakes(0)
    assert all(t["delays"] == 0 for t in got.tasks if t["pid"] == 0)


def test_c22_skewed_waking_of_a_known_sleeper_is_no_called_off_sleep() -> None:
    # The sleep from 8000 to 10000 was real: one waking, stamped 2 us late by CPU1's clock.
    got = run(
        """
         7000  1   0  h  waking 30 0
         7010  0   0  .  switch R 30
         8000  0  30  .  switch S 0
        10000  0   0  .  switch R 30
        10002  1   0  h  waking 30 0
        11000  0  30  .  switch S 0
        """,
        kernel=6001,
    )
    assert got.task(30)["voluntary"] == 2
    assert got.wakes(30)[1]["wakeup_latency_ns"] == 0
    # First seen asleep: [7010, 8000] is a whole sample, and so is [10000, 11000].
    assert got.task(30)["dur_samples"] == 2


C27 = """
    1000000  0   0  .  switch R 10
    1000100  1  20  .  waking 10 0
    1000103  0  10  .  switch S 30
    1000105  1  20  .  wakeup 10 0
    1000200  0  30  .  switch S 10
"""


def test_c27_waking_while_the_task_still_runs() -> None:
    # Runnable from its switch-out at 103: 200 - 103 = 97; from the wakeup: 200 - 105 = 95;
    # from the waking to the wakeup: 105 - 100 = 5.
    got = run(C27)
    wake = got.wake(10)
    assert wake["wakeup_latency_ns"] == 97 * US
    assert wake["queue_delay_ns"] == 95 * US
    assert wake["wake_delay_ns"] == 5 * US
    # Direct, and 3 us before the block: the waker spun until the queue had let go, then decided.
    assert wake["kind"] == WakeKind.DECIDED
    assert wake["queueing"] == Queueing.DIRECT


def test_c27_same_without_sched_wakeup() -> None:
    got = run("\n".join(line for line in C27.splitlines() if "wakeup" not in line))
    wake = got.wake(10)
    assert wake["wakeup_latency_ns"] == 97 * US
    assert wake["queue_delay_ns"] is None
    assert wake["quality"] & Quality.NO_WAKEUP


def test_c28_target_cpu_of_waking_is_where_it_was_not_where_it_goes() -> None:
    got = run("""
        100  3  30  .  switch S 0
        105  5   0  .  switch R 50
        108  5  50  .  switch S 0
        110  1  20  .  waking 30 3
        111  1  20  .  migrate 30 3 5
        112  1  20  .  waking 31 3
        113  3   0  h  wakeup 31 3
        114  5   0  h  wakeup 30 5
        116  5   0  .  switch R 30
    """)
    wake = got.wake(30)
    assert (wake["prev_cpu"], wake["placed_cpu"], wake["ran_cpu"]) == (3, 5, 5)
    assert wake["queueing"] == Queueing.REMOTE
    assert wake["nr_running_placed"] == 0
    # CPU3's queue never held 30: it was empty when 31 came. And no balance pass moved anything.
    assert got.wake(31)["nr_running_placed"] == 0
    assert len(got.timeline.raw["moves"]) == 0


def test_c29_second_waking_before_the_first_run_is_marked() -> None:
    # From the last waking: 448824 - 448807 = 17 us. The first one, 881 ms before, has no latency.
    got = run("""
        312881567210   58  50  h  waking 70 58
        312882448807   15  60  .  waking 70 118
        312882448824  118   0  .  switch R 70
        312882448911  118  70  .  switch S 0
    """)
    first, last = got.wakes(70)
    assert first["quality"] & Quality.REPEATED and last["quality"] & Quality.REPEATED
    assert first["wakeup_latency_ns"] is None and first["run_ts"] is None
    assert last["wakeup_latency_ns"] == 17 * US
    assert got.issues["wake_repeated"] == 1
    assert (got.task(70)["delay_max_ns"] or 0) <= 17 * US


def test_c30_sorted_file_with_a_gap() -> None:
    # 663899 - 663860 = 39; 100353 - 98252 = 2101. CPU0 went idle and then tool ran: a gap.
    got = run("""
        1494663860  1  42  .  wakeup 45 0
        1494663899  0   0  .  switch R 45
        1494663928  0  45  .  switch S 0
        1504098252  1  42  .  wakeup 45 0
        1504100353  0  52  .  switch S 45
    """)
    assert [w["queue_delay_ns"] for w in got.wakes(45)] == [39 * US, 2101 * US]
    assert [w["waker"] for w in got.wakes(45)] == [42, 42]
    assert got.issues["lost_switch"] == 1
    assert [(g["start"], g["end"]) for g in got.gaps(0)][-1] == (1494663928 * US, None)
    assert got.task(45)["delay_max_ns"] == 2101 * US
    assert got.task(45)["delay_max_at_ns"] == 1504100353 * US


def test_c31_off_cpu_of_a_task_that_moves_is_two_intervals() -> None:
    # Out on CPU0 at 1.0 s, in on CPU1 at 1.2, out at 1.3, in on CPU0 at 1.9: 0.2 and 0.6 s.
    got = run("""
         900000  0   0  .  switch R 10
        1000000  0  10  .  switch S 0
        1200000  1   0  .  switch R 10
        1300000  1  10  .  switch S 0
        1900000  0   0  .  switch R 10
    """)
    slices = got.slices(10)
    off = [b["start"] - a["end"] for a, b in itertools.pairwise(slices)]
    assert off == [200 * MS, 600 * MS]
    assert [s["cpu"] for s in slices] == [0, 1, 0]


def test_c32_task_that_never_ran_has_no_invented_sleep() -> None:
    got = run("""
        100  0  10  .  mark
        900  0  10  .  wakeup 77 0
    """)
    assert not got.slices(77)
    assert (got.task(77)["runtime_ns"], got.task(77)["switches"]) == (0, 0)
    wake = got.wake(77)
    for bit in (Quality.CENSORED_END, Quality.NO_WAKING, Quality.STATE_UNKNOWN):
        assert wake["quality"] & bit
    assert wake["run_ts"] is None and wake["wakeup_latency_ns"] is None


def test_c35_clock_that_steps_back_by_a_nanosecond_gives_duration_0() -> None:
    got = run("""
        100.464  0   0  .  switch R 10
        100.463  0  10  .  switch S 0
        200      0   0  .  switch R 10
    """)
    first = got.slices(10)[0]
    assert first["end"] - first["start"] == 0
    assert got.task(10)["runtime_ns"] == 0


def test_c41_a_cpu_without_a_switch_is_not_idle() -> None:
    got = run(
        """
        100  1   0  .  switch R 60
        120  0  50  h  stat 50 1000
        200  1  60  .  switch S 0
        400  0  50  h  stat 50 280000
        500  1   0  .  switch R 60
        """,
        llc=[0, 0, 0, 0],
    )
    assert (got.cpu(0)["busy_ns"], got.cpu(0)["idle_ns"]) == (400 * US, 0)
    assert (got.cpu(1)["busy_ns"], got.cpu(1)["idle_ns"]) == (100 * US, 300 * US)
    for cpu in (2, 3):
        row = got.cpu(cpu)
        assert (row["events"], row["begin"], row["end"]) == (0, None, None)
        assert (row["idle_ns"], row["busy_ns"], row["unknown_ns"]) == (0, 0, 400 * US)
    assert [(s["start"], s["end"]) for s in got.slices(50)] == [(None, None)]
    adds_up(got)


# --- identity -------------------------------------------------------------------------------


def test_pid_reuse_makes_a_second_task() -> None:
    got = run("""
        100  0  30  .  exit 30
        110  0  30  .  switch X 0
        200  1  20  .  fork 30
        205  1  20  .  new 30 0
        210  0   0  .  switch R 30
    """)
    old, new = [t for t in got.tasks if t["pid"] == 30]
    assert (old["died"], old["born"]) == (100 * US, None)
    assert (new["died"], new["born"]) == (None, 200 * US)
    assert old["task"] != new["task"]
    assert [s["end_reason"] for s in got.slices(30)] == [EndReason.DEAD, EndReason.CUT]


def test_pid_reuse_without_a_fork_event_after_death() -> None:
    got = run("""
        110  0  30  .  switch X 0
        200  1  20  .  waking 30 0
        210  0   0  .  switch R 30
    """)
    assert len([t for t in got.tasks if t["pid"] == 30]) == 2


def test_reused_pid_is_another_wakee() -> None:
    # 20 wakes 30, the next 30, and that one again: first sight, a change, no change.
    got = run("""
         90  0   0  .  switch R 30
        100  0  30  .  switch S 0
        110  1  20  .  waking 30 0
        111  1  20  .  wakeup 30 0
        112  0   0  .  switch R 30
        120  0  30  .  switch X 0
        130  1  20  .  fork 30
        131  1  20  .  new 30 0
        132  0   0  .  switch R 30
        140  0  30  .  switch S 0
        150  1  20  .  waking 30 0
        151  1  20  .  wakeup 30 0
        152  0   0  .  switch R 30
        160  0  30  .  switch S 0
        170  1  20  .  waking 30 0
    """)
    assert got.task(20)["flips_seen"] == 1


def test_dead_task_stays_dead_through_a_loss() -> None:
    got = run("""
        100  0  30  .  switch X 0
        150  0   0  .  lost 9
        200  1  20  .  waking 30 0
    """)
    assert len([t for t in got.tasks if t["pid"] == 30]) == 2


def test_classes_by_priority() -> None:
    got = run(
        """
        100  0   0  .  switch R 10@49
        110  0  10@49  .  switch S 11@-1
        120  0  11@-1  .  switch S 12@139
        130  0  12@139 .  switch R 0
        """
    )
    assert [got.task(pid)["class"] for pid in (10, 11, 12, 0)] == [
        TaskClass.RT,
        TaskClass.DL,
        TaskClass.FAIR,
        TaskClass.IDLE,
    ]


# --- switch-outs ----------------------------------------------------------------------------


def test_preempted_in_r_and_r_plus_wait_at_once() -> None:
    # 10 is preempted at 100 and back at 300; 11 at 300 and back at 400: both waited on CPU0
    # while CPU1 idled from 50 to 450: 300 us behind a running task. (A wakeup of who runs already
    # changes nothing, but says that sched_wakeup is recorded: without it, waiting is not known.)
    got = run("""
          0  0   0  .  switch R 10
         40  1  12  .  wakeup 12 1
         50  1  12  .  switch S 0
        100  0  10  .  switch R 11
        300  0  11  .  switch R+ 10
        400  0  10  .  switch S 11
        450  1   0  .  switch R 12
        500  0  11  .  switch S 0
    """)
    assert [s["end_reason"] for s in got.slices(10)] == [EndReason.YIELD_LIKE, EndReason.SLEEP]
    assert [s["end_reason"] for s in got.slices(11)] == [EndReason.PREEMPT, EndReason.SLEEP]
    assert (got.task(10)["preempted"], got.task(10)["voluntary"]) == (1, 1)
    gap = got.gaps(1)[0]
    assert (gap["start"], gap["end"]) == (50 * US, 450 * US)
    assert gap["waited_llc_ns"] == gap["waited_any_ns"] == gap["waited_busy_llc_ns"] == 300 * US
    assert not got.wakes(10)


def test_delay_from_switch_out_in_r_counts_as_perf_does() -> None:
    # perf sched latency: 10 is out in R at 100, in at 300: a delay of 200. 11's R+ is none to it.
    got = run("""
          0  0   0  .  switch R 10
        100  0  10  .  switch R 11
        300  0  11  .  switch R+ 10
        400  0  10  .  switch S 11
    """)
    ten, eleven = got.task(10), got.task(11)
    # Being first seen in a switch-in is a delay of 0 to perf.
    assert (ten["delays"], ten["delay_sum_ns"]) == (2, 200 * US)
    assert (ten["delay_max_ns"], ten["delay_max_at_ns"]) == (200 * US, 300 * US)
    assert (eleven["delays"], eleven["delay_sum_ns"]) == (1, 0)


def born(lines: str) -> str:
    """A task 10 forked on CPU0 at 0 us (so that its dur_avg is known to be 0), then ``lines``."""
    return (
        """
          0  0  9  .  fork 10
          1  0  9  .  new 10 0
          2  0  9  .  switch S 10
        """
        + lines
    )


@pytest.mark.parametrize("stat", [True, False])
def test_dur_avg_over_a_preemption_is_one_sample(stat: bool) -> None:
    # 1 ms, preempted, 0.5 ms, blocks: one sample of 1.5 ms; from 0: 1 500 000 / 8 = 187 500.
    lines = """
        1001.5  0  10  .  stat 10 1000000
        1002    0  10  .  switch R+ 11
        1400    0  11  .  switch S 10
        1899.5  0  10  .  stat 10 500000
        1900    0  10  .  switch S 0
    """
    if not stat:
        lines = "\n".join(line for line in lines.splitlines() if "stat" not in line)
    task = run(born(lines)).task(10)
    assert (task["dur_avg_ns"], task["dur_samples"]) == (187_500, 1)
    assert task["dur_avg_source"] == (DurSource.STAT_RUNTIME if stat else DurSource.SWITCHES)


def test_dur_avg_comes_from_sched_stat_runtime_where_recorded() -> None:
    # 800 ns run time in a slice of 1 us (the rest went to interrupts): 800 / 8 = 100.
    task = run(
        born("""
        2.9  0  10  .  stat 10 800
        3    0  10  .  switch S 0
    """)
    ).task(10)
    assert task["dur_avg_ns"] == 100
    assert task["runtime_ns"] == 800


def test_run_time_of_a_task_that_ended_an_idle_gap_starts_at_its_enqueue() -> None:
    # An idle CPU that is to reschedule does not renew its queue's clock: the task is charged
    # from its enqueue on, here 0.3 us after the wakeup's record. 2.0 us to 1 us: 10 - 2.3.
    lines = """
        1     0  10  .  switch S 0
        1.5   1  20  .  waking 10 0
        2     0   0  h  wakeup 10 0
        4     0   0  .  switch R 10
        10    0  10  .  switch S 0
        """
    start = StartState(tasks=(TaskSeed(10, dur_avg_ns=0),))
    assert run(lines, start=start, leave_ns=300).task(10)["dur_avg_ns"] == 7700 // 8
    # Not so where another task ran: its switch-out renews the clock.
    busy = lines.replace("switch S 0\n        1.5", "switch S 11\n        1.5")
    busy = busy.replace("0   0  h", "0  11  h").replace(
        "0   0  .  switch R 10", "0  11  .  switch S 10"
    )
    assert run(busy, start=start, leave_ns=300).task(10)["dur_avg_ns"] == 6000 // 8


def test_newidle_pull_splits_stat_runtime() -> None:
    # 7.8-4: 10 is dequeued with 8000 run, then schedule() pulls 40 and books another 1600 for
    # 10, which belong to its next sample: 8000 / 8 = 1000, then (1600 + 2400 - 1000) / 8 = 375.
    got = run(
        born("""
        3     1  50  .  waking 40 1
        4     1  50  .  wakeup 40 1
        11    0  10  .  stat 10 8000
        12    0  10  .  migrate 40 1 0
        12.5  0  10  .  stat 10 1600
        13    0  10  .  switch S 40
        20    1  50  .  waking 10 0
        21    1  50  .  wakeup 10 0
        30    0  40  .  switch S 10
        32    0  10  .  stat 10 2400
        33    0  10  .  switch S 0
    """)
    )
    assert got.task(10)["dur_avg_ns"] == 1000 + 375
    assert got.task(10)["runtime_ns"] == 8000 + 1600 + 2400
    # 40's wait is over on CPU0: it was queued on CPU1 at 4 and runs on CPU0 at 13.
    wake = got.wake(40)
    assert (wake["placed_cpu"], wake["ran_cpu"], wake["queue_delay_ns"]) == (1, 0, 9 * US)


def test_burst_reported_by_another_cpu_only_is_a_sample() -> None:
    # Seen in a perf.data: the only report of a burst comes from a CPU that looked at this queue.
    # 1600 / 8 = 200, then the burst at 30: 200 + (2400 - 200) / 8 = 475.
    got = run(
        born("""
        3     0  10  .  stat 10 1600
        4     0  10  .  switch S 0
        10    1  20  .  waking 10 0
        11    1  20  .  wakeup 10 0
        12    0   0  .  switch R 10
        14    1  20  .  stat 10 2400
        15    0  10  .  switch S 0
    """)
    )
    assert got.task(10)["dur_avg_ns"] == 475


def test_dur_avg_without_a_start_is_unknown_for_24_samples() -> None:
    # The first block ends a burst of unknown length: no sample. Then one sample a round.
    def after(rounds: int) -> dict:
        lines = ["0  0  10  .  switch S 0"]
        for i in range(rounds):
            t = 100 * (i + 1)
            lines.append(f"{t}  1  20  .  waking 10 0")
            lines.append(f"{t + 1}  1  20  .  wakeup 10 0")
            lines.append(f"{t + 2}  0   0  .  switch R 10")
            lines.append(f"{t + 12}  0  10  .  switch S 0")
        return run("\n".join(lines)).task(10)

    assert (after(23)["dur_avg_ns"], after(23)["dur_samples"]) == (None, 23)
    known = after(24)
    assert known["dur_samples"] == 24
    # Constant samples of 10 us: the 24th value of vector A.1 "const_10us_long_fixpoint".
    assert known["dur_avg_ns"] == 9591


def test_false_blocking_takes_the_sample_back() -> None:
    # R4, 5.18 to 6.15: the switch-out says S, but 10 runs again without a waking: one burst of
    # 8 + 16 us, one sample of 24 us: 24 000 / 8 = 3000. Wakings are recorded (of 30).
    lines = born("""
        3   1  20  .  waking 30 1
        4   1  20  .  wakeup 30 1
        10  0  10  .  switch S 11
        20  0  11  .  switch S 10
        36  0  10  .  switch S 0
    """)
    task = run(lines, kernel=6001).task(10)
    assert (task["dur_avg_ns"], task["dur_samples"], task["voluntary"]) == (3000, 1, 1)
    assert run(lines, kernel=6001).issues["false_blocking"] == 1
    # Elsewhere it is a wakeup that was not recorded; two samples: 1000, then (16 000 - 1000) / 8.
    for kernel in (5010, 6017):
        other = run(lines, kernel=kernel)
        assert other.issues["lost_wakeup"] == 1
        assert other.task(10)["dur_avg_ns"] == 1000 + 1875


def test_false_running_is_a_block_when_a_remote_wakeup_follows() -> None:
    # R6, 5.8 to 5.17: the state was read again after a remote waker had set WAKING.
    lines = born("""
        9.5  1  20  .  waking 10 0
        10   0  10  .  switch R 11
        11   0  11  h  wakeup 10 0
        18   0  11  .  switch S 10
    """)
    old = run(lines, kernel=5010)
    assert old.issues["false_running"] == 1
    assert old.task(10)["dur_avg_ns"] == 8000 // 8
    wake = old.wakes(10)[-1]
    # Runnable from the switch-out at 10: 18 - 10 = 8; queued at 11: 7.
    assert (wake["wakeup_latency_ns"], wake["queue_delay_ns"]) == (8 * US, 7 * US)
    new = run(lines, kernel=6001)
    assert "false_running" not in new.issues
    assert new.task(10)["preempted"] == 1


def test_false_running_needs_the_remote_form() -> None:
    # 10 was about to sleep, the direct wakeup found it on the queue still: preempted, on_rq.
    got = run(
        born("""
        9.5   1  20  .  waking 10 0
        10    0  10  .  switch R 11
        10.5  1  20  .  wakeup 10 0
        18    0  11  .  switch S 10
        """),
        kernel=5010,
    )
    assert got.task(10)["preempted"] == 1
    assert got.task(10)["dur_samples"] == 0
    assert got.wakes(10)[-1]["kind"] == WakeKind.ON_RQ


def test_false_running_with_the_waking_stamped_just_after() -> None:
    # R6 says +-2 us: CPU1's clock is ahead of CPU0's by a little.
    got = run(
        born("""
        10    0  10  .  switch R 11
        10.5  1  20  .  waking 10 0
        11.5  0  11  h  wakeup 10 0
        18    0  11  .  switch S 10
        """),
        kernel=5010,
    )
    assert got.issues.get("false_running") == 1
    assert got.task(10)["dur_avg_ns"] == 8000 // 8


# --- kinds of wakeup ------------------------------------------------------------------------


def blocked(wake: str, at: str = "100") -> str:
    """10 blocks on CPU0 (which idles then), then ``wake``."""
    return (
        f"""
         50    1   0  .  switch R 20
         90    0   0  .  switch R 10
        {at}   0  10  .  switch S 0
        """
        + wake
    )


def test_decided_wakeup_and_its_windows() -> None:
    got = run(
        blocked("""
        200    1  20  .  waking 10 0
        201    1  20  .  migrate 10 0 2
        202    1  20  .  stat 20 500
        203    1  20  .  noipi 2
        204    2   0  .  wakeup 10 2
        206    2   0  .  switch R 10
    """)
    )
    wake = got.wake(10)
    assert (wake["kind"], wake["context"], wake["queueing"]) == (
        WakeKind.DECIDED,
        WakeContext.TASK,
        Queueing.REMOTE,
    )
    assert (wake["waker"], wake["current"], wake["this_cpu"]) == (20, 20, 1)
    # 10.2: looked at from the waking to the migrate; visible from the migrate to the kick at 203
    # (the stat_runtime between is emitted inside the wakeup).
    assert (wake["look_lo"], wake["look_hi"]) == (200 * US, 201 * US)
    assert (wake["visible_lo"], wake["visible_hi"]) == (201 * US, 203 * US)
    assert (wake["wakeup_latency_ns"], wake["queue_delay_ns"]) == (6 * US, 2 * US)
    assert (wake["prev_idle"], wake["idle_cpus_llc"], wake["nr_running_this"]) == (True, 1, 1)
    assert got.gaps(2)[0]["ended_by"] == wake["wakeup"]


def test_visibility_of_a_direct_wakeup_ends_at_its_wakeup() -> None:
    wake = run(
        blocked("""
        200  1  20  .  waking 10 0
        202  1  20  .  wakeup 10 0
        206  0   0  .  switch R 10
    """)
    ).wake(10)
    assert wake["queueing"] == Queueing.DIRECT
    assert (wake["visible_lo"], wake["visible_hi"]) == (200 * US, 202 * US)
    assert (wake["look_lo"], wake["look_hi"]) == (200 * US, 202 * US)


def test_visibility_of_a_remote_wakeup_ends_at_its_wakers_next_event() -> None:
    wake = run(
        blocked("""
        200  1  20  .  waking 10 0
        201  1  20  .  switch S 0
        204  0   0  .  wakeup 10 0
        206  0   0  .  switch R 10
    """)
    ).wake(10)
    assert (wake["visible_lo"], wake["visible_hi"]) == (200 * US, 201 * US)
    late = run(
        blocked("""
        200  1  20  .  waking 10 0
        204  0   0  .  wakeup 10 0
        205  1  20  .  switch S 0
        206  0   0  .  switch R 10
    """)
    ).wake(10)
    assert late["visible_hi"] == 204 * US


@pytest.mark.parametrize(
    ("blocked_at", "kind"),
    [
        ("200.9", WakeKind.ON_CPU),  # the waking came first: the task was just leaving
        ("199.9", WakeKind.ON_CPU),  # 0.1 us after the switch-out: on_cpu is still set
        ("199.7", WakeKind.DECIDED),  # 0.3 us after: it is cleared (7.8-1: they cross at 0.2)
        ("150", WakeKind.DECIDED),
    ],
)
def test_on_cpu_or_decided_by_two_tenths_of_a_microsecond(blocked_at: str, kind: int) -> None:
    lines = [
        "50   1   0  .  switch R 20",
        "90   0   0  .  switch R 10",
        f"{blocked_at}  0  10  .  switch S 0",
        "200  1  20  .  waking 10 0",
        "202  0   0  h  wakeup 10 0",
        "204  0   0  .  switch R 10",
    ]
    lines.sort(key=lambda line: float(line.split()[0]))
    assert run("\n".join(lines)).wake(10)["kind"] == kind


def test_just_blocked_but_migrated_was_decided() -> None:
    wake = run(
        blocked(
            """
        200    1  20  .  waking 10 0
        201.5  1  20  .  migrate 10 0 2
        203    2   0  h  wakeup 10 2
        205    2   0  .  switch R 10
        """,
            at="199.95",
        )
    ).wake(10)
    assert wake["kind"] == WakeKind.DECIDED


def test_waking_far_before_the_switch_out_spun_and_was_decided() -> None:
    # 7.8-2: 3 us before the switch-out the queue was not empty yet, whatever form followed.
    wake = run(
        blocked(
            """
        203.5  0   0  h  wakeup 10 0
        205    0   0  .  switch R 10
        """,
            at="203",
        ).replace("203   0", "200 1 20 . waking 10 0\n        203   0")
    ).wake(10)
    assert (wake["waking_ts"], wake["kind"]) == (200 * US, WakeKind.DECIDED)
    assert wake["wakeup_latency_ns"] == 2 * US


def test_on_cpu_and_on_rq_do_not_count_as_flips() -> None:
    seeds = StartState(tasks=(TaskSeed(20, wakee_flips=3, last_wakee=11),), jiffies_now=0)
    got = run(
        """
         50  0   0  .  switch R 10
        100  1  20  .  waking 10 0
        101  1  20  .  wakeup 10 0
        200  1  20  .  waking 10 0
        201  0  10  .  switch S 0
        202  0   0  h  wakeup 10 0
        204  0   0  .  switch R 10
        """,
        start=seeds,
    )
    assert [w["kind"] for w in got.wakes(10)] == [WakeKind.ON_RQ, WakeKind.ON_CPU]
    assert [w["waker_flips"] for w in got.wakes(10)] == [3, 3]
    assert got.task(20)["wakee_flips"] == 3


def test_wakeup_of_a_running_task_is_no_latency() -> None:
    got = run("""
         50  0   0  .  switch R 10
        100  1  20  .  waking 10 0
        101  1  20  .  wakeup 10 0
        300  0  10  .  switch S 0
    """)
    wake = got.wake(10)
    assert wake["kind"] == WakeKind.ON_RQ
    assert wake["wakeup_latency_ns"] is None and wake["queue_delay_ns"] is None
    # Nobody else is on CPU0: the wakee itself does not count.
    assert wake["nr_running_placed"] == 0


def test_redundant_wakeup_without_waking_is_counted_not_measured() -> None:
    got = run("""
         90  0   0  .  switch R 10
        101  1  20  .  wakeup 10 0
        300  0  10  .  switch S 0
    """)
    assert not got.wakes(10)
    assert got.issues["redundant_wakeup"] == 1


def test_waking_of_a_preempted_task_is_on_rq() -> None:
    got = run("""
         90  0   0  .  switch R 10
         95  0  10  .  switch R+ 11
        100  1  20  .  waking 10 0
        101  1  20  .  wakeup 10 0
        105  0  11  .  switch S 10
    """)
    wake = got.wake(10)
    assert wake["kind"] == WakeKind.ON_RQ
    assert wake["wakeup_latency_ns"] is None and wake["queue_delay_ns"] is None


def test_self_wakeup() -> None:
    got = run("""
         90  0   0  .  switch R 10
        100  0  10  .  waking 10 0
        101  0  10  .  wakeup 10 0
        300  0  10  .  switch S 0
    """)
    wake = got.wake(10)
    assert (wake["kind"], wake["waker"]) == (WakeKind.SELF, 10)
    assert wake["wakeup_latency_ns"] is None


def test_interrupt_of_the_wakee_itself_is_on_rq_not_self() -> None:
    got = run("""
         90  0   0  .  switch R 10
        100  0  10  h  waking 10 0
        101  0  10  h  wakeup 10 0
        300  0  10  .  switch S 0
    """)
    wake = got.wake(10)
    assert (wake["kind"], wake["waker"], wake["current"]) == (WakeKind.ON_RQ, None, 10)


@pytest.mark.parametrize(
    ("flag", "context"),
    [("h", WakeContext.HARDIRQ), ("s", WakeContext.SOFTIRQ), ("n", WakeContext.NMI)],
)
def test_interrupted_task_is_current_but_not_the_waker(flag: str, context: int) -> None:
    # 1.3: its flips count all the same.
    seeds = StartState(
        tasks=(TaskSeed(20, wakee_flips=3, last_wakee=11, dur_avg_ns=777),), jiffies_now=0
    )
    got = run(
        blocked(f"""
        200  1  20  {flag}  waking 10 0
        202  1  20  {flag}  wakeup 10 0
        206  0   0  .  switch R 10
    """),
        start=seeds,
    )
    wake = got.wake(10)
    assert (wake["waker"], wake["current"], wake["context"]) == (None, 20, context)
    assert wake["kind"] == WakeKind.DECIDED
    assert (wake["waker_flips"], wake["waker_dur_avg_ns"]) == (4, 777)


def test_idle_task_is_no_waker() -> None:
    wake = run(
        blocked("""
        150  1  20  .  switch S 0
        200  1   0  .  waking 10 0
        202  1   0  .  wakeup 10 0
    """)
    ).wake(10)
    assert (wake["waker"], wake["current"]) == (None, 0)


def test_pinned_kworker() -> None:
    columns = events("""
         50  0   0  .  switch R 10
         60  0  10  .  switch I 0
        100  1  20  .  waking 10 0
        101  1  20  .  wakeup 10 0
        103  0   0  .  switch R 10
    """)
    names = [NameChange(10, None, b"kworker/0:1", None)]
    timeline = build(columns, names=names)
    assert timeline.wakeups.column("kind").to_pylist() == [WakeKind.PINNED]
    flips = {t["pid"]: t["flips_seen"] for t in timeline.tasks.to_pylist()}
    assert flips[20] == 0
    # An unbound worker may run anywhere.
    names = [NameChange(10, None, b"kworker/u16:1", None)]
    assert build(columns, names=names).wakeups.column("kind").to_pylist() == [WakeKind.DECIDED]


def test_pinned_task_woken_while_running_was_on_the_queue() -> None:
    # "as decided" (1.5): a pinned task that had not left its queue is on_rq.
    columns = events("""
         50  0   0  .  switch R 10
        100  1  20  .  waking 10 0
        101  1  20  .  wakeup 10 0
        103  0  10  .  switch I 0
    """)
    timeline = build(columns, names=[NameChange(10, None, b"kworker/0:1", None)])
    assert timeline.wakeups.column("kind").to_pylist() == [WakeKind.ON_RQ]


def test_name_of_a_dead_pid_does_not_pin_the_next_task() -> None:
    columns = events("""
         50  0  10  .  switch X 0
         60  1  20  .  fork 10
         61  1  20  .  new 10 0
         62  0   0  .  switch R 10
         70  0  10  .  switch S 0
        100  1  20  .  waking 10 0
    """)
    names = [NameChange(10, None, b"kworker/0:1", 50_000), NameChange(10, None, b"sh", 61_000)]
    timeline = build(columns, names=names)
    assert timeline.wakeups.column("kind").to_pylist() == [WakeKind.FORK, WakeKind.DECIDED]


def test_rt_task_is_of_another_class() -> None:
    wake = run("""
         50  0   0     .  switch R 10@49
         60  0  10@49  .  switch S 0
        100  1  20     .  waking 10@49 0
        101  1  20     .  wakeup 10@49 0
        103  0   0     .  switch R 10@49
    """).wake(10)
    assert wake["kind"] == WakeKind.OTHER_CLASS
    assert (wake["wakeup_latency_ns"], wake["queue_delay_ns"]) == (3 * US, 2 * US)


DELAYED = """
     90  0   0  .  switch R 10
     95  1   0  .  switch R 20
    100  0  10  .  switch S 11
    200  1  20  .  waking 10 0
    201  1  20  .  wakeup 10 0
    205  0  11  .  switch S 10
"""


def test_delayed_dequeue_since_6_12_cannot_be_told_from_prev() -> None:
    assert run(DELAYED, kernel=6012).wake(10)["kind"] == WakeKind.DELAYED_MAYBE
    assert run(DELAYED, kernel=6001).wake(10)["kind"] == WakeKind.DECIDED
    # Through idle in between: really dequeued, so it was decided.
    idle = DELAYED.replace(
        "switch S 11\n",
        "switch S 11\n    120  0  11  .  switch S 0\n    130  0   0  .  switch R 11\n",
    )
    assert run(idle, kernel=6012).wake(10)["kind"] == WakeKind.DECIDED
    # Remote, or moved: decided.
    moved = DELAYED.replace(
        "201  1  20  .  wakeup 10 0", "201 1 20 . migrate 10 0 2\n 202 1 20 . wakeup 10 2"
    )
    assert run(moved, kernel=6012).wake(10)["kind"] == WakeKind.DECIDED


def test_wakeup_new_is_a_fork_with_its_parents_flips() -> None:
    seeds = StartState(
        tasks=(TaskSeed(20, wakee_flips=5, wakee_flip_decay_ts=777, last_wakee=30),),
        jiffies_now=778,
    )
    got = run(
        """
        100  0  20  .  fork 40
        102  0  20  .  new 40 1
        107  1   0  .  switch R 40
        108  1  40  .  waking 30 1
        109  1  40  .  wakeup 30 1
        """,
        start=seeds,
    )
    wake = got.wake(40)
    assert (wake["kind"], wake["waker"], wake["placed_cpu"]) == (WakeKind.FORK, 20, 1)
    assert wake["waking_ts"] is None and wake["wakeup_latency_ns"] is None
    assert wake["queue_delay_ns"] == 5 * US
    # A.2 "fork": the child copies flips, ts and last. Its first wakee is its parent's last one.
    assert (got.wake(30)["waker_flips"], got.task(40)["wakee_flips"]) == (5, 5)
    assert got.task(40)["born"] == 100 * US
    assert got.wake(30)["waker_dur_avg_ns"] == 0


# --- what was not recorded ------------------------------------------------------------------


def test_without_sched_waking_the_waker_is_taken_only_where_certain() -> None:
    got = run("""
         50  1   0  .  switch R 20
         60  0  10  .  switch S 0
        100  1  20  .  wakeup 10 0       # by a task: it enqueued the wakee itself
        102  0   0  .  switch R 10
        110  0  10  .  switch S 0
        200  0   0  h  wakeup 10 0       # remote form: from the wakelist, waker unknown
        202  0   0  .  switch R 10
    """)
    direct, remote = got.wakes(10)
    assert (direct["waker"], direct["this_cpu"], direct["queueing"]) == (20, 1, Queueing.DIRECT)
    assert (remote["waker"], remote["this_cpu"]) == (None, None)
    for wake in (direct, remote):
        assert wake["quality"] & Quality.NO_WAKING
        assert wake["queue_delay_ns"] == 2 * US
        assert wake["wakeup_latency_ns"] is None and wake["wake_delay_ns"] is None
    assert got.task(10)["wakeups"] == 2


def test_without_sched_wakeup_wakings_are_the_wakeups() -> None:
    got = run(
        blocked("""
        200  1  20  .  waking 10 0
        206  0   0  .  switch R 10
    """)
    )
    assert got.wake(10)["wakeup_latency_ns"] == 6 * US
    assert got.task(10)["wakeups"] == 1


def test_switch_only_capture_has_sleeps_and_samples() -> None:
    # No waking was recorded at all: that sleeps end without one says nothing (R4 is not for
    # this), on any kernel. Bursts of 8 us after the first block: dur_avg samples as usual.
    lines = ["0  0  10  .  switch S 0"]
    for i in range(1, 26):
        lines += [f"{100 * i}  0  0  .  switch R 10", f"{100 * i + 8}  0  10  .  switch S 0"]
    for kernel in (0, 5010, 6001, 6012, 7003):
        got = run("\n".join(lines), kernel=kernel)
        task = got.task(10)
        assert (task["switches"], task["voluntary"], task["dur_samples"]) == (26, 26, 25)
        assert task["dur_avg_ns"] is not None
        assert "false_blocking" not in got.issues
        assert not got.wakes(10)
        adds_up(got)


def test_context_that_is_not_told() -> None:
    wake = run(
        blocked("""
        200  1  20  ?  waking 10 0
        202  1  20  ?  wakeup 10 0
    """)
    ).wake(10)
    assert wake["context"] == WakeContext.UNKNOWN


def test_no_events_at_all() -> None:
    timeline = TimelineBuilder().finish()
    assert all(len(table) == 0 for name, table in tables(timeline).items() if name != "cpus")
    builder = TimelineBuilder()
    builder.feed(EventColumns.empty(0))
    assert builder.finish().tasks.num_rows == 0


# --- loss and contradiction -----------------------------------------------------------------


def test_loss_cuts_what_ran_and_waited_on_that_cpu() -> None:
    got = run("""
          0  0   0  .  switch R 10
         10  1   0  .  switch R 20
         20  1  20  .  waking 11 0
         22  1  20  .  wakeup 11 0
        300  0   0  .  lost 7
        300  0  12  .  switch S 0
        400  1  20  .  switch S 0
    """)
    (ten,) = got.slices(10)
    assert (ten["start"], ten["end"], ten["end_reason"]) == (0, None, EndReason.CUT)
    assert [(s["start"], s["end"]) for s in got.slices(12)] == [(None, 300 * US)]
    wake = got.wake(11)
    assert wake["quality"] & Quality.TOUCHES_LOSS
    assert wake["run_ts"] is None and wake["queue_delay_ns"] is None
    # CPU0: how long 10 and 12 ran within [0, 300] is not known; then idle 100.
    row = got.cpu(0)
    assert (row["busy_ns"], row["idle_ns"], row["unknown_ns"]) == (0, 100 * US, 300 * US)
    adds_up(got)


def test_loss_while_idle_and_idle_again_counts_no_time_twice() -> None:
    # Idle [0, 100] is not sure to last until the loss at 100; from 150 on idle again.
    got = run("""
          0  0  10  .  switch S 0
        100  0   0  .  lost 3
        120  0  11  .  mark
        150  0  11  .  switch S 0
        400  0   0  .  mark
    """)
    row = got.cpu(0)
    assert (row["idle_ns"], row["busy_ns"], row["unknown_ns"]) == (250 * US, 0, 150 * US)
    adds_up(got)


def test_loss_while_a_task_runs_that_runs_again_counts_no_time_twice() -> None:
    got = run("""
          0  0   0  .  switch R 10
        100  0   0  .  lost 3
        150  0   0  .  switch R 10
        400  0  10  .  mark
    """)
    row = got.cpu(0)
    assert row["busy_ns"] == 250 * US
    adds_up(got)


def test_dur_avg_over_a_loss_is_dropped_and_stale() -> None:
    # Known (0 at birth), one sample of 8 us: 1000. The loss drops the sample that spans it and
    # makes the average stale for 8 samples.
    lines = """
        10   0  10  .  switch S 0
        20   1  20  .  waking 10 0
        21   1  20  .  wakeup 10 0
        22   0   0  .  switch R 10
        30   0   0  .  lost 4
        40   0  10  .  switch S 0
    """
    for i in range(1, 9):
        t = 100 * i
        lines += f"""
        {t}      1  20  .  waking 10 0
        {t + 1}  1  20  .  wakeup 10 0
        {t + 2}  0   0  .  switch R 10
        {t + 3}  0  10  .  switch S 0
        """
        if i == 7:
            seven = lines
    assert run(born(seven)).task(10)["dur_avg_ns"] is None
    task = run(born(lines)).task(10)
    assert task["dur_samples"] == 1 + 8
    assert task["dur_avg_ns"] is not None


def test_remote_wakeup_lost_on_the_target_touches_the_loss() -> None:
    # 10 was booked on CPU2; CPU2's records up to 300 are lost, its wakeup among them.
    got = run(
        blocked("""
        200  1  20  .  waking 10 0
        201  1  20  .  migrate 10 0 2
        300  2   0  .  lost 5
        300  2   0  .  switch R 10
    """)
    )
    wake = got.wake(10)
    assert wake["quality"] & Quality.TOUCHES_LOSS


def test_begin_row_is_the_cpus_window() -> None:
    got = run("""
          0  0   0  .  switch R 10
         50  1   0  .  begin
         50  1  20  .  mark
        100  1  20  .  switch S 0
        400  0  10  .  switch S 0
    """)
    row = got.cpu(1)
    assert (row["begin"], row["end"]) == (50 * US, 100 * US)
    assert (row["busy_ns"], row["idle_ns"], row["unknown_ns"]) == (50 * US, 300 * US, 50 * US)
    adds_up(got)


def test_first_switch_fixes_the_cpu_back_to_the_windows_start() -> None:
    # CPU1's first record is at 300 and leaves the idle task: idle since 0.
    got = run("""
          0  0   0  .  switch R 10
        300  1   0  .  switch R 20
        400  1  20  .  switch S 0
    """)
    row = got.cpu(1)
    assert (row["idle_ns"], row["busy_ns"], row["unknown_ns"]) == (300 * US, 100 * US, 0)
    assert (got.gaps(1)[0]["start"], got.gaps(1)[0]["end"]) == (None, 300 * US)


def test_missing_switch_closes_the_slice_as_unknown() -> None:
    # R3: 10 was switched in, then 11 is switched out.
    got = run("""
          0  0   0  .  switch R 10
        100  0  11  .  switch S 0
        200  0   0  .  switch R 10
    """)
    assert got.issues["lost_switch"] == 1
    assert next((s["start"], s["end"], s["end_reason"]) for s in got.slices(10)) == (
        0,
        None,
        EndReason.CUT,
    )
    assert [(s["start"], s["end"]) for s in got.slices(11)] == [(None, 100 * US)]
    row = got.cpu(0)
    assert (row["busy_ns"], row["idle_ns"], row["unknown_ns"]) == (0, 100 * US, 100 * US)
    adds_up(got)


def test_queued_here_ran_there_without_a_migrate() -> None:
    # R2: the switch is believed; CPU0's queue is empty again.
    got = run("""
          0  0   0  .  switch R 9
          1  1   0  .  switch R 20
         10  1  20  .  waking 10 0
         11  1  20  .  wakeup 10 0
         20  2   0  .  switch R 10
         30  1  20  .  waking 12 0
         31  1  20  .  wakeup 12 0
    """)
    assert got.issues["moved_without_migrate"] == 1
    assert (got.wake(10)["placed_cpu"], got.wake(10)["ran_cpu"]) == (0, 2)
    assert got.wake(12)["nr_running_placed"] == 1  # 9 alone


def test_task_on_two_cpus_is_believed_where_it_ran_last() -> None:
    got = run("""
          0  0   0  .  switch R 10
        100  1   0  .  switch R 10
        200  1  10  .  switch S 0
    """)
    assert got.issues["ran_on_two_cpus"] == 1
    assert [(s["cpu"], s["start"], s["end"]) for s in got.slices(10)] == [
        (0, 0, None),
        (1, 100 * US, 200 * US),
    ]
    assert got.cpu(0)["busy_ns"] == 0
    adds_up(got)


# --- idle gaps ------------------------------------------------------------------------------

WAITING = """
      0  0   0  .  switch R 9
      0  1   0  .  switch R 20
      0  2  30  .  switch S 0
      0  3  31  .  switch S 0
    100  1  20  .  waking 10 0
    100  1  20  .  wakeup 10 0        # behind 9
    250  2   0  h  wakeup 32 2        # on its way onto idle CPU2
    260  2   0  .  switch R 32
    300  0   9  .  switch S 10
    400  3   0  .  switch R 31
"""


def test_waited_elsewhere_counts_other_cpus_only() -> None:
    # 10 waits on CPU0 from 100 to 300, behind 9. 32 waits on CPU2 from 250 to 260, on an idle
    # CPU. Gap of CPU2 [0, 260]: 10 waited 160 of it; its own 32 is not elsewhere.
    # Gap of CPU3 [0, 400]: 10 and 32 together: 200 (32's wait lies within 10's).
    got = run(WAITING, llc=[0, 0, 0, 0])
    two, three = got.gaps(2)[0], got.gaps(3)[0]
    assert (two["waited_llc_ns"], two["waited_busy_llc_ns"]) == (160 * US, 160 * US)
    assert (three["waited_llc_ns"], three["waited_busy_llc_ns"]) == (200 * US, 200 * US)
    assert two["ended_by"] is not None and three["ended_by"] is None


def test_waited_in_the_llc_and_anywhere() -> None:
    # CPUs 0 and 1 share an LLC, 2 and 3 another: within 3's LLC only 32 waited, 10 us, and on
    # an idle CPU; within 2's nobody else; anywhere as above.
    got = run(WAITING, llc=[0, 0, 1, 1])
    two, three = got.gaps(2)[0], got.gaps(3)[0]
    assert (two["waited_llc_ns"], two["waited_any_ns"], two["waited_busy_llc_ns"]) == (
        0,
        160 * US,
        0,
    )
    assert (three["waited_llc_ns"], three["waited_any_ns"], three["waited_busy_llc_ns"]) == (
        10 * US,
        200 * US,
        0,
    )


def test_deepest_cpu_idle_state_of_a_gap() -> None:
    got = run("""
          0  0  10  .  switch S 0
          1  0   0  .  idle 1
         20  0   0  .  idle leave
         21  0   0  .  idle 3
         40  0   0  .  idle leave
         50  0   0  .  switch R 10
         60  0  10  .  switch S 0
    """)
    assert [g["cpu_idle_state"] for g in got.gaps(0)] == [3, None]


# --- the rest -------------------------------------------------------------------------------


def test_sync_guess_is_no_for_a_waker_that_runs_on_and_open_else() -> None:
    # 7.5: sigma < 0.2 over 20 wakings says not sync; a waker that blocks at once proves nothing.
    lines = ["0 1 0 . switch R 20", "0 2 0 . switch R 21"]
    for i in range(1, 25):
        t = 1000 * i
        lines += [
            f"{t}       1  20  .  waking 10 0",
            f"{t + 1}   1  20  .  wakeup 10 0",
            f"{t + 2}   0   0  .  switch R 10",
            f"{t + 10}  0  10  .  switch S 0",
            f"{t + 20}  2  21  .  waking 11 3",
            f"{t + 21}  2  21  .  wakeup 11 3",
            f"{t + 22}  2  21  .  switch S 0",
            f"{t + 23}  3   0  .  switch R 11",
            f"{t + 30}  3  11  .  switch S 0",
            f"{t + 500} 2   0  h  waking 21 2",
            f"{t + 501} 2   0  h  wakeup 21 2",
            f"{t + 502} 2   0  .  switch R 21",
        ]
    got = run("\n".join(lines))
    assert {w["sync_guess"] for w in got.wakes(10)} == {0}
    assert {w["sync_guess"] for w in got.wakes(11)} == {None}


@pytest.mark.parametrize(
    ("release", "number"),
    [("6.1.192", 6001), ("6.12.117+deb13", 6012), ("5.10", 5010), (None, 0), ("rubbish", 0)],
)
def test_kernel_number(release: str | None, number: int) -> None:
    assert kernel_number(release) == number


def test_start_state_tells_who_runs() -> None:
    # Nothing of CPU2 and CPU3 is recorded, but the start state names who is there.
    start = StartState(running={2: 0, 3: 99})
    got = run(
        """
          0  0   0  .  switch R 10
        100  0  10  .  switch S 0
        """,
        start=start,
    )
    assert got.cpu(2)["idle_ns"] == 100 * US
    assert got.cpu(3)["busy_ns"] == 100 * US
    adds_up(got)


def test_hostile_numbers_do_no_harm() -> None:
    columns = events("""
        100  0  10  .  switch S 0
        110  0   0  .  switch R 10
        120  0  10  .  waking 11 0
        130  0  10  .  wakeup 11 0
    """)
    columns.subject[2:] = 2**31 - 1
    columns.cpu_to[3] = 2**31 - 1
    columns.pid[1] = -7
    timeline = build(columns)
    tables(timeline)
    assert timeline.issues.counts()["pid_out_of_range"] >= 1
    assert timeline.issues.counts()["cpu_out_of_range"] == 1


def test_start_state_with_very_many_cpus_is_held() -> None:
    start = StartState(running={cpu: cpu + 1 for cpu in range(5000)})
    timeline = build(events("100  0  1  .  switch S 0"), start=start)
    assert timeline.tasks.num_rows == 5001
    assert np.all(np.diff(timeline.tasks.column("pid").to_numpy()[:5000]) == 1)
