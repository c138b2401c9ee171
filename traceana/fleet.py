"""A dataset of captures as one answer: which machines, kernels and workloads stand out, how far.

Reads the figures that ``traceana batch`` keeps of each capture, by lazy scans: of the big tables
nothing, of the small ones the columns that are needed. Figures of a group:

* shares and rates are sums over its captures (idle time while somebody waited over idle time);
* percentiles cannot be merged: a group has the median of its captures' figures, and the highest;
* an estimated gain is the mean over captures that could tell, with a 95 % interval by Student's t,
  never narrower than what the captures' own intervals say. Of one capture it is that capture's own.

What stands out does so against the other captures: by the robust z-score, (value - median) /
(1.4826 x median absolute deviation), beyond 3.5 (Iglewicz & Hoaglin 1993).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traceana._fleet_figures import BEYOND, METRICS, outliers, t_interval
from traceana.errors import FormatError, UsageError
from traceana.output import SCHEMA_VERSION

if TYPE_CHECKING:
    import polars as pl

__all__ = ["COLUMNS", "GAINS", "Fleet", "fleet"]

#: Facts by which captures may be grouped, besides their labels.
COLUMNS = ("hostname", "machine", "kernel", "form", "clock", "cpus", "status", "race_verdict")
#: Figures of which a rule's gain is told.
GAINS = ("queue_delay_p50", "queue_delay_p99", "wakeup_latency_p50", "wakeup_latency_p99")
#: Most rows of what stands out, and of workloads.
MOST = 50
_LATENCIES = ("wakeup_latency", "queue_delay")
#: Columns of facts that may be long.
_TEXTS = ("reason", "unable", "digest")


@dataclass
class Fleet:
    """What :func:`fleet` found; rows are dicts of plain values, None where not known.

    ``groups``: a row per group with its figures. ``gains``: one per group, rule and figure.
    ``workloads``: one per workload. ``outliers``: captures and groups that stand out, the farthest
    first. ``troubled``: captures that are damaged or failed.
    """

    dataset: str
    by: tuple[str, ...]
    captures: int
    statuses: dict[str, int]
    labels: tuple[str, ...]
    groups: list[dict[str, Any]] = field(repr=False)
    gains: list[dict[str, Any]] = field(repr=False)
    workloads: list[dict[str, Any]] = field(repr=False)
    outliers: list[dict[str, Any]] = field(repr=False)
    troubled: list[dict[str, Any]] = field(repr=False)
    sentences: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """The result as JSON values."""
        return {
            "schema_version": SCHEMA_VERSION,
            "dataset": self.dataset,
            "by": list(self.by),
            "captures": self.captures,
            **self.statuses,
            "labels": list(self.labels),
            "sentences": self.sentences,
            "groups": self.groups,
            "gains": self.gains,
            "workloads": self.workloads,
            "outliers": self.outliers,
            "troubled": self.troubled,
        }


def fleet(dataset: str | Path, *, by: Sequence[str] | None = None) -> Fleet:
    """Read a dataset as one answer.

    Parameters
    ----------
    dataset : folder that ``traceana batch`` wrote
    by : labels and names of COLUMNS to group captures by (a label goes before a column of the same
        name); when None the labels, or hostname and kernel where there are none

    Raises
    ------
    FormatError
        It is no dataset, or an empty or unreadable one.
    UsageError
        A name to group by that is neither.
    """
    import polars as pl

    path = Path(dataset)
    _check(path)
    try:
        scanned = _scan(path, "facts")
        # Thirty numbers a capture, read once; its texts only where they are part of the answer.
        facts = _collect(scanned.select(pl.exclude(_TEXTS))).lazy()
        labels = _labels(facts)
        names = tuple(by) if by is not None else labels or ("hostname", "kernel")
        keys = _keys(names, labels)
        facts = facts.with_columns(**keys)
        out = Fleet(
            str(dataset),
            names,
            0,
            {},
            labels,
            _groups(facts, names),
            _gains(_scan(path, "gains"), facts, names),
            _workloads(_scan(path, "workloads")),
            _outliers(facts, names),
            _troubled(scanned),
        )
        statuses = dict(_collect(facts.group_by("status").agg(pl.len())).iter_rows())
    except (pl.exceptions.PolarsError, OSError) as error:
        text = " ".join(str(error).split())[:300]
        raise FormatError(path, f"dataset cannot be read: {text}") from error
    out.statuses = {s: int(statuses.get(s, 0)) for s in ("ok", "damaged", "failed")}
    out.captures = sum(out.statuses.values())
    out.sentences = _sentences(out)
    return out


def _check(path: Path) -> None:
    if not (path / "_dataset.json").is_file():
        raise FormatError(
            path, "not a dataset of traceana", hint="make one: traceana batch CAPTURES -o DATASET"
        )
    if next(path.glob("capture=*/facts.parquet"), None) is None:
        raise FormatError(path, "this dataset holds no capture")


def _scan(path: Path, table: str) -> pl.LazyFrame:
    import glob

    import polars as pl

    # The folder's own name may hold what a pattern would be.
    pattern = str(Path(glob.escape(str(path))) / "capture=*" / f"{table}.parquet")
    return pl.scan_parquet(pattern, hive_partitioning=True, hive_schema={"capture": pl.String})


def _collect(frame: pl.LazyFrame) -> pl.DataFrame:
    """The answer, by the engine that holds no more than it must, where polars has it."""
    try:
        return frame.collect(engine="streaming")
    except TypeError:
        return frame.collect()


def _labels(facts: pl.LazyFrame) -> tuple[str, ...]:
    found: set[str] = set()
    for text in _collect(facts.select("labels").unique())["labels"].to_list():
        found.update(json.loads(text) if text else {})
    return tuple(sorted(found))


def _keys(names: Sequence[str], labels: Sequence[str]) -> dict[str, pl.Expr]:
    """An expression per name to group by, under a name that no column has."""
    import polars as pl

    out = {}
    for i, name in enumerate(names):
        if name in labels:
            value = pl.col("labels").str.json_path_match(f"$.{name}")
        elif name in COLUMNS:
            value = pl.col(name).cast(pl.String)
        else:
            known = ", ".join([*labels, *(c for c in COLUMNS if c not in labels)])
            raise UsageError(f"--by {name}: no label or column of this dataset; there are {known}")
        out[f"_key{i}"] = value
    if len(set(names)) != len(names):
        raise UsageError(f"--by {','.join(names)}: a name stands twice")
    return out


def _named(row: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The group's own names first; no key of ours is left."""
    group = {name: row[f"_key{i}"] for i, name in enumerate(names)}
    rest = {k: _plain(v) for k, v in row.items() if not k.startswith("_key")}
    return {"group": group, **rest}


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _key_columns(names: Sequence[str]) -> list[str]:
    return [f"_key{i}" for i in range(len(names))]


def _ratio(over: str, under: str, *more: str) -> pl.Expr:
    """Sum over sum, of the captures that know both; ``more`` are added to what is above."""
    import polars as pl

    both = pl.col(over).is_not_null() & pl.col(under).is_not_null()
    above = sum((pl.col(m).filter(both).sum() for m in more), pl.col(over).filter(both).sum())
    below = pl.col(under).filter(both).sum()
    return pl.when(below > 0).then(above / below)


def _groups(facts: pl.LazyFrame, names: Sequence[str]) -> list[dict[str, Any]]:
    import polars as pl

    figures = [
        pl.len().alias("captures"),
        *((pl.col("status") == s).sum().alias(s) for s in ("ok", "damaged", "failed")),
        pl.col("hostname").drop_nulls().n_unique().alias("machines"),
        pl.col("kernel").drop_nulls().n_unique().alias("kernels"),
        pl.col("events").sum(),
        pl.col("span_ns").sum(),
        (pl.col("lost_places") > 0).sum().alias("with_losses"),
        _ratio("lost_events", "events").alias("lost_per_event"),
        pl.col("idle_share").mean(),
        pl.col("idle_share").min().alias("idle_share_least"),
        pl.col("idle_share").max().alias("idle_share_most"),
        _ratio("waited_llc_ns", "idle_ns").alias("idle_waited_share"),
        (1e6 * _ratio("double_bookings", "decided")).alias("double_bookings_per_million"),
        (1e6 * _ratio("double_bookings_certain", "decided")).alias(
            "double_bookings_certain_per_million"
        ),
        (pl.col("race_verdict") == "supported").sum().alias("race_supported"),
        _ratio("exact", "explained").alias("fidelity_exact"),
        _ratio("exact", "explained", "possible").alias("fidelity_possible"),
        pl.col("wakeups").sum(),
    ]
    for name in _LATENCIES:
        for q in ("p50", "p99", "p999"):
            figures.append(pl.col(f"{name}_{q}_ns").median())
        figures.append(pl.col(f"{name}_p99_ns").max().alias(f"{name}_p99_most_ns"))
        figures.append(pl.col(f"{name}_max_ns").max())
    keys = _key_columns(names)
    frame = facts.group_by(keys).agg(figures) if keys else facts.select(figures)
    rows = [_named(row, names) for row in _collect(frame).iter_rows(named=True)]
    rows.sort(key=_order)
    return rows


def _order(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """By the names of the group, what is not known last."""
    return tuple((v is None, v or "") for v in row["group"].values())


def _gains(gains: pl.LazyFrame, facts: pl.LazyFrame, names: Sequence[str]) -> list[dict[str, Any]]:
    import polars as pl

    keys = _key_columns(names)
    joined = gains.join(facts.select("capture", *keys), on="capture")
    figures: list[pl.Expr] = [
        pl.col("decisions").sum(),
        pl.col("moved").sum(),
        pl.col("victims_relieved").sum(),
        pl.col("victims_created").sum(),
    ]
    for name in GAINS:
        gain, lo, hi = (pl.col(f"{name}_gain{part}_ns") for part in ("", "_lo", "_hi"))
        # Half of a 95 % interval's width is 1.96 standard errors.
        own = ((hi - lo) / (2 * 1.96)) ** 2
        figures += [
            gain.count().alias(f"{name}_n"),
            gain.mean().alias(f"{name}_mean"),
            gain.std().alias(f"{name}_std"),
            own.sum().alias(f"{name}_own"),
            own.count().alias(f"{name}_own_n"),
            lo.max().alias(f"{name}_lo"),
            hi.max().alias(f"{name}_hi"),
            pl.col(f"{name}_recorded_ns").filter(gain.is_not_null()).mean().alias(f"{name}_was"),
        ]
    rows = []
    for row in _collect(joined.group_by([*keys, "rule"]).agg(figures)).iter_rows(named=True):
        for name in GAINS:
            n = int(row[f"{name}_n"])
            low, high = t_interval(
                n,
                row[f"{name}_mean"],
                row[f"{name}_std"],
                row[f"{name}_own"] if row[f"{name}_own_n"] == n else None,
                (row[f"{name}_lo"], row[f"{name}_hi"]),
            )
            rows.append(
                {
                    "group": {k: row[f"_key{i}"] for i, k in enumerate(names)},
                    "rule": row["rule"],
                    "figure": name,
                    "method": "open_loop",
                    "n": n,
                    "decisions": row["decisions"],
                    "moved": row["moved"],
                    "recorded_ns": _whole(row[f"{name}_was"]),
                    "gain_ns": _whole(row[f"{name}_mean"]),
                    "lo_ns": _whole(low),
                    "hi_ns": _whole(high),
                    "victims_relieved": row["victims_relieved"],
                    "victims_created": row["victims_created"],
                }
            )
    rows.sort(key=lambda r: (_order(r), r["rule"], GAINS.index(r["figure"])))
    return rows


def _whole(value: float | None) -> int | None:
    return None if value is None or not math.isfinite(value) else round(value)


def _workloads(workloads: pl.LazyFrame) -> list[dict[str, Any]]:
    """The workloads that ran longest, over all captures."""
    import polars as pl

    figures = [
        pl.len().alias("captures"),
        pl.col("tasks").sum(),
        pl.col("runtime_ns").sum(),
        pl.col("wakeups").sum(),
        *(pl.col(f"{n}_{q}_ns").median() for n in _LATENCIES for q in ("p50", "p99")),
        *(pl.col(f"{n}_p99_ns").max().alias(f"{n}_p99_most_ns") for n in _LATENCIES),
    ]
    frame = workloads.group_by("workload").agg(figures)
    frame = frame.sort(["runtime_ns", "workload"], descending=[True, False]).head(MOST)
    return [{k: _plain(v) for k, v in r.items()} for r in _collect(frame).iter_rows(named=True)]


def _outliers(facts: pl.LazyFrame, names: Sequence[str]) -> list[dict[str, Any]]:
    keys = _key_columns(names)
    frame = _collect(facts.select("capture", "source", *keys, *METRICS))
    groups = [tuple(row) for row in frame.select(keys).iter_rows()] if keys else []
    found = outliers(
        {name: frame[name].cast(float).to_numpy() for name in METRICS},
        frame["source"].to_list(),
        [" ".join(f"{n}={v if v is not None else '?'}" for n, v in zip(names, g, strict=True))
         for g in groups],
    )  # fmt: skip
    return found[:MOST]


def _troubled(facts: pl.LazyFrame) -> list[dict[str, Any]]:
    import polars as pl

    frame = facts.filter(pl.col("status") != "ok").select("source", "status", "reason")
    return list(_collect(frame.sort("source")).iter_rows(named=True))


def _sentences(found: Fleet) -> list[str]:
    """The answer in words, each with its n."""
    out = []
    far = [o for o in found.outliers if o["of"] == "group"]
    alone = list(dict.fromkeys(o["name"] for o in found.outliers if o["of"] == "capture"))
    if far:
        out.append(
            "Groups that stand out: "
            + "; ".join(f"{o['name']} ({METRICS[o['metric']]}, z {o['z']:+.1f})" for o in far[:5])
        )
    elif len(found.groups) > 1:
        out.append(f"None of {len(found.groups)} groups stands out (|z| > {BEYOND} asked for)")
    if alone:
        more = f", {len(alone) - 5} more" if len(alone) > 5 else ""
        out.append(f"Captures that stand out: {_listed(alone[:5])}{more}")
    return out


def _listed(names: Iterable[str]) -> str:
    return ", ".join(n.rpartition("/")[2] for n in names)
