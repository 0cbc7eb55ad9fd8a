//! What huge pages bring a program on this machine: measured, and predicted by the simulator on a preset of it.
//!
//! The program runs natively on base pages and with transparent huge pages in turn, several pairs after one that is not
//! counted, and is recorded while the designs `native-4k` and `native-thp` simulate it: once, or once for each where the
//! setting of the C library that gives huge pages also makes the program take and return memory in other pieces. Where
//! the system has free pages in its hugetlb pool, it also runs on those, and `native-2m` stands for them. Compared are the
//! times of processors, since the simulator leaves out what a program waits for.

mod asked;
mod measured;

use self::measured::{Native, Simulated};
use crate::closing;
use crate::designs::{Changes, Job, Setting};
use crate::figures::{share, time};
use crate::simulation::{Settings, Simulation};
use crate::{Error, Input, Progress, hypervisor, run};
use serde::Serialize;
use std::ffi::OsString;
use terrace_calibrate::native::{self, Pages, Program};
use terrace_model::text;
use terrace_recorder::RecordOptions;
use terrace_report::{MachineTier, machine_sentence};
use terrace_sim::Fidelity;

/// A way of running natively, and the design that stands for it. The last is for systems with a pool.
const WAYS: [(Pages, &str); 3] =
    [(Pages::Base, "native-4k"), (Pages::Huge, "native-thp"), (Pages::Pool, "native-2m")];

/// The measured constants that decide between page sizes, and whether a higher value speaks for huge pages.
const DECISIVE: [(&str, bool); 3] =
    [("os.fault_cost", true), ("os.zero_bandwidth", false), ("os.huge_zero_bandwidth", true)];

/// Faults that differ by a smaller share come from the same calls for memory: they are less than that share of the time.
const SAME_FAULTS: f64 = 0.02;

/// A program that takes less processor time than this is so short that its start weighs.
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
    /// A difference of at least 1 % was measured, and a smaller one predicted.
    Missed,
    /// The measurement does not tell faster from slower.
    Undecided,
}

/// An interval that holds the true median less often decides nothing: five pairs are enough.
const SURE: f64 = 0.9;

/// One way of running.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Way {
    /// Median processor time of the native runs, in seconds.
    pub processor_seconds: f64,
    /// Median time from start to end, in seconds.
    pub elapsed_seconds: f64,
    /// Median number of page faults.
    pub faults: u64,
    /// Predicted processor time, in seconds.
    pub predicted_seconds: f64,
    /// Predicted number of page faults.
    pub predicted_faults: u64,
    /// Share of the anonymous memory that lay in huge pages of its kind when there was most of it.
    pub huge_share: f64,
}

/// A way with huge pages against base pages.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Compared {
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
}

/// The way on pages of the hugetlb pool.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Pool {
    /// What its runs took.
    #[serde(flatten)]
    pub way: Way,
    /// Against base pages.
    #[serde(flatten)]
    pub compared: Compared,
}

/// The answer.
#[derive(Clone, Debug, Serialize)]
pub struct CheckResult {
    /// The program, by its name.
    pub program: String,
    /// The machine that was simulated.
    pub machine: String,
    /// Tiers of the machine, fastest first.
    pub machine_tiers: Vec<MachineTier>,
    /// Counted pairs.
    pub pairs: usize,
    /// On base pages.
    pub base: Way,
    /// With transparent huge pages.
    pub huge: Way,
    /// Transparent huge pages against base pages.
    #[serde(flatten)]
    pub compared: Compared,
    /// Pages of the hugetlb pool, where it had some.
    pub hugetlb: Option<Pool>,
    /// What a reader should know, a sentence each.
    pub remarks: Vec<String>,
}

impl CheckResult {
    /// The answer in one screen of 80 columns.
    pub fn to_text(&self) -> String {
        let mut out = format!("{} on {}, {} pairs of native runs\n", self.program, self.machine, self.pairs);
        out += &text::hanging("", &machine_sentence(&self.machine, &self.machine_tiers), 78);
        out.push('\n');
        out += &format!(
            "{:<14}{:>12}{:>12}{:>12}{:>10}{:>12}\n",
            "pages", "processors", "elapsed", "predicted", "faults", "predicted"
        );
        let pool = self.hugetlb.as_ref().map(|pool| ("hugetlb pool", &pool.way));
        for (name, way) in [("4 KiB", &self.base), ("transparent", &self.huge)].into_iter().chain(pool) {
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
        out += &self.compared.text();
        if let Some(pool) = &self.hugetlb {
            let held = share(pool.way.huge_share);
            out += &format!("\nOn the pool's pages, in which {held} of its memory lay:\n\n");
            out += &pool.compared.text();
        }
        let legend = format!(
            "Measured: the median of the pairs and an interval that holds the true median {:.0} % of the time. Predicted: with \
         the measured costs of faults and zeroing, and with what is uncertain against huge pages and for them: those costs at \
         their quartiles, and in a guest how its memory lies in the hypervisor's.",
            self.compared.confidence * 100.0
        );
        out += &(text::wrap(&legend, 80).join("\n") + "\n");
        out + &closing::remarks(&self.remarks)
    }
}

impl Compared {
    fn text(&self) -> String {
        let interval =
            |of: &Interval| format!("{:.3} times as fast ({:.3} to {:.3})", of.value, of.low, of.high);
        let verdict = match self.sign {
            Agreement::Right => "The prediction is on the right side",
            Agreement::Wrong => "The prediction is wrong: one says faster, the other slower",
            Agreement::Missed => "The prediction is wrong: it sees no difference",
            Agreement::Undecided if self.confidence < SURE => {
                "So few pairs do not tell faster from slower: take five or more"
            }
            Agreement::Undecided => "The measurement does not tell faster from slower",
        };
        let error = self.error * 100.0;
        let said = format!("{verdict}. The predicted speed-up is off by {error:+.1} %.");
        format!(
            "Measured:   {}\nPredicted:  {}\n\n{}\n",
            interval(&self.measured),
            interval(&self.predicted),
            text::wrap(&said, 80).join("\n")
        )
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

    fn prepare(&self) -> Result<Prepared, Error> {
        self.refuse()?;
        let free_pool = native::free_in_pool();
        let ways = if free_pool > 0 { &WAYS[..] } else { &WAYS[..2] };
        let jobs = self.jobs(ways)?;
        let program = Program::new(&self.command).map_err(Error::request)?;
        let input = |layout| {
            let mut recording = RecordOptions { empty_input: true, ..self.recording.clone() };
            recording.environment.extend(layout);
            let mut input = Input::command(&self.command, recording);
            input.prepare()?;
            Ok::<Input, Error>(input)
        };
        let inputs = [input(Vec::new())?, input(program.layout())?];
        Ok(Prepared { ways, free_pool, jobs, inputs, program })
    }

    /// Measures and predicts.
    ///
    /// # Errors
    /// As [`Check::check`], and runs that fail.
    pub fn run(&self, progress: &dyn Progress) -> Result<CheckResult, Error> {
        let Prepared { ways, free_pool, jobs, inputs, program } = self.prepare()?;
        let native = self.measure(&program, ways, progress)?;
        let machine = jobs[0].design.design.clone();
        let [as_base, as_huge] = inputs;
        let lies_apart = program.preloads() && {
            let laid_out = program.faults_laid_out().map_err(Error::failed)?;
            let base = native.base_faults();
            base.abs_diff(laid_out) as f64 > base as f64 * SAME_FAULTS
        };
        // One recording stands for both as it is in huge pages: in other pieces it would get fewer than natively.
        let inputs = if lies_apart { vec![as_base, as_huge] } else { vec![as_huge] };
        let (name, simulated) = simulate(ways.len(), &jobs, inputs, progress)?;
        let mut result = native.into_result(
            name,
            machine.machine.clone(),
            run::tiers_of(&machine),
            &simulated,
            &program,
            free_pool,
        );
        result.remarks.extend(hypervisor::remark(&machine, Fidelity::Full));
        result.remarks.extend(asked::unread_input());
        Ok(result)
    }

    /// The designs of the ways. Where the machine states how far its constants spread, or is a guest whose memory lies
    /// nobody knows how, all again with these against huge pages, and all with them for huge pages.
    fn jobs(&self, ways: &[(Pages, &str)]) -> Result<Vec<Job>, Error> {
        let all = |changes: &Changes, suffix: &str| {
            ways.iter()
                .map(|(_, name)| {
                    let mut job = changes.resolve(name, None)?;
                    job.design.design.name += suffix;
                    Ok(job)
                })
                .collect::<Result<Vec<Job>, Error>>()
        };
        let changes =
            hypervisor::under(&self.changes, ways.iter().map(|(_, design)| *design), None, Fidelity::Full)?;
        let mut jobs = all(&changes, "")?;
        // How a guest's memory lies in its hypervisor's is not seen from inside: in order, walks take the least.
        let aged = hypervisor::sets_aging(&changes.sets) && !hypervisor::sets_aging(&self.changes.sets);
        let in_order = aged.then(|| Setting::of_all(hypervisor::AGING, "none"));
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
        for (is_for, suffix) in [(false, ", against huge pages"), (true, ", for huge pages")] {
            let mut varied = changes.clone();
            varied.sets.extend(in_order.iter().filter(|_| !is_for).cloned());
            for (key, high_is_for, one) in &decisive {
                let value = if *high_is_for == is_for { &one.high } else { &one.low };
                varied.sets.push(Setting::of_all(*key, value.clone()));
            }
            if varied != changes {
                jobs.extend(all(&varied, suffix)?);
            }
        }
        Ok(jobs)
    }

    fn measure(
        &self,
        program: &Program,
        ways: &[(Pages, &str)],
        progress: &dyn Progress,
    ) -> Result<Native, Error> {
        let stopped = || Error::Stopped("stopped while the program ran natively".to_owned());
        let (stop, failed) = (progress.stop(), |error: native::Error| Error::failed(error));
        let mut native = Native::default();
        // The runs that are not counted warm the caches of files, and look where memory lies.
        for (pages, _) in ways {
            let held = program.held(*pages).map_err(failed)?;
            let huge = if *pages == Pages::Pool { held.pool } else { held.huge };
            native.huge_shares.push(huge as f64 / held.anonymous.max(1) as f64);
            native.runs.push(Vec::new());
        }
        for pair in 0..self.pairs {
            // Each goes first in turn.
            for at in (0..ways.len()).map(|at| (at + pair) % ways.len()) {
                if stop.requested() {
                    return Err(stopped());
                }
                native.runs[at].push(program.run(ways[at].0).map_err(failed)?);
            }
        }
        if stop.requested() { Err(stopped()) } else { Ok(native) }
    }
}

/// What each job takes, in their order, on the recording that its way has: the last is that of all ways from there on.
fn simulate(
    ways: usize,
    jobs: &[Job],
    inputs: Vec<Input>,
    progress: &dyn Progress,
) -> Result<(String, Vec<Simulated>), Error> {
    let stopped = || Error::Stopped("stopped before the program was simulated".to_owned());
    let settings = Settings::new(Simulation::default(), progress);
    let (mut program, mut simulated) = (String::new(), vec![None; jobs.len()]);
    let last = inputs.len() - 1;
    // One after the other: a program that runs twice at a time can be in its own way.
    for (at, input) in inputs.into_iter().enumerate() {
        let of_it: Vec<usize> = (0..jobs.len()).filter(|job| (job % ways).min(last) == at).collect();
        let name = input.name.clone();
        let jobs = of_it.iter().map(|job| jobs[*job].clone()).collect();
        let result = run::all_pairs(vec![(input, jobs)], &settings).pop().ok_or_else(stopped)?;
        let ending = result.ending.wait(&name, progress);
        if let Some(failure) = result.failures.into_iter().chain(ending).next() {
            return Err(Error::failed(failure));
        }
        for (job, run) in of_it.into_iter().zip(&result.runs) {
            simulated[job] = Some(Simulated::of(run));
        }
        program = name;
    }
    let all: Option<Vec<Simulated>> = simulated.into_iter().collect();
    // A recording that was cut says nothing of the whole run.
    let all = all.filter(|_| !progress.stop().requested());
    Ok((program, all.ok_or_else(stopped)?))
}

/// What a check needs before anything runs.
struct Prepared {
    ways: &'static [(Pages, &'static str)],
    /// Bytes of the hugetlb pool that nobody had.
    free_pool: u64,
    jobs: Vec<Job>,
    /// The program, as it takes memory on base pages and in huge ones.
    inputs: [Input; 2],
    program: Program,
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

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_sim::design::Aging;

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
        let jobs = check(&[], &machine).jobs(&WAYS[..2]).unwrap();
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
        assert_eq!(check(&set, &machine).jobs(&WAYS).unwrap().len(), 3);
    }

    #[test]
    fn a_guest_is_predicted_under_its_hypervisor_with_memory_in_order_against_huge_pages() {
        let folder = tempfile::tempdir().unwrap();
        let machine = folder.path().join("guest.toml");
        let text = "kind = \"machine\"\nextends = \"zen4-cxl\"\n[hypervisor]\npages = \"4k\"\n[ledger]\nanew = true\n";
        std::fs::write(&machine, text).unwrap();
        let jobs = check(&[], &machine).jobs(&WAYS[..2]).unwrap();
        let of = |job: &Job| {
            let design = &job.design.design;
            let host = design.translation.nested.as_ref().and_then(|nested| nested.host);
            (host, design.os.memory.aging == Aging::None)
        };
        let host = Some(terrace_model::PageSize::Base);
        assert_eq!(
            jobs.iter().map(of).collect::<Vec<_>>(),
            [(host, false), (host, false), (host, true), (host, true)]
        );
        assert_eq!(jobs[2].design.design.name, "native-4k, against huge pages");
        // Memory that the user describes is as they say.
        for kind in ["none", "builds"] {
            let described = check(&[("os.memory.aging.kind", kind)], &machine);
            assert_eq!(described.jobs(&WAYS[..2]).unwrap().len(), 2, "{kind}");
        }
    }
}
