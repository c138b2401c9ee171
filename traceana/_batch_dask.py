"""The same work on a Dask cluster that is there already.

Dask gives a capture whose worker died to another one, and gives up after several
(``distributed.scheduler.allowed-failures``). Its workers bound their memory themselves
(``dask worker --memory-limit``), and must see captures and dataset under the same paths.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from traceana._batch_jobs import Done, Job, perform
from traceana._batch_pool import Begin, Died
from traceana.errors import UsageError

__all__ = ["run"]

#: Seconds to reach the scheduler.
_PATIENCE_S = 10


def run(jobs: Sequence[Job], address: str, begin: Begin) -> Iterator[Done | Died]:
    """Work on jobs at the cluster whose scheduler listens there; results as they come.

    Raises
    ------
    UsageError
        distributed is not installed, or nobody listens.
    """
    try:
        import distributed
    except ImportError as error:
        raise UsageError("--dask needs distributed (pip install 'traceana[fleet]')") from error
    try:
        with warnings.catch_warnings():
            # Differing versions of libraries that no capture needs are not worth a word.
            warnings.simplefilter("ignore")
            # Typed only in part.
            connect: Any = distributed.Client
            client = connect(address, timeout=_PATIENCE_S, set_as_default=False)
    except (OSError, ValueError, RuntimeError) as error:
        text = " ".join(str(error).split())[:200]
        raise UsageError(f"--dask {address}: no scheduler there ({text})") from error
    with client:
        yield from _results(client, distributed, jobs, begin)


def _results(
    client: Any, distributed: Any, jobs: Sequence[Job], begin: Begin
) -> Iterator[Done | Died]:
    of: dict[Any, Job] = {}
    for job in jobs:
        begin(job, 1)
        future = client.submit(perform, job, key=f"traceana-{job.source.id}", pure=False, retries=1)
        of[future] = job
    try:
        for future in distributed.as_completed(list(of), loop=client.loop):
            job = of.pop(future)
            error = future.exception()
            if error is None:
                yield future.result()
            else:
                yield Died(job, " ".join(str(error).split())[:300] or type(error).__name__)
            future.release()
    finally:
        for future in of:
            future.cancel()
