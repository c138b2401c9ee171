"""Which of the five questions a capture can answer, and what to record for the rest.

What each question needs follows from what its answer is made of: a switch tells who ran, a waking
who decides and when, a wakeup where the task was queued and since when. What is only better to have
makes an answer exact that is otherwise estimated or bounded.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

__all__ = ["EFFECTS", "QUESTIONS", "Answer", "Need", "Question", "answers"]


@dataclass(frozen=True)
class Need:
    """A tracepoint, ``topology`` or ``start_state``, and what it gives.

    ``rank``: 0 nothing is answered without it, 1 the answer is partial, 2 it is less exact.
    """

    what: str
    gives: str
    rank: int


@dataclass(frozen=True)
class Question:
    """One of the questions that captures are asked; ``record`` is the --for of `record`."""

    name: str
    text: str
    needs: tuple[Need, ...]
    record: str


_SWITCH = Need("sched_switch", "who runs where and when", 0)
_MIGRATE = Need("sched_migrate_task", "moves between queues", 2)
_DUR = Need("sched_stat_runtime", "dur_avg as the kernel has it", 2)
_STATE = Need("start_state", "dur_avg and wakee_flips from the first event on", 2)
_TOPOLOGY = Need("topology", "which CPUs share a cache and a core", 1)

QUESTIONS = (
    Question(
        "tasks",
        "what each task did, whom it woke, how long it waited",
        (
            _SWITCH,
            Need("sched_waking", "who wakes whom, wakeup latency", 1),
            Need("sched_wakeup", "queue delay", 1),
            _DUR,
            _STATE,
        ),
        "latency,rules",
    ),
    Question(
        "idle",
        "where idle time went while somebody waited",
        (
            _SWITCH,
            Need("sched_wakeup", "who waits meanwhile", 1),
            _TOPOLOGY,
            Need("cpu_idle", "how deep a CPU slept", 2),
        ),
        "placement",
    ),
    Question(
        "placement",
        "why the kernel put each wakeup there",
        (
            _SWITCH,
            Need("sched_waking", "when and from where it is decided", 0),
            Need("sched_wakeup", "the CPU that was chosen, and when it was queued", 1),
            _TOPOLOGY,
            _MIGRATE,
            _DUR,
            _STATE,
        ),
        "placement,rules",
    ),
    Question(
        "rules",
        "what another placement rule would have done",
        (
            _SWITCH,
            Need("sched_waking", "when and from where it is decided", 0),
            Need("sched_wakeup", "the CPU that was chosen, and when it was queued", 1),
            _TOPOLOGY,
            _MIGRATE,
            _DUR,
            _STATE,
        ),
        "rules",
    ),
    Question(
        "race",
        "whether several wakeups chose the same idle CPU",
        (
            _SWITCH,
            Need("sched_waking", "when it is decided", 0),
            Need("sched_wakeup", "when it shows that the CPU is taken", 1),
            _TOPOLOGY,
            _MIGRATE,
            Need("cpu_idle", "when an idle CPU is really awake", 2),
        ),
        "race",
    ),
)
_WORDS = ("no", "partly", "yes", "yes")
#: By rank, what becomes of the answer without it.
EFFECTS = ("none", "partial", "less exact")


@dataclass(frozen=True)
class Answer:
    """``answer``: yes, partly or no; ``lacking``: what is not there, the most needed first."""

    question: Question
    answer: str
    lacking: tuple[Need, ...]
    #: Why it cannot be answered though everything was recorded, or None.
    why: str | None
    #: The command that records what is lacking, or None.
    command: str | None

    def to_json(self) -> dict[str, Any]:
        """As it stands in ``info --format json``."""
        return {
            "question": self.question.name,
            "text": self.question.text,
            "answer": self.answer,
            "lacking": [
                {"what": n.what, "gives": n.gives, "without": EFFECTS[n.rank]} for n in self.lacking
            ],
            "why_not": self.why,
            "record": self.command,
        }


def answers(
    events: Collection[str],
    *,
    topology: bool,
    start_state: bool,
    has_time: bool = True,
    whole: bool = True,
) -> list[Answer]:
    """What can be answered.

    Parameters
    ----------
    events : bare names of the tracepoints that are in the capture and used
    topology : it is known, not assumed
    start_state : it is given
    has_time : the clock counts time
    whole : all tasks were recorded, not only some
    """
    have = set(events)
    have |= {"topology"} if topology else set()
    have |= {"start_state"} if start_state else set()
    out = []
    for question in QUESTIONS:
        absent = [n for n in question.needs if n.what not in have]
        lacking = tuple(sorted(absent, key=lambda n: n.rank))
        answer = _WORDS[min((n.rank for n in lacking), default=3)]
        why = None
        if not has_time:
            answer, why = "no", "the clock counts no time"
        elif not whole and question.name != "tasks":
            answer, why = "no", "only some tasks were recorded"
        command = f"traceana record --for {question.record}" if lacking or why else None
        if why is None and [n.what for n in lacking] == ["topology"]:
            # It can still be had, on the machine that was recorded.
            command = "traceana record --beside CAPTURE"
        out.append(Answer(question, answer, lacking, why, command))
    return out
