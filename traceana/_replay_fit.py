"""Which forms of the wakeup path a kernel has, judged by how well they explain its recording.

Distribution kernels carry steps of other releases than their number says (section 6.1). The forms
of the release and of its neighbours are tried; another one than the release's own is taken only
if it explains clearly more, since most decisions do not tell neighbours apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from traceana.replay import Replay
from traceana.rules._forms import Forms, forms_for

if TYPE_CHECKING:
    from traceana.capture import Capture
    from traceana.timeline import Timeline

__all__ = ["ANCHORS", "Fit", "fit_forms"]

#: Releases at which the path changes, oldest first.
ANCHORS = ("5.4", "5.10.223", "5.12", "5.13", "5.15.150", "6.1.192", "6.6", "6.12.60", "7.2")
#: A neighbour must explain so much more of the decisions (a share) and so many more of them.
CLEARLY, FEWEST = 0.005, 50


@dataclass(frozen=True)
class Fit:
    """The chosen forms, the release they are named after (None: the capture's own), and of each
    candidate (decisions, exactly right ones).
    """

    forms: Forms
    release: str | None
    scores: dict[str, tuple[int, int]]


def fit_forms(cap: Capture, timeline: Timeline) -> Fit:
    """Choose between the forms of the capture's release and of its neighbours.

    Each candidate rebuilds everything, so that this takes as long as some runs of `whatif`.
    """
    own = forms_for(cap.kernel)
    releases = np.array([forms_for(name).release for name in ANCHORS])
    at = int(np.searchsorted(releases, own.release, "right"))
    candidates: dict[str, Forms] = {"own": own}
    for name in ANCHORS[max(at - 2, 0) : at + 1]:
        forms = forms_for(name)
        if all(forms.with_(release=0) != f.with_(release=0) for f in candidates.values()):
            candidates[name] = forms
    scores = {}
    for name, forms in candidates.items():
        replay = Replay(cap, timeline, forms=forms)
        right = replay.verdicts.rows["cpu"] == replay.recorded_cpu
        scores[name] = (len(right), int(right.sum()))
    best = max(scores, key=lambda name: scores[name][1])
    gain = scores[best][1] - scores["own"][1]
    if best == "own" or gain < max(FEWEST, CLEARLY * scores["own"][0]):
        return Fit(own, None, scores)
    return Fit(candidates[best], best, scores)
