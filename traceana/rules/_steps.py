"""Rules that are single steps of the path: one of them, or several combined.

A combination ``a+b`` has the steps of both. At each place of the path its parts are asked in the
order in which they are named; the first that has an opinion decides, and the kernel's own step
where none has. Names of parameters and conditions get the part's name in front
(``abel.threshold_ns``); a reason keeps its name unless two parts share it.

How steps come to be called: see ``_walk_kernels.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from traceana.errors import UsageError
from traceana.rules._text import HEADINGS, PLACES, RuleText

__all__ = ["Part", "combine", "places_of", "program", "split"]

#: ``blocked_by`` answers with a bit per condition in an int64.
_MAX_CONDITIONS = 62
#: Rules under which there is no SIS_UTIL.
_SIS_UTIL_OFF = ("no_sis_util", "sis_prop")


@dataclass(frozen=True)
class Part:
    """One rule of a combination (or the only one), its steps compiled."""

    text: RuleText
    #: Place of the path -> the function to call there; "blocked_by" may be among them.
    functions: Mapping[str, Any]


def combine(texts: Sequence[RuleText]) -> RuleText:
    """Return the text of a combination of rules.

    Raises
    ------
    UsageError
        A rule that has no STEPS, one that is named twice, too many conditions; a step of the
        SIS_UTIL block (section 6.9) together with a rule that switches SIS_UTIL off.
    """
    names = [text.name for text in texts]
    for text in texts:
        if not text.steps:
            raise UsageError(
                f"rule {text.name} decides the whole path and cannot be combined; "
                "only rules that change single steps (STEPS) can"
            )
        if names.count(text.name) > 1:
            raise UsageError(f"{'+'.join(names)}: {text.name} is named twice")
    inside = [text.name for text in texts if "in_scan" in text.steps]
    without = [name for name in names if name in _SIS_UTIL_OFF]
    if inside and without:
        raise UsageError(
            f"{'+'.join(names)}: {inside[0]} has a step inside the block that SIS_UTIL switches "
            f"on, and {without[0]} switches it off"
        )
    shared = Counter(reason for text in texts for reason in set(text.reasons[2:]))

    def reason_of(text: RuleText, reason: str) -> str:
        return f"{text.name}.{reason}" if shared[reason] > 1 else reason

    conditions = {
        f"{text.name}.{name}": meaning
        for text in texts
        for name, meaning in text.conditions.items()
    }
    if len(conditions) > _MAX_CONDITIONS:
        raise UsageError(
            f"{'+'.join(names)}: {len(conditions)} conditions; at most {_MAX_CONDITIONS} "
            "can be told apart"
        )
    return RuleText(
        name="+".join(names),
        path=texts[0].path,
        summary=f"{', '.join(names[:-1])} and {names[-1]} combined.",
        sections={
            heading: "\n".join(
                f"{text.name}: {text.sections[heading]}"
                for text in texts
                if text.sections.get(heading)
            )
            for heading in HEADINGS
        },
        params=tuple(
            replace(param, name=f"{text.name}.{param.name}")
            for text in texts
            for param in text.params
        ),
        reasons=(
            *texts[0].reasons[:2],
            *(reason_of(text, reason) for text in texts for reason in text.reasons[2:]),
        ),
        conditions=conditions,
        cases=(),
        steps={place: both for text in reversed(texts) for place, both in text.steps.items()},
        parts=tuple(texts),
    )


def places_of(text: RuleText) -> dict[str, int]:
    """Return which conditions (bits) belong to which place of a rule, by their names."""
    places: dict[str, int] = {}
    owners = [part for part in text.parts or (text,) for _ in part.conditions]
    for i, (name, owner) in enumerate(zip(text.conditions, owners, strict=True)):
        inside = name.removeprefix(f"{owner.name}.") if text.parts else name
        place = inside.rpartition(".")[0]
        if text.parts:
            place = f"{owner.name}.{place}" if place else owner.name
        places[place] = places.get(place, 0) | 1 << i
    return places


def program(
    text: RuleText,
    parts: Sequence[Part],
    address_of: Callable[[Any], int],
    *,
    entry: int,
    magic: int,
) -> list[int]:
    """Return what stands behind the parameters in *p* (its form: ``_walk_kernels.py``).

    Parameters
    ----------
    text : RuleText
        Of the rule or combination, whose parameters come first in *p*.
    address_of : callable
        From a function of a part to the number that stands for it.
    entry, magic : int
        Numbers per entry, and the mark at the end.
    """
    bounds: list[tuple[int, int]] = []
    reasons: list[dict[str, int]] = []
    n, seen = 0, 2
    for part in parts:
        own = len(part.text.params)
        bounds.append((n, max(n + own, n + 1)))
        n += own
        codes = {name: i + seen - 2 for i, name in enumerate(part.text.reasons) if i >= 2}
        seen += len(part.text.reasons) - 2
        reasons.append({"recorded": 0, "mainline": 1, **codes})
    # One parameter at least, so that no slice is empty.
    head = max(n, 1)
    n_places = len(PLACES) + 2
    entries: list[list[int]] = []
    starts: list[int] = []
    for place in PLACES:
        starts.append(len(entries))
        for part, (first, last), code in zip(parts, bounds, reasons, strict=True):
            if place not in part.text.steps:
                continue
            numbers = [address_of(part.functions[place]), first, last]
            for reason in part.text.steps[place]:
                if reason not in code:
                    raise UsageError(f"{part.text.path}: STEPS: {reason!r} is not in REASONS")
                numbers += [code[reason], code.get(f"{reason}_same", code[reason])]
            entries.append(numbers)
    starts.append(len(entries))
    shift = 0
    for part, (first, last) in zip(parts, bounds, strict=True):
        if "blocked_by" in part.functions:
            entries.append(
                [address_of(part.functions["blocked_by"]), first, last, shift] + [0] * (entry - 4)
            )
        shift += len(part.text.conditions)
    starts.append(len(entries))
    begin = head + n_places
    return [
        *(begin + entry * start for start in starts),
        *(number for numbers in entries for number in numbers),
        head,
        magic,
    ]


def split(rule: str) -> list[str]:
    """Return the parts of a combination's name; the path of a file is one part."""
    if "+" not in rule or Path(rule).is_file():
        return [rule]
    return rule.split("+")
