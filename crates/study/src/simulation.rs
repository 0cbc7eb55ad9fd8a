//! How closely, and how large a machine, a study simulates.

use crate::keeping::short_name;
use crate::{Error, Progress, Stop};
use std::path::Path;
use std::sync::Arc;
use terrace_hints::Hints;
use terrace_policy::Profile;
use terrace_sim::design::Design;
use terrace_sim::{Fidelity, Options, SimError};

/// How closely, and how large a machine, to simulate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Simulation {
    /// How much of the machine is simulated.
    pub fidelity: Fidelity,
    /// Tier capacities, TLB reach and last-level cache are divided by this, for an input whose footprint was.
    pub scale: u32,
    /// Count the whole input rather than its region of interest.
    pub whole: bool,
    /// Simulate only the operating system until the region of interest begins.
    pub fast_forward: bool,
}

impl Default for Simulation {
    fn default() -> Simulation {
        Simulation { fidelity: Fidelity::Full, scale: 1, whole: false, fast_forward: false }
    }
}

impl Simulation {
    /// The level's name, as run records have it.
    pub fn fidelity_name(&self) -> &'static str {
        match self.fidelity {
            Fidelity::Full => "full",
            Fidelity::Translation => "translation",
            Fidelity::Pages => "pages",
        }
    }

    /// The options as words of a command that repeats the run.
    pub fn to_words(&self) -> Vec<String> {
        let mut words = Vec::new();
        if self.fidelity != Fidelity::Full {
            words.extend(["--fidelity".to_owned(), self.fidelity_name().to_owned()]);
        }
        if self.scale != 1 {
            words.extend(["--scale".to_owned(), self.scale.to_string()]);
        }
        if self.whole {
            words.push("--whole".to_owned());
        }
        if self.fast_forward {
            words.push("--fast-forward".to_owned());
        }
        words
    }
}

/// What all runs of a study share.
pub struct Settings<'a> {
    /// How closely to simulate.
    pub simulation: Simulation,
    /// The receiver of reports of how far the study is.
    pub progress: &'a dyn Progress,
    /// The wish to stop.
    pub stop: Stop,
    /// What another run found out about data structures, for designs that would look at their input twice for it.
    pub hints: Option<Trained>,
}

/// Hints of another run.
#[derive(Clone, Debug)]
pub struct Trained {
    /// The file, as it was named.
    pub file: String,
    /// What it states.
    pub profile: Arc<Profile>,
    /// What to know where they are of a part of a program's run.
    pub partial: Option<String>,
    /// A hash of what it states, wherever the file lies.
    id: String,
}

/// Files that state the same are the same hints.
impl PartialEq for Trained {
    fn eq(&self, other: &Trained) -> bool {
        self.id == other.id
    }
}

impl Trained {
    /// Reads a file that `terrace profile` wrote.
    ///
    /// # Errors
    /// A file that is none, in words.
    pub fn read(path: &Path) -> Result<Trained, Error> {
        let shown = path.display();
        let missing = |error| match path.is_file() {
            true => Error::request(error),
            false => Error::request(format!(
                "--hints {error}; it takes a file of hints: `terrace profile -o {shown}` writes one"
            )),
        };
        let hints = Hints::read(path).map_err(missing)?;
        let profile = Arc::new(hints.profile());
        let partial = (!hints.partial.is_empty()).then(|| format!("the hints of {shown}: {}", hints.partial));
        // Not who asked for it, and how.
        let bare = Hints { sites: hints.sites, ..Hints::default() };
        Ok(Trained { file: path.display().to_string(), profile, partial, id: short_name(&bare.to_text()) })
    }

    /// A short name of what it states.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }
}

impl<'a> Settings<'a> {
    /// Settings of runs that end when `progress` asks for it.
    pub fn new(simulation: Simulation, progress: &'a dyn Progress) -> Settings<'a> {
        Settings { simulation, progress, stop: progress.stop(), hints: None }
    }

    /// These runs, which end when `stop` says so.
    pub(crate) fn until(&self, stop: Stop) -> Settings<'a> {
        Settings { stop, hints: self.hints.clone(), ..*self }
    }

    /// What is asked of every run.
    pub fn options(&self) -> Options {
        Options {
            fidelity: self.simulation.fidelity,
            whole: self.simulation.whole,
            fast_forward: self.simulation.fast_forward,
            stop: Some(self.stop.flag()),
            ..Options::default()
        }
    }

    /// Whether these runs have a simulated time.
    pub fn has_times(&self) -> bool {
        self.simulation.fidelity == Fidelity::Full
    }

    /// The design on the scaled-down machine.
    ///
    /// # Errors
    /// A machine that cannot be scaled so far.
    pub fn scaled(&self, design: &Design) -> Result<Design, SimError> {
        design
            .scaled(self.simulation.scale)
            .map_err(|problem| SimError::Design { design: design.name.clone(), problem })
    }
}
