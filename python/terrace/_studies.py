"""The studies: one design, several designs, advice, tuning, published results, recording."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from typing import Any, Iterator, Literal, Mapping, Sequence, SupportsIndex

from . import _check as checked
from . import _terrace
from ._answers import Advice, Claims, Hints, Recording, Tuned
from ._inputs import InputLike, Workload, _several, as_input, gather, one, settings
from ._progress import ProgressLike, shown
from ._results import Comparison, Run
from ._terrace import RequestError, RunError
from .policies import PoliciesLike, PolicyLike, of_run, of_study

Settings = Mapping[str, Any] | Sequence[str] | None
#: How much is simulated.
Fidelity = Literal["full", "translation", "pages"]
#: The name of a built-in workload, or one with its parameters.
WorkloadLike = str | Workload
#: A design: a name, or a TOML file.
DesignLike = str | os.PathLike[str]


def _options(
    machine: str | os.PathLike[str] | None,
    set: Settings,
    time_scale: SupportsIndex,
    fidelity: str,
    scale: SupportsIndex,
    whole: bool,
    fast_forward: bool,
) -> dict[str, Any]:
    return {
        "machine": checked.optional_path("machine", machine),
        "sets": settings(set),
        "time_scale": checked.whole("time_scale", time_scale),
        "fidelity": checked.fidelity(fidelity),
        "scale": checked.whole("scale", scale),
        "whole": checked.flag("whole", whole),
        "fast_forward": checked.flag("fast_forward", fast_forward),
    }


@contextmanager
def _showing(progress: ProgressLike) -> Iterator[Any]:
    show = shown(progress)
    try:
        yield show
    finally:
        show.close()


def _failed(message: str, result: Any) -> RunError:
    """The error of a study of which there is a result all the same: its ``result``."""
    error = RunError(message)
    error.result = result
    return error


def compare(
    designs: DesignLike | Sequence[DesignLike] | None = None,
    inputs: Any = None,
    *,
    workload: WorkloadLike | Sequence[WorkloadLike] | None = None,
    trace: Any = None,
    command: Sequence[str] | None = None,
    policies: str | Sequence[str] = (),
    policy: PoliciesLike | None = None,
    fast: float | str | Sequence[float | str] = (),
    price: Mapping[str, float] | None = None,
    machine: str | os.PathLike[str] | None = None,
    set: Settings = None,
    hints: str | os.PathLike[str] | None = None,
    time_scale: SupportsIndex = 1,
    fidelity: Fidelity = "full",
    scale: SupportsIndex = 1,
    whole: bool = False,
    fast_forward: bool = False,
    intervals: bool = True,
    progress: ProgressLike = None,
) -> Comparison:
    """Runs every design on every input, on all cores, decoding each input once. The first design is the baseline.

    ``policies`` compares tiering policies as well, with ``first-touch``, the baseline, and ``all-fast``, the bound;
    ``fast`` makes the fastest tier these shares of what the input has resident; ``price`` says what a tier's memory
    costs where the fastest tier's is 1. ``set`` changes parameters, such as ``{"os.pages": "2m"}``; one for a design alone
    is ``{"ambix:os.policy.period": "1 s"}``. ``intervals`` says of every speed-up how far assumed constants and seeds move
    it, which takes up to two more runs of each design. ``hints`` is a file of :func:`profile`: the policy ``annotated`` places
    data structures by it instead of by a first pass over the input. Without designs or without inputs those of the built-in study are taken.

    ``policy`` compares the first design under policies that are written in Python as well, each in place of the design's: a class, a
    function that makes a :class:`terrace.Policy`, a list of these, or a mapping from the names that rows are to have. Each run
    gets an object of its own. Without designs the design is ``first-touch``.

    >>> import terrace
    >>> result = terrace.compare(
    ...     ["native-4k", "native-thp"],
    ...     workload="gups,bytes=16MiB,updates=2e4",
    ...     set={"translation.l2.array.0.ways": 6},
    ... )
    >>> frame = result.to_pandas()
    >>> frame[["design", "input", "accesses"]].values.tolist()
    [['native-4k', 'gups', 40000], ['native-thp', 'gups', 40000]]

    Raises :class:`RequestError` for what does not exist, and :class:`RunError` where a run failed; its ``result`` has
    those that are complete.
    """
    options = _options(machine, set, time_scale, fidelity, scale, whole, fast_forward)
    shares, named, chosen = checked.fast_shares(fast), checked.names("designs", designs), checked.names("policies", policies)
    if designs is not None and not named and not chosen and policy is None:
        raise RequestError(checked.empty("designs"))
    with _showing(progress) as show:
        result = Comparison(
            _terrace.compare(
                named,
                chosen,
                of_study(policy),
                shares,
                checked.prices(price),
                gather(inputs, workload, trace, command),
                options,
                checked.optional_path("hints", hints),
                checked.flag("intervals", intervals),
                show,
            )
        )
    if result.failures:
        finished, asked = len(result.runs), result._inner.asked
        reasons = "; ".join(result.failures)
        raise _failed(f"{finished} of {asked} runs succeeded: {reasons}", result) from result._inner.raised
    return result


def run(
    design: str | os.PathLike[str],
    input: InputLike | None = None,
    *,
    workload: WorkloadLike | None = None,
    trace: Any = None,
    command: Sequence[str] | None = None,
    machine: str | os.PathLike[str] | None = None,
    set: Settings = None,
    hints: str | os.PathLike[str] | None = None,
    time_scale: SupportsIndex = 1,
    fidelity: Fidelity = "full",
    scale: SupportsIndex = 1,
    whole: bool = False,
    fast_forward: bool = False,
    policy: PolicyLike | None = None,
    progress: ProgressLike = None,
) -> Run:
    """Simulates one design on one input.

    A policy is a design too: its name stands for 4 KiB pages on the default machine under that policy. ``policy`` is one
    that is written in Python, in place of the design's (see :class:`terrace.Policy`): an object that has managed no run yet, its
    class, or a function that makes one.

    >>> import terrace
    >>> fast = terrace.run("native-2m", terrace.Workload("gups", bytes="16 MiB", updates=20000))
    >>> fast.stats["os.peak_resident_bytes.2m"] > 0
    True
    >>> terrace.run("native-2n", "gups")
    Traceback (most recent call last):
        ...
    terrace.RequestError: there is no machine, design or policy "native-2n"; did you mean "native-2m"?
    """
    if not isinstance(design, (str, os.PathLike)):
        raise RequestError(
            f"design: run takes one design, a name or a file, not {design!r}; terrace.compare takes a list of several"
        )
    given = one("run", input, workload, trace, command)
    options = _options(machine, set, time_scale, fidelity, scale, whole, fast_forward)
    if policy is not None:
        _check_own_policy(hints, options["time_scale"], options["sets"])
    with _showing(progress) as show:
        if policy is not None:
            return Run(_terrace.run_under(of_run(policy), checked.path("design", design), given, options, show))
        trained = checked.optional_path("hints", hints)
        result = Comparison(_terrace.compare([os.fspath(design)], [], [], [], [], [given], options, trained, False, show))
    if result.failures:
        raise RunError("; ".join(result.failures))
    return result.runs[0]


def _check_own_policy(hints: Any, time_scale: int, sets: Sequence[str]) -> None:
    """Refuses what is for built-in policies beside one that is written in Python."""
    own = "a policy that is written in Python"
    if hints is not None:
        raise RequestError(f"{own} takes no hints; give one of policy and hints")
    if time_scale != 1:
        raise RequestError(
            f"time_scale divides the periods of built-in policies, and {own} has its own; leave one of them out"
        )
    for text in sets:
        key = text.split("=")[0].split(":")[-1].strip()
        if key.startswith("os.policy"):
            raise RequestError(f"set: {key} is for built-in policies, and {own} has none; change it in its class")


def record(
    output: str | os.PathLike[str],
    input: InputLike | None = None,
    *,
    workload: WorkloadLike | None = None,
    command: Sequence[str] | None = None,
    progress: ProgressLike = None,
) -> Recording:
    """Writes a program's memory accesses, or those of a workload, to the trace ``output``.

    What is returned can be used wherever a trace is taken.

    >>> import tempfile, os, terrace
    >>> path = os.path.join(tempfile.mkdtemp(), "gups.trace")
    >>> recording = terrace.record(path, workload="gups,bytes=16MiB,updates=2e4")
    >>> terrace.run("native-4k", recording).accesses
    40000
    """
    given = one("record", input, workload, None, command, "a workload or a command")
    with _showing(progress) as show:
        accesses, size, seconds, trouble = _terrace.record(given, checked.path("output", output), show)
    document = {
        "schema": 1,
        "trace": os.fspath(output),
        "accesses": accesses,
        "bytes": size,
        "bytes_per_access": size / accesses if accesses else 0.0,
        "seconds": seconds,
        "accesses_per_second": accesses / seconds if seconds else 0.0,
    }
    result = Recording(document)
    if trouble is not None:
        raise _failed(trouble, result)
    return result


def profile(
    output: str | os.PathLike[str],
    input: InputLike | None = None,
    *,
    workload: WorkloadLike | None = None,
    trace: Any = None,
    command: Sequence[str] | None = None,
    machine: str | os.PathLike[str] | None = None,
    set: Settings = None,
    fidelity: Fidelity = "full",
    scale: SupportsIndex = 1,
    whole: bool = False,
    fast_forward: bool = False,
    progress: ProgressLike = None,
) -> Hints:
    """Counts how large and how hot the data structures of a program are, into the file of hints ``output``.

    What is returned can be given as ``hints`` to :func:`run`, :func:`compare`, :func:`advise` and :func:`tune`, for other inputs
    of the program. A trace needs the allocations (``Command(…, allocations=True)``).

    >>> import tempfile, os, terrace
    >>> path = os.path.join(tempfile.mkdtemp(), "xsbench.toml")
    >>> hints = terrace.profile(path, workload="gpu-xsbench,lookups=2000", machine="gpu-gtx480")
    >>> hints.program, len(hints.sites)
    ('gpu-xsbench', 4)
    >>> run = terrace.run("gpu-annotated", "gpu-xsbench,lookups=4000", hints=hints)
    >>> "--hints" in run.command
    True
    """
    given = one("profile", input, workload, trace, command)
    if given["command"] is not None and not given["gpu"]:
        given["allocations"] = True  # Without these there is nothing to count.
    options = _options(machine, set, 1, fidelity, scale, whole, fast_forward)
    checked.path("output", output)
    with _showing(progress) as show:
        command_line = f"terrace.profile({os.fspath(output)!r}, …)"
        text, trouble = _terrace.profile(given, os.fspath(output), options, command_line, show)
    result = Hints(json.loads(text))
    if trouble is not None:
        raise _failed(trouble, result)
    return result


def advise(
    input: InputLike | None = None,
    *,
    workload: WorkloadLike | None = None,
    trace: Any = None,
    command: Sequence[str] | None = None,
    slowdown: float | str = 0.03,
    policies: Sequence[str] | None = None,
    resolution: float | str = 0.05,
    seeds: SupportsIndex = 3,
    price: Mapping[str, float] | None = None,
    intervals: bool = True,
    machine: str | os.PathLike[str] | None = None,
    set: Settings = None,
    hints: str | os.PathLike[str] | None = None,
    time_scale: SupportsIndex = 1,
    scale: SupportsIndex = 1,
    whole: bool = False,
    fast_forward: bool = False,
    progress: ProgressLike = None,
) -> Advice:
    """How much of the input's memory can be slow within ``slowdown``, under which policy, and what that saves.

    ``intervals`` says how far assumed constants and seeds move the recommended slowdown, from two more runs.
    """
    step = checked.share("resolution", resolution)
    if not 0.001 <= step <= 0.5:
        raise RequestError("resolution: a step is between 0.1% and 50%")
    chances = checked.between("seeds", seeds, 1, 100)
    given = one("advise", input, workload, trace, command)
    options = _options(machine, set, time_scale, "full", scale, whole, fast_forward)
    names = None if policies is None else checked.names("policies", policies)
    tolerated, costs = checked.share("slowdown", slowdown), checked.prices(price)
    trained, wanted = checked.optional_path("hints", hints), checked.flag("intervals", intervals)
    with _showing(progress) as show:
        document, text = _terrace.advise(given, names, tolerated, step, chances, costs, wanted, options, trained, show)
    return Advice(json.loads(document), text)


def advise_pages(
    input: InputLike | None = None,
    *,
    workload: WorkloadLike | None = None,
    trace: Any = None,
    command: Sequence[str] | None = None,
    policies: Sequence[str] = (),
    tlbs: Sequence[str] = (),
    bloat: float | str = 0.10,
    intervals: bool = True,
    machine: str | os.PathLike[str] | None = None,
    set: Settings = None,
    time_scale: SupportsIndex = 1,
    scale: SupportsIndex = 1,
    whole: bool = False,
    fast_forward: bool = False,
    progress: ProgressLike = None,
) -> Advice:
    """What 2 MiB and 1 GiB pages would bring the input, what they would cost, and which regions deserve which size.

    ``intervals`` says of every gain how far assumed constants and seeds move it, from up to two more runs of each way.
    """
    # More than all of the memory can be bloat.
    text = str(bloat).strip()
    more = checked.number(text[:-1]) / 100 if isinstance(bloat, str) and text.endswith("%") else checked.number(bloat)
    if not 0 <= more < float("inf"):
        raise RequestError(f'bloat: "{bloat}" is not a share, such as 10% or 0.1')
    wanted, named = checked.flag("intervals", intervals), checked.names("policies", policies)
    buffers = checked.names("tlbs", tlbs)
    given = one("advise_pages", input, workload, trace, command)
    options = _options(machine, set, time_scale, "full", scale, whole, fast_forward)
    with _showing(progress) as show:
        document, text = _terrace.advise_pages(given, named, buffers, more, wanted, options, show)
    return Advice(json.loads(document), text)


def tune(
    policy: str,
    input: InputLike | None = None,
    *,
    workload: WorkloadLike | None = None,
    trace: Any = None,
    command: Sequence[str] | None = None,
    check: Sequence[InputLike] = (),
    parameters: Sequence[str] = (),
    ranges: Mapping[str, tuple[Any, Any]] | None = None,
    runs: SupportsIndex = 40,
    seed: SupportsIndex = 1,
    slowdown: float | str | None = None,
    fast: float | str = 0.5,
    price: Mapping[str, float] | None = None,
    machine: str | os.PathLike[str] | None = None,
    set: Settings = None,
    hints: str | os.PathLike[str] | None = None,
    time_scale: SupportsIndex = 1,
    scale: SupportsIndex = 1,
    whole: bool = False,
    fast_forward: bool = False,
    progress: ProgressLike = None,
) -> Tuned:
    """Searches a policy's parameters on an input, and says how the best setting does on inputs it was not tuned on."""
    most = checked.between("runs", runs, 1, 100_000)
    draws = checked.whole("seed", seed, least=0, most=2**64 - 1)
    given = one("tune", input, workload, trace, command)
    others = [(str(word), as_input(word)._words()) for word in _several(check)]
    bounds = _bounds(ranges)
    tolerated = None if slowdown is None else checked.share("slowdown", slowdown)
    options = _options(machine, set, time_scale, "full", scale, whole, fast_forward)
    share = checked.fast_share("fast", fast)
    name, varied, costs = checked.path("policy", policy), checked.names("parameters", parameters), checked.prices(price)
    trained = checked.optional_path("hints", hints)
    with _showing(progress) as show:
        document, text = _terrace.tune(
            name,
            given,
            others,
            varied,
            bounds,
            most,
            draws,
            tolerated,
            share,
            costs,
            options,
            trained,
            show,
        )
    return Tuned(json.loads(document), text)


def _bounds(ranges: Mapping[str, tuple[Any, Any]] | None) -> list[tuple[str, str, str]]:
    """The range of each parameter, as texts."""
    if ranges is not None and not isinstance(ranges, Mapping):
        raise RequestError(f'ranges: {ranges!r} is no mapping; give one, such as {{"period": ("1 ms", "1 s")}}')
    bounds = []
    for name, pair in (ranges or {}).items():
        if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:
            raise RequestError(f"ranges: {name}: {pair!r} is no pair of the least and the largest value")
        bounds.append((name, str(pair[0]), str(pair[1])))
    return bounds


def reproduce(*claims: str, intervals: bool = False, progress: ProgressLike = None) -> Claims:
    """Runs published claims and says whether they hold; all of them where none is named.

    A name may be the beginning of claims' names, or a file with claims. ``intervals`` says of each how far assumed constants
    and seeds move its numbers, which takes up to two more runs of each run.
    """
    named, wanted = checked.names("claims", claims), checked.flag("intervals", intervals)
    with _showing(progress) as show:
        return Claims(json.loads(_terrace.reproduce(named, wanted, show)))
