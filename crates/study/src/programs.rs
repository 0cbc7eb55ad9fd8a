//! Opens the programs of a mix together.

use crate::Error;
use std::sync::{Arc, Mutex, PoisonError};
use terrace_trace::{EventSource, Mix, MixPart, MixedProgram, SourceError, marks_region};

/// Opens the events of a program, as often as one likes.
pub(crate) type Opener = Box<dyn Fn() -> Result<Box<dyn EventSource>, Error> + Send>;

/// Which programs of a mix mark a region of interest, once that was looked for. Copies share it: the designs of a study
/// open the mix at the same time, and the first looks.
#[derive(Clone, Default)]
pub(crate) struct Regions(Arc<Mutex<Option<Vec<bool>>>>);

impl Regions {
    /// Opens programs with their names; `whole`: no region matters.
    pub fn open(&self, programs: Vec<(String, Opener)>, whole: bool) -> Result<Mix, Error> {
        let marks = match whole {
            true => vec![false; programs.len()],
            false => {
                let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                match known.as_ref() {
                    Some(marks) => marks.clone(),
                    None => {
                        let marks =
                            programs.iter().map(looks_for_region).collect::<Result<Vec<bool>, _>>()?;
                        known.insert(marks).clone()
                    }
                }
            }
        };
        let part = |((name, open), marks_region): ((String, Opener), bool)| {
            MixPart::new(MixedProgram { name, marks_region }, move || {
                open().map_err(|error| SourceError::Malformed(error.with_causes()))
            })
        };
        Mix::open(programs.into_iter().zip(marks).map(part)).map_err(Error::Open)
    }
}

/// Whether a program's input marks the begin of a region.
fn looks_for_region((name, open): &(String, Opener)) -> Result<bool, Error> {
    marks_region(open()?.as_mut()).map_err(|error| Error::failed(format!("{name}: {error}")))
}
