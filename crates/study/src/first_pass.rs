//! What policies want to know before they start. The first pass of those that look at their input twice is the same design
//! without its policy, counting accesses. The probe of those that ask for it measures the machine's memories.

use crate::Error;
use crate::fanout::FanOut;
use crate::input::Input;
use crate::progress::share;
use crate::simulation::{Settings, Trained};
use crate::threads;
use std::sync::Arc;
use terrace_policy::Profile;
use terrace_sim::Options;
use terrace_sim::design::{Design, Resolved};

/// Whether the design's policy wants one.
fn is_needed(design: &Design) -> bool {
    design.os.policy.as_ref().is_some_and(|policy| policy.needs_first_pass())
}

/// Whether hints of another run serve instead.
pub fn takes_hints(design: &Design) -> bool {
    design.os.policy.as_ref().is_some_and(|policy| policy.takes_hints())
}

/// Refuses what cannot be read twice before anything runs, and hints that no design takes.
pub fn check<'a>(
    designs: impl Iterator<Item = &'a Resolved>,
    inputs: &[Input],
    hints: Option<&Trained>,
) -> Result<(), Error> {
    let mut takers = 0;
    for design in designs {
        if hints.is_some() && takes_hints(&design.design) {
            takers += 1;
        } else if is_needed(&design.design) {
            for input in inputs.iter().filter(|input| input.is_readable()) {
                read_twice(input, &why(&design.design))?;
            }
        }
    }
    match hints {
        Some(hints) if takers == 0 => Err(untaken(&format!("--hints {}", hints.file))),
        _ => Ok(()),
    }
}

/// Hints for nobody, given as `asked`.
pub fn untaken(asked: &str) -> Error {
    Error::request(format!(
        "{asked}: no design here places data structures by hints; the policy `annotated` and the design `gpu-annotated` do"
    ))
}

/// What a first pass over `input`, or a probe, found for each design; nothing for those that want none. Designs that differ
/// only in their policy share a pass, and a probe.
pub fn profiles<'a>(
    designs: impl Iterator<Item = &'a Resolved> + Clone,
    input: &Input,
    settings: &Settings<'_>,
) -> Result<Vec<Option<Arc<Profile>>>, Error> {
    let mut passes: Vec<Design> = Vec::new();
    let mut wants: Vec<Option<usize>> = Vec::new();
    let hints = |design: &Design| settings.hints.as_ref().filter(|_| takes_hints(design));
    for Resolved { design, .. } in designs.clone() {
        if !is_needed(design) || hints(design).is_some() {
            wants.push(None);
            continue;
        }
        let bare = without_policy(design);
        wants.push(Some(passes.iter().position(|pass| *pass == bare).unwrap_or_else(|| {
            passes.push(bare);
            passes.len() - 1
        })));
    }
    let found = match wants.iter().position(Option::is_some) {
        None => Vec::new(),
        Some(first) => {
            let who = designs.clone().nth(first).map(|design| why(&design.design)).unwrap_or_default();
            count(&passes, read_twice(input, &who)?, settings)?
        }
    };
    let mut probes = Vec::new();
    let profile = |(want, resolved): (Option<usize>, &Resolved)| match want {
        Some(at) => Ok(Some(Arc::clone(&found[at]))),
        None if wants_probe(&resolved.design) => probe(&resolved.design, &mut probes, settings).map(Some),
        None => Ok(hints(&resolved.design).map(|hints| Arc::clone(&hints.profile))),
    };
    wants.into_iter().zip(designs).map(profile).collect()
}

fn wants_probe(design: &Design) -> bool {
    design.os.policy.as_ref().is_some_and(|policy| policy.needs_probe())
}

/// The bandwidths of the design's memories, measured unless one of the `known` machines is the same.
fn probe(
    design: &Design,
    known: &mut Vec<(Design, Arc<Profile>)>,
    settings: &Settings<'_>,
) -> Result<Arc<Profile>, Error> {
    let bare = without_policy(design);
    if let Some((_, profile)) = known.iter().find(|(machine, _)| *machine == bare) {
        return Ok(Arc::clone(profile));
    }
    tracing::info!(design = design.name, "probe begins");
    let measured = terrace_sim::probe(&settings.scaled(design)?, Some(&settings.stop.flag()))?;
    let bandwidths = measured.iter().map(|bandwidth| bandwidth.0 as u64).collect();
    let profile = Arc::new(Profile { bandwidths, ..Profile::default() });
    known.push((bare, Arc::clone(&profile)));
    Ok(profile)
}

/// The input once more, for a pass that all designs share: a mix has none, since each design runs its programs at another
/// pace.
fn read_twice(input: &Input, why: &str) -> Result<Input, Error> {
    if input.programs().is_empty() {
        return input.again(why);
    }
    Err(Error::request(format!(
        "{why}, which it cannot of a mix ({}); train it on another run: terrace profile, then --hints FILE",
        input.name
    )))
}

fn why(design: &Design) -> String {
    format!("{} looks at its input twice", design.name)
}

/// Names apart, the machine as it would be without the policy.
fn without_policy(design: &Design) -> Design {
    let mut bare = design.clone();
    bare.name = "the first pass".to_owned();
    bare.summary.clear();
    bare.os.policy = None;
    bare
}

fn count(designs: &[Design], input: Input, settings: &Settings<'_>) -> Result<Vec<Arc<Profile>>, Error> {
    let name = input.name.clone();
    tracing::info!(input = name, passes = designs.len(), "first pass begins");
    let (source, _) = input.open(settings)?;
    let header = source.header().clone();
    let (mut task, mut accesses) = (settings.progress.begin(&format!("{name}, 1st pass")), 0);
    let observer = Box::new(move |batch: &terrace_trace::Batch, done| {
        accesses += batch.len() as u64;
        task.advance(batch.len() as u64, &|| share(done, &header, accesses));
    });
    let (fanout, branches) = FanOut::start(source, designs.len(), observer, settings.stop.flag())?;
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let runs: Vec<_> = designs
            .iter()
            .zip(branches)
            .map(|(design, mut branch)| {
                let options = Options { count_accesses: true, ..settings.options() };
                threads::start(scope, move || {
                    let design = settings.scaled(design)?;
                    terrace_sim::simulate(&design, &mut branch, options)
                })
            })
            .collect();
        let joined = runs.into_iter().map(|run| run.map(threads::result).map_err(Error::failed));
        joined.collect()
    });
    let decoded = fanout.join();
    if let Some(error) = decoded.error {
        return Err(Error::Read(error));
    }
    outcomes.into_iter().map(|outcome| Ok(Arc::new(outcome??.profile.unwrap_or_default()))).collect()
}
