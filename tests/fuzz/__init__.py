"""Damaged and hostile inputs of every form that is read, made by number.

``mutate`` damages bytes; ``history`` tells what the captures hold; ``make_dat``, ``make_perf``,
``make_perfetto``, ``archives``, ``stores`` and ``texts`` make them, ``bombs`` what unpacks to very
much; ``target`` makes damaged ones of them by number, ``corpus`` lists all. ``check`` reads one
input, ``work`` does so in processes that may die, ``run`` is what ``make fuzz`` calls.
"""

from __future__ import annotations

import sys
from pathlib import Path

# The writers of the parsers' tests make the files.
_WRITERS = str(Path(__file__).parents[1] / "parsers")
if _WRITERS not in sys.path:
    sys.path.append(_WRITERS)
