/* Before the first paint: the theme chosen on an earlier visit. */
(function () {
  "use strict";
  try {
    var saved = localStorage.getItem("traceana-theme");
    if (saved === "dark" || saved === "light") document.documentElement.dataset.theme = saved;
  } catch (e) { /* storage may be forbidden: the system's choice stands */ }
})();
