//! `terrace advise --pages`: what 2 MiB and 1 GiB pages would bring this program, and what they would cost.

mod answer;
mod hardware;
mod parts;
mod verdict;
mod ways;

use self::answer::{Document, text};
use self::parts::CopiedAnswer;
use self::verdict::{Bounds, Verdict};
use self::ways::{Way, WayAnswer};
use super::Arguments;
use crate::error::{CommandResult, Failure};
use crate::input::{self, Input};
use crate::interrupt::Interrupt;
use crate::options::Level;
use crate::run::{self, FEW_PERIODS, Settings};
use crate::{commands::record, output, progress};

/// The policies that are looked at where none are named, as far as there are such policies.
const POLICIES: [&str; 3] = ["thp", "trident", "ranger"];

/// Carries out `advise --pages`.
pub fn run(arguments: &Arguments) -> CommandResult {
    let settings = Settings { simulation: &arguments.simulation, interrupt: Interrupt::install() };
    if arguments.simulation.fidelity == Level::Pages {
        return Err(Failure::usage(
            "--fidelity pages has no TLBs; advise --pages takes --fidelity full or translation",
        ));
    }
    let ways = ways::all(arguments)?;
    let given =
        input::prepare_one(&arguments.input, &arguments.recording, "advise", "compare takes several")?;
    // It is read once: a command needs no recording beside.
    let live = given.is_live();
    let folder = tempfile::tempdir()?;
    let input = if live { record::once(given, folder.path(), &settings.interrupt)? } else { given };
    let document = answer(arguments, &ways, input, live, &settings)?;
    if let Some(destination) = &arguments.json.json {
        output::write_json(destination, &document)?;
    }
    if !arguments.json.owns_stdout() {
        output::print(&text(&document))?;
    }
    Ok(())
}

/// A share that may exceed 1, such as `10%`, `0.1`, `2`.
pub(super) fn parse_bloat(text: &str) -> Result<f64, String> {
    let (number, unit) = text.trim().strip_suffix('%').map_or((text.trim(), 1.0), |number| (number, 100.0));
    match number.parse::<f64>() {
        Ok(value) if value.is_finite() && value >= 0.0 => Ok(value / unit),
        _ => Err(format!("\"{text}\" is not a share, such as 10% or 0.1")),
    }
}

fn answer(
    arguments: &Arguments,
    ways: &[Way],
    input: Input,
    live: bool,
    settings: &Settings<'_>,
) -> Result<Document, Failure> {
    let name = input.name.clone();
    let words = input.words();
    let jobs: Vec<_> = ways.iter().map(|way| way.job.clone()).collect();
    let result = run::by_parts(&jobs, input, settings);
    if settings.interrupt.requested() {
        return Err(Failure::run("stopped before there was an answer"));
    }
    let failed = |result: &run::InputResult| {
        Failure::run(result.failures.first().map_or("the run failed", String::as_str))
    };
    let base_name = &ways[0].name;
    let at = |name: &str| result.runs.iter().position(|run| run.design == name);
    let Some(base) = at(base_name) else { return Err(failed(&result)) };
    let base_run = &result.runs[base];
    let answers: Vec<WayAnswer> = ways
        .iter()
        .map(|way| match at(&way.name) {
            Some(run) => {
                let run = (&result.runs[run], &result.parts[run][..]);
                WayAnswer::of(way, run, base_run, settings)
            }
            None => {
                let own = format!("{} on ", way.name);
                let why = result.failures.iter().find_map(|failure| failure.strip_prefix(&own));
                let why =
                    why.map_or("it failed", |why| why.strip_prefix(&format!("{name}: ")).unwrap_or(why));
                WayAnswer::refused(way, why)
            }
        })
        .collect();
    let large = ["2m", "1g"].map(|name| at(name).map(|run| (&result.runs[run], &result.parts[run][..])));
    let bounds = Bounds { bloat: arguments.bloat };
    let ran: Vec<_> = ways
        .iter()
        .filter(|way| way.tlb.is_none())
        .filter_map(|way| Some((way.name.as_str(), &result.parts[at(&way.name)?][..])))
        .collect();
    let page_cache = ran.iter().map(|(way, uses)| CopiedAnswer::of(way, uses)).collect();
    let parts = parts::weigh((base_run, &result.parts[base]), large, &ran, &bounds);
    let verdict = Verdict::of(&answers, &parts, &bounds);
    let remarks = remarks(arguments, &answers, base_run, live, settings);
    let command = (!live).then(|| command(arguments, &answers, &words));
    Ok(Document {
        input: name,
        machine: base_run.machine.clone(),
        fidelity: base_run.fidelity.clone(),
        scale: base_run.scale,
        accesses: base_run.accesses,
        touched_bytes: answers[0].figures.as_ref().map_or(0, |figures| figures.resident_bytes),
        tolerated_bloat: arguments.bloat,
        verdict,
        ways: answers,
        parts,
        page_cache,
        remarks,
        command,
    })
}

fn command(arguments: &Arguments, answers: &[WayAnswer], input: &[String]) -> String {
    let mut words: Vec<String> = ["terrace", "compare"].map(str::to_owned).into();
    words.extend(
        answers.iter().filter(|way| way.figures.is_some() && way.tlb.is_none()).map(|way| way.design.clone()),
    );
    words.extend(arguments.designs.to_words());
    words.extend(arguments.simulation.to_words());
    words.extend_from_slice(input);
    output::shell_join(words)
}

/// What is known to be uncertain, most serious first.
fn remarks(
    arguments: &Arguments,
    answers: &[WayAnswer],
    base: &terrace_report::RunRecord,
    live: bool,
    settings: &Settings<'_>,
) -> Vec<String> {
    let mut remarks = Vec::new();
    let short: Vec<&WayAnswer> = answers
        .iter()
        .filter(|way| way.tlb.is_none() && way.periods.is_some_and(|periods| periods < FEW_PERIODS))
        .collect();
    if let Some(fewest) = short.iter().filter_map(|way| way.periods).min_by(f64::total_cmp) {
        let names: Vec<&str> = short.iter().map(|way| way.name.as_str()).collect();
        remarks.push(format!(
            "Too short: {} are simulated, fewer than {FEW_PERIODS} periods of {}. What these would do in the long run is \
             not in this; record more, or try --hasten {}.",
            progress::time(base.seconds_simulated),
            names.join(", "),
            u64::from(arguments.designs.hasten) * run::hasten_by(fewest),
        ));
    }
    if arguments.simulation.fidelity == Level::Translation {
        remarks.push(
            "Bound: without caches and memory a run is nothing but instructions, faults and page walks, so every gain is \
             larger than it would be. --fidelity full weighs them against the rest."
                .to_owned(),
        );
    }
    let memory = &arguments.designs.sets;
    if !memory.iter().any(|set| set.key.starts_with("os.memory.aging")) {
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
            "Contiguity: up to {missing} large pages could not be had when they were asked for."
        ));
    }
    if !settings.simulation.whole {
        remarks.push(
            "Set-up: where the input marks a region of interest, times and walks are those of the region; faults, copies and \
             memory are those of the whole run. --whole counts all."
                .to_owned(),
        );
    }
    remarks.push(
        "Regions: only the gain of the whole run was measured; it is shared out, without what faults cost, by the walk \
         cycles that each region saves."
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
