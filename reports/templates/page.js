/* Sorts tables, offers them as CSV, switches the theme. The page reads fully without it. */
(function () {
  "use strict";
  var root = document.documentElement;

  var toggle = document.getElementById("theme");
  toggle.hidden = false;
  toggle.addEventListener("click", function () {
    var system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    var next = (root.dataset.theme || system) === "dark" ? "light" : "dark";
    root.dataset.theme = next;
    try { localStorage.setItem("traceana-theme", next); } catch (e) { /* not kept */ }
  });

  function value(cell) {
    var raw = cell.dataset.v;
    if (raw === undefined) return cell.textContent.toLowerCase();
    return raw === "" ? null : Number(raw);
  }

  function sort(table, column, head) {
    var down = head.getAttribute("aria-sort") !== "descending";
    if (head.getAttribute("aria-sort") === null && !head.classList.contains("n")) down = false;
    var rows = Array.from(table.tBodies[0].rows);
    rows.sort(function (a, b) {
      var x = value(a.cells[column]), y = value(b.cells[column]);
      if (x === null || y === null) return (x === null) - (y === null);
      return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1);
    });
    rows.forEach(function (row) { table.tBodies[0].appendChild(row); });
    Array.from(head.parentNode.cells).forEach(function (h) { h.removeAttribute("aria-sort"); });
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
  }

  function field(text) {
    if (/^[=+@\t]|^-(?!\d)/.test(text)) text = "'" + text;
    return /[",\n]/.test(text) ? '"' + text.replace(/"/g, '""') + '"' : text;
  }

  function csv(table) {
    var lines = [Array.from(table.tHead.rows[0].cells).map(function (h) { return h.dataset.n; })];
    Array.from(table.tBodies[0].rows).forEach(function (row) {
      lines.push(Array.from(row.cells).map(function (cell) {
        return cell.dataset.v === undefined ? cell.textContent : cell.dataset.v;
      }));
    });
    return lines.map(function (line) { return line.map(field).join(","); }).join("\n") + "\n";
  }

  document.querySelectorAll("table").forEach(function (table) {
    Array.from(table.tHead.rows[0].cells).forEach(function (head, column) {
      head.tabIndex = 0;
      head.classList.add("sortable");
      head.addEventListener("click", function () { sort(table, column, head); });
      head.addEventListener("keydown", function (event) {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        sort(table, column, head);
      });
    });
    var button = document.createElement("button");
    button.type = "button";
    button.className = "csv";
    button.textContent = "CSV";
    button.title = "Save this table as CSV (raw values)";
    button.addEventListener("click", function () {
      var link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([csv(table)], { type: "text/csv" }));
      link.download = table.dataset.name + ".csv";
      link.click();
      setTimeout(function () { URL.revokeObjectURL(link.href); }, 1000);
    });
    table.caption.appendChild(button);
  });

  addEventListener("beforeprint", function () {
    document.querySelectorAll("details").forEach(function (d) { d.open = true; });
  });
})();
