"""What is shown while a study takes: bars by tqdm where it is installed, else plain lines."""

from __future__ import annotations

import importlib
import logging
import sys
import time
from typing import Any, Callable, Sequence, Union

from ._terrace import RequestError

#: A task: number, name, accesses so far, share of the whole where that is known, whether it is over.
Task = tuple[int, str, int, Union[float, None], bool]

#: ``True`` shows bars, ``False`` nothing, ``None`` bars on a terminal or in a notebook. A function gets
#: ``(notes, tasks)`` about ten times a second.
ProgressLike = Union[bool, None, Callable[[list[str], list[Task]], object]]

#: Shorter studies show nothing: a bar that flashes by is noise.
_SILENT_SECONDS = 2.0
_PLAIN_SECONDS = 10.0

log = logging.getLogger("terrace")


def _in_notebook() -> bool:
    shell = sys.modules.get("IPython")
    return bool(shell and type(shell.get_ipython()).__name__ == "ZMQInteractiveShell")


class Notes:
    """Shows no progress; passes on what is to know as warnings of the logger ``terrace``."""

    def __call__(self, notes: Sequence[str], tasks: Sequence[Task]) -> None:
        for note in notes:
            log.warning(note)

    def close(self) -> None:
        """Nothing is shown."""


class Plain(Notes):
    """A line per task every ten seconds."""

    def __init__(self) -> None:
        self._told = time.monotonic()

    def __call__(self, notes: Sequence[str], tasks: Sequence[Task]) -> None:
        super().__call__(notes, tasks)
        if time.monotonic() - self._told < _PLAIN_SECONDS:
            return
        self._told = time.monotonic()
        for _, name, accesses, share, over in tasks:
            done = "" if share is None else f", {share:.0%}"
            if not over:
                print(f"{name}: {accesses:,} accesses{done}", file=sys.stderr, flush=True)


class Bars(Notes):
    """A bar per task."""

    def __init__(self, tqdm: Any) -> None:
        self._tqdm, self._begin, self._bars = tqdm, time.monotonic(), {}

    def __call__(self, notes: Sequence[str], tasks: Sequence[Task]) -> None:
        super().__call__(notes, tasks)
        if time.monotonic() - self._begin < _SILENT_SECONDS:
            return
        for number, name, accesses, share, over in tasks:
            if over:
                bar = self._bars.pop(number, None)
                if bar is not None:
                    bar.close()
                continue
            if number not in self._bars:
                self._bars[number] = self._tqdm(desc=name, unit=" accesses", unit_scale=True, leave=False)
            bar = self._bars[number]
            if share:
                bar.total = int(accesses / share)
            bar.update(accesses - bar.n)

    def close(self) -> None:
        """Removes bars that are left."""
        for bar in self._bars.values():
            bar.close()
        self._bars.clear()


def shown(progress: ProgressLike) -> Any:
    """What shows the progress of one study."""
    if callable(progress):
        return _Own(progress)
    if progress is not None and not isinstance(progress, bool):
        raise RequestError(f"progress: {progress!r} is neither True, False, None nor a function")
    if progress is False or (progress is None and not (_in_notebook() or sys.stderr.isatty())):
        return Notes()
    try:
        return Bars(importlib.import_module("tqdm.auto").tqdm)
    except ImportError:
        return Plain()


class _Own:
    def __init__(self, function: Callable[[list[str], list[Task]], object]) -> None:
        self._function = function

    def __call__(self, notes: list[str], tasks: list[Task]) -> None:
        self._function(notes, tasks)

    def close(self) -> None:
        """The function is the caller's."""
