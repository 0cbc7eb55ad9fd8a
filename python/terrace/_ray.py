"""Sweeps on a Ray cluster. Ray gives each group of runs to a worker, and to another one where that worker dies.

A group has one input, which its worker decodes once for all runs of the group; by default a group is as large as the smallest
node, so that a node decodes an input once for as many runs as it has processors. Finished groups come back to this process, which
alone writes the folder: a sweep that is stopped, or whose driver dies, goes on from there.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any, Sequence

from . import _terrace
from ._terrace import RequestError


@functools.lru_cache(maxsize=2)  # A worker has many groups of one sweep.
def _plan(source: tuple[str, str, str]) -> _terrace.Sweep:
    kind, text, shown = source
    return _terrace.Sweep.of_toml(text, shown) if kind == "toml" else _terrace.Sweep.of_json(text)


def _group(source: tuple[str, str, str], identities: list[str], points: list[int]) -> Any:
    """A worker's part: runs one group and returns its runs as they are kept."""
    plan = _plan(source)
    if [plan.identities()[at] for at in points] != identities:
        raise RequestError("this node has another version of Terrace, or another file under a trace's name")
    return plan.run([points], None, None)


def _connected(ray: Any, address: Any) -> None:
    if not ray.is_initialized():
        if isinstance(address, str):
            ray.init(address=address, log_to_driver=False)
        else:
            ray.init(log_to_driver=False)


def run(
    plan: _terrace.Sweep,
    source: tuple[str, str, str],
    missing: Sequence[int],
    folder: str,
    group: int | None,
    address: Any,
    retries: int,
    show: Any,
) -> list[str]:
    """Runs what is missing and keeps it in ``folder``; returns the failures."""
    try:
        ray = importlib.import_module("ray")
    except ImportError as error:
        raise RequestError("a sweep on a cluster needs ray, which is not installed; pip install ray") from error
    _connected(ray, address)
    processors = [int(node["Resources"].get("CPU", 1)) for node in ray.nodes() if node["Alive"]]
    at_once = group or max(1, min(processors, default=1))
    identities = plan.identities()
    source_reference = ray.put(source)
    failures: list[str] = []
    waiting: dict[Any, list[int]] = {}
    for points in plan.groups(list(missing), at_once):
        task = ray.remote(_group).options(
            num_cpus=min(len(points), max(processors, default=1)), max_retries=retries, name=f"terrace {points[0]}"
        )
        waiting[task.remote(source_reference, [identities[at] for at in points], points)] = points
    try:
        while waiting:
            done, _ = ray.wait(list(waiting), num_returns=1, timeout=0.2)
            for reference in done:
                points = waiting.pop(reference)
                try:
                    finished, failed = ray.get(reference)
                except ray.exceptions.RayError as error:
                    failures += [f"run {at}: {str(error).splitlines()[-1]}" for at in points]
                    continue
                for at, packed in finished:
                    plan.keep(folder, at, packed)
                failures += failed
            show([], [])
    except BaseException:
        for reference in waiting:
            ray.cancel(reference, force=True)
        raise
    return failures
