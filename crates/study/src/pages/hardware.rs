//! TLBs other than the machine's, under the ways of using pages.

use super::AdvisePages;
use super::way::Way;
use crate::Error;
use crate::designs::{Changes, Setting};
use terrace_sim::design::{FileKind, Library, TranslationParameters};

/// What is looked at where no TLB is named: the two that hold contiguous pages in one entry.
pub(super) const DEFAULT: [&str; 2] = ["colt", "rmm"];
/// The ways that are looked at with these: without help, and with a policy that makes contiguity.
const DEFAULT_WAYS: [&str; 2] = ["4k", "ranger"];

/// A TLB, by the design or machine that has it.
struct Tlb {
    /// As the command line has it.
    word: String,
    /// As the table calls it.
    name: String,
    translation: TranslationParameters,
}

/// The ways once more for each TLB: all of them for those that the user names.
pub(super) fn ways(asked: &AdvisePages, ways: &[Way]) -> Result<Vec<Way>, Error> {
    let named = !asked.tlbs.is_empty();
    let words: Vec<&str> = match named {
        true => asked.tlbs.iter().map(String::as_str).collect(),
        // No other way makes contiguity for them.
        false if ways.iter().any(|way| way.name == "ranger") => DEFAULT.into(),
        false => Vec::new(),
    };
    let mut tlbs: Vec<Tlb> = Vec::new();
    for word in words {
        if tlbs.iter().any(|tlb| tlb.word == word) {
            continue;
        }
        let mut tlb = find(&asked.changes, word)?;
        // Every other part of the ways is of one machine.
        let own = &ways[0].job.design.design;
        tlb.translation.nested.clone_from(&own.translation.nested);
        if tlb.translation == own.translation {
            return Err(Error::request(format!(
                "--tlb {word}: its [translation] is that of {}; name a design or a machine that has another one",
                own.machine
            )));
        }
        if tlbs.iter().any(|other| other.name == tlb.name) {
            word.clone_into(&mut tlb.name);
        }
        tlbs.push(tlb);
    }
    let chosen = |way: &&Way| named || DEFAULT_WAYS.contains(&way.name.as_str());
    let mut all = Vec::new();
    for tlb in &tlbs {
        all.extend(ways.iter().filter(chosen).map(|way| tlb.under(way)));
    }
    Ok(all)
}

impl Tlb {
    fn under(&self, way: &Way) -> Way {
        let name = format!("{}+{}", way.name, self.name);
        let mut job = way.job.clone();
        job.design.design.translation = self.translation.clone();
        name.clone_into(&mut job.design.design.name);
        Way {
            name,
            meaning: way.meaning,
            design: way.design.clone(),
            plain: way.name.clone(),
            tlb: Some(self.name.clone()),
            job,
        }
    }
}

/// What a design would put on the machine in force, or another machine has.
fn find(changes: &Changes, word: &str) -> Result<Tlb, Error> {
    let design = match Library::embedded().kind(word)? {
        FileKind::Machine => {
            let is_own = |set: &&Setting| {
                set.is_for(word) && (set.design.is_some() || set.key.starts_with("translation."))
            };
            let sets = changes.sets.iter().filter(is_own).cloned().collect();
            let alone = Changes { machine: None, sets, time_scale: 1 };
            alone.resolve(word, None)?.design.design
        }
        FileKind::Design | FileKind::Part => changes.resolve(word, None)?.design.design,
    };
    Ok(Tlb { word: word.to_owned(), name: design.name, translation: design.translation })
}
