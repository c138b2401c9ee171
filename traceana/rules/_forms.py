"""Which form each step of the wakeup path has in which kernel release.

Rows 13 to 22 of table B (section 6.1 of the semantics), the part in which the selection of
a CPU differs between releases. Rules read the result as fields of the machine record; no
step compares release numbers itself. Stable point releases can differ from the table
(rows 15 and 18): every field can be overridden.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from traceana.thresholds import Release, parse_release

__all__ = ["BUDGET_NONE", "BUDGET_PROP", "BUDGET_UTIL", "Forms", "forms_for"]

#: ``m.budget_form``
BUDGET_NONE, BUDGET_PROP, BUDGET_UTIL = 0, 1, 2

#: ``m.recent_form``: no recent_used_cpu; updated when it hits; updated always
RECENT_NONE, RECENT_ON_HIT, RECENT_ALWAYS = 0, 1, 2

#: ``m.kthread_form``: no such step; any context; task context only
KTHREAD_NONE, KTHREAD_ANY, KTHREAD_TASK = 0, 1, 2


@dataclass(frozen=True)
class Forms:
    """The forms of one kernel; defaults are those of 6.1.

    ``approximate`` is true where the release is older than the oldest form that is modelled
    (4.17), or not known.
    """

    release: int = 6001
    #: since 5.11 ("sched/fair: select idle cpu from idle cpu", Oct 2020): an idle prev_cpu
    #: answers in wake_affine_idle() at any distance
    prev_idle_answers: bool = True
    #: since 6.13 and 6.12.y: delayed tasks do not count in the sync test
    sync_minus_delayed: bool = False
    #: since 5.4: a CPU with SCHED_IDLE tasks only counts as idle
    sched_idle_counts: bool = True
    recent_form: int = RECENT_ALWAYS
    #: 5.15 to 6.4: the affinity test of the recent CPU looks at prev_cpu (fixed in stable)
    recent_checks_prev: bool = False
    kthread_form: int = KTHREAD_TASK
    #: since 5.12 one merged search; before: core scan, CPU scan, sibling
    merged_search: bool = True
    #: since 5.13: without an idle-core hint the sibling of prev_cpu comes before the scan
    sibling_of_prev: bool = True
    #: since 5.15: the scan starts behind the target
    scan_from_next: bool = True
    #: SIS_PROP 4.13 to 5.19, SIS_UTIL since 6.0
    budget_form: int = BUDGET_UTIL
    #: since 6.7: cluster levels in the search, where the machine has them
    cluster: bool = False
    wa_idle: bool = True
    wa_weight: bool = True
    wa_bias: bool = True
    pct: int = 117
    pct_smt: int = 110
    approximate: bool = False

    def apply(self, m: Any) -> None:
        """Write the forms into a machine record."""
        for field in fields(self):
            if field.name not in ("approximate", "cluster"):
                m[field.name] = getattr(self, field.name)

    def with_(self, **overrides: Any) -> Forms:
        """Return a copy with some fields replaced."""
        return replace(self, **overrides)


#: Long-term branches that carry the fix of row 18.
_RECENT_FIXED = ((5, 15), (6, 1))


def forms_for(release: Release | str | None, **overrides: Any) -> Forms:
    """Return the forms of a kernel release, e.g. ``"6.1.192"`` or ``(6, 1, 192)``.

    None (not known) gives those of 6.1, marked approximate.

    >>> forms_for("5.10.223").merged_search, forms_for("6.12.1").cluster
    (False, True)
    """
    if isinstance(release, str):
        release = parse_release(release)
    if release is None:
        return Forms(approximate=True).with_(**overrides)
    major, minor, point = release
    v = (major, minor)
    forms = Forms(
        release=major * 1000 + minor,
        prev_idle_answers=v >= (5, 11),
        sync_minus_delayed=v >= (6, 13) or (v == (6, 12) and point > 0),
        sched_idle_counts=v >= (5, 4),
        recent_form=(
            RECENT_ALWAYS if v >= (5, 15) else RECENT_ON_HIT if v >= (4, 16) else RECENT_NONE
        ),
        recent_checks_prev=(5, 15) <= v <= (6, 4) and v not in _RECENT_FIXED,
        # Row 19: the task-context test came in 5.16 and in stable; 5.10.223 has it.
        kthread_form=(
            KTHREAD_TASK
            if v >= (5, 15) or (v == (5, 10) and point >= 100)
            else KTHREAD_ANY
            if v >= (5, 6)
            else KTHREAD_NONE
        ),
        merged_search=v >= (5, 12),
        sibling_of_prev=v >= (5, 13),
        scan_from_next=v >= (5, 15),
        budget_form=(BUDGET_UTIL if v >= (6, 0) else BUDGET_PROP if v >= (4, 13) else BUDGET_NONE),
        cluster=v >= (6, 7),
        approximate=v < (4, 17),
    )
    return forms.with_(**overrides)
