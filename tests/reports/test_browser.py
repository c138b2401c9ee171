"""The page in a real browser: no console message, no overflow, both themes, sorting, no script."""

from __future__ import annotations

import html as markup
import re
from collections.abc import Callable
from typing import Any

import pytest

from traceana import capture, reports

Browse = Callable[..., tuple[str, list[str]]]


def _probe(page: str, script: str) -> str:
    """The page with a script at its end that leaves its answer in #probe."""
    call = f'document.getElementById("probe").textContent = (function () {{{script}}})();'
    return page.replace("</body>", f'<p id="probe"></p><script>{call}</script></body>')


def _answer(dom: str) -> str:
    found = re.search(r'<p id="probe">(.*?)</p>', dom, re.S)
    assert found is not None
    return markup.unescape(found[1])


#: An element that sticks out of the page although it lies in no box that scrolls by itself.
_OVERFLOW = """
  var w = d.documentElement.clientWidth, out = [];
  d.querySelectorAll("body *").forEach(function (e) {
    if (!e.closest(".table, .picture") && e.getBoundingClientRect().right > w + 1)
      out.push(e.tagName + "." + e.className);
  });
  return [d.defaultView.innerWidth, d.documentElement.scrollWidth <= w, out.slice(0, 5)].join(" ");
"""


def _framed(page: str, width: int) -> str:
    """The page in a frame of a width that headless windows do not have."""
    style = f"border:0;width:{width}px;height:900px"
    return (
        '<!DOCTYPE html><body><p id="probe"></p>'
        f'<iframe id="f" style="{style}" srcdoc="{markup.escape(page)}">'
        "</iframe><script>var f = document.getElementById('f'); f.onload = function () {"
        "document.getElementById('probe').textContent = (function (d) {" + _OVERFLOW + "})"
        "(f.contentDocument); };</script></body>"
    )


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_no_console_message_and_the_right_theme(
    browse: Browse, page: str, width: int, dark: bool
) -> None:
    script = "return getComputedStyle(document.body).backgroundColor"
    dom, said = browse(_probe(page, script), width=width, dark=dark)
    assert said == []
    red = int(_answer(dom).removeprefix("rgb(").split(",")[0])
    assert (red < 60) == dark


@pytest.mark.parametrize("width", [1280, 400])
def test_nothing_sticks_out_of_the_page(browse: Browse, page: str, width: int) -> None:
    dom, said = browse(_framed(page, width))
    assert _answer(dom) == f"{width} true "
    assert said == []


def test_hostile_names_show_as_text_and_stay_inside(
    browse: Browse, hostile: capture.Capture
) -> None:
    page = reports.render(hostile)
    script = """
      var cells = Array.from(document.querySelectorAll("#table-tasks tbody th"));
      return JSON.stringify([document.scripts.length, cells.map(function (c) {
        return c.textContent; })]);
    """
    dom, said = browse(_probe(page, script))
    assert said == []
    scripts, _, rest = _answer(dom)[1:].partition(",")
    assert int(scripts) == 5  # the probe's own is the fifth
    assert '"<script>alert(1)</script>"' in rest
    assert '"<b onload=x>&amp;"' in rest
    dom, said = browse(_framed(page, 400))
    assert _answer(dom) == "400 true "


def test_tables_sort_by_click_and_by_key(browse: Browse, page: str) -> None:
    script = """
      var table = document.querySelector("#table-tasks table"), head = table.tHead.rows[0].cells;
      function column(i) { return Array.from(table.tBodies[0].rows).map(function (r) {
        return r.cells[i].dataset.v || r.cells[i].textContent; }); }
      head[1].click();
      var down = column(1), said = [head[1].getAttribute("aria-sort")];
      head[1].click();
      var up = column(1);
      said.push(head[1].getAttribute("aria-sort"));
      head[0].dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
      said.push(head[0].getAttribute("aria-sort"), String(head[1].getAttribute("aria-sort")));
      var names = column(0);
      return JSON.stringify([said, down, up, names, head[0].tabIndex]);
    """
    dom, console = browse(_probe(page, script))
    assert console == []
    import json

    said, down, up, names, tab = json.loads(_answer(dom))
    assert said == ["descending", "ascending", "ascending", "null"]
    assert [int(v) for v in down] == sorted((int(v) for v in down), reverse=True)
    assert up == down[::-1]
    assert names == sorted(names, key=str.lower)
    assert tab == 0


def test_a_table_is_saved_with_raw_values(browse: Browse, hostile: capture.Capture) -> None:
    script = """
      var kept = [];
      URL.createObjectURL = function (blob) { kept.push(blob); return "#"; };
      HTMLAnchorElement.prototype.click = function () { kept.push(this.download); };
      document.querySelector("#table-tasks .csv").click();
      kept[0].text().then(function (t) {
        document.getElementById("probe").textContent = kept[1] + "\\n" + t; });
      return "";
    """
    dom, said = browse(_probe(reports.render(hostile), script))
    assert said == []
    lines = _answer(dom).splitlines()
    assert lines[0] == "tasks.csv"
    assert lines[1].startswith("task,pid,workload,class,runtime_ns,")
    assert any(line.startswith("'=1+1,") for line in lines)  # no formula for a spreadsheet
    assert any(re.match(r".*,10\d,.*,fair,\d+,0\.\d+,", line) for line in lines)


def test_the_theme_is_kept(browse: Browse, page: str) -> None:
    script = """
      document.getElementById("theme").click();
      return document.documentElement.dataset.theme + " " + localStorage.getItem("traceana-theme");
    """
    dom, said = browse(_probe(page, script), dark=False)
    assert _answer(dom) == "dark dark"
    assert said == []
    shown = "return String(document.documentElement.dataset.theme)"
    dom, _ = browse(_probe(page, shown), dark=False)  # the same profile: a later visit
    assert _answer(dom) == "dark"


def test_it_reads_without_scripts(page: str) -> None:
    """Everything is in the page itself; what only a script can do is not offered without one."""
    assert '<button type="button" id="theme" hidden>' in page
    body = page.split("<body>")[1].split("<script>")[0]
    assert body.count("<table") == body.count("</table>") > 20
    assert body.count("<svg") == body.count("<figure")
    assert "CSV" not in body


def test_figures_take_the_pages_colours(browse: Browse, page: str) -> None:
    script = """
      var e = document.querySelector("#figure-lanes path[style*='--sky']");
      return getComputedStyle(e).fill;
    """
    seen: list[Any] = []
    for dark in (False, True):
        dom, _ = browse(_probe(page, script), dark=dark)
        seen.append(_answer(dom))
    assert seen[0] == "rgb(86, 180, 233)"
    assert seen[1] != seen[0]
