//! What one input shows of a program's data structures, for runs of the program on others.

use crate::Error;
use crate::figures::{readable, short};
use crate::input::{Ending, Input};
use crate::progress::Watched;
use crate::simulation::Settings;
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use terrace_hints::{Hints, Place, Site};
use terrace_recorder::{NoPlace, Places};
use terrace_report::write_atomically;
use terrace_sim::Options;
use terrace_sim::design::Resolved;
use terrace_trace::{Batch, Event, EventSource, Header, SourceError, demangled};

/// A program's data structures, as one run had them.
pub struct Profiled {
    /// What is known of them.
    pub hints: Hints,
    /// What to know where the input is a part of what its program did, or lacks accesses.
    pub partial: Vec<String>,
    /// Sites whose call was not found in any file, or was found in several.
    pub without_place: [u64; 2],
    /// The program, which may still run.
    pub ending: Ending,
}

impl Profiled {
    /// Writes the file of hints, whole or not at all.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        write_atomically(path, self.hints.to_text().as_bytes()).map_err(Error::failed)
    }
}

/// Counts the accesses of each data structure of an input: those that are issued, and those that reach the memory of the
/// design's machine. Looks up in the files that the program had mapped where each site's call is. `command` is kept for
/// readers.
///
/// # Errors
/// An input that cannot be opened or fails, a design that cannot be simulated, and one in which nothing was allocated.
pub fn profile(
    design: &Resolved,
    input: Input,
    command: String,
    settings: &Settings<'_>,
) -> Result<Profiled, Error> {
    let (name, stop, is_live) = (input.name.clone(), input.stop(&settings.stop), input.is_live());
    let (mut source, ending) = input.open_ahead(settings)?;
    let settings = &settings.until(stop);
    let mut watched = Watched::new(&name, source.as_mut(), settings.progress);
    let mut mapped = Mapped { source: &mut watched, files: BTreeSet::new() };
    let options = Options { count_accesses: true, ..settings.options() };
    let outcome = settings
        .scaled(&design.design)
        .and_then(|design| terrace_sim::simulate(&design, &mut mapped, options));
    let files = mapped.files;
    let partial = watched.partial(is_live && settings.stop.requested());
    drop(watched);
    drop(source);
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(error) => {
            ending.wait(&name, settings.progress);
            return Err(error.into());
        }
    };
    // A recording keeps what came until then. Another input can be read again, so that a part of it is of little use.
    if outcome.stopped && !is_live {
        return Err(Error::Stopped(format!("stopped before the end of {name}; no hints were written")));
    }
    let mut sites = Hints::of(&outcome.profile.unwrap_or_default());
    if sites.is_empty() {
        ending.wait(&name, settings.progress);
        return Err(Error::failed(if is_live {
            format!(
                "{name} has allocated nothing that was seen: programs that are linked statically load no library"
            )
        } else {
            format!("{name} has no allocations; record it with --allocations")
        }));
    }
    let places = Places::of(files.iter().map(String::as_str));
    let mut without_place = [0, 0];
    for site in &mut sites {
        match places.find(&site.name) {
            Ok(found) => {
                site.line = places.line(&found).unwrap_or_default();
                let (module, offset) = (found.module(), found.offset);
                site.place = Some(Place { module, build_id: found.build_id, offset });
            }
            Err(NoPlace::Unknown) => without_place[0] += 1,
            Err(NoPlace::Several) => without_place[1] += 1,
        }
    }
    let hints = Hints { program: name, command, partial: partial.join("; "), sites };
    Ok(Profiled { hints, partial, without_place, ending })
}

/// What was counted as a document for programs; `file` is where the hints were written.
pub fn document<'a>(file: &Path, hints: &'a Hints) -> ProfileDocument<'a> {
    let site = |site: &'a Site| SiteDocument {
        name: &site.name,
        line: &site.line,
        bytes: site.bytes,
        loads: site.issued.reads,
        stores: site.issued.writes,
        memory_loads: site.memory.reads,
        memory_stores: site.memory.writes,
        has_place: site.place.is_some(),
    };
    ProfileDocument {
        file: file.display().to_string(),
        program: &hints.program,
        sites: hints.sites.iter().map(site).collect(),
    }
}

/// The answer of `terrace profile` for programs.
#[derive(Serialize)]
pub struct ProfileDocument<'a> {
    file: String,
    program: &'a str,
    sites: Vec<SiteDocument<'a>>,
}

#[derive(Serialize)]
struct SiteDocument<'a> {
    name: &'a str,
    line: &'a str,
    bytes: u64,
    loads: u64,
    stores: u64,
    memory_loads: u64,
    memory_stores: u64,
    has_place: bool,
}

/// A source of which the mapped files are kept in mind.
struct Mapped<'a> {
    source: &'a mut dyn EventSource,
    files: BTreeSet<String>,
}

impl EventSource for Mapped<'_> {
    fn header(&self) -> &Header {
        self.source.header()
    }

    fn next_batch(&mut self) -> Result<Option<Arc<Batch>>, SourceError> {
        let batch = self.source.next_batch()?;
        for event in batch.iter().flat_map(|batch| &batch.events) {
            if let Event::Map { name, .. } = &event.event
                && name.starts_with('/')
                && !self.files.contains(name)
            {
                self.files.insert(name.clone());
            }
        }
        Ok(batch)
    }

    fn progress(&self) -> Option<f64> {
        self.source.progress()
    }
}

/// How many structures the summary shows.
const SHOWN: usize = 12;

/// The hottest structures, in lines of a terminal's width.
pub fn table(hints: &Hints) -> Vec<String> {
    let all: u64 = hints.sites.iter().map(|site| site.issued.total()).sum();
    let head =
        format!("{:<40}{:>10}{:>10}{:>8}{:>10}", "allocation site", "size", "accesses", "share", "per byte");
    let line = |site: &Site| {
        let accesses = site.issued.total();
        let name = demangled(&site.name);
        let name = if site.line.is_empty() { name.into_owned() } else { format!("{name} {}", site.line) };
        let name: String =
            if name.chars().count() > 39 { name.chars().take(38).chain(['…']).collect() } else { name };
        format!(
            "{name:<40}{:>10}{:>10}{:>7.1}%{:>10.3}",
            readable(site.bytes),
            short(accesses as f64),
            100.0 * accesses as f64 / all.max(1) as f64,
            accesses as f64 / site.bytes.max(1) as f64,
        )
    };
    let rest = hints.sites.len().saturating_sub(SHOWN);
    let more = (rest > 0).then(|| format!("and {rest} more"));
    std::iter::once(head).chain(hints.sites.iter().take(SHOWN).map(line)).chain(more).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Silent, Simulation};
    use terrace_sim::design::Library;

    fn profiled(design: &str, workload: &str) -> Result<Profiled, Error> {
        let design = Library::embedded().design(design, None, &[]).unwrap();
        let settings = Settings::new(Simulation::default(), &Silent);
        profile(&design, Input::workload(workload)?, "terrace profile".to_owned(), &settings)
    }

    #[test]
    fn a_workload_tells_its_structures_by_their_heat() {
        let found = profiled("native-4k", "stream,bytes=3MiB,iterations=2").unwrap().hints;
        assert_eq!(found.program, "stream");
        assert!(found.sites.iter().all(|site| site.place.is_none() && site.issued.total() > 0));
        let bytes: u64 = found.sites.iter().map(|site| site.bytes).sum();
        assert!((3 << 20..4 << 20).contains(&bytes), "{bytes}");
    }

    #[test]
    fn what_allocates_nothing_is_refused() {
        let header = Header::default();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("empty.trace");
        terrace_trace::TraceWriter::create(&path, &header).unwrap().finish().unwrap();
        let design = Library::embedded().design("native-4k", None, &[]).unwrap();
        let settings = Settings::new(Simulation::default(), &Silent);
        let input = Input::trace(&path, false).unwrap();
        let error = profile(&design, input, String::new(), &settings).err().unwrap().to_string();
        assert_eq!(error, "empty has no allocations; record it with --allocations");
    }
}
