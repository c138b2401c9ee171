"""The interactive timeline in a real browser: it draws, zooms, tells, jumps, and stays smooth."""

from __future__ import annotations

import contextlib
import http.server
import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import traceana as ta
from traceana import capture, reports
from traceana.reports.model import Report, Section, View
from traceana.reports.render_html import render_html
from traceana.reports.view_data import ENDINGS, Payload, pack, slices_of

from .conftest import CHROMIUM

ROOT = Path(__file__).resolve().parents[2]
Live = Callable[..., Any]

#: Longest median frame, ms, and how much longer than on an empty page it may be.
FRAME_MS = 33.0


@contextlib.contextmanager
def _served(html: str) -> Iterator[tuple[str, list[Any], threading.Event]]:
    """A page on this machine, and what it posts back."""
    answers: list[Any] = []
    done = threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = html.encode() if self.path == "/" else b""
            self.send_response(200 if body else 404)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers["Content-Length"]))
            answers.append(json.loads(text))
            self.send_response(204)
            self.end_headers()
            done.set()

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/", answers, done
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def live(tmp_path: Path) -> Live:
    """Run a script on a page, in real time, and give what it hands to ``done(value)``."""
    if CHROMIUM is None:
        pytest.skip("no chromium: the page cannot be opened in a browser")

    def run(html: str, script: str, *, seconds: float = 90) -> Any:
        call = (
            "function done(v){fetch('/answer',{method:'POST',body:JSON.stringify(v)});}"
            "var errors=[];addEventListener('error',function(e){errors.push(e.message);});"
        )
        page = html.replace("<body>", f"<body><script>{call}</script>", 1)
        page = page.replace("</body>", f"<script>{script}</script></body>")
        with _served(page) as (url, answers, done):
            command = [
                str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
                "--disable-background-networking", "--disable-component-update", "--disable-sync",
                f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1280,800",
                "--hide-scrollbars", "--remote-debugging-port=0", url,
            ]  # fmt: skip
            browser = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            try:
                assert done.wait(seconds), "the page gave no answer"
            finally:
                browser.terminate()
                browser.wait(20)
        return answers[0]

    return run


def _made(payload: Payload, cpus: int, tasks: int) -> str:
    """A page that holds nothing but the view."""
    data = {
        "begin": "9007199254740993123",
        "span": payload.end_ns,
        "cpus": list(range(cpus)),
        "tasks": [f"t{i} [{i}]" for i in range(tasks)],
        "hues": [i % 48 for i in range(tasks)],
        "endings": list(ENDINGS),
        "slices": pack(payload),
        "marks": [],
    }
    view = View("timeline", "a timeline", lambda: data, "none")
    return render_html(Report("made", [], [Section("timeline", "Timeline", views=[view])]))


def _random(n: int, cpus: int, tasks: int) -> Payload:
    rng = np.random.default_rng(7)
    per = n // cpus
    lanes = np.repeat(np.arange(cpus), per)
    length = rng.integers(500, 20_000, (cpus, per))
    gap = rng.integers(0, 15_000, (cpus, per))
    end = np.cumsum(length + gap, axis=1)
    span = int(end.max())
    task = rng.integers(0, tasks, cpus * per)
    return Payload(
        0, span, lanes, (end - length).ravel(), end.ravel(), task,
        rng.integers(0, 3, cpus * per), rng.integers(-1, 5000, cpus * per),
        rng.integers(-1, tasks, cpus * per),
    )  # fmt: skip


class TestPacking:
    def test_planes_hold_the_slices(self) -> None:
        import base64
        import zlib

        p = _random(4000, 4, 30)
        packed = pack(p)
        raw = zlib.decompress(base64.b64decode(packed["data"]))
        n, at, columns = packed["n"], 0, {}
        for name, width in packed["planes"]:
            planes = np.frombuffer(raw, np.uint8, n * width, at).reshape(width, n)
            columns[name] = sum(planes[b].astype(np.int64) << 8 * b for b in range(width))
            at += n * width
        assert at == len(raw)
        row = 0
        for cpu, count in packed["lanes"]:
            time = 0
            for k in range(row, row + count):
                start = time + columns["gap"][k]
                time = start + columns["length"][k]
                assert (p.lanes[k], p.start[k], p.end[k]) == (cpu, start, time)
            row += count
        assert np.array_equal(columns["delay"] - 1, p.delay)
        assert np.array_equal(columns["waker"] - 1, p.waker)

    def test_slices_are_those_of_the_timeline(self) -> None:
        timeline = ta.open(ROOT / "sample_traces" / "pp3-plain.dat.xz").timeline()
        p = slices_of(timeline, 10**6)
        idle = {t["task"] for t in timeline.tasks.to_pylist() if t["pid"] == 0}
        rows = [s for s in timeline.slices.to_pylist() if s["task"] not in idle]
        whole = sum(
            (timeline.last_ts if s["end"] is None else s["end"])
            - (timeline.first_ts if s["start"] is None else s["start"])
            for s in rows
        )
        assert int((p.end - p.start).sum()) == whole
        delays = {
            (w["wakee"], w["run_ts"]): w["queue_delay_ns"] for w in timeline.wakeups.to_pylist()
        }
        known = 0
        for task, start, delay in zip(p.task, p.start + p.begin, p.delay, strict=True):
            told = delays.get((int(task), int(start)))
            if told is not None:
                known += 1
                assert delay == told
        assert known > 1000

    def test_a_stretch_in_the_middle(self) -> None:
        timeline = ta.open(ROOT / "sample_traces" / "pp3-plain.dat.xz").timeline()
        p = slices_of(timeline, 500)
        assert 400 < len(p.start) < 520
        middle = (timeline.first_ts + timeline.last_ts) / 2
        assert p.begin < middle < p.begin + p.end_ns
        assert p.start.min() >= 0 and p.end.max() <= p.end_ns


#: Waits until the view is there, then runs BODY with box, canvas, t (its controls).
_WITH_VIEW = """
  var box = document.querySelector(".view"), canvas = box.querySelector("canvas");
  function pixels() {
    var c = canvas.getContext("2d"), d = c.getImageData(0, 0, canvas.width, canvas.height).data;
    var seen = new Set();
    for (var i = 0; i < d.length; i += 4 * 97) seen.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]);
    return seen.size;
  }
  function go() { var t = box.timeline; BODY }
  if (box.dataset.ready) go();
  else box.addEventListener("ready", function () { setTimeout(go, 0); });
"""


def _with_view(body: str) -> str:
    return _WITH_VIEW.replace("BODY", body)


def test_it_draws_zooms_tells_and_jumps(live: Live, page: str) -> None:
    said = live(page, _with_view("""
      var out = { hidden: box.hidden, colours: [pixels()] };
      t.look(t.span * .4, t.span * .41); t.draw(); out.colours.push(pixels());
      canvas.focus();
      canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "w", bubbles: true }));
      out.keyed = t.state().to - t.state().from;
      var r = canvas.getBoundingClientRect(), tip = box.querySelector(".tip"), found = null;
      for (var x = 200; x < r.width && !found; x += 3)
        for (var y = 40; y < r.height && !found; y += 9) if (t.find(x, y)) found = [x, y];
      function fire(kind) {
        canvas.dispatchEvent(new PointerEvent(kind, { pointerId: 1, bubbles: true,
          clientX: r.left + found[0], clientY: r.top + found[1] }));
      }
      fire("pointermove"); out.tip = tip.hidden ? "" : tip.textContent;
      fire("pointerdown"); fire("pointerup"); out.said = box.querySelector(".said").textContent;
      var jump = document.querySelector("#table-moments .jump");
      var row = jump.closest("tr");
      jump.click(); out.jumped = t.state();
      out.at = Number(BigInt(row.cells[0].dataset.v)) ; out.cpu = row.cells[1].textContent;
      out.after = box.querySelector(".said").textContent;
      t.draw(); out.colours.push(pixels());
      var pick = box.querySelector(".lanes"); pick.value = "tasks";
      pick.dispatchEvent(new Event("change")); t.draw();
      out.colours.push(pixels()); out.tasks = t.state().lanes;
      out.errors = errors;
      done(out);
    """))  # fmt: skip
    assert said["errors"] == []
    assert said["hidden"] is False
    assert min(said["colours"]) > 5, "a blank picture"
    assert said["keyed"] > 0
    assert " on CPU " in said["tip"] and "\nfrom " in said["tip"]
    assert said["said"].replace(", ", "\n") == said["tip"]
    assert said["jumped"]["to"] - said["jumped"]["from"] == pytest.approx(60_000)
    assert f"on CPU {said['cpu']}" in said["after"]
    assert said["tasks"] > 5


def test_facts_are_those_of_the_capture(live: Live) -> None:
    cap = ta.open(ROOT / "sample_traces" / "pp3-plain.dat.xz")
    page = reports.render(cap)
    told = live(page, _with_view("""
      t.look(0, t.span);
      var rows = [0, 17, 400, 1000].map(function (r) { return t.facts(r); });
      done({ rows: rows, errors: errors });
    """))  # fmt: skip
    assert told["errors"] == []
    p = slices_of(cap.timeline(), 10**6)
    tasks = cap.timeline().tasks.to_pylist()
    for r, facts in zip([0, 17, 400, 1000], told["rows"], strict=True):
        task = tasks[p.task[r]]
        assert facts[0] == f"{task['comm']} [{task['pid']}] on CPU {p.lanes[r]}"
        at = int(p.begin + p.start[r])
        assert facts[1].startswith(f"from {at // 10**9}.{at % 10**9:09d} s for ")


def test_a_hostile_name_stays_a_name(live: Live, hostile: capture.Capture) -> None:
    page = reports.render(hostile)
    assert "<script>alert" not in page
    said = live(page, _with_view("""
      var names = [];
      for (var i = 0; i < 4; i++) try { names.push(t.facts(i)[0]); } catch (e) { }
      done({ names: names, images: document.images.length, errors: errors });
    """))  # fmt: skip
    assert said["errors"] == []
    assert said["images"] == 0


#: Frames of three seconds of zooming and panning, and of an empty page.
_FRAMES = """
  var frames = [], last = 0, begun = performance.now(), draws = [];
  function frame(now) {
    if (last) frames.push(now - last);
    last = now;
    var s = (performance.now() - begun) / 3000;
    if (s >= 1) {
      frames.sort(function (a, b) { return a - b; }); draws.sort(function (a, b) { return a - b; });
      done({ median: frames[frames.length >> 1], n: frames.length,
        draw: draws[draws.length >> 1], errors: errors });
      return;
    }
    STEP
    requestAnimationFrame(frame);
  }
  requestAnimationFrame(frame);
"""
_ZOOM = """
    var width = t.span * Math.pow(10, -4 * Math.abs(Math.sin(s * 6))), mid = t.span * (.2 + .6 * s);
    t.look(mid - width / 2, mid + width / 2);
    var a = performance.now(); t.draw(); draws.push(performance.now() - a);
"""


@pytest.mark.parametrize("cpus", [8, 112])
def test_a_million_slices_stay_smooth(live: Live, cpus: int) -> None:
    page = _made(_random(1_000_000, cpus, 200), cpus, 200)
    assert len(page) < 12e6
    empty = live("<!DOCTYPE html><body></body>", _FRAMES.replace("STEP", ""))
    full = live(page, _with_view(_FRAMES.replace("STEP", _ZOOM)))
    assert full["errors"] == []
    assert full["n"] > 30
    assert full["median"] <= max(FRAME_MS, 2 * empty["median"]), (full, empty)
    print(f"{cpus} CPUs: frame {full['median']:.1f} ms, empty page {empty['median']:.1f} ms, "
          f"drawing {full['draw']:.1f} ms")  # fmt: skip
