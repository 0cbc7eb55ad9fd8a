//! Runs that are like another: what such a run does not say, it takes from there.

use super::super::error::{DesignError, suggestion};
use super::super::tree::{Entry, merge};
use std::collections::BTreeMap;

/// Completes every run of a claim file that has a `like`, in place; the run that it names may have one too. Errors, each
/// with its line: there is no run of that name, or the names go in a circle.
pub(super) fn complete(file: &mut Entry) -> Result<(), DesignError> {
    let Some(runs) = file.child_mut("run").and_then(Entry::table_mut) else { return Ok(()) };
    let written = runs.clone();
    for (name, run) in runs {
        *run = whole(name, &written, &mut Vec::new())?;
    }
    Ok(())
}

/// The run called `name` with what it takes over. `chain` are the runs on the way to it.
fn whole<'a>(
    name: &'a str,
    written: &'a BTreeMap<String, Entry>,
    chain: &mut Vec<&'a str>,
) -> Result<Entry, DesignError> {
    let run = &written[name];
    // A name that is no text is left to the reader, which says what it expected.
    let Some((like, base)) = run.child("like").and_then(|like| Some((like, like.as_str()?))) else {
        return Ok(run.clone());
    };
    let fault = |message: String| DesignError::at(&like.origin, format!("run.{name}.like: {message}"));
    if !written.contains_key(base) {
        let names: Vec<&String> = written.keys().collect();
        return Err(fault(format!("there is no run \"{base}\"{}", suggestion(base, &names))));
    }
    chain.push(name);
    if chain.contains(&base) {
        return Err(fault(format!("{} -> {base} goes in a circle", chain.join(" -> "))));
    }
    let mut complete = whole(base, written, chain)?;
    merge(&mut complete, run.clone());
    Ok(complete)
}
