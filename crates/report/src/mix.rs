//! Programs side by side: how much each is slowed down, and what all of them together gain.

use crate::format::{Charset, count, significant, wrap};
use crate::table::rows_of_designs;
use crate::{Comparison, RunRecord};
use serde::Serialize;

/// The programs of a mix in one run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Mix {
    /// Sum over the programs of instructions per cycle in the mix by those alone; at best the number of programs.
    pub weighted_speedup: Option<f64>,
    /// Harmonic mean of the same, at best 1.
    pub harmonic_speedup: Option<f64>,
    /// The largest slow-down of a program.
    pub largest_slowdown: Option<f64>,
    /// Each program, by name.
    pub programs: Vec<ProgramOfMix>,
}

/// One program of a mix, in its first region of interest.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProgramOfMix {
    /// The program's name.
    pub name: String,
    /// Loads and stores.
    pub accesses: u64,
    /// Instructions.
    pub instructions: u64,
    /// Instructions per cycle.
    pub ipc: f64,
    /// Simulated time.
    pub seconds: f64,
    /// Simulated time alone on the same machine, under the same design.
    pub alone_seconds: Option<f64>,
    /// Time by time alone.
    pub slowdown: Option<f64>,
    /// How often it began again before the last program had ended.
    pub repeats: u64,
}

impl RunRecord {
    /// The programs of a mix; `None` where the input was no mix.
    pub fn mix(&self) -> Option<Mix> {
        self.stats.get("mix.programs")?;
        let known = |name: String| self.stats.get(&name).map(|stat| stat.value.as_f64());
        let names = self.stats.under("mix.program").filter_map(|(name, _)| name.strip_suffix(".accesses"));
        let program = |name: &str| {
            let stat = |what: &str| format!("mix.program.{name}.{what}");
            ProgramOfMix {
                name: name.to_owned(),
                accesses: self.stats.integer(&stat("accesses")),
                instructions: self.stats.integer(&stat("instructions")),
                ipc: self.stats.number(&stat("ipc")),
                seconds: self.stats.number(&stat("time")) * 1e-9,
                alone_seconds: known(stat("alone_time")).map(|nanos| nanos * 1e-9),
                slowdown: known(stat("slowdown")),
                repeats: self.stats.integer(&stat("repeats")),
            }
        };
        let of_all = |what: &str| known(format!("mix.{what}"));
        Some(Mix {
            weighted_speedup: of_all("weighted_speedup"),
            harmonic_speedup: of_all("harmonic_speedup"),
            largest_slowdown: of_all("largest_slowdown"),
            programs: names.map(program).collect(),
        })
    }
}

impl Mix {
    /// How many times faster the programs are than in `baseline`: the weighted speed-up by that of the baseline, where both
    /// refer to the programs alone on the baseline. Where these were not run alone, all programs weigh the same.
    pub(crate) fn speedup_over(&self, baseline: &Mix) -> Option<f64> {
        let (mut own, mut of_baseline) = (0.0, 0.0);
        for program in &baseline.programs {
            let same = self.programs.iter().find(|one| one.name == program.name)?;
            let alone = program.alone_seconds.unwrap_or(program.seconds);
            own += alone / same.seconds;
            of_baseline += alone / program.seconds;
        }
        Some(own / of_baseline).filter(|speedup| speedup.is_finite())
    }
}

const NONE: &str = "-";

fn shown(value: Option<f64>) -> String {
    value.map_or_else(|| NONE.to_owned(), significant)
}

/// A row for each program.
fn programs(run: &str, mix: &Mix) -> Vec<(String, Vec<String>)> {
    let row = |one: &ProgramOfMix| {
        let alone = one.slowdown.map(|slowdown| slowdown * one.ipc);
        let cells = vec![
            count(one.instructions),
            significant(one.ipc),
            shown(alone),
            shown(one.slowdown),
            count(one.repeats),
        ];
        (format!("{run}{}", one.name), cells)
    };
    mix.programs.iter().map(row).collect()
}

const COLUMNS: [&str; 5] = ["instr", "IPC", "alone", "slowdown", "repeats"];
const LEGEND: &str = "alone: instructions per cycle alone on the same machine and design; slowdown: time by time alone; repeats: \
                      how often it began again until the last program had ended";

fn table(columns: &[&str], rows: &[(String, Vec<String>)], width: usize, charset: Charset) -> String {
    let rows: Vec<(&str, Vec<String>)> =
        rows.iter().map(|(name, row)| (name.as_str(), row.clone())).collect();
    format!("\n{}", rows_of_designs(columns, &rows, width, charset))
}

impl Comparison {
    /// The tables of a mix: a row per run, and one per program of each run.
    pub(crate) fn mixes(&self, input: &str, width: usize, charset: Charset) -> String {
        let runs: Vec<(&RunRecord, Mix)> =
            self.runs_of(input).filter_map(|run| Some((run, run.mix()?))).collect();
        if runs.is_empty() {
            return String::new();
        }
        let row = |(run, mix): &(&RunRecord, Mix)| {
            let cells = [mix.weighted_speedup, mix.harmonic_speedup, mix.largest_slowdown].map(shown);
            (run.design.clone(), cells.into())
        };
        let rows: Vec<(String, Vec<String>)> = runs.iter().map(row).collect();
        let legend = "weighted: sum over the programs of IPC in the mix by IPC alone, under the same design; harmonic: their \
                      harmonic mean; largest: slowdown of a program. The speed above is that of the weighted sums that refer to \
                      the programs alone on the baseline; the time is that until the last program has ended";
        let mut out = table(&["weighted", "harmonic", "largest"], &rows, width, charset);
        out += &wrap(legend, width, "");
        out.push('\n');
        let rows: Vec<(String, Vec<String>)> =
            runs.iter().flat_map(|(run, mix)| programs(&format!("{} ", run.design), mix)).collect();
        out += &table(&COLUMNS, &rows, width, charset);
        out + &wrap(LEGEND, width, "") + "\n"
    }
}

impl RunRecord {
    /// The table of a mix's programs; nothing where the input was none.
    pub(crate) fn mix_in_words(&self, width: usize, charset: Charset) -> String {
        let Some(mix) = self.mix() else { return String::new() };
        let mut out = table(&COLUMNS, &programs("", &mix), width, charset);
        out += &wrap(LEGEND, width, "");
        if let (Some(weighted), Some(harmonic)) = (mix.weighted_speedup, mix.harmonic_speedup) {
            let of_all = format!(
                "weighted speed-up {} of {}, harmonic {}",
                significant(weighted),
                mix.programs.len(),
                significant(harmonic)
            );
            out += &format!("\n{of_all}");
        }
        out + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_model::{Stats, Unit};

    /// Programs `a` and `b`, with their times in the mix and alone.
    fn run(times: [(f64, f64); 2]) -> RunRecord {
        let mut stats = Stats::new();
        stats.count("mix.programs", 2, Unit::Count);
        for (name, (time, alone)) in ["a", "b"].into_iter().zip(times) {
            stats.count(format!("mix.program.{name}.accesses"), 10, Unit::Count);
            stats.real(format!("mix.program.{name}.time"), time * 1e9, Unit::Nanoseconds);
            if alone > 0.0 {
                stats.real(format!("mix.program.{name}.alone_time"), alone * 1e9, Unit::Nanoseconds);
            }
        }
        RunRecord { stats, fidelity: "full".to_owned(), seconds_simulated: 9.0, ..RunRecord::default() }
    }

    #[test]
    fn the_speed_up_of_a_mix_by_hand() {
        let close = |a: Option<f64>, b: f64| assert!((a.unwrap() - b).abs() < 1e-12, "{a:?} {b}");
        // Alone 1 and 2: weighted 1/2 + 2/2 = 1.5 on the baseline, 1/1 + 2/4 = 1.5 with the other design.
        let base = run([(2.0, 1.0), (2.0, 2.0)]);
        close(run([(1.0, 0.5), (4.0, 1.0)]).speedup_over(&base), 1.0);
        close(run([(1.0, 0.5), (1.0, 1.0)]).speedup_over(&base), 2.0);
        // Not run alone: the mean of 2 and 1/2.
        let base = run([(2.0, 0.0), (2.0, 0.0)]);
        close(run([(1.0, 0.0), (4.0, 0.0)]).speedup_over(&base), 1.25);
    }
}
