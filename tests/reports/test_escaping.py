"""Names of tasks, files and kernels are hostile input: in no format do they become markup."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser

import pytest

from traceana import capture, reports
from traceana.reports.model import Strong, say
from traceana.reports.render_md import _escape, _paragraph

FORMATS = ("html", "md", "json")


class Elements(HTMLParser):
    """Elements, attributes and text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: dict[str, int] = {}
        self.handlers: list[str] = []
        self.links: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] = self.tags.get(tag, 0) + 1
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        self.links += [v or "" for name, v in attrs if name in ("href", "src", "xlink:href")]

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read(html: str) -> Elements:
    parser = Elements()
    parser.feed(html)
    return parser


def test_a_script_is_text(hostile: capture.Capture) -> None:
    html = reports.render(hostile)
    assert "<script>alert" not in html
    page = read(html)
    assert page.tags["script"] == 4  # theme, tables, the timeline and its data
    assert "b" in page.tags and not page.handlers
    assert any("<script>alert(1)</script>" in text for text in page.text)


def test_nothing_is_loaded_from_elsewhere(page: str, hostile: capture.Capture) -> None:
    for html in (page, reports.render(hostile)):
        links = [v for v in read(html).links if not v.startswith(("#", "data:,"))]
        assert links == []
        assert "@import" not in html
        assert "url(" not in re.sub(r"url\(#", "", html)


def test_ids_are_unique(page: str) -> None:
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    for target in re.findall(r"url\(#([^)]+)\)", page):
        assert target in ids
    for target in re.findall(r'href="#([^"]+)"', page):
        assert target in ids
    labels = re.findall(r'aria-labelledby="([^"]+)"', page)
    assert len(labels) == page.count("<figure") + page.count("<table")
    for target in " ".join(labels).split():
        assert target in ids


@pytest.mark.parametrize("format", FORMATS)
def test_no_control_and_no_bidi_character_survives(hostile: capture.Capture, format: str) -> None:
    text = reports.render(hostile, format=format)
    bad = {c for c in text if (ord(c) < 32 and c != "\n") or c in "\x7f\u202e\u2066\u2028\ufeff"}
    assert not bad
    assert "\\x1b[31m" in text or "\\\\x1b[31m" in text or "\\\\x1b\\[31m" in text


def test_templates_in_names_are_not_run(hostile: capture.Capture) -> None:
    assert "{{7*7}}" in reports.render(hostile)


def test_markdown_keeps_names_as_names(hostile: capture.Capture) -> None:
    text = reports.render(hostile, format="md")
    assert "<script>" not in text.replace("\\<script\\>", "")
    assert "\\[x\\](" in text
    assert re.search(r"(?<!\\)\[x\]", text) is None
    rows = [line for line in text.splitlines() if line.startswith("|")]
    cells = [len(re.findall(r"(?<!\\)\|", line)) for line in rows]
    runs: list[int] = []
    for line, before in zip(text.splitlines()[1:], text.splitlines(), strict=False):
        if line.startswith("| :--") or line.startswith("| --:"):
            runs.append(len(re.findall(r"(?<!\\)\|", before)))
    assert set(cells) <= set(runs)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a_b sched_switch", "a_b sched_switch"),
        ("_x_", "\\_x\\_"),
        ("@octocat", "<span></span>@octocat"),
        ("www.x.y", "www<span></span>.x.y"),
        ("`id`", "\\`id\\`"),
        ("a|b", "a\\|b"),
        ("$x$", "\\$x\\$"),
        ("\\*", "\\\\\\*"),
    ],
)
def test_markdown_escapes(name: str, shown: str) -> None:
    assert _escape(name) == shown


@pytest.mark.parametrize("start", ["- x", "+ x", "1. x", "= x", "# x"])
def test_a_sentence_does_not_become_a_list_or_a_heading(start: str) -> None:
    assert not re.match(r"(-|\+|=|#|\d+\.) ", _paragraph(say(start)))


def test_bold_does_not_swallow_blanks() -> None:
    assert _paragraph(say(Strong("Estimated: "), "x")) == "**Estimated:** x"


def test_figures_escape_names(tiny: Callable[..., capture.Capture]) -> None:
    from traceana.reports.figures import drawing, key

    name = "</text><script>$x</script>"
    with drawing("f", 200, 100) as d:
        key(d.axes, [(name, "#0072b2")])
    assert "<script>" not in d.svg
    assert "&lt;/text&gt;&lt;script&gt;$x&lt;/script&gt;" in d.svg


@pytest.mark.parametrize("format", FORMATS)
def test_redaction_leaves_no_name_and_no_pid(
    tiny: Callable[..., capture.Capture], format: str
) -> None:
    from .test_situations import ONE_WAKEUP

    text = (
        ONE_WAKEUP.replace("20 ", "31337 ").replace(" 20", " 31337").replace("31337 1", "31337 1")
    )
    cap = tiny(
        text, {10: b"payroll-3", 31337: b"secret"}, hostname="vault", cmdline="record secret"
    )
    plain = reports.render(cap, format="json")
    assert "payroll" in plain and "31337" in plain and "tiny.dat" in plain
    out = reports.render(cap, format=format, redact=True)
    for word in ("payroll", "31337", "secret", "vault", "tiny.dat"):
        assert word not in out
    assert "task-" in out


def test_json_is_ascii_and_valid(hostile: capture.Capture) -> None:
    text = reports.render(hostile, format="json")
    assert text.isascii()
    json.loads(text, parse_constant=lambda c: pytest.fail(f"{c} is not JSON"))
