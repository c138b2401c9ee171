"""Results on their way out: escaping, formats, files written whole."""

from __future__ import annotations

import csv
import io
import json
import os
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceana import output
from traceana.errors import UsageError
from traceana.output import Field, Sheet, render

NASTY = "a\x1b[31mb\r\nc\u202ed|`<script>\x9bx\ud800"
FIELDS = (
    Field("comm", "text"),
    Field("n", "int"),
    Field("wait_ns", "ns", "wait"),
    Field("at_ns", "ts", "at"),
    Field("share", "share"),
)


def sheet(*rows: tuple[object, ...]) -> Sheet:
    return Sheet("tasks", FIELDS, rows)


@given(st.text())
def test_escaped_text_is_harmless(text: str) -> None:
    out = output.escape(text)
    assert len(out.splitlines()) <= 1
    for ch in out:
        assert ch == " " or unicodedata.category(ch)[0] not in "CZ"


@given(st.text(st.characters(categories=["L", "N", "P", "S"])))
def test_plain_text_stays(text: str) -> None:
    assert output.escape(text) == text


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"), (999, "999 ns"), (1_000, "1.00 µs"), (12_345, "12.3 µs"),
        (123_456, "123 µs"), (1_500_000, "1.50 ms"), (-2_500, "-2.50 µs"),
        (61_000_000_000, "61.0 s"), (None, "-"),
    ],
)  # fmt: skip
def test_durations(ns: int | None, text: str) -> None:
    assert output.format_ns(ns) == text


class TestFormats:
    def test_table_has_one_unit_a_column_and_aligns_numbers(self) -> None:
        rows = ("a", 1, 1_500, 8_613_547_740, 0.395), ("long", 12, 250_000, None, None)
        text = render(sheet(*rows), "table")
        assert text.splitlines() == [
            "comm   n  wait µs      at s  share %",
            "a      1      1.5  8.613547     39.5",
            "long  12    250.0         -        -",
        ]

    def test_table_on_a_terminal_fits_it(self) -> None:
        wide = sheet(("x" * 300, 1, 1_500, 8_613_547_740, 0.395))
        for width in (60, 100):
            assert max(map(len, render(wide, "table", width=width).splitlines())) <= width
        assert "x" * 300 in render(wide, "table")

    def test_cut_table_says_how_much_is_missing(self) -> None:
        cut = sheet(("a", 1, 1, 1, 0.0))
        cut.more = 431
        assert render(cut, "table").endswith("… 431 more (use -n 0)\n")

    @pytest.mark.parametrize("form", ["table", "md", "csv", "json", "ndjson"])
    def test_names_cannot_break_out(self, form: str) -> None:
        text = render(sheet((NASTY, 1, None, None, None)), form)
        assert not any(unicodedata.category(c)[0] == "C" for c in text if c != "\n")
        lines = text.splitlines()
        assert len(lines) == {"table": 2, "md": 3, "csv": 2, "ndjson": 1}.get(form, len(lines))

    def test_json_keeps_the_name_as_it_is(self) -> None:
        text = render(sheet((NASTY, 1, None, None, None)), "json")
        assert text.isascii()
        document = json.loads(text)
        assert document["tasks"] == [
            {"comm": NASTY, "n": 1, "wait_ns": None, "at_ns": None, "share": None}
        ]
        assert document["schema_version"] == output.SCHEMA_VERSION

    @given(st.text(st.characters(categories=["L", "P", "S", "Zs"], max_codepoint=0x2000)))
    def test_csv_is_read_back(self, name: str) -> None:
        text = render(sheet((name, 1, 5, None, 0.5)), "csv")
        [row] = csv.DictReader(io.StringIO(text))
        assert row["comm"] == output.escape(name)
        assert (row["n"], row["wait_ns"], row["at_ns"], row["share"]) == ("1", "5", "", "0.5")

    def test_markdown_escapes_its_own_signs(self) -> None:
        line = render(sheet(("a|b<c>*", 1, None, None, None)), "md").splitlines()[2]
        assert line.startswith(r"| a\|b\<c\>\* | 1 |")

    def test_facts_as_csv_are_flat(self) -> None:
        text = output.render_facts({"a": {"b": 1, "c": {}}, "d": None, "e": [1, 2]}, (), "csv")
        assert dict(csv.reader(io.StringIO(text))) == {
            "key": "value", "schema_version": str(output.SCHEMA_VERSION),
            "a.b": "1", "a.c": "", "d": "", "e": "[1, 2]",
        }  # fmt: skip


class TestFiles:
    def test_nothing_is_left_when_writing_fails(self, tmp_path: Path) -> None:
        target = tmp_path / "out"
        with pytest.raises(TypeError):
            output.write_text(None, str(target))  # type: ignore[arg-type]
        assert list(tmp_path.iterdir()) == []
        output.write_text("x\ud800", str(target))  # what no encoding holds is no reason to fail
        assert target.read_text() == "x\\ud800"

    def test_what_came_into_being_meanwhile_is_not_overwritten(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        target = tmp_path / "out"
        monkeypatch.setattr(output, "check_target", lambda *_, **__: target.write_text("other"))
        with pytest.raises(UsageError, match="--force"):
            output.write_text("mine", str(target))
        assert target.read_text() == "other"
        assert [p.name for p in tmp_path.iterdir()] == ["out"]

    def test_a_link_stays_a_link(self, tmp_path: Path) -> None:
        real, link = tmp_path / "real", tmp_path / "link"
        real.write_text("old")
        link.symlink_to(real)
        output.write_text("new", str(link), force=True)
        assert link.is_symlink() and real.read_text() == "new"

    def test_a_pipe_is_written_to(self, tmp_path: Path) -> None:
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        output.write_text("through", str(pipe))
        assert os.read(reader, 100) == b"through"
        os.close(reader)

    def test_refusals(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="is a folder"):
            output.check_target(str(tmp_path), force=True)
        with pytest.raises(UsageError, match="there is no folder"):
            output.check_target(str(tmp_path / "a" / "b"), force=True)
        output.check_target("-", force=False)
