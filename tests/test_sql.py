"""``traceana sql``: the worked questions of docs/sql.md, and what a query may not do."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from many_captures import make

duckdb = pytest.importorskip("duckdb")

from traceana import batch, capture, schema  # noqa: E402
from traceana._batch_jobs import Asked  # noqa: E402
from traceana.errors import FormatError, UsageError  # noqa: E402
from traceana.sql import ask_capture, ask_dataset, capture_tables  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ROOT / "sample_traces"
PP3 = SAMPLES / "pp3-plain.dat.xz"
PAGE = (ROOT / "docs" / "sql.md").read_text()
#: The five questions: heading -> the command under it.
QUESTIONS = dict(
    re.findall(r"^## \d\. (.*?)\n.*?^```sh\n(traceana sql.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sql") / "fleet"
    names = ["pp3-plain.dat.xz", "mix-wrapped.dat", "hostile.dat"]
    asked = Asked(rules=("sis_short_v5",))
    batch.run([str(SAMPLES / n) for n in names], path, asked=asked, labels=["{what}-*"], jobs=1)
    return path


@pytest.fixture(scope="module")
def pp3() -> capture.Capture:
    return capture.open(PP3)


class TestQuestions:
    """Each worked question of the page, against the figures that the verbs print."""

    def run(self, cli: Callable[..., Any], number: int, dataset: Path) -> list[dict[str, Any]]:
        words = shlex.split(list(QUESTIONS.values())[number - 1].replace("\\\n", " "))
        words = [str(dataset) if w == "build/fleet" else w for w in words[1:]]
        ran = cli(*words, "--format", "json")
        assert ran.status == 0, ran.err
        assert ran.err == ""
        return list(ran.json["rows"])

    def test_there_are_five(self) -> None:
        assert len(QUESTIONS) == 5

    def test_1_who_waits_longest(self, cli: Callable[..., Any], dataset: Path) -> None:
        got = self.run(cli, 1, dataset)
        rows = cli("tasks", PP3, "--format", "json", "-n", "0").json["tasks"]
        known = [r for r in rows if r["delay_max_ns"] is not None]
        best = sorted(known, key=lambda r: (-r["delay_max_ns"], r["pid"]))[:5]
        assert [(r["comm"], r["pid"], r["delay_max_ns"]) for r in got] == [
            (r["comm"], r["pid"], r["delay_max_ns"]) for r in best
        ]

    def test_2_who_wakes_whom(self, cli: Callable[..., Any], dataset: Path) -> None:
        got = self.run(cli, 2, dataset)
        rows = cli("wakeups", PP3, "--by", "pair", "--format", "json", "-n", "0").json["latencies"]
        told = {r["group"]: r for r in rows if r["latency"] == "queue_delay"}
        assert len(got) == 5
        for r in got:
            pair = told[f"{r['waker']}:{r['waker_pid']} -> {r['wakee']}:{r['wakee_pid']}"]
            assert (r["n"], r["p99_ns"]) == (pair["n"], pair["p99_ns"])

    def test_3_idle_while_somebody_waited(self, cli: Callable[..., Any], dataset: Path) -> None:
        got = self.run(cli, 3, dataset)
        rows = {r["cpu"]: r for r in cli("idle", PP3, "--format", "json").json["cpus"]}
        assert [r["cpu"] for r in got] == sorted(r["cpu"] for r in got)
        assert {r["cpu"]: r["waited_ns"] for r in got} == {
            c: r["waited_llc_ns"] for c, r in rows.items() if r["gaps"]
        }

    def test_4_where_a_rule_moves(self, cli: Callable[..., Any], dataset: Path) -> None:
        got = self.run(cli, 4, dataset)
        args = ("whatif", PP3, "--rule", "prev_cpu", "--format", "json")
        (told,) = cli(*args).json["rules"]
        assert sum(r["moved"] for r in got) == told["moved"]
        assert sum(r["decided"] for r in got) == told["decisions"]
        assert {r["reason"]: r["decided"] for r in got} == {
            k: v for k, v in told["reasons"].items() if v
        }

    def test_5_the_fleet(self, cli: Callable[..., Any], dataset: Path) -> None:
        got = self.run(cli, 5, dataset)
        found = cli("fleet", dataset, "--by", "what", "--format", "json").json
        rows = {r["group"]["what"]: r for r in found["groups"]}
        assert {r["what"]: r["captures"] for r in got} == {
            k: r["captures"] for k, r in rows.items()
        }
        for r in got:
            assert r["waited_share"] == pytest.approx(rows[r["what"]]["idle_waited_share"])


class TestTables:
    def test_every_table_of_the_schema(self, pp3: capture.Capture) -> None:
        # candidates: what collisions were before they were told apart.
        assert set(capture_tables(pp3)) == set(schema.TABLES) - {"candidates"}
        for name, made in capture_tables(pp3).items():
            schema.check(made(), name)

    def test_only_what_is_named_is_made(self) -> None:
        fresh = capture.open(PP3)
        answer = ask_capture(fresh, "select count(*) as n from events")
        assert answer.rows == [[sum(map(len, fresh.event_columns()))]]
        assert fresh._timeline is None

    def test_describe_and_explain(self, pp3: capture.Capture) -> None:
        names = [r[0] for r in ask_capture(pp3, "describe tasks").rows]
        assert names == schema.TASKS.schema.names
        assert ask_capture(pp3, "explain select * from tasks").rows

    def test_dataset(self, dataset: Path) -> None:
        answer = ask_dataset(dataset, "select label_what, status from facts order by 1")
        assert answer.rows == [["mix", "ok"], ["pp3", "ok"], [None, "ok"]]
        joined = ask_dataset(
            dataset, "select count(*) from tasks join facts using (capture) where status = 'ok'"
        )
        total = ask_dataset(dataset, "select sum(tasks) from facts")
        assert joined.rows == total.rows

    def test_no_dataset(self, tmp_path: Path) -> None:
        with pytest.raises(FormatError):
            ask_dataset(tmp_path, "select 1")


class TestHostile:
    @pytest.mark.parametrize(
        "query",
        [
            "select * from read_csv('{file}')",
            "select * from read_text('{file}')",
            "select * from '{file}'",
            "select * from glob('/*')",
            "copy tasks to '{out}'",
            "copy (select 1) to '{out}'",
            "explain analyze copy (select 1) to '{out}'",
            "attach '{out}'",
            "install httpfs",
            "load httpfs",
            "set enable_external_access = true",
            "pragma enable_external_access = true",
            "create table x as select 1",
            "insert into tasks select * from tasks",
            "drop table tasks",
            "select 1; select 2",
            "select * from query",
            "select * from tables",
            "select * from nonsense",
            "select nonsense from tasks",
            "select",
            "",
            "\x1b[2J",
        ],
    )
    def test_is_refused(self, cli: Callable[..., Any], query: str, tmp_path: Path) -> None:
        file, out = tmp_path / "secret.csv", tmp_path / "out"
        file.write_text("secret\n1\n")
        ran = cli("sql", query.format(file=file, out=out), "-i", PP3)
        assert ran.status == 2, ran.out
        assert ran.out == "" and "Traceback" not in ran.err and "\x1b" not in ran.err
        assert ran.err.count("\n") == 1
        assert not out.exists()

    def test_names_are_escaped(self, cli: Callable[..., Any]) -> None:
        ran = cli("sql", 'select chr(27) || comm as "a\x1b[2J" from tasks limit 1', "-i", PP3)
        assert ran.status == 0 and "\x1b" not in ran.out

    def test_values_are_plain(self, pp3: capture.Capture) -> None:
        query = (
            "select 'nan'::double a, 9223372036854775807::hugeint * 4 b, date '2020-01-01' c, "
            "[1, 2] d, {'x': 'inf'::double} e, 1 f, 2 f, true g, null h, 1.5::decimal(4, 2) i, "
            "'\\x00'::blob j"
        )
        answer = ask_capture(pp3, query)
        (row,) = answer.rows
        assert len(set(answer.names)) == len(answer.names) == 11
        told = json.loads(json.dumps(row, allow_nan=False))
        assert told == [
            None, 4 * (2**63 - 1), "2020-01-01", [1, 2], {"x": None}, 1, 2, True, None, "1.50",
            "00",
        ]  # fmt: skip

    def test_a_dataset_cannot_lead_elsewhere(self, dataset: Path) -> None:
        with pytest.raises(UsageError, match="disabled"):
            ask_dataset(dataset, "select * from read_parquet('/tmp/*.parquet')")


class TestCommand:
    def test_formats(self, cli: Callable[..., Any]) -> None:
        query = "select comm, wakeups from tasks order by wakeups desc, task"
        args = ("sql", query, "-i", PP3)
        lines = cli(*args, "-n", "2").out.splitlines()
        assert lines[0].split() == ["comm", "wakeups"] and lines[-1].endswith("(use -n 0)")
        rows = cli(*args, "--format", "ndjson").out.splitlines()
        assert len(rows) == capture.open(PP3).tasks().num_rows

    def test_damaged_is_4(self, cli: Callable[..., Any], tmp_path: Path) -> None:
        garbled = make(tmp_path, 4)[-1]
        ran = cli("sql", "select count(*) n from tasks", "-i", garbled)
        assert ran.status == 4 and ran.out.split()[0] == "n"

    def test_no_query_or_input(self, cli: Callable[..., Any]) -> None:
        assert cli("sql", "-i", PP3).status == 2
        assert cli("sql", "select 1").status == 2
        assert cli("sql", "select 1", "-i", "/nonexistent").status == 3
