(function () {
  "use strict";
  document.querySelectorAll(".view").forEach(function (box) {
    var source = document.getElementById(box.dataset.source);
    if (!source || typeof DecompressionStream === "undefined") return;
    unpack(JSON.parse(source.textContent)).then(function (model) { start(box, model); });
  });

  /* --- data --- */

  function unpack(head) {
    var text = atob(head.slices.data), bytes = new Uint8Array(text.length);
    for (var i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    var stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Response(stream).arrayBuffer().then(function (raw) {
      return decode(head, new Uint8Array(raw));
    });
  }

  function decode(head, raw) {
    var n = head.slices.n, at = 0, columns = {};
    head.slices.planes.forEach(function (p) {
      var out = new Float64Array(n), unit = 1;
      for (var b = 0; b < p[1]; b++, unit *= 256) {
        for (var i = 0; i < n; i++) out[i] += raw[at + i] * unit;
        at += n;
      }
      columns[p[0]] = out;
    });
    var begin = columns.gap, end = columns.length, row = 0, cpu = new Uint16Array(n);
    head.slices.lanes.forEach(function (lane) {
      var time = 0;
      for (var stop = row + lane[1]; row < stop; row++) {
        cpu[row] = lane[0];
        begin[row] = time + columns.gap[row];
        time = end[row] = begin[row] + columns.length[row];
      }
    });
    return { head: head, n: n, span: head.span, begin: begin, end: end, cpu: cpu,
      task: Int32Array.from(columns.task), how: columns.end, delay: columns.delay,
      waker: columns.waker };
  }

  /* A lane is a run of slices in the order of time; each level above sums up eight nodes of the
     one below: from when to when, how much of it busy, and the colour that fills most of it. */
  var FOLD = 8;

  function makeLane(model, label, rows, colour) {
    var n = rows.length, base = { a: new Float64Array(n), b: new Float64Array(n),
      busy: new Float64Array(n), hue: new Uint16Array(n) };
    for (var i = 0; i < n; i++) {
      var r = rows[i];
      base.a[i] = model.begin[r]; base.b[i] = model.end[r];
      base.busy[i] = base.b[i] - base.a[i]; base.hue[i] = colour[r];
    }
    var levels = [base];
    while (levels[levels.length - 1].a.length > FOLD) levels.push(fold(levels[levels.length - 1]));
    return { label: label, rows: rows, levels: levels };
  }

  function fold(low) {
    var n = Math.ceil(low.a.length / FOLD);
    var up = { a: new Float64Array(n), b: new Float64Array(n), busy: new Float64Array(n),
      hue: new Uint16Array(n) };
    for (var i = 0; i < n; i++) {
      var from = i * FOLD, to = Math.min(from + FOLD, low.a.length), best = -1;
      up.a[i] = low.a[from]; up.b[i] = low.b[to - 1];
      for (var k = from; k < to; k++) {
        up.busy[i] += low.busy[k];
        if (low.busy[k] > best) { best = low.busy[k]; up.hue[i] = low.hue[k]; }
      }
    }
    return up;
  }

  function firstEndingAfter(ends, time) {
    var lo = 0, hi = ends.length;
    while (lo < hi) { var mid = (lo + hi) >> 1; if (ends[mid] > time) hi = mid; else lo = mid + 1; }
    return lo;
  }

  function firstStartingAt(starts, time) {
    var lo = 0, hi = starts.length;
    while (lo < hi) { var mid = (lo + hi) >> 1; if (starts[mid] < time) lo = mid + 1; else hi = mid; }
    return lo;
  }

  /* --- words --- */

  function duration(ns) {
    if (ns >= 1e9) return (ns / 1e9).toPrecision(4) + " s";
    if (ns >= 1e6) return (ns / 1e6).toPrecision(4) + " ms";
    if (ns >= 1e3) return (ns / 1e3).toPrecision(4) + " µs";
    return Math.round(ns) + " ns";
  }

  function moment(head, ns) {
    var whole = BigInt(head.begin) + BigInt(Math.round(ns)), unit = BigInt(1e9);
    return (whole / unit) + "." + String(whole % unit).padStart(9, "0") + " s";
  }

  function shades(count) {
    var out = [], dark = getComputedStyle(document.documentElement).colorScheme === "dark";
    for (var i = 0; i < count; i++) {
      var hue = (i * 137.508) % 360, light = (dark ? 56 : 46) + (i % 3) * 7;
      out.push("hsl(" + hue.toFixed(0) + " 62% " + light + "%)");
    }
    return out;
  }

  /* --- the view --- */

  var HUES = 48, AXIS = 26, LEFT = 132, LEAST = 200;

  function start(box, model) {
    var head = model.head, canvas = box.querySelector("canvas"), tip = box.querySelector(".tip");
    var said = box.querySelector(".said"), pick = box.querySelector(".lanes");
    var ink = canvas.getContext("2d", { alpha: false });
    var byTask = new Uint16Array(model.n), byCpu = new Uint16Array(model.n);
    for (var i = 0; i < model.n; i++) {
      byTask[i] = head.hues[model.task[i]] % HUES;
      byCpu[i] = model.cpu[i] % HUES;
    }
    var sets = {}, lanes, top = 0, from = 0, to = model.span, height = 18, colours, paper, text;
    var wanted = false, hover = null, chosen = null;

    function cpuLanes() {
      var rows = {}, row = 0;
      head.slices.lanes.forEach(function (lane) {
        var list = new Uint32Array(lane[1]);
        for (var k = 0; k < lane[1]; k++) list[k] = row++;
        rows[lane[0]] = list;
      });
      return head.cpus.map(function (cpu) {
        return makeLane(model, "CPU " + cpu, rows[cpu] || new Uint32Array(0), byTask);
      });
    }

    function taskLanes() {
      var count = new Uint32Array(head.tasks.length), busy = new Float64Array(head.tasks.length);
      for (var k = 0; k < model.n; k++) {
        count[model.task[k]]++; busy[model.task[k]] += model.end[k] - model.begin[k];
      }
      var order = Array.from(count.keys()).filter(function (t) { return count[t]; });
      order.sort(function (x, y) { return busy[y] - busy[x]; });
      order = order.slice(0, 300);
      var lists = {};
      order.forEach(function (t) { lists[t] = new Uint32Array(count[t]); count[t] = 0; });
      for (k = 0; k < model.n; k++) {
        var t = model.task[k];
        if (lists[t]) lists[t][count[t]++] = k;
      }
      return order.map(function (t) {
        lists[t].sort(function (x, y) { return model.begin[x] - model.begin[y]; });
        return makeLane(model, head.tasks[t], lists[t], byCpu);
      });
    }

    function use(kind) {
      if (!sets[kind]) sets[kind] = kind === "tasks" ? taskLanes() : cpuLanes();
      lanes = sets[kind]; top = 0; hover = null;
      box.dataset.lanes = kind;
      resize();
    }

    function theme() {
      var style = getComputedStyle(document.documentElement);
      colours = shades(HUES);
      paper = style.getPropertyValue("--panel").trim(); text = style.getPropertyValue("--ink").trim();
    }

    function resize() {
      var ratio = window.devicePixelRatio || 1, width = Math.max(box.clientWidth, LEAST);
      height = Math.max(12, Math.min(26, Math.floor(420 / Math.max(lanes.length, 1))));
      var tall = AXIS + Math.min(lanes.length * height, 560);
      canvas.style.height = tall + "px";
      canvas.width = Math.round(width * ratio); canvas.height = Math.round(tall * ratio);
      ink.setTransform(ratio, 0, 0, ratio, 0, 0);
      draw();
    }

    function wide() { return canvas.clientWidth - LEFT; }
    function x(time) { return LEFT + (time - from) / (to - from) * wide(); }
    function time(px) { return from + (px - LEFT) / wide() * (to - from); }

    function later() { if (!wanted) { wanted = true; requestAnimationFrame(draw); } }

    function draw() {
      wanted = false;
      if (!colours) theme();
      var w = canvas.clientWidth, h = canvas.clientHeight, scale = wide() / (to - from);
      ink.fillStyle = paper; ink.fillRect(0, 0, w, h);
      var shown = Math.max(1, Math.ceil((h - AXIS) / height));
      var budget = Math.max(150, Math.min(2 * wide(), 24000 / shown));
      for (var i = top; i < Math.min(lanes.length, top + shown); i++) {
        drawLane(lanes[i], AXIS + (i - top) * height, scale, budget);
      }
      drawMarks(shown);
      ink.fillStyle = paper; ink.fillRect(0, 0, LEFT, h);
      ink.fillStyle = text; ink.font = "12px system-ui, sans-serif"; ink.textBaseline = "middle";
      for (i = top; i < Math.min(lanes.length, top + shown); i++) {
        if (height < 14 && (i - top) % 2) continue;
        ink.fillText(lanes[i].label, 4, AXIS + (i - top) * height + height / 2, LEFT - 10);
      }
      drawAxis(w);
      if (hover) outline(hover, 1);
      if (chosen) outline(chosen, 2);
    }

    function drawLane(lane, y, scale, budget) {
      var levels = lane.levels, level = 0, low = levels[0];
      var a = firstEndingAfter(low.b, from), b = firstStartingAt(low.a, to);
      while (b - a > budget && level + 1 < levels.length) {
        level++; low = levels[level];
        a = Math.floor(a / FOLD); b = Math.min(Math.ceil(b / FOLD), low.a.length);
      }
      var last = -1;
      for (var k = a; k < b; k++) {
        var left = Math.max(LEFT, LEFT + (low.a[k] - from) * scale);
        var right = Math.min(LEFT + (low.b[k] - from) * scale, LEFT + wide());
        var share = low.busy[k] / (low.b[k] - low.a[k]);
        if (low.hue[k] !== last) { last = low.hue[k]; ink.fillStyle = colours[last]; }
        /* A node that is not busy throughout is as high as it is busy. */
        var tall = (height - 3) * (level ? Math.max(share, .08) : 1);
        ink.fillRect(left, y + height - 2 - tall, Math.max(right - left - (right - left > 4 ? 1 : 0), .6), tall);
      }
    }

    function laneOf(mark) {
      var want = box.dataset.lanes === "tasks" ? head.tasks[mark.task] : "CPU " + mark.cpu;
      for (var i = 0; i < lanes.length; i++) if (lanes[i].label === want) return i;
      return -1;
    }

    function drawMarks(shown) {
      if (box.dataset.lanes === "tasks") return;
      head.marks.forEach(function (kind) {
        if (box.querySelector('input[value="' + kind.id + '"]:not(:checked)')) return;
        ink.fillStyle = getComputedStyle(box).getPropertyValue(kind.colour).trim();
        var seen = {};
        kind.rows.forEach(function (m) {
          if (m.at < from || m.at > to) return;
          var i = laneOf(m) - top;
          if (i < 0 || i >= shown) return;
          var px = Math.round(x(m.at)), cell = i + ":" + px;
          if (seen[cell]) return;
          seen[cell] = 1;
          var y = AXIS + i * height;
          ink.beginPath(); ink.moveTo(px, y + 7); ink.lineTo(px - 4, y); ink.lineTo(px + 4, y); ink.fill();
        });
      });
    }

    function drawAxis(w) {
      ink.fillStyle = paper; ink.fillRect(0, 0, w, AXIS - 2);
      ink.fillStyle = text;
      var step = Math.pow(10, Math.floor(Math.log10((to - from) / 4)));
      if ((to - from) / step > 12) step *= 5; else if ((to - from) / step > 6) step *= 2;
      /* As many decimals as tell two ticks apart. */
      var unit = to >= 1e9 ? [1e9, " s"] : to >= 1e6 ? [1e6, " ms"] : to >= 1e3 ? [1e3, " µs"] : [1, " ns"];
      var digits = Math.max(0, Math.ceil(-Math.log10(step / unit[0]) - 1e-9));
      for (var t = Math.ceil(from / step) * step; t <= to; t += step) {
        var px = x(t);
        ink.fillRect(px, AXIS - 6, 1, 4);
        if (px < w - 90) ink.fillText("+" + (t / unit[0]).toFixed(digits) + unit[1], px + 3, 11);
      }
    }

    function outline(s, width) {
      var px = x(model.begin[s.row]), right = x(model.end[s.row]);
      ink.strokeStyle = text; ink.lineWidth = width;
      ink.strokeRect(Math.max(px, LEFT), AXIS + (s.lane - top) * height + .5, Math.max(right - px, 2), height - 2);
    }

    function find(px, py) {
      var i = top + Math.floor((py - AXIS) / height);
      if (px < LEFT || py < AXIS || i >= lanes.length) return null;
      var low = lanes[i].levels[0], t = time(px), k = firstEndingAfter(low.b, t);
      /* The slice under the pointer, or one within two pixels. */
      var near = 2 / wide() * (to - from);
      if (k >= low.a.length || low.a[k] > t) {
        if (k < low.a.length && low.a[k] - t <= near) t = low.a[k];
        else if (k > 0 && t - low.b[k - 1] <= near) k--;
        else return null;
      }
      return { lane: i, row: lanes[i].rows[k] };
    }

    function facts(row) {
      var ran = model.end[row] - model.begin[row];
      var out = [head.tasks[model.task[row]] + " on CPU " + model.cpu[row],
        "from " + moment(head, model.begin[row]) + " for " + duration(ran),
        head.endings[model.how[row]]];
      if (model.delay[row]) out.push("queued " + duration(model.delay[row] - 1) + " before");
      if (model.waker[row]) out.push("woken by " + head.tasks[model.waker[row] - 1]);
      return out;
    }

    function show(found, px, py) {
      hover = found;
      canvas.style.cursor = found ? "pointer" : "default";
      if (!found) { tip.hidden = true; later(); return; }
      tip.textContent = facts(found.row).join("\n");
      tip.hidden = false;
      var room = box.clientWidth - tip.offsetWidth - 8;
      tip.style.left = Math.max(0, Math.min(px + 12, room)) + "px";
      tip.style.top = (py + 16) + "px";
      later();
    }

    function look(a, b) {
      var width = Math.min(Math.max(b - a, 200), model.span);
      var mid = (a + b) / 2;
      from = Math.max(0, Math.min(mid - width / 2, model.span - width));
      to = from + width;
      later();
    }

    function zoom(factor, px) {
      var t = px === undefined ? (from + to) / 2 : time(Math.max(px, LEFT));
      var width = Math.min(Math.max((to - from) * factor, 200), model.span);
      var a = t - (t - from) / (to - from) * width;
      look(a, a + width);
    }

    function pan(share) {
      var d = (to - from) * share;
      var a = Math.max(0, Math.min(from + d, model.span - (to - from)));
      look(a, a + (to - from));
    }

    function scroll(n) { top = Math.max(0, Math.min(top + n, lanes.length - 1)); later(); }

    function jump(at, cpu) {
      if (box.dataset.lanes !== "cpus") { pick.value = "cpus"; use("cpus"); }
      var width = Math.min(model.span, 60000);
      look(at - width / 2, at + width / 2);
      var i = laneOf({ cpu: cpu });
      if (i >= 0) {
        var shown = Math.max(1, Math.floor((canvas.clientHeight - AXIS) / height));
        if (i < top || i >= top + shown) top = Math.max(0, i - (shown >> 1));
        var low = lanes[i].levels[0], k = Math.min(firstEndingAfter(low.b, at), low.a.length - 1);
        if (k >= 0) { chosen = { lane: i, row: lanes[i].rows[k] }; said.textContent = facts(chosen.row).join(", "); }
      }
      canvas.focus({ preventScroll: true });
      box.scrollIntoView({ block: "nearest" });
      later();
    }

    /* Mouse, pen and fingers. */
    var down = new Map(), moved = 0;
    function place(e) { var r = canvas.getBoundingClientRect(); return [e.clientX - r.left, e.clientY - r.top]; }
    canvas.addEventListener("pointerdown", function (e) {
      try { canvas.setPointerCapture(e.pointerId); } catch (_) { /* a pointer made by a script */ }
      down.set(e.pointerId, place(e)); moved = 0;
    });
    canvas.addEventListener("pointermove", function (e) {
      var p = place(e), q = down.get(e.pointerId);
      if (!q) { show(find(p[0], p[1]), p[0], p[1]); return; }
      if (down.size === 2) {
        var other; down.forEach(function (v, id) { if (id !== e.pointerId) other = v; });
        var was = Math.abs(q[0] - other[0]), now = Math.abs(p[0] - other[0]);
        if (was > 8 && now > 8) zoom(was / now, (p[0] + other[0]) / 2);
      } else {
        moved += Math.abs(p[0] - q[0]) + Math.abs(p[1] - q[1]);
        pan((q[0] - p[0]) / wide());
        if (Math.abs(p[1] - q[1]) >= height) { scroll(Math.round((q[1] - p[1]) / height)); } else p[1] = q[1];
      }
      down.set(e.pointerId, p);
    });
    function up(e) {
      var p = place(e), was = down.delete(e.pointerId);
      if (was && moved < 4) {
        chosen = find(p[0], p[1]);
        said.textContent = chosen ? facts(chosen.row).join(", ") : "";
        later();
      }
    }
    canvas.addEventListener("pointerup", up);
    canvas.addEventListener("pointercancel", function (e) { down.delete(e.pointerId); });
    canvas.addEventListener("pointerleave", function () { show(null); });
    canvas.addEventListener("wheel", function (e) {
      /* Without Ctrl the page scrolls, unless the timeline has been chosen. */
      if (!e.ctrlKey && !e.metaKey && document.activeElement !== canvas) return;
      e.preventDefault();
      if (Math.abs(e.deltaX) > Math.abs(e.deltaY)) pan(e.deltaX / wide());
      else if (e.shiftKey) scroll(Math.sign(e.deltaY));
      else zoom(Math.pow(1.0016, e.deltaY), place(e)[0]);
    }, { passive: false });

    var keys = { ArrowLeft: function () { pan(-.2); }, ArrowRight: function () { pan(.2); },
      a: function () { pan(-.2); }, d: function () { pan(.2); }, w: function () { zoom(.6); },
      s: function () { zoom(1 / .6); }, "+": function () { zoom(.6); }, "=": function () { zoom(.6); },
      "-": function () { zoom(1 / .6); }, ArrowUp: function () { scroll(-1); },
      ArrowDown: function () { scroll(1); }, Home: function () { look(0, model.span); },
      n: function () { step(1); }, p: function () { step(-1); } };
    canvas.addEventListener("keydown", function (e) {
      if (e.ctrlKey || e.metaKey || e.altKey || !keys[e.key]) return;
      e.preventDefault(); keys[e.key]();
    });

    /* To the next or the previous slice of the lane. */
    function step(by) {
      var lane = lanes[chosen ? chosen.lane : top];
      if (!lane || !lane.rows.length) return;
      var low = lane.levels[0];
      var k = chosen ? lane.rows.indexOf(chosen.row) + by : firstEndingAfter(low.b, (from + to) / 2);
      k = Math.max(0, Math.min(k, lane.rows.length - 1));
      chosen = { lane: lanes.indexOf(lane), row: lane.rows[k] };
      said.textContent = facts(chosen.row).join(", ");
      if (low.a[k] < from || low.b[k] > to) look(low.a[k] - (to - from) / 2, low.a[k] + (to - from) / 2);
      later();
    }

    box.querySelectorAll("button[data-do]").forEach(function (b) {
      b.addEventListener("click", function () {
        ({ in: function () { zoom(.5); }, out: function () { zoom(2); },
          all: function () { look(0, model.span); } })[b.dataset.do]();
      });
    });
    pick.addEventListener("change", function () { use(pick.value); });
    box.querySelectorAll("input[type=checkbox]").forEach(function (c) { c.addEventListener("change", later); });
    /* Rows of the table of marks lead to their place. */
    document.querySelectorAll("#table-" + box.dataset.marks + " tbody tr").forEach(function (tr) {
      var cells = tr.cells, at = Number(BigInt(cells[0].dataset.v) - BigInt(head.begin)), cpu = Number(cells[1].dataset.v);
      if (at < 0 || at > model.span) return;
      var b = document.createElement("button");
      b.type = "button"; b.className = "jump"; b.textContent = cells[0].textContent;
      b.addEventListener("click", function () { jump(at, cpu); });
      cells[0].textContent = ""; cells[0].appendChild(b);
    });
    new MutationObserver(function () { colours = null; later(); })
      .observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", function () { colours = null; later(); });
    if (window.ResizeObserver) new ResizeObserver(function () { if (lanes) resize(); }).observe(box);

    box.hidden = false;
    use("cpus");
    box.dataset.ready = "1";
    box.dispatchEvent(new CustomEvent("ready"));
    /* For scripts on the page: what the controls do. */
    box.timeline = { look: look, zoom: zoom, pan: pan, jump: jump, use: use, draw: draw, find: find,
      facts: facts, span: model.span, state: function () { return { from: from, to: to, top: top,
        lanes: lanes.length, chosen: chosen && chosen.row }; } };
  }
})();
