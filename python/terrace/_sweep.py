"""Sweeps: designs with many values of their parameters on many inputs, here or on a Ray cluster."""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
import weakref
from typing import Any, Iterable, Mapping, Sequence, SupportsIndex

from . import _check as check
from . import _terrace
from ._check import names
from ._inputs import Mix, Suite, Trace, Workload, _several, as_input
from ._progress import ProgressLike, shown
from ._studies import Fidelity, _failed
from ._table import Table
from ._terrace import RequestError
from .policies import PoliciesLike, of_study


class Sweep(Table):
    """The finished runs of a sweep: a row each, first the values that distinguish them.

    Its folder has every run, ``results.csv`` and ``results.parquet``. A folder that nobody named goes with the result.
    """

    def __init__(self, inner: _terrace.Sweep, folder: str, failures: Sequence[str] = (), temporary: bool = False) -> None:
        self._inner, self._folder = inner, folder
        if temporary:
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        #: Runs that have no result, and why.
        self.failures = list(failures)
        self._kept: dict[str, tuple[str, list[Any]]] | None = None

    def _of_columns(self) -> dict[str, tuple[str, list[Any]]]:
        if self._kept is None:
            self._kept = self._inner.columns(self._folder)
        return self._kept

    @property
    def folder(self) -> str:
        """Where the runs and the results are."""
        return self._folder

    @property
    def asked(self) -> int:
        """Runs that the sweep has."""
        return len(self._inner)

    def __repr__(self) -> str:
        return f"<terrace.Sweep: {len(self)} of {self.asked} runs in {self._folder}>"


def _document(space: Any, inputs: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """A sweep's file as a document."""
    if not isinstance(space, Mapping):
        space = {"designs": names("designs", space)}
    document = {**space}
    keys = {key: value for key, value in document.items() if "." in key}
    document = {key: value for key, value in document.items() if key not in keys}
    # The caller's lists stay as they are.
    document["workload"] = list(document.get("workload", []))
    for name in ("designs", "machines", "workloads", "traces", "suite", "mixes"):
        if name in document:
            document[name] = names(name, document[name])
    document["set"] = {**document.get("set", {}), **keys}
    document["set"] = {key: _plain(key, value) for key, value in document["set"].items()}
    for word in _several(inputs):
        if isinstance(word, Mapping):
            if not isinstance(word.get("name"), str):
                raise RequestError(f"inputs: {dict(word)!r} names no workload; add \"name\": \"gups\"")
            table = {key: _plain(key, value) for key, value in word.items() if key != "name"}
            document["workload"].append({"name": word["name"], "set": table})
            continue
        found = as_input(word)
        if isinstance(found, Workload):
            document.setdefault("workloads", []).append(found.spec)
        elif isinstance(found, Trace):
            if found.salvage:
                raise RequestError("a sweep reads whole traces; convert a damaged one first")
            document.setdefault("traces", []).append(os.fspath(found.path))
        elif isinstance(found, Suite):
            document.setdefault("suite", []).append(found.name)
        elif isinstance(found, Mix):
            document.setdefault("mixes", []).append(found.word)
        else:
            raise RequestError("a program runs once, and a sweep reads its inputs many times; record it first")
    document.update({key: value for key, value in options.items() if _is_given(value)})
    return document


def _is_given(value: Any) -> bool:
    """Whether an option was given; 0 is a value."""
    return value is not None and value is not False


def _plain(key: str, value: Any) -> Any:
    """Ranges, arrays of numbers and their elements as JSON has them."""
    if hasattr(value, "item") and not getattr(value, "shape", ()):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        raise RequestError(f"{key}: {value!r} is no value")
    if isinstance(value, (str, bool, int, float)):
        return value
    if value is None or not isinstance(value, Iterable):
        raise RequestError(f"{key}: {value!r} is neither a value nor a list of values")
    return [_plain(key, part) for part in value]


def sweep(
    space: Any,
    inputs: Any = None,
    *,
    output: str | os.PathLike[str] | None = None,
    policy: PoliciesLike | None = None,
    fidelity: Fidelity | None = None,
    scale: SupportsIndex | None = None,
    whole: bool = False,
    fast_forward: bool = False,
    time_scale: SupportsIndex | None = None,
    hints: str | os.PathLike[str] | None = None,
    group: int | None = None,
    ray: Any = None,
    retries: int = 3,
    progress: ProgressLike = None,
) -> Sweep:
    """Runs every design with every value of its parameters on every input, on all cores.

    ``space`` is the path of a sweep's file (``terrace sweep --help`` shows one), a list of designs, or a mapping:
    ``designs``, ``machines``, and parameters with a value or a list of values. ``inputs`` are workloads, traces, or mappings from a
    workload's ``name`` and parameters to values or lists of values.

    >>> import terrace
    >>> found = terrace.sweep(
    ...     {"designs": ["native-4k", "native-2m"], "translation.l2.latency": ["9 cycles", "30 cycles"]},
    ...     [{"name": "gups", "bytes": "16MiB", "updates": [1000, 2000]}],
    ... )
    >>> found.asked, len(found)
    (8, 8)
    >>> found.column_names[:4]
    ['workload.bytes', 'workload.updates', 'set.translation.l2.latency', 'design']

    ``hints`` is a file of :func:`profile`, for designs that place data structures by it.

    ``policy`` runs the first design under policies that are written in Python as well, as in :func:`compare`. Such runs are not kept:
    nothing says whether a class still decides what it did.

    With ``output`` each finished run is kept in that folder: the same call goes on where it was stopped, and runs only what is
    new in a larger space. At the end the folder has ``results.csv`` and ``results.parquet``.

    ``ray=True`` runs on the Ray cluster that this process is connected to, or a local one; an address connects to that
    cluster. A group of runs whose worker dies is given to another one, ``retries`` times.

    Raises :class:`RunError` where runs failed, also where an input cannot be read; its ``result`` has those that are complete.
    """
    retries = check.whole("retries", retries, least=0)
    group = None if group is None else check.between("group", group, 1, 2**32 - 1)
    folder = check.optional_path("output", output)
    own = of_study(policy)
    if own and (folder is not None or ray):
        other = "ray" if folder is None else "output"
        raise RequestError(
            f"{other}: runs under a policy that is written in Python are made here and not kept; leave {other} out, and "
            "keep the table: to_parquet"
        )
    options = {
        "fidelity": None if fidelity is None else check.fidelity(fidelity),
        "scale": None if scale is None else check.whole("scale", scale),
        "whole": check.flag("whole", whole),
        "fast_forward": check.flag("fast_forward", fast_forward),
        "time_scale": None if time_scale is None else check.whole("time_scale", time_scale),
        "hints": check.optional_path("hints", hints),
    }
    is_file = isinstance(space, os.PathLike) or (isinstance(space, str) and space.endswith(".toml"))
    if is_file:
        if inputs is not None or any(map(_is_given, options.values())):
            raise RequestError("a sweep's file has its inputs and options; give the file alone")
        try:
            with open(space, encoding="utf-8") as file:
                text = file.read()
        except OSError as error:
            raise RequestError(f"{os.fspath(space)}: {error.strerror}") from error
        plan = _terrace.Sweep.of_toml(text, os.fspath(space))
        source = ("toml", text, os.fspath(space))
    else:
        text = json.dumps(_document(space, inputs, options))
        plan = _terrace.Sweep.of_json(text)
        source = ("json", text, "")
    if own:
        plan = plan.under(own)
    is_temporary = folder is None
    if folder is None:
        folder = tempfile.mkdtemp(prefix="terrace-sweep-")
    try:
        failures = _run(plan, source, folder, group, ray, retries, progress)
        plan.write(folder)
    except BaseException as error:
        if is_temporary:
            shutil.rmtree(folder, ignore_errors=True)
        elif isinstance(error, KeyboardInterrupt):
            # As on the command line: the tables have what is complete.
            plan.write(folder)
        raise
    result = Sweep(plan, folder, failures, temporary=is_temporary)
    if failures:
        text = "; ".join(failures)
        message = f"{result.asked - len(failures)} of {result.asked} runs succeeded: {text}"
        raise _failed(message, result) from plan.raised()
    return result


def _run(
    plan: _terrace.Sweep,
    source: tuple[str, str, str],
    folder: str,
    group: int | None,
    ray: Any,
    retries: int,
    progress: ProgressLike,
) -> Sequence[str]:
    """Makes the runs that are missing in the folder. Returns what failed, and why."""
    missing = plan.missing(folder)
    show = shown(progress)
    try:
        if ray:
            from . import _ray

            return _ray.run(plan, source, missing, folder, group, ray, retries, show)
        groups = plan.groups(missing, group or os.cpu_count() or 1)
        _, failures = plan.run(groups, folder, show)
        return failures
    finally:
        show.close()
