//! How far each speed-up could be off: assumed constants at the ends of their spread, and another seed.
//!
//! Beside every run of a comparison goes one more on the same decoded input, in which the constants that matter most
//! between designs stand at an end of their spread, all to the same side. Two groups of constants are told apart by the
//! component of the cycles that they change: those of the operating system (a fault, zeroing), and those of memory
//! (latencies of paths and links, copying, misses and walks at once, the core's own pace). The other end is taken to
//! move the speed-up as far to the other side. A workload with a seed also runs with another one; of other inputs the
//! policies do, which draw at random.

use crate::Error;
use crate::bench::Bench;
use crate::check::{SpreadOf, parse_spread};
use crate::designs::{Changes, Job};
use crate::input::Input;
use crate::run::InputResult;
use std::collections::HashMap;
use terrace_model::{BytesPerSec, Time};
use terrace_report::{RunRecord, Uncertainty};
use terrace_sim::design::{Aging, Design};

/// Relative spread of a constant that is assumed or that nobody vouches for.
pub const ASSUMED_SPREAD: f64 = 0.25;

/// Suffixes of run names: constants at the ends of their spread, and the policy under another seed.
const AT_ENDS: &str = ", constants at the ends of their spread";
const RESEEDED: &str = ", another seed";

/// Adds to each input's jobs those that show how far their speed-ups could be off. Returns the inputs under another seed,
/// with their jobs.
///
/// # Errors
/// A machine whose spread is no list of ranges.
pub(crate) fn beside(
    inputs: &mut [(Input, Vec<Job>)],
    changes: &Changes,
) -> Result<Vec<(Input, Vec<Job>)>, Error> {
    let mut others = Vec::new();
    for (input, jobs) in inputs {
        let ends = jobs.iter().filter_map(|job| at_ends(job, changes).transpose());
        let mut more = ends.collect::<Result<Vec<Job>, Error>>()?;
        if let Some((_, mut other)) = other_seed(input) {
            // Another input is for all designs, with the policies' other seed at once.
            other.name = format!("{}{RESEEDED}", input.name);
            let jobs = jobs.iter().map(|job| with_other_seed(job).unwrap_or_else(|| job.clone()));
            others.push((other, jobs.collect()));
        } else {
            more.extend(jobs.iter().filter_map(with_other_seed).map(|mut job| {
                job.design.design.name += RESEEDED;
                job
            }));
        }
        jobs.extend(more);
    }
    Ok(others)
}

/// Another seed than the input's own, where it has one, and the input under it.
pub(crate) fn other_seed(input: &Input) -> Option<(u64, Input)> {
    let words = input.words().join(" ");
    let seed = (2..4).find(|seed| !words.contains(&format!("seed={seed}")))?;
    Some((seed, input.reseeded(seed)?))
}

/// The design with its policy and the aging of its memory under another seed; nothing where it has neither.
pub(crate) fn with_other_seed(job: &Job) -> Option<Job> {
    let mut other = job.clone();
    let os = &mut other.design.design.os;
    if let Some(policy) = &mut os.policy {
        policy.seed = policy.seed.wrapping_add(1);
    }
    if let Aging::PageCache { seed, .. } | Aging::Builds { seed, .. } = &mut os.memory.aging {
        *seed = seed.wrapping_add(1);
    }
    (other.design.design != job.design.design).then_some(other)
}

/// The design with its constants at the ends that speak for large pages and for fast memory; nothing where all of them are
/// known or set.
pub(crate) fn at_ends(job: &Job, changes: &Changes) -> Result<Option<Job>, Error> {
    let mut other = job.clone();
    let design = &mut other.design.design;
    let measured = parse_spread(&design.ledger.spread)?;
    let is_set = |key: &str| changes.sets.iter().any(|one| one.key == key && one.is_for(&job.word));
    vary(design, &measured, &is_set);
    if *design == job.design.design {
        return Ok(None);
    }
    design.name += AT_ENDS;
    Ok(Some(other))
}

/// Sets the constants; `is_set` says which ones the user vouches for.
fn vary(design: &mut Design, measured: &[SpreadOf], is_set: &dyn Fn(&str) -> bool) {
    let ledger = design.ledger.clone();
    // As a factor to the side that speaks for large pages and fast memory.
    let factor = |key: &str, value: f64, is_higher: bool, read: &dyn Fn(&str) -> Option<f64>| {
        if is_set(key) {
            return 1.0;
        }
        // The last that is stated, as a file's own come after those of what it extends.
        if let Some(SpreadOf { low, high, .. }) = measured.iter().rfind(|one| one.key == key) {
            let end = read(if is_higher { high } else { low });
            return end.map_or(1.0, |end| end / value);
        }
        match (ledger.is_vouched_for(key), is_higher) {
            (true, _) => 1.0,
            (false, true) => 1.0 + ASSUMED_SPREAD,
            (false, false) => 1.0 / (1.0 + ASSUMED_SPREAD),
        }
    };
    let time = |text: &str| text.parse::<Time>().ok().map(|time| time.as_nanos());
    let rate = |text: &str| text.parse::<BytesPerSec>().ok().map(|rate| rate.0);
    let scale = |time_: &mut Time, key: &str| {
        let nanos = time_.as_nanos();
        if nanos > 0.0 {
            *time_ = Time::from_nanos_f64(nanos * factor(key, nanos, true, &time));
        }
    };
    scale(&mut design.os.fault_cost, "os.fault_cost");
    scale(&mut design.os.costs.shootdown, "os.costs.shootdown");
    let zero = &mut design.os.zero_bandwidth;
    zero.0 *= factor("os.zero_bandwidth", zero.0, false, &rate);
    let zero = &mut design.os.huge_zero_bandwidth;
    zero.0 *= factor("os.huge_zero_bandwidth", zero.0, true, &rate);
    let copy = &mut design.os.costs.copy_line;
    copy.0 *= factor("os.costs.copy_line", copy.0, false, &|_| None);
    for tier in &mut design.tiers {
        scale(&mut tier.path_latency, &format!("tier.{}.path_latency", tier.name));
        if let Some(link) = &mut tier.link {
            scale(&mut link.latency, &format!("tier.{}.link.latency", tier.name));
        }
    }
    // What hides latency is small where latency is to matter.
    let count = |text: &str| text.parse::<f64>().ok();
    let fewer = |registers: &mut u32, key: &str| {
        if *registers > 0 {
            let value = f64::from(*registers);
            *registers = (value * factor(key, value, false, &count)).round().max(1.0) as u32;
        }
    };
    fewer(&mut design.cache.l1.outstanding, "cache.l1.outstanding");
    fewer(&mut design.translation.walkers, "translation.walkers");
    design.core.base_cpi *= factor("core.base_cpi", design.core.base_cpi, false, &count);
}

/// The input or design that a run beside is one of.
pub(crate) fn plain_name(name: &str) -> &str {
    [AT_ENDS, RESEEDED].into_iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name)
}

/// Takes the runs that were made beside out of the results, and says of each other run how far its speed-up could be off.
pub(crate) fn settle(results: Vec<InputResult>, baseline: &str) -> Vec<InputResult> {
    let (others, mut own): (Vec<InputResult>, Vec<InputResult>) =
        results.into_iter().partition(|result| result.name.ends_with(RESEEDED));
    for result in &mut own {
        result.failures.retain(|failure| !failure.contains(AT_ENDS) && !failure.contains(RESEEDED));
        let (mut ends, mut seeds) = (HashMap::new(), HashMap::new());
        let (mut kept, mut parts) = (Vec::new(), Vec::new());
        let own_parts = std::mem::take(&mut result.parts).into_iter().chain(std::iter::repeat(Vec::new()));
        for (run, own) in std::mem::take(&mut result.runs).into_iter().zip(own_parts) {
            match (run.design.strip_suffix(AT_ENDS), run.design.strip_suffix(RESEEDED)) {
                (Some(name), _) => drop(ends.insert(name.to_owned(), run)),
                (_, Some(name)) => drop(seeds.insert(name.to_owned(), run)),
                _ => {
                    kept.push(run);
                    parts.push(own);
                }
            }
        }
        let other_name = format!("{}{RESEEDED}", result.name);
        if let Some(other) = others.iter().find(|other| other.name == other_name) {
            seeds.extend(other.runs.iter().map(|run| (run.design.clone(), run.clone())));
        }
        (result.runs, result.parts) = (kept, parts);
        let Some(base) = result.runs.iter().find(|run| run.design == baseline).cloned() else { continue };
        let other_input = others.iter().any(|other| other.name == other_name);
        for run in &mut result.runs {
            run.uncertainty = uncertainty(run, &base, &ends, &seeds, other_input);
        }
    }
    own
}

/// How far the speed-up of `run` over `base` moves; nothing where there is none.
fn uncertainty(
    run: &RunRecord,
    base: &RunRecord,
    ends: &HashMap<String, RunRecord>,
    seeds: &HashMap<String, RunRecord>,
    other_input: bool,
) -> Option<Uncertainty> {
    let speedup = run.speedup_over(base)?;
    let of = |runs: &HashMap<String, RunRecord>, run: &RunRecord| runs.get(&run.design).cloned();
    // A design whose constants are all known stays as it is.
    let at_ends = |run: &RunRecord| of(ends, run).unwrap_or_else(|| run.clone());
    let constants = of_constants([base, run], [&at_ends(base), &at_ends(run)])?;
    let seed = match (of(seeds, base), of(seeds, run)) {
        (Some(base), Some(run)) => Some(run.speedup_over(&base)? / speedup),
        // On the same input a design without a random choice is the same.
        (None, Some(run)) if !other_input => Some(run.speedup_over(base)? / speedup),
        (Some(base), None) if !other_input => Some(run.speedup_over(&base)? / speedup),
        _ => None,
    };
    Some(Uncertainty { seeds: seed.map(|factor| factor.ln().abs()), ..constants })
}

/// How far constants move the speed-up of the second job over the first, whose runs as they are were made; nothing where a
/// run at the ends fails.
pub(crate) fn of_jobs(
    bench: &Bench<'_>,
    jobs: [&Job; 2],
    changes: &Changes,
    plain: [&RunRecord; 2],
) -> Result<Option<Uncertainty>, Error> {
    let mut others = Vec::new();
    for job in jobs {
        others.push(at_ends(job, changes)?.unwrap_or_else(|| job.clone()));
    }
    let runs = bench.run("constants at their ends", others)?;
    let [Ok(first), Ok(second)] = &runs[..] else { return Ok(None) };
    Ok(of_constants(plain, [first, second]))
}

/// How far constants move the speed-up of the second run over the first, both as they are and with constants at the ends of
/// their spread; nothing where there is no speed-up.
pub(crate) fn of_constants(plain: [&RunRecord; 2], at_ends: [&RunRecord; 2]) -> Option<Uncertainty> {
    let os = os_change(plain[0], at_ends[0]) / os_change(plain[1], at_ends[1]);
    let all = at_ends[1].speedup_over(at_ends[0])? / plain[1].speedup_over(plain[0])?;
    let distance = |factor: f64| factor.ln().abs();
    Some(Uncertainty { os_constants: distance(os), memory_constants: distance(all / os), seeds: None })
}

/// By which factor the run's time grows with what the operating system's part of its cycles does.
fn os_change(run: &RunRecord, other: &RunRecord) -> f64 {
    let os = |run: &RunRecord| {
        run.cycle_components().iter().find(|part| part.name == "os").map_or(0.0, |part| part.cycles)
    };
    let total: f64 = run.cycle_components().iter().map(|part| part.cycles).sum();
    if total > 0.0 { (1.0 + (os(other) - os(run)) / total).max(0.01) } else { 1.0 }
}

#[cfg(test)]
mod tests;
