"""What simulations return."""

from __future__ import annotations

import os
from typing import Any, Iterator, SupportsIndex, overload

from . import _terrace
from ._table import Table, html_table
from ._terrace import RequestError


class Run(Table):
    """One design on one input.

    >>> import terrace
    >>> run = terrace.run("native-4k", "gups,bytes=16MiB,updates=2e4")
    >>> run.design, run.input, run.accesses
    ('native-4k', 'gups', 40000)
    >>> run.stats["tlb.l2.miss"] > 0
    True
    >>> run.units["tlb.l2.miss"]
    'count'
    """

    def __init__(self, inner: _terrace.Run) -> None:
        self._inner = inner
        self._stats: dict[str, Any] | None = None

    def _of_columns(self) -> dict[str, tuple[str, list[Any]]]:
        return self._inner.columns()

    @property
    def design(self) -> str:
        """Name of the design."""
        return self._inner.design

    @property
    def design_summary(self) -> str:
        """What the design is, in one line."""
        return self._inner.design_summary

    @property
    def machine(self) -> str:
        """Name of the machine below the design."""
        return self._inner.machine

    @property
    def input(self) -> str:
        """Name of the input."""
        return self._inner.input

    @property
    def fidelity(self) -> str:
        """How much was simulated: ``full``, ``translation`` or ``pages``."""
        return self._inner.fidelity

    @property
    def scale(self) -> int:
        """What the machine was divided by."""
        return self._inner.scale

    @property
    def seed(self) -> int | None:
        """Seed of the input, where it has one."""
        return self._inner.seed

    @property
    def accesses(self) -> int:
        """Loads and stores simulated."""
        return self._inner.accesses

    @property
    def instructions(self) -> int:
        """Instructions retired."""
        return self._inner.instructions

    @property
    def cycles(self) -> int:
        """Elapsed core cycles."""
        return self._inner.cycles

    @property
    def seconds_simulated(self) -> float:
        """Elapsed simulated time."""
        return self._inner.seconds_simulated

    @property
    def wall_seconds(self) -> float:
        """How long the simulation took."""
        return self._inner.wall_seconds

    @property
    def command(self) -> str:
        """The command that repeats the run; of a run under a policy in Python the call that does."""
        return self._inner.command

    @property
    def parameters(self) -> dict[str, str]:
        """Every parameter of the design, as text with its unit."""
        return self._inner.parameters

    @property
    def notes(self) -> list[str]:
        """What else a reader must know."""
        return self._inner.notes

    @property
    def left_out(self) -> list[str]:
        """What the fidelity left out."""
        return self._inner.left_out

    @property
    def stats(self) -> dict[str, Any]:
        """All statistics by their full names; a histogram is a dictionary with count, sum, max and buckets."""
        if self._stats is None:
            self._stats = self._inner.stats
        return self._stats

    @property
    def units(self) -> dict[str, str]:
        """The unit of each statistic."""
        return self._inner.units

    def speedup_over(self, baseline: "Run") -> float | None:
        """How many times faster than ``baseline`` this run is; none unless both simulated the time of their accesses.

        Raises :class:`RequestError` where the two did not make the same accesses, as of different inputs.
        """
        if self.input != baseline.input or (self.accesses != baseline.accesses and "mix.weighted_speedup" not in self.stats):
            raise RequestError(
                f"speedup_over: {self.input} with {self.accesses} accesses and {baseline.input} with {baseline.accesses}: these "
                "are not the same accesses, so that the times say nothing of the designs"
            )
        return self._inner.speedup_over(baseline._inner)

    def to_json(self) -> str:
        """The run as a document, as ``terrace sim --json`` writes it."""
        return self._inner.to_json()

    def summary(self) -> str:
        """Key numbers and where the cycles went, as the command line shows them."""
        return self._inner.summary()

    def _repr_html_(self) -> str:
        """What a notebook shows: the run's statistics with their units, below what it is a run of."""
        units = self.units
        about: list[tuple[str, Any, str]] = [("design", self.design, ""), ("machine", self.machine, ""), ("input", self.input, "")]
        about += [("accesses", self.accesses, ""), ("simulated time", self.seconds_simulated, "s")]
        stats = [
            (name, f"histogram of {value['count']}" if isinstance(value, dict) else value, units[name])
            for name, value in self.stats.items()
        ]
        return html_table(("", "value", "unit"), about + stats)

    def __repr__(self) -> str:
        return f"<terrace.Run of {self.design} on {self.input}: {self.accesses} accesses>"

    def __str__(self) -> str:
        return self.summary()


class Comparison(Table):
    """Several designs on the same inputs; the first design is the baseline.

    >>> import terrace
    >>> result = terrace.compare(["native-4k", "native-2m"], workload="gups,bytes=16MiB,updates=2e4")
    >>> result
    <terrace.Comparison of 2 runs>
    >>> result["native-2m"].design
    'native-2m'
    """

    def __init__(self, inner: _terrace.Comparison) -> None:
        self._inner = inner
        self._runs: list[Run] | None = None

    def _of_columns(self) -> dict[str, tuple[str, list[Any]]]:
        return self._inner.columns()

    @property
    def runs(self) -> list[Run]:
        """The runs, in the order of display."""
        if self._runs is None:
            self._runs = [Run(run) for run in self._inner.runs]
        return self._runs

    @property
    def baseline(self) -> str:
        """Name of the design that speed-ups refer to."""
        return self._inner.baseline

    @property
    def failures(self) -> list[str]:
        """Runs that were asked for and have no result, and why."""
        return self._inner.failures

    @property
    def units(self) -> dict[str, str]:
        """The unit of each statistic of the runs."""
        return {name: unit for run in self.runs for name, unit in run.units.items()}

    @overload
    def __getitem__(self, key: slice) -> list[Run]: ...
    @overload
    def __getitem__(self, key: str | tuple[str, str] | SupportsIndex) -> Run: ...
    def __getitem__(self, key: Any) -> Any:
        """The run of a design, or of a design and an input, or the one with this number; of a slice the list of runs."""
        if isinstance(key, slice) or hasattr(key, "__index__"):
            return self.runs[key]
        design, input = key if isinstance(key, tuple) else (key, None)
        for run in self.runs:
            if run.design == design and input in (None, run.input):
                return run
        raise KeyError(key)

    def table(self) -> str:
        """The table of the command line."""
        return self._inner.table()

    def to_json(self) -> str:
        """The document ``results.json``."""
        return self._inner.to_json()

    def to_csv(self) -> str:
        """The text of ``results.csv``."""
        return self._inner.to_csv()

    def to_html(self) -> str:
        """The page ``report.html``, which opens without a network."""
        return self._inner.to_html()

    def write(self, directory: str | os.PathLike[str]) -> str:
        """Writes the directory that ``terrace compare`` writes; returns the path of its page."""
        return str(self._inner.write_directory(os.fspath(directory)))

    def __iter__(self) -> Iterator[Run]:
        return iter(self.runs)

    def __repr__(self) -> str:
        return f"<terrace.Comparison of {len(self)} runs>"

    def __str__(self) -> str:
        return self.table()
