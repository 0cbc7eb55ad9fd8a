//! Why one run takes less time than another, by the components of their cycles: parts that add up to the whole.

use crate::RunRecord;
use crate::run::component_label;

/// Shares of the cycles smaller than this are not named one by one.
const SMALLEST: f64 = 0.005;
/// Components named on each side however small they are.
const NAMED: usize = 2;
/// Components of such a share are named too.
const LARGE: f64 = 0.02;
/// What the components that are not named save together.
const ELSEWHERE: &str = "elsewhere";
/// Difference between cycles saved and time saved from which on the sentence says so.
const APART: f64 = 0.02;

/// What a run spends less than another one.
pub(crate) struct Savings<'a> {
    from: &'a RunRecord,
    to: &'a RunRecord,
    /// The savings by component, as shares of the other's cycles, idle cores included; negative where more is spent.
    parts: Vec<(String, f64)>,
}

impl<'a> Savings<'a> {
    /// What `to` spends less than `from`; nothing where cycles were not blamed.
    pub(crate) fn new(from: &'a RunRecord, to: &'a RunRecord) -> Option<Savings<'a>> {
        let (before, after) = (all_cycles(from), all_cycles(to));
        let total: f64 = before.iter().map(|(_, cycles)| cycles).sum();
        if total <= 0.0 {
            return None;
        }
        let of = |list: &[(String, f64)], name: &str| {
            list.iter().find(|(other, _)| other == name).map_or(0.0, |(_, cycles)| *cycles)
        };
        let mut names: Vec<String> = before.iter().map(|(name, _)| name.clone()).collect();
        names.extend(
            after
                .iter()
                .map(|(name, _)| name.clone())
                .filter(|name| !before.iter().any(|(other, _)| other == name)),
        );
        let part = |name: String| {
            let saved = (of(&before, &name) - of(&after, &name)) / total;
            (name, saved)
        };
        Some(Savings { from, to, parts: names.into_iter().map(part).collect() })
    }

    /// All that is saved, as a share of the other's cycles.
    fn total(&self) -> f64 {
        self.parts.iter().map(|(_, saved)| saved).sum()
    }

    /// `it saves 38% of native-4k's cycles: 40% in address translation, while it spends 2% more in computing`; nothing
    /// where no cycle is saved.
    pub(crate) fn saved(&self) -> Option<String> {
        let total = self.total();
        let (saved, parts) = self.shares(1.0);
        let whole = format!("it saves {saved} of {}'s cycles{}{parts}", self.from.design, self.idle());
        (total >= SMALLEST).then(|| whole + &self.in_time(total))
    }

    /// The sentence for a run that takes longer: `kv spends 25% more cycles than native-4k: 27% in waiting for memory`.
    pub(crate) fn spent(&self) -> Option<String> {
        let total = -self.total();
        let (spent, parts) = self.shares(-1.0);
        let whole = format!(
            "{} spends {spent} more cycles than {}{}{parts}",
            self.to.design,
            self.from.design,
            self.idle()
        );
        (total >= SMALLEST).then(|| whole + &self.in_time(-total))
    }

    /// What to say where cores without work are among what is counted, which the tables of busy cycles leave out.
    fn idle(&self) -> &'static str {
        let has_idle = self.parts.iter().any(|(name, saved)| name == "idle" && saved.abs() >= SMALLEST);
        if has_idle { ", idle cores' among them" } else { "" }
    }

    /// The component in which most is saved, and how much.
    pub(crate) fn largest(&self) -> Option<(&str, f64)> {
        let (name, saved) = self.parts.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
        (*saved >= SMALLEST).then(|| (component_label(name), *saved))
    }

    /// The whole, and its parts: those with its sign, then those against it, then what is left. The numbers add up as they
    /// are printed: in whole percents, or in tenths where whole ones would not.
    fn shares(&self, sign: f64) -> (String, String) {
        let total = self.total() * sign;
        let mut parts: Vec<(&str, f64)> =
            self.parts.iter().map(|(name, saved)| (component_label(name), saved * sign)).collect();
        parts.sort_by(|a, b| b.1.total_cmp(&a.1));
        let named = |(at, part): &(usize, (&str, f64))| {
            part.1.abs() >= SMALLEST && (*at < NAMED || part.1.abs() >= LARGE)
        };
        let with = parts.iter().copied().filter(|part| part.1 > 0.0).enumerate().filter(named);
        let against = parts.iter().rev().copied().filter(|part| part.1 < 0.0).enumerate().filter(named);
        let mut parts: Vec<(&str, f64)> = with.chain(against).map(|(_, part)| part).collect();
        if parts.is_empty() {
            return (whole(total), ", a little in each part".to_owned());
        }
        let rest = total - parts.iter().map(|(_, share)| share).sum::<f64>();
        parts.push((ELSEWHERE, rest));
        let named_rest = if rest.abs() >= SMALLEST { points(rest) } else { 0 };
        let mut rounded: Vec<i64> = parts.iter().map(|(_, share)| points(*share)).collect();
        *rounded.last_mut().expect("the rest is a part") = named_rest;
        let adds_up = rounded.iter().sum::<i64>() == points(total);
        let text = |units: i64| match adds_up {
            true => format!("{}%", units.abs()),
            false => format!("{}.{}%", units.abs() / 10, units.abs() % 10),
        };
        let sum = match adds_up {
            true => points(total),
            false => {
                rounded = tenths(&parts.iter().map(|(_, share)| *share).collect::<Vec<_>>());
                rounded.iter().sum()
            }
        };
        let (less, more) = if sign > 0.0 { ("", " more") } else { (" more", " less") };
        let list = |side: i64, more: &str| {
            let of_side = parts.iter().zip(&rounded).filter(|(_, units)| units.signum() == side);
            let texts = of_side.map(|((name, _), units)| match *name {
                ELSEWHERE => format!("{}{more} {name}", text(*units)),
                _ => format!("{}{more} in {name}", text(*units)),
            });
            texts.collect::<Vec<_>>().join(", ")
        };
        let mut of_parts = String::new();
        for (side, more, begin) in [(1, less, ": "), (-1, more, ", against ")] {
            let list = list(side, more);
            if !list.is_empty() {
                of_parts += &format!("{begin}{list}");
            }
        }
        (text(sum), of_parts)
    }

    /// What to add where the time changed by another share than the cycles: clocks differ, or cores waited for each other,
    /// which nobody counts as cycles.
    fn in_time(&self, cycles_saved: f64) -> String {
        let time_saved = 1.0 - self.to.seconds_simulated / self.from.seconds_simulated;
        if (time_saved - cycles_saved).abs() < APART {
            return String::new();
        }
        let how = if time_saved < 0.0 { "longer" } else { "shorter" };
        let why = match [self.from, self.to].map(clock) {
            [Some(from), Some(to)] if (to / from - 1.0).abs() >= APART => {
                format!("at a clock of {:.2} GHz for {:.2}", to / 1e9, from / 1e9)
            }
            _ => "as cores work side by side in another way".to_owned(),
        };
        format!("; its time is {} {how}, {why}", whole(time_saved.abs()))
    }
}

/// Cycles a second, where both were simulated.
fn clock(run: &RunRecord) -> Option<f64> {
    (run.cycles > 0 && run.seconds_simulated > 0.0).then(|| run.cycles as f64 / run.seconds_simulated)
}

/// Shares in tenths of a percent that add up to the tenths of their sum: those whose rounding loses most are rounded up.
fn tenths(shares: &[f64]) -> Vec<i64> {
    let exact: Vec<f64> = shares.iter().map(|share| share * 1000.0).collect();
    let mut units: Vec<i64> = exact.iter().map(|share| share.floor() as i64).collect();
    let missing = exact.iter().sum::<f64>().round() as i64 - units.iter().sum::<i64>();
    let mut by_remainder: Vec<usize> = (0..exact.len()).collect();
    by_remainder.sort_by(|&a, &b| (exact[b] - exact[b].floor()).total_cmp(&(exact[a] - exact[a].floor())));
    for &at in by_remainder.iter().take(missing.max(0) as usize) {
        units[at] += 1;
    }
    units
}

/// A share in percents, rounded as its parts are.
fn points(share: f64) -> i64 {
    (share * 100.0).round() as i64
}

/// A share in whole percents.
fn whole(share: f64) -> String {
    format!("{}%", points(share))
}

/// The components of the busy cycles, and the cycles of cores that had nothing to run.
fn all_cycles(run: &RunRecord) -> Vec<(String, f64)> {
    let busy = run.cycle_components().into_iter().map(|part| (part.name, part.cycles));
    let idle = run.stats.get("core.cycles.idle").map(|stat| ("idle".to_owned(), stat.value.as_f64()));
    busy.chain(idle).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_model::{Stats, Unit};

    fn run(design: &str, parts: [u64; 4]) -> RunRecord {
        let mut stats = Stats::new();
        for (name, cycles) in ["translation", "memory", "os", "idle"].iter().zip(parts) {
            stats.count(format!("core.cycles.{name}"), cycles, Unit::Cycles);
        }
        let cycles: u64 = parts.iter().sum();
        RunRecord {
            design: design.to_owned(),
            seconds_simulated: cycles as f64,
            cycles,
            stats,
            ..RunRecord::default()
        }
    }

    #[test]
    fn the_parts_add_up_to_the_whole() {
        let (base, other) = (run("a", [500, 300, 100, 100]), run("b", [100, 380, 94, 106]));
        let savings = Savings::new(&base, &other).unwrap();
        assert_eq!(
            savings.saved().unwrap(),
            "it saves 32% of a's cycles, idle cores' among them: 40% in address translation, 1% in the operating system, against 8% more in \
             waiting for memory, 1% more in idle cores"
        );
        assert_eq!(savings.spent(), None);
        assert_eq!(savings.largest(), Some(("address translation", 0.4)));
        let slower = run("c", [500, 550, 110, 100]);
        let back = Savings::new(&base, &slower).unwrap();
        assert_eq!(
            back.spent().unwrap(),
            "c spends 26% more cycles than a: 25% more in waiting for memory, 1% more in the operating system"
        );
        assert_eq!(back.saved(), None);
    }

    /// Whole percents of 2.6, 1.5 and 0.2 would be 3, 2 and a rest of -1 of 4 which nobody spent.
    #[test]
    fn rounding_is_no_part_of_the_whole() {
        let base = run("a", [50_000, 40_000, 8_000, 2_000]);
        let other = run("b", [47_430, 38_490, 7_770, 2_000]);
        assert_eq!(
            Savings::new(&base, &other).unwrap().saved().unwrap(),
            "it saves 4.3% of a's cycles: 2.6% in address translation, 1.5% in waiting for memory, 0.2% elsewhere"
        );
        let slower = run("c", [52_570, 41_510, 8_230, 2_000]);
        assert_eq!(
            Savings::new(&base, &slower).unwrap().spent().unwrap(),
            "c spends 4.3% more cycles than a: 2.6% more in address translation, 1.5% more in waiting for memory, \
             0.2% more elsewhere"
        );
    }

    #[test]
    fn what_is_printed_adds_up_and_has_the_sign_of_what_happened() {
        let base = run("a", [25_000, 25_000, 25_000, 25_000]);
        let mut printed_tenths = 0;
        for step in 0_u64..5000 {
            let part = |at: u64| 25_000 + (step * (at * 7 + 3) * 131) % 4000 - 2600;
            let other = run("b", [part(1), part(2), part(3), part(4)]);
            let savings = Savings::new(&base, &other).unwrap();
            let sign = if savings.total() < 0.0 { -1.0 } else { 1.0 };
            let Some(text) = savings.saved().or_else(|| savings.spent()) else { continue };
            let text = text.split("; its time").next().unwrap();
            let numbers = |text: &str| -> i64 {
                let words =
                    text.split_whitespace().filter_map(|word| word.trim_end_matches(',').strip_suffix('%'));
                words.map(|word| (word.parse::<f64>().unwrap() * 10.0).round() as i64).sum()
            };
            let Some((whole, parts)) = text.split_once(": ") else { continue };
            let (with, against) = parts.split_once("against ").unwrap_or((parts, ""));
            assert_eq!(numbers(whole), numbers(with) - numbers(against), "{text}");
            printed_tenths += i32::from(text.contains('.'));
            let named = |name: &str| {
                ["translation", "memory", "system", "idle"].iter().any(|part| name.contains(part))
            };
            for part in with.split(", ").filter(|part| named(part)) {
                let at = ["translation", "memory", "system", "idle"]
                    .iter()
                    .position(|name| part.contains(name))
                    .unwrap();
                assert!(savings.parts[at].1 * sign > 0.0, "{text}");
            }
            assert!(text.matches("elsewhere").count() <= 1, "{text}");
        }
        assert!(printed_tenths > 100, "{printed_tenths}");
    }

    #[test]
    fn what_is_left_is_named_and_another_time_too() {
        let mut other = run("b", [496, 296, 96, 96]);
        let base = run("a", [500, 300, 100, 100]);
        assert_eq!(
            Savings::new(&base, &other).unwrap().saved().unwrap(),
            "it saves 2% of a's cycles, a little in each part"
        );
        (other.cycles, other.seconds_simulated) = (500, 500.0);
        assert_eq!(
            Savings::new(&base, &other).unwrap().saved().unwrap(),
            "it saves 2% of a's cycles, a little in each part; its time is 50% shorter, as cores work side by side in another way"
        );
        assert!(Savings::new(&RunRecord::default(), &other).is_none());
        // 984 cycles for 1,000, at a third of the clock.
        let base = RunRecord { cycles: 1000, seconds_simulated: 1e-6, ..base };
        (other.cycles, other.seconds_simulated) = (984, 2.952e-6);
        assert_eq!(
            Savings::new(&base, &other).unwrap().saved().unwrap(),
            "it saves 2% of a's cycles, a little in each part; its time is 195% longer, at a clock of 0.33 GHz for 1.00"
        );
    }
}
