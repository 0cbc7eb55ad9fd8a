"""The rules of the changelog, on changelogs made for them: `python3 -m unittest discover -s packaging`."""

import datetime
import unittest

from changelog import check, months_after

TODAY = datetime.date(2026, 6, 1)

KEPT = """# Changelog

## Unreleased

### Deprecated

- `--old` of `sim`; `--new` takes
  its place. Removed not before 2026-09-01.

## 0.3.0 - 2026-05-31

### Removed

- `--older` (deprecated in 0.2.0).
- `--oldest`, which no release had (never released).

## 0.2.0 - 2026-01-31

### Deprecated

- `--older`. Removed not before 2026-04-30.
"""


class Rules(unittest.TestCase):
    def broken(self, old: str, new: str, expected: str, release: str | None = None) -> None:
        self.assertIn(old, KEPT)
        faults = check(KEPT.replace(old, new), TODAY, release)
        self.assertTrue(any(expected in fault for fault in faults), faults)

    def test_a_changelog_that_keeps_them(self):
        self.assertEqual(check(KEPT, TODAY), [])

    def test_three_months_are_counted_by_the_calendar(self):
        self.assertEqual(months_after(datetime.date(2026, 1, 31), 3), datetime.date(2026, 4, 30))
        self.assertEqual(months_after(datetime.date(2025, 11, 30), 3), datetime.date(2026, 2, 28))
        self.assertEqual(months_after(datetime.date(2026, 12, 1), 3), datetime.date(2027, 3, 1))

    def test_each_broken_rule_is_named(self):
        self.broken("2026-09-01", "2026-08-31", "7: 2026-08-31 is less than 3 months away")
        self.broken(" Removed not before 2026-04-30.", "", "21: a deprecated entry ends with `Removed not before 2026-04-30.`")
        self.broken("(deprecated in 0.2.0)", "", "14: a removed entry names its deprecation")
        self.broken("(deprecated in 0.2.0)", "(deprecated in 0.1.0)", "14: 0.1.0 deprecates nothing")
        self.broken("0.3.0 - 2026-05-31", "0.3.0 - 2026-04-01", "14: removed on 2026-04-01, promised until 2026-04-30")
        self.broken("0.3.0 -", "1.0.0 -", "15: from 1.0.0 on")
        self.broken("0.3.0 -", "0.1.9 -", "17: 0.2.0 stands below 0.1.9 and is not older")
        self.broken("0.3.0 - 2026-05-31", "0.3", "10: expected `## Unreleased` or")

    def test_a_release_is_headed_and_leaves_nothing_unreleased(self):
        self.broken("## 0.3.0", "## 0.3.1", "the newest release is 0.3.1, not 0.3.0", release="0.3.0")
        self.broken("0.3.0", "0.3.0", "3: entries stand under `## Unreleased`", release="0.3.0")
        released = KEPT.replace("## Unreleased\n", "## 0.4.0 - 2026-06-01\n")
        self.assertEqual(check(released, TODAY, "0.4.0"), [])
        early = released.replace("2026-06-01", "2026-06-02").replace("2026-09-01", "2026-09-02")
        self.assertTrue(any("today is 2026-06-01" in fault for fault in check(early, TODAY, "0.4.0")))


if __name__ == "__main__":
    unittest.main()
