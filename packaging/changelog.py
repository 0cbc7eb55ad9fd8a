#!/usr/bin/env python3
"""Holds CHANGELOG.md to the rules of releases: `changelog.py [--release VERSION]`.

- Releases are headed `## 1.2.3 - 2026-01-31`, newest first, in versions and in dates; what is not released stands above, under
  `## Unreleased`.
- Each entry under `### Deprecated` ends with `Removed not before DATE.`, and the date lies three months or more after the release
  (while unreleased: after today).
- Each entry under `### Removed` names the version that deprecated it, `(deprecated in 1.2.0)`, and comes no sooner than that entry said.
  Before 1.0.0 it may also say `(never released)`.

With `--release VERSION` the newest release must be VERSION, dated today or earlier, and nothing may stand under `## Unreleased`.
"""

import datetime
import re
import sys
from pathlib import Path

MONTHS = 3
RELEASE = re.compile(r"## (\d+)\.(\d+)\.(\d+) - (\d{4}-\d{2}-\d{2})$")
NOT_BEFORE = re.compile(r"Removed not before (\d{4}-\d{2}-\d{2})\.$")
DEPRECATED_IN = re.compile(r"\((?:deprecated in (\d+\.\d+\.\d+)|never released)\)")


def months_after(day: datetime.date, months: int) -> datetime.date:
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    # The last day of a short month stands for those that it lacks.
    for last in range(day.day, 27, -1):
        try:
            return datetime.date(year, month + 1, last)
        except ValueError:
            continue
    return datetime.date(year, month + 1, day.day)


def releases(text: str) -> tuple[list[dict], list[str]]:
    """Sections with version (None: unreleased), date and entries by kind; and what cannot be read."""
    found, faults = [], []
    kind = None
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("## "):
            heading = RELEASE.match(line)
            if heading:
                version = tuple(int(part) for part in heading.group(1, 2, 3))
                date = datetime.date.fromisoformat(heading.group(4))
                found.append({"version": version, "date": date, "line": number, "entries": []})
            elif line == "## Unreleased":
                found.append({"version": None, "date": None, "line": number, "entries": []})
            else:
                faults.append(f"{number}: expected `## Unreleased` or `## 1.2.3 - 2026-01-31`, found `{line}`")
            kind = None
        elif line.startswith("### "):
            kind = line[4:]
        elif found and line.startswith("- "):
            found[-1]["entries"].append([number, kind, line[2:]])
        elif found and line.startswith("  ") and found[-1]["entries"]:
            found[-1]["entries"][-1][2] += " " + line.strip()
    return found, faults


def name(version: tuple[int, int, int]) -> str:
    return ".".join(str(part) for part in version)


def check(text: str, today: datetime.date, release: str | None = None) -> list[str]:
    """What breaks the rules, each with its line."""
    sections, faults = releases(text)
    if any(section["version"] is None for section in sections[1:]):
        faults.append(f"{sections[-1]['line']}: `## Unreleased` stands above all releases, once")
    done = [section for section in sections if section["version"]]
    for newer, older in zip(done, done[1:]):
        if newer["version"] <= older["version"] or newer["date"] < older["date"]:
            faults.append(f"{older['line']}: {name(older['version'])} stands below {name(newer['version'])} and is not older")
    promised = {}
    for section in reversed(sections):
        date = section["date"] or today
        for number, kind, entry in section["entries"]:
            if kind == "Deprecated":
                least = months_after(date, MONTHS)
                promise = NOT_BEFORE.search(entry)
                if not promise:
                    faults.append(f"{number}: a deprecated entry ends with `Removed not before {least}.` or a later date")
                elif datetime.date.fromisoformat(promise.group(1)) < least:
                    faults.append(f"{number}: {promise.group(1)} is less than {MONTHS} months away; {least} is the first day")
                elif section["version"]:
                    days = promised.setdefault(name(section["version"]), [])
                    days.append(datetime.date.fromisoformat(promise.group(1)))
            elif kind == "Removed":
                origin = DEPRECATED_IN.search(entry)
                if not origin:
                    faults.append(f"{number}: a removed entry names its deprecation: `(deprecated in 1.2.0)`")
                elif origin.group(1) is None:
                    if (section["version"] or (0, 0, 0)) >= (1, 0, 0):
                        faults.append(f"{number}: from 1.0.0 on, what is removed was deprecated in a release before")
                elif origin.group(1) not in promised:
                    faults.append(f"{number}: {origin.group(1)} deprecates nothing")
                elif date < min(promised[origin.group(1)]):
                    faults.append(f"{number}: removed on {date}, promised until {min(promised[origin.group(1)])}")
    if release:
        if not done or name(done[0]["version"]) != release:
            newest = name(done[0]["version"]) if done else "none"
            faults.append(f"the newest release is {newest}, not {release}: give what stands under `## Unreleased` its heading")
        elif done[0]["date"] > today:
            faults.append(f"{done[0]['line']}: {release} is dated {done[0]['date']}, and today is {today}")
        faults += [f"{s['line']}: entries stand under `## Unreleased`" for s in sections if not s["version"] and s["entries"]]
    return faults


def main(arguments: list[str]) -> int:
    if arguments and (arguments[0] != "--release" or len(arguments) != 2):
        sys.exit("usage: changelog.py [--release VERSION]")
    file = Path(__file__).resolve().parent.parent / "CHANGELOG.md"
    faults = check(file.read_text(), datetime.date.today(), arguments[1] if arguments else None)
    for fault in faults:
        print(f"CHANGELOG.md:{fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
