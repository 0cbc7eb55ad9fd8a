//! Why one run takes less time than another, by the components of their cycles: parts that add up to the whole.

use crate::RunRecord;
use crate::run::component_label;

/// Shares of the cycles smaller than this are not named one by one.
const SMALLEST: f64 = 0.005;
/// Components named on each side however small they are.
const NAMED: usize = 2;
/// Components of such a share are named too.
const LARGE: f64 = 0.02;
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
        let whole = format!("it saves {} of {}'s cycles{}", whole(total), self.from.design, self.idle());
        (total >= SMALLEST).then(|| whole + &self.shares(1.0) + &self.in_time(total))
    }

    /// The sentence for a run that takes longer: `kv spends 25% more cycles than native-4k: 27% in waiting for memory`.
    pub(crate) fn spent(&self) -> Option<String> {
        let total = -self.total();
        let whole = format!(
            "{} spends {} more cycles than {}{}",
            self.to.design,
            whole(total),
            self.from.design,
            self.idle()
        );
        (total >= SMALLEST).then(|| whole + &self.shares(-1.0) + &self.in_time(-total))
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

    /// The parts of the whole: those with its sign, then those against it, then what is left, so that the numbers add up.
    fn shares(&self, sign: f64) -> String {
        let mut parts: Vec<(&str, f64)> =
            self.parts.iter().map(|(name, saved)| (component_label(name), saved * sign)).collect();
        parts.sort_by(|a, b| b.1.total_cmp(&a.1));
        let named = |(at, part): &(usize, &(&str, f64))| {
            part.1.abs() >= SMALLEST && (*at < NAMED || part.1.abs() >= LARGE)
        };
        let side = |parts: &mut dyn Iterator<Item = &(&str, f64)>| -> Vec<(String, i64)> {
            let parts = parts.enumerate().filter(named);
            parts.map(|(_, (name, share))| ((*name).to_owned(), points(share.abs()))).collect()
        };
        let mut with = side(&mut parts.iter().filter(|part| part.1 > 0.0));
        let mut against = side(&mut parts.iter().rev().filter(|part| part.1 < 0.0));
        if with.is_empty() && against.is_empty() {
            return ", a little in each part".to_owned();
        }
        let sum = |parts: &[(String, i64)]| parts.iter().map(|(_, share)| share).sum::<i64>();
        let rest = points(self.total() * sign) - sum(&with) + sum(&against);
        if rest != 0 {
            let side = if rest > 0 { &mut with } else { &mut against };
            side.push(("elsewhere".to_owned(), rest.abs()));
        }
        let list = |parts: &[(String, i64)], more: &str| {
            let place = |name: &str| if name == "elsewhere" { name.to_owned() } else { format!("in {name}") };
            let texts: Vec<String> =
                parts.iter().map(|(name, share)| format!("{share}%{more} {}", place(name))).collect();
            texts.join(", ")
        };
        let (less, more) = if sign > 0.0 { ("", " more") } else { (" more", " less") };
        let mut text = String::new();
        if !with.is_empty() {
            text += &format!(": {}", list(&with, less));
        }
        if !against.is_empty() {
            text += &format!(", against {}", list(&against, more));
        }
        text
    }

    /// What to add where the time changed by another share than the cycles: cores waited for each other, which nobody
    /// counts as cycles.
    fn in_time(&self, cycles_saved: f64) -> String {
        let time_saved = 1.0 - self.to.seconds_simulated / self.from.seconds_simulated;
        if (time_saved - cycles_saved).abs() < APART {
            return String::new();
        }
        let how = if time_saved < 0.0 { "longer" } else { "shorter" };
        format!("; its time is {} {how}, as cores work side by side in another way", whole(time_saved.abs()))
    }
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

    #[test]
    fn what_is_left_is_named_and_another_time_too() {
        let mut other = run("b", [496, 296, 96, 96]);
        let base = run("a", [500, 300, 100, 100]);
        assert_eq!(
            Savings::new(&base, &other).unwrap().saved().unwrap(),
            "it saves 2% of a's cycles, a little in each part"
        );
        other.seconds_simulated = 500.0;
        assert_eq!(
            Savings::new(&base, &other).unwrap().saved().unwrap(),
            "it saves 2% of a's cycles, a little in each part; its time is 50% shorter, as cores work side by side in another way"
        );
        assert!(Savings::new(&RunRecord::default(), &other).is_none());
    }
}
