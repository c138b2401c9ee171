"""What a report says of small captures whose truth is plain, and of those that lack something."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from traceana import capture, reports
from traceana.errors import MissingEventsError

Tiny = Callable[..., capture.Capture]

ONE_WAKEUP = """
    100.0 0 0  . switch R 10
    100.0 1 20 . switch S 0
    110.0 0 10 . waking 20 1
    111.0 1 0  . wakeup 20 1
    113.5 1 0  . switch R 20
    140.0 0 10 . switch S 0
    150.0 1 20 . switch S 0
    160.0 1 0  . switch R 20
"""


def as_json(cap: capture.Capture, **options: Any) -> dict[str, Any]:
    return dict(json.loads(reports.render(cap, format="json", **options)))


def section(document: dict[str, Any], id: str) -> dict[str, Any]:
    return next(s for s in document["sections"] if s["id"] == id)


def table(document: dict[str, Any], id: str) -> list[dict[str, Any]]:
    found = [t for s in document["sections"] for t in s["tables"] if t["id"] == id]
    assert found, f"no table {id}"
    return list(found[0]["rows"])


def test_both_latencies_of_one_wakeup(tiny: Tiny) -> None:
    document = as_json(tiny(ONE_WAKEUP, {10: b"front", 20: b"back"}))
    rows = {r["latency"]: r for r in table(document, "latencies")}
    assert rows["queue delay"]["max_ns"] == 2500
    assert rows["wakeup latency"]["max_ns"] == 3500
    assert rows["wake delay"]["max_ns"] == 1000
    assert rows["queue delay"]["max_task"] == "back (pid 20)"
    assert rows["queue delay"]["max_cpu"] == 1
    assert rows["queue delay"]["max_at_ns"] == 113_500
    assert (
        "the longest, 2.50 µs, was back (pid 20) on CPU 1 at 0.000113 s" in document["opening"][2]
    )


def test_a_pair_and_its_direction(tiny: Tiny) -> None:
    rows = table(as_json(tiny(ONE_WAKEUP, {10: b"front", 20: b"back"})), "pairs")
    assert [(r["waker"], r["wakee"], r["wakeups"], r["mutual"]) for r in rows] == [
        ("front", "back", 1, False)
    ]


def test_idle_share_and_who_waited(tiny: Tiny) -> None:
    # CPU 0 runs 10 for 100 of 200 us, then 11 which waited 20 us behind it while CPU 1 idled.
    text = """
        100.0 0 0  . switch R 10
        100.0 1 20 . switch S 0
        180.0 0 10 h wakeup 11 0
        200.0 0 10 . switch S 11
        300.0 0 11 . switch S 0
        300.0 1 0  . switch R 20
    """
    document = as_json(tiny(text))
    assert "were idle 50.0 % of the time" in document["opening"][1]
    cpus = {r["cpu"]: r for r in table(document, "idle-cpus")}
    assert cpus[0]["idle_ns"] == 0
    assert cpus[1]["idle_ns"] == 200_000
    assert cpus[1]["stuck_share"] == pytest.approx(0.1)
    waits = {r["workload"]: r for r in table(document, "workload-waits")}
    assert waits["all tasks"]["stuck_ns"] == 20_000
    assert waits["all tasks"]["stuck_while_idle_ns"] == 20_000


def test_a_cpu_without_a_switch_is_not_idle_and_one_without_events_is_unknown(tiny: Tiny) -> None:
    # CPU 0: ticks of 50 and no switch: busy. CPU 1: 40 us busy, 60 idle. CPUs 2 and 3: no event.
    text = """
        100.0 1 0  . switch R 20
        110.0 0 50 . stat 50 1000
        140.0 1 20 . switch S 0
        190.0 0 50 . stat 50 1000
        200.0 1 0  . switch R 20
    """
    document = as_json(tiny(text, cpus_present=4))
    said = document["opening"][1]
    assert "idle 30.0 % of the time" in said  # 60 of 2 x 100 us
    assert "between 15.0 % and 65.0 %" in said  # 60 of 400; 60 + 200 of 400
    assert "2 CPUs without any event" in said


def test_rings_that_wrapped_are_compared_in_their_common_window(tiny: Tiny) -> None:
    # CPU 1's data begins at 200: in 200..300 CPU 0 idles 100 us, CPU 1 idles 50 us.
    text = """
        100.0 0 10 . switch S 0
        200.0 1 0  . begin
        200.0 1 20 . idle 1
        210.0 1 20 . switch S 0
        260.0 1 0  . switch R 20
        300.0 0 0  . switch R 10
    """
    said = as_json(tiny(text))["opening"][1]
    assert "idle 75.0 % of the 100 µs that all CPUs' data have in common" in said


SWITCHES = "\n".join(line for line in ONE_WAKEUP.splitlines() if "switch" in line)


def test_switches_alone_say_what_is_missing_and_how_to_record_it(tiny: Tiny) -> None:
    document = as_json(tiny(SWITCHES))
    for name in ("pairs", "latency", "race", "delays", "examples", "rules"):
        said = " ".join(section(document, name)["missing"])
        assert "sched_wak" in said, name
        assert "-e sched:sched_wak" in said, name
    assert "not known without sched_wakeup" in document["opening"][1]
    assert table(document, "tasks")


def test_no_switches_still_give_facts(tiny: Tiny) -> None:
    text = "\n".join(x for x in ONE_WAKEUP.splitlines() if "switch" not in x)
    document = as_json(tiny(text))
    assert "sched_switch was not recorded" in document["opening"][1]
    assert "trace-cmd record -e sched:sched_switch" in document["opening"][1]
    assert {r["event"]: r["events"] for r in table(document, "events")} == {
        "sched_waking": 1,
        "sched_wakeup": 1,
    }


def test_nothing_that_traceana_reads_is_an_error(tiny: Tiny) -> None:
    from traceana.columns import EventColumns

    with pytest.raises(MissingEventsError, match="sched_switch"):
        reports.render(tiny(EventColumns.empty(0)))


@pytest.mark.parametrize("unit", ["count", "cycles"])
def test_a_clock_that_is_no_time_gives_no_durations(tiny: Tiny, unit: str) -> None:
    cap = tiny(ONE_WAKEUP, {10: b"front", 20: b"back"}, clock="counter", clock_unit=unit)
    document = as_json(cap)
    assert any("No durations" in said for said in document["opening"])
    kinds = {c["kind"] for s in document["sections"] for t in s["tables"] for c in t["columns"]}
    assert not kinds & {"ns", "ts"}
    text = reports.render(cap, format="md")
    assert " µs" not in text.split("## Method")[0]
    assert table(document, "pairs")[0]["wakeups"] == 1


def test_losses_are_said_first(tiny: Tiny) -> None:
    cap = tiny(ONE_WAKEUP)
    cap._reader.lost.add(1, 12)
    document = as_json(cap)
    assert "12 lost" in document["opening"][0]
    assert section(document, "quality")["sentences"][0].startswith("12 lost (60.0 % of all events)")


def test_losses_without_a_number(tiny: Tiny) -> None:
    cap = tiny(ONE_WAKEUP)
    cap._reader.lost.add(1, None)
    assert "some lost (1 time, number not recorded)" in as_json(cap)["opening"][0]


def test_a_damaged_file_is_called_so(tiny: Tiny) -> None:
    cap = tiny(ONE_WAKEUP)
    cap._reader.damaged = True  # type: ignore[misc]
    assert "cut or damaged" in as_json(cap)["opening"][0]


def test_many_cpus_stay_small(tiny: Tiny) -> None:
    lines = []
    for cpu in range(300):
        for i in range(8):
            t = 100 + 20 * i + cpu / 1000
            lines.append(f"{t:.3f} {cpu} {1000 + cpu} . switch S 0")
            lines.append(f"{t + 7:.3f} {cpu} 0 . switch R {1000 + cpu}")
    lines.sort(key=lambda line: float(line.split()[0]))
    page = reports.render(tiny("\n".join(lines)))
    assert len(page.encode()) < 1_500_000
