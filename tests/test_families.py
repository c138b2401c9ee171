"""Workloads: families of names, and globs."""

from __future__ import annotations

import time

import pytest

from traceana.families import family, group_names


@pytest.mark.parametrize(
    ("comm", "name"),
    [
        ("pp-a-12", "pp-a"),
        ("pp-a-12-3", "pp-a"),
        ("hb-s-0-19", "hb-s"),
        ("nginx", "nginx"),
        ("worker_7", "worker"),
        ("thread#3", "thread"),
        ("x264", "x"),  # a running number cannot be told from a name's own
        ("7", "7"),
        ("12-34", "12-34"),
        ("", ""),
        ("kworker/3:1H", "kworker"),
        ("kworker/u16:2-events", "kworker"),
        ("ksoftirqd/0", "ksoftirqd"),
        ("rcu_preempt", "rcu_preempt"),
        ("rcuop/3", "rcuop"),
        ("Web Content", "Web Content"),
        ("<script>", "<script>"),
    ],
)
def test_family(comm: str, name: str) -> None:
    assert family(comm) == name


@pytest.mark.parametrize("comm", ["1" * 60 + "x", "-1" * 60 + "x", "1" * 4000 + "x"])
def test_family_of_a_hostile_name_takes_no_time(comm: str) -> None:
    began = time.process_time()
    family(comm)
    assert time.process_time() - began < 1.0


def test_families_follow_the_process() -> None:
    # A thread belongs to its process; without a known process to its own name; unnamed to none.
    assert group_names(["GC Thread#1", "pp-a-1", None], ["java", None, None]) == [
        "java",
        "pp-a",
        None,
    ]


def test_globs_match_task_or_process_and_the_first_wins() -> None:
    comms = ["redis-server", "io-3", "bash", None]
    leaders = [None, "redis-server", "bash", None]
    globs = [("db", "redis*"), ("io", "io-*"), ("db2", "redis-server")]
    assert group_names(comms, leaders, globs) == ["db", "db", None, None]


def test_globs_are_case_sensitive_and_know_classes() -> None:
    assert group_names(["Web1", "web1", "web9"], [None] * 3, [("w", "web[1-5]")]) == [
        None,
        "w",
        None,
    ]


def test_lists_of_different_length_are_a_fault() -> None:
    with pytest.raises(ValueError):
        group_names(["a"], [])
