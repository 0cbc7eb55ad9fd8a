//! What huge pages bring a program on this machine: measured, and predicted by the simulator on a preset of it.
//!
//! The program runs natively on base pages and with transparent huge pages in turn, several pairs after one that is not
//! counted, and is recorded once while the designs `native-4k` and `native-thp` simulate it. Compared are the times of
//! processors, since the simulator leaves out what a program waits for.

use crate::closing;
use crate::designs::{Changes, Job, Setting};
use crate::figures::{share, time};
use crate::simulation::{Settings, Simulation};
use crate::{Error, Input, Progress, run};
use serde::Serialize;
use std::ffi::OsString;
use terrace_calibrate::native::{self, Pages, Program};
use terrace_model::text;
use terrace_recorder::RecordOptions;

/// The designs that stand for the two ways of running natively.
const DESIGNS: [&str; 2] = ["native-4k", "native-thp"];

/// The measured constants that decide between page sizes, and whether a higher value speaks for huge pages.
const DECISIVE: [(&str, bool); 3] =
    [("os.fault_cost", true), ("os.zero_bandwidth", false), ("os.huge_zero_bandwidth", true)];

/// A program that takes less processor time than this is mostly its own start.
const SHORT: f64 = 0.05;

/// The question: a program, and how often it is run.
#[derive(Clone, Debug)]
pub struct Check {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Counted pairs of native runs.
    pub pairs: usize,
    /// The preset of this machine, and parameters that are changed in it.
    pub changes: Changes,
    /// What the recording takes from the program.
    pub recording: RecordOptions,
}

/// A speed-up with the values between which it lies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// The middle.
    pub value: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Interval {
    /// Whether it leaves no doubt which side of 1 the value is on.
    pub fn is_clear(&self) -> bool {
        self.low > 1.0 || self.high < 1.0
    }
}

/// How prediction and measurement agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Agreement {
    /// Both say faster, or both say slower.
    Right,
    /// One says faster, the other slower.
    Wrong,
    /// The measurement does not tell faster from slower.
    Undecided,
}

/// One way of running.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Way {
    /// Median processor time of the native runs, in seconds.
    pub processor_seconds: f64,
    /// Median time from start to end, in seconds.
    pub elapsed_seconds: f64,
    /// Median number of page faults.
    pub faults: u64,
    /// Predicted time, in seconds.
    pub predicted_seconds: f64,
    /// Predicted number of page faults.
    pub predicted_faults: u64,
    /// Share of the anonymous memory that lay in huge pages when there was most of it.
    pub huge_share: f64,
}

/// The answer.
#[derive(Clone, Debug, Serialize)]
pub struct CheckResult {
    /// The program, by its name.
    pub program: String,
    /// The machine that was simulated.
    pub machine: String,
    /// Counted pairs.
    pub pairs: usize,
    /// On base pages.
    pub base: Way,
    /// With transparent huge pages.
    pub huge: Way,
    /// How much faster it ran with huge pages, with an interval for the median.
    pub measured: Interval,
    /// How often such an interval holds the true median.
    pub confidence: f64,
    /// How much faster it was predicted to run, with each measured constant at the quartile that speaks against huge pages,
    /// and for them.
    pub predicted: Interval,
    /// Predicted over measured speed-up, less 1.
    pub error: f64,
    /// Whether both are on the same side.
    pub sign: Agreement,
    /// What a reader should know, a sentence each.
    pub remarks: Vec<String>,
}

impl CheckResult {
    /// The answer in one screen of 80 columns.
    pub fn to_text(&self) -> String {
        let mut out =
            format!("{} on {}, {} pairs of native runs\n\n", self.program, self.machine, self.pairs);
        out += &format!(
            "{:<14}{:>12}{:>12}{:>12}{:>10}{:>12}\n",
            "pages", "processors", "elapsed", "predicted", "faults", "predicted"
        );
        for (name, way) in [("4 KiB", &self.base), ("transparent", &self.huge)] {
            let Way {
                processor_seconds, elapsed_seconds, predicted_seconds, faults, predicted_faults, ..
            } = way;
            out += &format!(
                "{name:<14}{:>12}{:>12}{:>12}{faults:>10}{predicted_faults:>12}\n",
                time(*processor_seconds),
                time(*elapsed_seconds),
                time(*predicted_seconds)
            );
        }
        out += &format!("Natively {} of its memory lay in huge pages.\n\n", share(self.huge.huge_share));
        let interval =
            |of: &Interval| format!("{:.3} times as fast ({:.3} to {:.3})", of.value, of.low, of.high);
        out += &format!("Measured:   {}\n", interval(&self.measured));
        out += &format!("Predicted:  {}\n\n", interval(&self.predicted));
        let verdict = match self.sign {
            Agreement::Right => "The prediction is on the right side",
            Agreement::Wrong => "The prediction is wrong: one says faster, the other slower",
            Agreement::Undecided => "The measurement does not tell faster from slower",
        };
        out += &format!("{verdict}; its speed-up is off by {:+.1} %.\n", self.error * 100.0);
        let legend = format!(
            "Measured: the median of the pairs and an interval that holds the true median {:.0} % of the time. Predicted: with \
         the measured costs of faults and zeroing, and with those at their quartiles against and for huge pages.",
            self.confidence * 100.0
        );
        out += &(text::wrap(&legend, 80).join("\n") + "\n");
        out + &closing::remarks(&self.remarks)
    }
}

impl Check {
    /// Checks all that can be wrong before anything runs.
    ///
    /// # Errors
    /// A machine or parameter that does not exist, a program that is not there, a system without huge pages.
    pub fn check(&self) -> Result<(), Error> {
        self.prepare().map(|_| ())
    }

    fn prepare(&self) -> Result<(Vec<Job>, Input, Program), Error> {
        if self.pairs == 0 {
            return Err(Error::request("--pairs 0 measures nothing; give at least 1"));
        }
        if self.recording.gpu {
            return Err(Error::request(
                "a check runs the program natively on this machine's processors; --gpu records kernels, see terrace compare --gpu",
            ));
        }
        let jobs = self.jobs()?;
        let mut input = Input::command(&self.command, self.recording.clone());
        input.prepare()?;
        let program = Program::new(&self.command).map_err(Error::request)?;
        Ok((jobs, input, program))
    }

    /// Measures and predicts.
    ///
    /// # Errors
    /// As [`Check::check`], and runs that fail.
    pub fn run(&self, progress: &dyn Progress) -> Result<CheckResult, Error> {
        let (jobs, input, program) = self.prepare()?;
        let native = self.measure(&program, progress)?;
        let settings = Settings::new(Simulation::default(), progress);
        let machine = jobs[0].design.design.machine.clone();
        let name = input.name.clone();
        let ways = jobs.len();
        let mut results = run::all_pairs(vec![(input, jobs)], &settings);
        let Some(result) = results.pop() else {
            return Err(Error::Stopped("stopped before the program was simulated".to_owned()));
        };
        let ending = result.ending.wait(&name, progress);
        if let Some(failure) = result.failures.into_iter().chain(ending).next() {
            return Err(Error::failed(failure));
        }
        if result.runs.len() != ways {
            return Err(Error::Stopped("stopped before the program was simulated".to_owned()));
        }
        let seconds: Vec<f64> = result.runs.iter().map(|run| run.seconds_simulated).collect();
        let faults = |at: usize| result.runs[at].stats.integer("os.faults");
        let speedup = |at: usize| seconds[at] / seconds[at + 1];
        let mut predicted = Interval { value: speedup(0), low: speedup(0), high: speedup(0) };
        for at in (2..ways).step_by(2) {
            predicted.low = predicted.low.min(speedup(at));
            predicted.high = predicted.high.max(speedup(at));
        }
        Ok(native.into_result(
            name,
            machine,
            predicted,
            [(seconds[0], faults(0)), (seconds[1], faults(1))],
            &program,
        ))
    }

    /// The two designs; where the machine states how far its constants spread, both again with all of these against huge
    /// pages, and both with all for them.
    fn jobs(&self) -> Result<Vec<Job>, Error> {
        let pair = |changes: &Changes, suffix: &str| {
            DESIGNS
                .map(|name| {
                    let mut job = changes.resolve(name, None)?;
                    job.design.design.name += suffix;
                    Ok::<_, Error>(job)
                })
                .into_iter()
                .collect::<Result<Vec<Job>, Error>>()
        };
        let mut jobs = pair(&self.changes, "")?;
        let spread = parse_spread(&jobs[0].design.design.ledger.spread)?;
        // What the user set has no spread.
        let is_set = |key: &str| self.changes.sets.iter().any(|setting| setting.key == key);
        let decisive: Vec<_> = DECISIVE
            .iter()
            .filter(|(key, _)| !is_set(key))
            .filter_map(|(key, high_is_for)| {
                Some((*key, *high_is_for, spread.iter().rfind(|one| one.key == *key)?))
            })
            .collect();
        if decisive.is_empty() {
            return Ok(jobs);
        }
        for (is_for, suffix) in [(false, ", against huge pages"), (true, ", for huge pages")] {
            let mut changes = self.changes.clone();
            for (key, high_is_for, one) in &decisive {
                let value = if *high_is_for == is_for { &one.high } else { &one.low };
                changes.sets.push(Setting::of_all(*key, value.clone()));
            }
            jobs.extend(pair(&changes, suffix)?);
        }
        Ok(jobs)
    }

    fn measure(&self, program: &Program, progress: &dyn Progress) -> Result<Native, Error> {
        let both = [Pages::Base, Pages::Huge];
        let stopped = || Error::Stopped("stopped while the program ran natively".to_owned());
        let (stop, failed) = (progress.stop(), |error: native::Error| Error::failed(error));
        let mut huge_share = [0.0; 2];
        let mut runs: [Vec<native::Run>; 2] = Default::default();
        // The runs that are not counted warm the caches of files, and look where memory lies.
        for (share, pages) in huge_share.iter_mut().zip(both) {
            let held = program.held(pages).map_err(failed)?;
            *share = held.huge as f64 / held.anonymous.max(1) as f64;
        }
        for pair in 0..self.pairs {
            // Each goes first in turn.
            for at in [pair % 2, 1 - pair % 2] {
                if stop.requested() {
                    return Err(stopped());
                }
                runs[at].push(program.run(both[at]).map_err(failed)?);
            }
        }
        if stop.requested() { Err(stopped()) } else { Ok(Native { runs, huge_share }) }
    }
}

/// What was measured.
struct Native {
    /// On base pages, on huge ones.
    runs: [Vec<native::Run>; 2],
    huge_share: [f64; 2],
}

impl Native {
    fn into_result(
        self,
        program: String,
        machine: String,
        predicted: Interval,
        simulated: [(f64, u64); 2],
        native: &Program,
    ) -> CheckResult {
        let [base_runs, huge_runs] = &self.runs;
        let ratios = base_runs.iter().zip(huge_runs).map(|(base, huge)| base.processor() / huge.processor());
        let (measured, confidence) = median_interval(ratios.collect());
        let way = |at: usize| {
            let of = |value: &dyn Fn(&native::Run) -> f64| median(self.runs[at].iter().map(value).collect());
            Way {
                processor_seconds: of(&native::Run::processor),
                elapsed_seconds: of(&|run| run.elapsed),
                faults: of(&|run| run.faults as f64) as u64,
                predicted_seconds: simulated[at].0,
                predicted_faults: simulated[at].1,
                huge_share: self.huge_share[at],
            }
        };
        let (base, huge) = (way(0), way(1));
        let sign = match measured.is_clear() {
            false => Agreement::Undecided,
            true if (measured.value > 1.0) == (predicted.value > 1.0) => Agreement::Right,
            true => Agreement::Wrong,
        };
        let mut remarks = Vec::new();
        if base.processor_seconds < SHORT {
            remarks.push(format!(
                "the program takes {:.0} ms of processors, most of it its own start; give it more to do",
                base.processor_seconds * 1e3
            ));
        }
        if huge.huge_share < 0.5 && native.preloads() {
            remarks.push(format!(
                "only {:.0} % of its memory lay in huge pages natively: this system gives them where they are asked for, and \
                 what a program maps without the C library is not reached",
                huge.huge_share * 100.0
            ));
        }
        let error = predicted.value / measured.value - 1.0;
        let pairs = self.runs[0].len();
        CheckResult {
            program,
            machine,
            pairs,
            base,
            huge,
            measured,
            confidence,
            predicted,
            error,
            sign,
            remarks,
        }
    }
}

/// How far a measured constant lies apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SpreadOf {
    pub key: String,
    pub low: String,
    pub high: String,
}

/// Entries such as `os.fault_cost = 1500 ns .. 1560 ns`.
pub(crate) fn parse_spread(entries: &[String]) -> Result<Vec<SpreadOf>, Error> {
    let parse = |entry: &String| {
        let (key, range) = entry.split_once('=')?;
        let (low, high) = range.split_once("..")?;
        let [key, low, high] = [key, low, high].map(|part| part.trim().to_owned());
        (!key.is_empty() && !low.is_empty() && !high.is_empty()).then_some(SpreadOf { key, low, high })
    };
    entries
        .iter()
        .map(|entry| {
            parse(entry).ok_or_else(|| {
                Error::request(format!("ledger.spread: \"{entry}\" is not KEY = LOWEST .. HIGHEST"))
            })
        })
        .collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        count if count % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

/// The median of independent values, between two of them that enclose the true median at least 95 % of the time, or as often
/// as so few values can; and how often that is. The number of values below the true median is binomial.
fn median_interval(mut values: Vec<f64>) -> (Interval, f64) {
    values.sort_by(f64::total_cmp);
    let count = values.len();
    // The chance that at most `below` of all values lie below the median.
    let tail = |below: usize| {
        let mut term = 0.5_f64.powi(count as i32);
        let mut sum = term;
        for at in 1..=below {
            term *= (count + 1 - at) as f64 / at as f64;
            sum += term;
        }
        sum
    };
    let mut inside = 0;
    while inside + 1 < count.div_ceil(2) && 1.0 - 2.0 * tail(inside + 1) >= 0.95 {
        inside += 1;
    }
    let confidence = 1.0 - 2.0 * tail(inside).min(0.5);
    let interval =
        Interval { value: median(values.clone()), low: values[inside], high: values[count - 1 - inside] };
    (interval, confidence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_a_median_by_the_binomial_distribution() {
        let of = |count: u32| median_interval((1..=count).map(f64::from).collect());
        // Five: one half to the fifth, twice, is outside.
        let (five, confidence) = of(5);
        assert_eq!((five.value, five.low, five.high), (3.0, 1.0, 5.0));
        assert!((confidence - 0.9375).abs() < 1e-12, "{confidence}");
        // Nine: (1 + 9) / 512, twice, is less than 5 %, and (1 + 9 + 36) / 512 is not.
        let (nine, confidence) = of(9);
        assert_eq!((nine.value, nine.low, nine.high), (5.0, 2.0, 8.0));
        assert!((confidence - (1.0 - 20.0 / 512.0)).abs() < 1e-12, "{confidence}");
        let (one, confidence) = of(1);
        assert_eq!((one.low, one.high, confidence), (1.0, 1.0, 0.0));
        assert_eq!(of(2).0.value, 1.5);
    }

    #[test]
    fn spreads_are_read_or_refused() {
        let entry = "os.fault_cost = 1500 ns .. 1560 ns".to_owned();
        let [one] = &parse_spread(&[entry]).unwrap()[..] else { panic!("one entry") };
        assert_eq!(
            (one.key.as_str(), one.low.as_str(), one.high.as_str()),
            ("os.fault_cost", "1500 ns", "1560 ns")
        );
        for wrong in ["", "os.fault_cost", "os.fault_cost = 1 ns", "= 1 ns .. 2 ns", "a = .. 2"] {
            let message = parse_spread(&[wrong.to_owned()]).unwrap_err().to_string();
            assert_eq!(message, format!("ledger.spread: \"{wrong}\" is not KEY = LOWEST .. HIGHEST"));
        }
    }

    fn check(sets: &[(&str, &str)], machine: &std::path::Path) -> Check {
        let sets = sets.iter().map(|(key, value)| Setting::of_all(*key, *value)).collect();
        let changes = Changes { machine: Some(machine.display().to_string()), sets, time_scale: 1 };
        Check { command: vec!["true".into()], pairs: 1, changes, recording: RecordOptions::default() }
    }

    #[test]
    fn constants_that_spread_are_taken_for_and_against_huge_pages() {
        let folder = tempfile::tempdir().unwrap();
        let machine = folder.path().join("mine.toml");
        let spread =
            r#"spread = ["os.fault_cost = 900 ns .. 1100 ns", "os.zero_bandwidth = 40 GB/s .. 50 GB/s"]"#;
        std::fs::write(&machine, format!("kind = \"machine\"\nextends = \"zen4-cxl\"\n[ledger]\n{spread}\n"))
            .unwrap();
        let jobs = check(&[], &machine).jobs().unwrap();
        assert_eq!(jobs.len(), 6);
        let of = |job: &Job| (job.design.design.os.fault_cost, job.design.design.os.zero_bandwidth);
        assert_eq!(of(&jobs[0]), of(&jobs[1]));
        let against = &jobs[2].design.design;
        assert_eq!(
            (against.name.as_str(), against.os.fault_cost),
            ("native-4k, against huge pages", terrace_model::Time::from_nanos(900))
        );
        assert_eq!(against.os.zero_bandwidth.0, 50e9, "base pages are zeroed fast");
        let favour = &jobs[5].design.design;
        assert_eq!(
            (favour.name.as_str(), favour.os.fault_cost),
            ("native-thp, for huge pages", terrace_model::Time::from_nanos(1100))
        );
        assert_eq!(favour.os.zero_bandwidth.0, 40e9);
        // What is set does not spread.
        let set = [("os.fault_cost", "1 us"), ("os.zero_bandwidth", "30 GB/s")];
        assert_eq!(check(&set, &machine).jobs().unwrap().len(), 2);
    }
}
