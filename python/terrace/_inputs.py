"""Inputs of a study: traces, built-in workloads, programs that are recorded while they run."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, Iterable, Mapping, Sequence, Union

from ._check import empty, flag, is_flag, path, whole
from ._terrace import RequestError

#: An input, or what names one: the path of a trace, the name of a workload, the words of a command.
InputLike = Union["Workload", "Trace", "Suite", "Mix", "Command", str, "os.PathLike[str]", Sequence[str]]


def text_of(value: Any) -> str:
    """A parameter's value as designs and workloads spell it.

    >>> [text_of(value) for value in (True, 4, 0.5, "2 MiB")]
    ['true', '4', '0.5', '2 MiB']
    """
    if is_flag(value):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_quoted(part) for part in value) + "]"
    return str(value)


def _quoted(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else text_of(value)


@dataclass(frozen=True)
class Workload:
    """A built-in workload with its parameters (``terrace workload list`` shows them).

    >>> Workload("gups", bytes="16 MiB", seed=7).spec
    'gups,bytes=16 MiB,seed=7'
    """

    spec: str

    def __init__(self, name: str, /, **parameters: Any) -> None:
        if not isinstance(name, str):
            raise RequestError(f"workload: {name!r} is no name of a workload")
        for key, value in parameters.items():
            if "," in text_of(value):
                raise RequestError(f"{key}: {value!r} has a comma, which separates parameters; give each as an argument")
        words = [name, *(f"{key}={text_of(value)}" for key, value in parameters.items())]
        object.__setattr__(self, "spec", ",".join(words))

    def _words(self) -> dict[str, Any]:
        return _words(workload=self.spec)


@dataclass(frozen=True)
class Trace:
    """A trace file: Terrace's own, or of another tool that ``terrace trace --help`` names; the content decides."""

    path: Union[str, "os.PathLike[str]"]
    #: Read every whole chunk before the damage of a truncated or corrupt trace, instead of refusing it.
    salvage: bool = False

    def _words(self) -> dict[str, Any]:
        return _words(trace=path("trace", self.path), salvage=flag("salvage", self.salvage))


@dataclass(frozen=True)
class Suite:
    """A program of the suite (``terrace suite list`` shows them; ``terrace suite record`` records them).

    >>> Suite("mcf").name
    'mcf'
    """

    name: str

    def _words(self) -> dict[str, Any]:
        if not isinstance(self.name, str):
            raise RequestError(f"suite: {self.name!r} is no name of a program")
        return _words(suite=self.name)


@dataclass(frozen=True)
class Mix:
    """Programs side by side on one machine, each in its own address space and on its own cores: as ``--mix`` names them, or one by
    one. Each also runs alone, for how much it is slowed down: ``mix.weighted_speedup`` and its kin in the statistics.

    >>> Mix("vbi-w3").word
    'vbi-w3'
    >>> Mix("gups,bytes=16MiB", Workload("stencil", side=32)).word
    'gups,bytes=16MiB,stencil,side=32'
    """

    word: str

    def __init__(self, *programs: Union[str, "os.PathLike[str]", Workload, Trace, Suite]) -> None:
        object.__setattr__(self, "word", ",".join(_program(program) for program in programs))

    def _words(self) -> dict[str, Any]:
        return _words(mix=self.word)


def _program(program: Union[str, "os.PathLike[str]", Workload, Trace, Suite]) -> str:
    """A program of a mix as ``--mix`` names it."""
    if isinstance(program, Workload):
        return program.spec
    if isinstance(program, os.PathLike):
        program = Trace(program)
    if isinstance(program, Trace):
        path = os.fspath(program.path)
        if program.salvage:
            raise RequestError(
                f"{path}: a mix reads whole traces; convert the damaged one first: terrace trace convert --salvage"
            )
        if "," in path:
            raise RequestError(f"{path}: commas separate the programs of a mix; give the trace a name without one")
        return f"trace:{path}"
    if isinstance(program, Suite):
        return f"suite:{program.name}"
    if not isinstance(program, str):
        raise RequestError(f"mix: {program!r} is no program; give a workload, a trace, a suite's program or their names")
    return program


@dataclass(frozen=True)
class Command:
    """A program and its arguments, recorded while it runs. It runs once, whatever the number of designs.

    >>> Command(["sort", "big.txt"], limit=1_000_000).words
    ('sort', 'big.txt')
    """

    words: Sequence[Union[str, bytes, "os.PathLike[str]"]]
    #: Leave out the first accesses; pages they touch count as resident.
    skip: int = field(default=0, kw_only=True)
    #: End the recording after so many accesses; the program runs on unobserved.
    limit: int | None = field(default=None, kw_only=True)
    #: Record the first LENGTH accesses of every PERIOD: ``(period, length)``.
    every: tuple[int, int] | None = field(default=None, kw_only=True)
    #: End the program at ``limit`` instead of letting it run on.
    end_at_limit: bool = field(default=False, kw_only=True)
    #: Record only between the markers that the program issues (``terrace/marker.h``).
    region: bool = field(default=False, kw_only=True)
    #: Record each access's instruction address.
    program_counters: bool = field(default=False, kw_only=True)
    #: Record allocations and frees of data structures, by call site.
    allocations: bool = field(default=False, kw_only=True)
    #: Derive which load an access's address depends on.
    dependences: bool = field(default=True, kw_only=True)
    #: Follow programs that the command starts by exec.
    follow_exec: bool = field(default=True, kw_only=True)
    #: Record the OpenCL kernels that the program runs on a GPU, in software.
    gpu: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        if isinstance(self.words, (str, bytes, os.PathLike)):
            raise RequestError(f'command: {self.words!r} is no list of words; give one, such as ["sort", "big.txt"]')
        words = tuple(self.words)
        for word in words:
            if not isinstance(word, (str, bytes, os.PathLike)):
                raise RequestError(f"command: {word!r} is no word of a command; {_ADDRESSES}")
        if not words:
            raise RequestError("command: it is empty; give the program and its arguments")
        object.__setattr__(self, "words", tuple(os.fspath(word) for word in words))

    def _words(self) -> dict[str, Any]:
        return _words(
            command=list(self.words),
            skip=whole("skip", self.skip, 0, 2**64 - 1),
            limit=None if self.limit is None else whole("limit", self.limit, 1, 2**64 - 1),
            every=_every(self.every),
            end_at_limit=flag("end_at_limit", self.end_at_limit),
            region=flag("region", self.region),
            program_counters=flag("program_counters", self.program_counters),
            allocations=flag("allocations", self.allocations),
            dependences=flag("dependences", self.dependences),
            follow_exec=flag("follow_exec", self.follow_exec),
            gpu=flag("gpu", self.gpu),
        )


def _every(given: Any) -> tuple[int, int] | None:
    """How long a period is and how much of it is recorded, in accesses."""
    if given is None:
        return None
    if not isinstance(given, Sequence) or isinstance(given, (str, bytes)) or len(given) != 2:
        raise RequestError(f"every: {given!r} is no pair of a period and a length in accesses, such as (1_000_000, 10_000)")
    period, length = (whole("every", part, 1, 2**64 - 1) for part in given)
    return period, length


def _words(**given: Any) -> dict[str, Any]:
    """What the extension module takes an input as."""
    return {
        "workload": None,
        "trace": None,
        "suite": None,
        "mix": None,
        "command": None,
        "salvage": False,
        "skip": 0,
        "limit": None,
        "every": None,
        "end_at_limit": False,
        "region": False,
        "program_counters": False,
        "allocations": False,
        "dependences": True,
        "follow_exec": True,
        "gpu": False,
        **given,
    }


def as_input(word: InputLike) -> Workload | Trace | Suite | Mix | Command:
    """The input that ``word`` names.

    A path object and the name of a file that exists are traces, another text is a workload, a list of words is a command. A
    folder is a trace where it has a slash in its name, or the files of drmemtrace.

    >>> as_input("kv,requests=1e5")
    Workload(spec='kv,requests=1e5')
    >>> as_input(["ls", "-l"]).words
    ('ls', '-l')
    """
    if isinstance(word, (Workload, Trace, Suite, Mix, Command)):
        return word
    if isinstance(word, str):
        folder = os.path.isdir(word) and not os.path.isdir(os.path.join(word, "trace"))
        if "/" in word or (os.path.exists(word) and not folder):
            return Trace(word)
        if "." in word.split(",")[0]:
            raise RequestError(f"{word}: there is no such file, and no workload has a point in its name")
        return Workload(word)
    if isinstance(word, os.PathLike):
        return Trace(word)
    if isinstance(word, Sequence):
        return Command(word)
    if isinstance(word, Mapping):
        raise RequestError(f'input: {word!r} is a mapping; give terrace.Workload("gups", bytes="2 MiB")')
    shown = repr(word)
    shown = shown if len(shown) <= 60 else f"a {type(word).__name__}"
    raise RequestError(
        f"input: {shown} is no input; give a workload, the path of a trace, or a list of words. {_ADDRESSES}"
    )


#: How addresses that a program of the user's made come into a study.
_ADDRESSES = "Write addresses to a file first, a line such as `R 1ffe 8` for each access, and give its path"


def _several(value: Any) -> list[Any]:
    if value is None:
        return []
    single = isinstance(value, (str, bytes, os.PathLike, Workload, Trace, Suite, Mix, Command, Mapping))
    return [value] if single or not isinstance(value, Iterable) else list(value)


def _some(name: str, value: Any) -> Any:
    """What was given, an iterable as a list; refused where there is nothing in it."""
    found = _several(value)
    if not found:
        raise RequestError(empty(name))
    return value if isinstance(value, (str, list, tuple)) else found


def gather(
    inputs: Any,
    workload: str | Workload | Sequence[str | Workload] | None,
    trace: Any,
    command: Sequence[str] | None,
) -> list[dict[str, Any]]:
    """All inputs of a call, in the order of the command line: traces, workloads, the command."""
    inputs, trace, workload = (
        value if value is None else _some(name, value)
        for name, value in (("inputs", inputs), ("trace", trace), ("workload", workload))
    )
    found: list[Workload | Trace | Suite | Mix | Command] = []
    if isinstance(inputs, (list, tuple)) and inputs and all(isinstance(part, str) for part in inputs):
        # A list of texts is a command where one input is taken; here it is several inputs.
        found += [as_input(part) for part in inputs]
    else:
        found += [as_input(part) for part in _several(inputs)]
    found += [part if isinstance(part, Trace) else Trace(part) for part in _several(trace)]
    for part in _several(workload):
        found.append(part if isinstance(part, Workload) else Workload(part))
    if command is not None:
        found.append(Command(command))
    return [part._words() for part in found]


def one(
    what: str,
    input: InputLike | None,
    workload: str | Workload | None,
    trace: Any,
    command: Sequence[str] | None,
    kinds: str = "a trace, a workload or a command",
) -> dict[str, Any]:
    """The one input of a call, which is of one of these kinds."""
    given = [] if input is None else [as_input(input)._words()]
    given += gather(None, workload, trace, command)
    if len(given) == 1:
        return given[0]
    if not given:
        raise RequestError(f"no input; give {kinds}")
    raise RequestError(f"{what} takes one input, not {len(given)}; compare takes several")


def settings(values: Mapping[str, Any] | Sequence[str] | None) -> list[str]:
    """``{"os.pages": "2m"}`` as the command line's ``os.pages=2m``."""
    if values is None:
        return []
    if isinstance(values, str):
        return [values]
    # A mapping, or what is one but for its name, such as a series of pandas.
    pairs = values.items() if hasattr(values, "items") else values
    if not isinstance(pairs, Iterable) or isinstance(pairs, (bytes, os.PathLike)):
        raise RequestError(f'set: {values!r} is no mapping of parameters; give one, such as {{"os.pages": "2m"}}')
    found = []
    for pair in pairs:
        if isinstance(pair, str):
            found.append(pair)
        elif isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str):
            found.append(f"{pair[0]}={text_of(pair[1])}")
        else:
            raise RequestError(f'set: {pair!r} is no parameter with its value, such as "os.pages=2m"')
    return found
