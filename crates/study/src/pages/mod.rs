//! What 2 MiB and 1 GiB pages would bring a program, and what they would cost.

mod bounds;
mod hardware;
mod parts;
mod pieces;
mod result;
mod text;
mod verdict;
mod way;
mod ways;

pub use parts::{CopiedCost, Region, RegionCost, SizedRegion};
pub use result::PageAdvice;
pub use verdict::Verdict;
pub use ways::{FaultLatency, WayFigures, WayResult};

use self::bounds::Bounds;
use self::way::Way;
use crate::designs::{Changes, Job};
use crate::figures;
use crate::input::Input;
use crate::periods::{self, FEW_PERIODS};
use crate::run;
use crate::simulation::{Settings, Simulation};
use crate::tiers::NO_ACCESSES;
use crate::words::shell_join;
use crate::{Error, Progress, hypervisor, intervals, partial, record};
use terrace_sim::Fidelity;

/// The policies that are looked at where none are named, as far as there are such policies.
const POLICIES: [&str; 3] = ["thp", "trident", "ranger"];

/// The question whether large pages are right for a program, where, and of which size.
#[derive(Clone, Debug)]
pub struct AdvisePages {
    /// Machine and changed parameters.
    pub changes: Changes,
    /// How closely to simulate; [`Fidelity::Pages`] has no TLBs.
    pub simulation: Simulation,
    /// Policies beside the fixed page sizes; empty: thp, trident and ranger.
    pub policies: Vec<String>,
    /// Designs and machines whose TLBs are looked at too; empty: colt and rmm, under 4k and ranger.
    pub tlbs: Vec<String>,
    /// Memory that large pages may hold beyond what the program touches, as a share of that.
    pub bloat: f64,
    /// Whether every gain gets an interval, as [`crate::Comparison::intervals`]. Without time there are none.
    pub intervals: bool,
}

impl Default for AdvisePages {
    fn default() -> AdvisePages {
        AdvisePages {
            changes: Changes::default(),
            simulation: Simulation::default(),
            policies: Vec::new(),
            tlbs: Vec::new(),
            bloat: 0.1,
            intervals: true,
        }
    }
}

impl AdvisePages {
    /// Checks all of the question that can be wrong before there is an input.
    ///
    /// # Errors
    /// What does not exist or contradicts itself.
    pub fn check(&self) -> Result<(), Error> {
        self.under_hypervisor()?.ways().map(|_| ())
    }

    /// The question on a machine that is a guest, where all ways can be in one.
    fn under_hypervisor(&self) -> Result<AdvisePages, Error> {
        let changes = hypervisor::under(&self.changes, ways::designs(self), None, self.simulation.fidelity)?;
        Ok(AdvisePages { changes, ..self.clone() })
    }

    /// Runs `input` under all ways of using pages. A program to record runs once, into a temporary file.
    ///
    /// # Errors
    /// A question that is wrong, an input that fails, a caller who stopped.
    pub fn run(&self, input: Input, progress: &dyn Progress) -> Result<PageAdvice, Error> {
        let asked = &self.under_hypervisor()?;
        let ways = asked.ways()?;
        // A live input is read once: a command needs no recording beside.
        let live = input.is_live();
        let folder = tempfile::tempdir().map_err(Error::Folder)?;
        let (input, trouble) = record::once(pieces::tuned(input), folder.path(), progress)?;
        let advice = answer(asked, &ways, input, live, &Settings::new(self.simulation, progress))?;
        Ok(PageAdvice { trouble, ..advice })
    }

    fn ways(&self) -> Result<Vec<Way>, Error> {
        if self.simulation.fidelity == Fidelity::Pages {
            return Err(Error::request(
                "--fidelity pages has no TLBs; advise --pages takes --fidelity full or translation",
            ));
        }
        ways::all(self)
    }
}

/// Whether any page fault is in the input. A recording that begins late finds its memory touched.
fn has_faults(ways: &[WayResult]) -> bool {
    ways.iter().filter_map(|way| way.figures.as_ref()).any(|figures| figures.fault_latency.is_some())
}

fn answer(
    asked: &AdvisePages,
    ways: &[Way],
    input: Input,
    live: bool,
    settings: &Settings<'_>,
) -> Result<PageAdvice, Error> {
    let name = input.name.clone();
    let words = input.words();
    let recording = pieces::Recording::of(&input, live);
    let result = results(asked, ways, input, settings)?;
    if settings.stop.requested() {
        return Err(Error::Stopped("stopped before there was an answer".to_owned()));
    }
    let failed = |result: &run::InputResult| {
        Error::failed(result.failures.first().map_or("the run failed", String::as_str))
    };
    let base_name = &ways[0].name;
    let at = |name: &str| result.runs.iter().position(|run| run.design == name);
    let Some(base) = at(base_name) else { return Err(failed(&result)) };
    let base_run = &result.runs[base];
    // Nothing can be faster than a run that takes no time.
    if base_run.accesses == 0 || base_run.seconds_simulated <= 0.0 {
        let elsewhere = match ways::sizes(base_run) {
            [0, 0, 0] => NO_ACCESSES,
            _ => " in its region of interest; --whole counts all that it does",
        };
        return Err(Error::failed(format!("{name} touches no memory{elsewhere}")));
    }
    let answers: Vec<WayResult> = ways
        .iter()
        .map(|way| match at(&way.name) {
            Some(run) => {
                let run = (&result.runs[run], &result.parts[run][..]);
                WayResult::of(way, run, base_run, settings)
            }
            None => {
                let own = format!("{} on ", way.name);
                let why = result.failures.iter().find_map(|failure| failure.strip_prefix(&own));
                let why =
                    why.map_or("it failed", |why| why.strip_prefix(&format!("{name}: ")).unwrap_or(why));
                WayResult::refused(way, why)
            }
        })
        .collect();
    let large = ["2m", "1g"].map(|name| at(name).map(|run| (&result.runs[run], &result.parts[run][..])));
    let bounds = Bounds { bloat: asked.bloat };
    let ran: Vec<_> = ways
        .iter()
        .filter(|way| way.tlb.is_none())
        .filter_map(|way| Some((way.name.as_str(), &result.parts[at(&way.name)?][..])))
        .collect();
    let page_cache = ran.iter().map(|(way, uses)| CopiedCost::of(way, uses)).collect();
    let parts = parts::weigh((base_run, &result.parts[base]), large, &ran, &result.lines, &bounds);
    let transparent = answers.iter().filter(|way| way.tlb.is_none() && !verdict::is_fixed(way));
    let transparent: Vec<_> =
        transparent.filter_map(|way| Some((way.name.as_str(), &result.runs[at(&way.name)?]))).collect();
    let verdict = Verdict::of(&answers, &parts, &bounds, recording.small_pieces(&transparent));
    let mut remarks = remarks(asked, &answers, base_run, live, settings);
    remarks.extend(recording.remark(&transparent));
    remarks.extend(
        hypervisor::remark(&ways[0].job.design.design, asked.simulation.fidelity)
            .map(|what| format!("Guest: {what}.")),
    );
    let command = (!live).then(|| command(asked, &answers, &words));
    Ok(PageAdvice {
        input: name,
        machine: base_run.machine.clone(),
        machine_tiers: base_run.tiers.clone(),
        fidelity: base_run.fidelity.clone(),
        scale: base_run.scale,
        accesses: base_run.accesses,
        touched_bytes: answers[0].figures.as_ref().map_or(0, |figures| figures.resident_bytes),
        tolerated_bloat: asked.bloat,
        verdict,
        ways: answers,
        parts,
        page_cache,
        remarks,
        command,
        trouble: None,
    })
}

/// One run for each way, with how far its gain could be off where that is asked for.
fn results(
    asked: &AdvisePages,
    ways: &[Way],
    input: Input,
    settings: &Settings<'_>,
) -> Result<run::InputResult, Error> {
    let jobs = |is_wanted: &dyn Fn(&&Way) -> bool| -> Vec<Job> {
        ways.iter().filter(is_wanted).map(|way| way.job.clone()).collect()
    };
    if !asked.intervals || asked.simulation.fidelity != Fidelity::Full {
        return Ok(run::by_parts(&jobs(&|_| true), input, settings));
    }
    // Other hardware is shown, and never recommended.
    let mut inputs = vec![(input, jobs(&|way| way.tlb.is_none()))];
    let others = intervals::beside(&mut inputs, &asked.changes)?;
    inputs[0].1.extend(jobs(&|way| way.tlb.is_some()));
    inputs.extend(others);
    let each = inputs.into_iter().map(|(input, jobs)| run::by_parts(&jobs, input, settings)).collect();
    let mut results = intervals::settle(each, &ways[0].name);
    Ok(if results.is_empty() { run::InputResult::default() } else { results.remove(0) })
}

fn command(asked: &AdvisePages, answers: &[WayResult], input: &[String]) -> String {
    let mut words: Vec<String> = ["terrace", "compare"].map(str::to_owned).into();
    words.extend(
        answers.iter().filter(|way| way.figures.is_some() && way.tlb.is_none()).map(|way| way.design.clone()),
    );
    words.extend(asked.changes.to_words());
    words.extend(asked.simulation.to_words());
    words.extend_from_slice(input);
    shell_join(words)
}

/// What is known to be uncertain, most serious first.
fn remarks(
    asked: &AdvisePages,
    answers: &[WayResult],
    base: &terrace_report::RunRecord,
    live: bool,
    settings: &Settings<'_>,
) -> Vec<String> {
    let mut remarks = partial::remarks(&base.notes);
    let short: Vec<&WayResult> = answers
        .iter()
        .filter(|way| way.tlb.is_none() && way.periods.is_some_and(|periods| periods < FEW_PERIODS))
        .collect();
    if let Some(fewest) = short.iter().filter_map(|way| way.periods).min_by(f64::total_cmp) {
        let names: Vec<&str> = short.iter().map(|way| way.name.as_str()).collect();
        remarks.push(format!(
            "Too short: {} are simulated, fewer than {FEW_PERIODS} periods of {}. What these would do in the long run is \
             not in this; {}.",
            figures::time(base.seconds_simulated),
            names.join(", "),
            periods::longer("record more", asked.changes.time_scale, fewest),
        ));
    }
    if asked.simulation.fidelity == Fidelity::Translation {
        remarks.push(
            "Bound: without caches and memory a run is nothing but instructions, faults and page walks, so every gain is \
             larger than it would be. --fidelity full weighs them against the rest."
                .to_owned(),
        );
    }
    if !hypervisor::sets_aging(&asked.changes.sets) {
        remarks.push(
            "Fresh memory: all of it was free when the program came. On a machine that ran for weeks fewer large pages are \
             had at once, or compaction has to make them: repeat this with --set os.memory.aging.kind=builds."
                .to_owned(),
        );
    }
    let missing: u64 =
        answers.iter().filter_map(|way| Some(way.figures.as_ref()?.fallbacks)).max().unwrap_or(0);
    if missing > 0 {
        remarks.push(format!(
            "Contiguity: up to {} large pages could not be had when they were asked for.",
            terrace_model::text::grouped(missing)
        ));
    }
    if !has_faults(answers) {
        remarks.push(
            "Faults: none are in this input, since the program touched its memory before the input begins. What larger pages \
             cost in faults is not in this: record the program from its start."
                .to_owned(),
        );
    }
    if !settings.simulation.whole {
        remarks.push(
            "Set-up: where the input marks a region of interest, times and walks are those of the region; faults, copies and \
             memory are those of the whole run. --whole counts all."
                .to_owned(),
        );
    }
    remarks.push(
        "Regions: only the gain of the whole run was measured; of that, shorter waits for translation are shared out by \
         the walk cycles that each region saves, and less time in the system by the time that each saves in faults. Where \
         new memory lies in caches is in the whole run's gain alone."
            .to_owned(),
    );
    if base.scale != 1 {
        remarks.push(format!("Scaled: the machine's capacities and TLBs are divided by {}.", base.scale));
    }
    let mut tlbs: Vec<&str> = answers.iter().filter_map(|way| way.tlb.as_deref()).collect();
    tlbs.dedup();
    if !tlbs.is_empty() {
        remarks.push(format!(
            "Hardware: this machine does not have the TLBs of {}. They show what another one would bring, and are not \
             recommended.",
            tlbs.join(", ")
        ));
    }
    let once = if live { "one recording" } else { "one input" };
    remarks.push(format!("Input: {once}; another run of the program may differ."));
    remarks
}
