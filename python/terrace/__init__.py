"""What would happen if a program's memory were managed differently?

The Python door to Terrace. A design is a machine with a way of managing its memory; an input is a trace, a built-in
workload, or a program that is recorded while it runs.

>>> import terrace
>>> result = terrace.compare(["native-4k", "native-2m"], workload="gups,bytes=16MiB,updates=2e4")
>>> [run.design for run in result.runs]
['native-4k', 'native-2m']
>>> base, huge = result.runs
>>> huge.stats["walk.count"] < base.stats["walk.count"]
True

Results become data frames with :meth:`Table.to_pandas`, :meth:`Table.to_polars` and :meth:`Table.to_arrow`. What cannot
be done raises :class:`RequestError` or :class:`RunError` with the words of the command line. Ctrl-C stops a study.
"""

from ._answers import Advice, Claims, Hints, Recording, Tuned
from ._inputs import Command, Mix, Suite, Trace, Workload
from ._results import Comparison, Run
from ._studies import advise, advise_pages, compare, profile, record, reproduce, run, tune
from ._sweep import Sweep, sweep
from ._table import Table
from ._terrace import RequestError, RunError, TerraceError, __version__
from .policies import Policy

# A result stays in its process: what another one is told is the error's words.
RunError.__reduce__ = lambda error: (RunError, error.args)  # type: ignore[method-assign, assignment]

__all__ = [
    "Advice",
    "Claims",
    "Command",
    "Comparison",
    "Hints",
    "Mix",
    "Policy",
    "Recording",
    "RequestError",
    "Run",
    "RunError",
    "Suite",
    "Sweep",
    "Table",
    "TerraceError",
    "Trace",
    "Tuned",
    "Workload",
    "__version__",
    "advise",
    "advise_pages",
    "compare",
    "profile",
    "record",
    "reproduce",
    "run",
    "sweep",
    "tune",
]
