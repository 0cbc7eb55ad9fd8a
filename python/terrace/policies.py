"""Policies that are written in Python, for experiments in the simulator."""

from __future__ import annotations

from typing import Any, Sequence

from ._terrace import Memory, nanoseconds

#: A page: number of the address space, and virtual address divided by 4096.
Page = tuple[int, int]

__all__ = ["Idle", "Memory", "Page", "Policy", "StaticRatio", "nanoseconds"]


class Policy:
    """Where new pages lie, and which pages move. Derive from it and give ``terrace.run(…, policy=YourPolicy())`` an instance.

    It sees and orders most of what a policy in Rust does, and its run is as deterministic as it is itself. Traffic, splitting and
    collapsing pages, sizes at the fault, frames and areas are left to policies in Rust. It is slow: a call takes microseconds, so
    faults and decisions take hundreds of times as long as those of a policy in Rust. Simulated time does not know of that.
    """

    #: What the simulated machine has to offer, such as ``accessed-bits``, ``dirty-bits``, ``flush-on-clear``, ``hint-faults``,
    #: ``exact-accesses``, ``migration`` or ``exchange``; a machine that does not offer it refuses the policy.
    needs: Sequence[str] = ()
    #: Signals that come only on demand: ``allocated``, ``unmapped``, ``tlb-miss``.
    signals: Sequence[str] = ()

    def on(self, now: int, signals: list[dict[str, Any]], memory: Memory) -> int | None:
        """Handles signals and gives orders.

        ``now`` is in nanoseconds since the start. Each signal has a ``kind``: ``tick``; ``done`` (``ticket``, ``page``,
        ``outcome``, ``copied_bytes``); ``access`` (``page``, ``write``, ``count``); ``hint-fault`` (``page``, ``write``,
        ``at``); ``tlb-miss`` (``page``); ``allocated`` (``page``, ``base_pages``, ``tier``); ``unmapped`` (``page``,
        ``base_pages``); ``low-water`` (``tier``, ``free_bytes``). The first call has a ``tick`` and comes before the
        program runs. Returns when the next tick shall be, in the same nanoseconds; none leaves that as it is. ``memory``
        can be used during the call alone.
        """
        return None

    # A class that defines `place(self, page, write, now, tiers)` is asked at each page fault where the new page shall lie: the
    # number of a tier, several in the order of preference, or none. Without it the machine's own placement stays.
    # A class that defines `report(self)` returns a dictionary of names and whole numbers, which become statistics of the run.


class StaticRatio(Policy):
    """Pages over two tiers in turns, in a fixed ratio: the policy ``bw-aware`` with a ``fast_share``.

    >>> import terrace
    >>> run = terrace.run("native-4k", "gups,bytes=16MiB,updates=1000", machine="zen4-cxl", policy=StaticRatio(0.5))
    >>> run.design
    'native-4k'
    """

    def __init__(self, fast_share: float) -> None:
        self.fast_share, self.pages, self.in_fast = fast_share, 0, 0

    def place(self, page: Page, write: bool, now: int, tiers: list[dict[str, Any]]) -> list[int]:
        """The tier that keeps the share closest to what it shall be, then the other."""
        self.pages += 1
        to_fast = self.in_fast + 0.5 <= self.fast_share * self.pages
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
