"""Policies that are written in Python, for experiments in the simulator."""

from __future__ import annotations

import functools
import re
from typing import Any, Callable, Mapping, Sequence, Union

from ._check import share
from ._terrace import Memory, RequestError
from ._terrace import nanoseconds as _nanoseconds

#: A page: number of the address space, and virtual address divided by 4096.
Page = tuple[int, int]
#: A policy for one run, or what makes one for each run: a class, or a function without arguments.
PolicyLike = Union["Policy", Callable[[], "Policy"]]
#: What makes policies: one, several, or several under the names that results are to have.
PoliciesLike = Union[Callable[[], "Policy"], Sequence[Callable[[], "Policy"]], Mapping[str, Callable[[], "Policy"]]]

#: Longer texts of arguments are cut off.
_SHOWN = 120

__all__ = ["Idle", "Memory", "Page", "Policy", "StaticRatio", "nanoseconds"]


class Policy:
    """Where new pages lie, and which pages move. Derive from it and give ``terrace.run(…, policy=YourPolicy())`` an instance.

    It sees and orders most of what a policy in Rust does, and its run is as deterministic as it is itself. Traffic, splitting and
    collapsing pages, sizes at the fault, frames and areas are left to policies in Rust. It is slow: a call takes microseconds, so
    faults and decisions take hundreds of times as long as those of a policy in Rust. Simulated time does not know of that.

    An object manages one run: what it remembers would change the next one, which is refused. For several runs give what makes
    the objects, such as the class or ``lambda: YourPolicy(0.3)``.
    """

    #: What the simulated machine has to offer, such as ``accessed-bits``, ``dirty-bits``, ``flush-on-clear``, ``hint-faults``,
    #: ``exact-accesses``, ``migration`` or ``exchange``; a machine that does not offer it refuses the policy, and what is not named
    #: here cannot be used.
    needs: Sequence[str] = ()
    #: Signals that come only on demand: ``allocated``, ``unmapped``, ``tlb-miss``.
    signals: Sequence[str] = ()

    def __new__(cls, *arguments: Any, **named: Any) -> "Policy":
        """Keeps what the policy is made from, which results name."""
        made = super().__new__(cls)
        made.__dict__["_terrace_arguments"] = (arguments, named)
        return made

    def __repr__(self) -> str:
        arguments, named = self.__dict__.get("_terrace_arguments", ((), {}))
        shown = [*map(_shown, arguments), *(f"{name}={_shown(value)}" for name, value in named.items())]
        return f"{type(self).__name__}({', '.join(shown)})"

    def on(self, now: int, signals: list[dict[str, Any]], memory: Memory) -> int | None:
        """Handles signals and gives orders.

        ``now`` is in nanoseconds since the start. Each signal has a ``kind``: ``tick``; ``done`` (``ticket``, ``page``,
        ``outcome``, ``copied_bytes``); ``access`` (``page``, ``write``, ``count``); ``hint-fault`` (``page``, ``write``,
        ``at``); ``tlb-miss`` (``page``); ``allocated`` (``page``, ``base_pages``, ``tier``); ``unmapped`` (``page``,
        ``base_pages``); ``low-water`` (``tier``, ``free_bytes``). The first call has a ``tick`` and comes before the
        program runs. Returns when the next tick shall be, in the same nanoseconds; none leaves that as it is, and one beyond the
        longest run, such as ``2**63``, never comes. ``memory`` can be used during the call alone.
        """
        return None

    # A class that defines `place(self, page, write, now, tiers)` is asked at each page fault where the new page shall lie: the
    # number of a tier, several in the order of preference, or none. Without it the machine's own placement stays.
    # A class that defines `report(self)` returns a dictionary of names and numbers, which become statistics of the run: of a
    # whole number what was added in the region of interest, of a float what it is at the end (a threshold, a length).


def _shown(value: Any) -> str:
    """The value in short, and the same in every process."""
    text = re.sub(r" at 0x[0-9a-f]+", "", repr(value))
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _made(make: Callable[[], Policy]) -> Policy:
    """A policy for one run."""
    try:
        made = make()
    except TypeError as error:
        if not isinstance(make, type):
            raise
        raise RequestError(
            f"policy: {make.__name__}() cannot be made: {error}; give what makes it: policy=lambda: {make.__name__}(…)"
        ) from error
    if not isinstance(made, Policy):
        raise RequestError(f"policy: {_shown(make)} returned {_shown(made)}, which is no terrace.Policy")
    return made


def _described(policy: Any, label: str | None, of_several: bool) -> dict[str, Any]:
    """The policy as the extension module takes it."""
    if isinstance(policy, Policy):
        if of_several:
            raise RequestError(
                f"policy: {policy!r} is one object, and every run needs its own; give what makes them: "
                f"policy=lambda: {policy!r}"
            )
        first, make = policy, None
    elif callable(policy):
        first, make = _made(policy), functools.partial(_made, policy)
    else:
        built_in = f"; a built-in policy is a design: terrace.run({policy!r}, …)" if isinstance(policy, str) else ""
        raise RequestError(f"policy: {policy!r} is no terrace.Policy, and no function that makes one{built_in}")
    name = type(first).__name__
    return {"label": label, "name": name, "made_by": _shown(first), "first": first, "make": make if of_several else None}


def of_run(policy: Any) -> dict[str, Any]:
    """The policy of one run."""
    return _described(policy, None, of_several=False)


def of_study(policies: Any) -> list[dict[str, Any]]:
    """The policies of a study of several runs."""
    if policies is None:
        return []
    if isinstance(policies, Mapping):
        return [_described(policy, str(label), of_several=True) for label, policy in policies.items()]
    listed = policies if isinstance(policies, (list, tuple)) else [policies]
    return [_described(policy, None, of_several=True) for policy in listed]


def nanoseconds(text: str) -> int:
    """A span such as ``1 ms`` in nanoseconds, as parameters spell it.

    >>> nanoseconds("1 ms")
    1000000
    """
    if not isinstance(text, str):
        raise RequestError(f'{text!r} is no span of time with its unit, such as "1 ms"')
    return _nanoseconds(text)


class StaticRatio(Policy):
    """Pages over two tiers in turns, in a fixed ratio: the policy ``bw-aware`` with a ``fast_share``, such as 0.3 or "30%".

    >>> import terrace
    >>> run = terrace.run("native-4k", "gups,bytes=16MiB,updates=1000", machine="zen4-cxl", policy=StaticRatio(0.5))
    >>> run.design
    'native-4k'
    """

    def __init__(self, fast_share: float | str) -> None:
        self.fast_share, self.pages, self.in_fast = share("fast_share", fast_share), 0, 0

    def place(self, page: Page, write: bool, now: int, tiers: list[dict[str, Any]]) -> list[int]:
        """The tier that keeps the share closest to what it shall be, then the other."""
        self.pages += 1
        # Rounding of the product is no reason to prefer the slow tier.
        to_fast = self.in_fast + 0.5 <= self.fast_share * self.pages + 5e-7
        self.in_fast += to_fast
        return [0, 1] if to_fast else [1, 0]


class Idle(Policy):
    """Pages that a scan finds untouched go to the slow tier, used ones come back: the policy ``idle``."""

    needs = ("accessed-bits", "migration", "flush-on-clear")
    signals = ("unmapped",)

    def __init__(self, scan: str = "10 s") -> None:
        self.period, self.started = nanoseconds(scan), False

    def on(self, now: int, signals: list[dict[str, Any]], memory: Memory) -> int | None:
        """Scans all pages at each tick."""
        if not any(signal["kind"] == "tick" for signal in signals):
            return None
        room = memory.tiers()[0]["free_pages"]
        down, up = [], []
        for page in memory.scan(clear_accessed=True, flush=True):
            if page["in_flight"] or not self.started:
                continue
            if page["tier"] == 0 and not page["accessed"]:
                down.append((page["page"], 1))
            elif page["tier"] == 1 and page["accessed"] and page["base_pages"] <= room:
                room -= page["base_pages"]
                up.append((page["page"], 0))
        self.started = True
        memory.migrate(down)
        memory.migrate(up)
        return now + self.period
