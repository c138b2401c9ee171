"""traceana: what a Linux scheduler capture says, why, and what another rule would have done.

>>> import traceana as ta
>>> cap = ta.open("trace.dat")                      # doctest: +SKIP
>>> cap.timeline().wakeups.to_pandas()              # doctest: +SKIP
>>> ta.whatif(cap, ["sis_short_v5", "abel"])        # doctest: +SKIP

Importing this module imports neither numba nor a dataframe library; the names below
are loaded when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from traceana.capture import Capture, open  # noqa: A004
    from traceana.compare import compare
    from traceana.race import race
    from traceana.whatif import whatif

__version__ = "0.1.0"
__all__ = ["Capture", "__version__", "compare", "open", "race", "whatif"]

_LAZY = {
    "open": ("traceana.capture", "open"),
    "Capture": ("traceana.capture", "Capture"),
    "compare": ("traceana.compare", "compare"),
    "race": ("traceana.race", "race"),
    "whatif": ("traceana.whatif", "whatif"),
}


def __getattr__(name: str) -> Any:
    try:
        module, attribute = _LAZY[name]
    except KeyError:
        raise AttributeError(f"module 'traceana' has no attribute {name!r}") from None
    value = getattr(importlib.import_module(module), attribute)
    # The import has just bound the module's own name here, which may be that of a function.
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
