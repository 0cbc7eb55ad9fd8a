//! TLBs other than the machine's, under the ways of using pages.

use super::super::Arguments;
use super::ways::Way;
use crate::error::{Blame, Failure};
use crate::options::{DesignOptions, Setting};
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
pub(super) fn ways(arguments: &Arguments, ways: &[Way]) -> Result<Vec<Way>, Failure> {
    let named = !arguments.tlb.is_empty();
    let words: Vec<&str> = match named {
        true => arguments.tlb.iter().map(String::as_str).collect(),
        // Nothing else makes contiguity for them.
        false if ways.iter().any(|way| way.name == "ranger") => DEFAULT.into(),
        false => Vec::new(),
    };
    let mut tlbs: Vec<Tlb> = Vec::new();
    for word in words {
        if tlbs.iter().any(|tlb| tlb.word == word) {
            continue;
        }
        let mut tlb = find(&arguments.designs, word)?;
        // Every other part of the ways is of one machine.
        let own = &ways[0].job.design.design;
        if tlb.translation == own.translation {
            return Err(Failure::usage(format!(
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
fn find(options: &DesignOptions, word: &str) -> Result<Tlb, Failure> {
    let design = match Library::embedded().kind(word).or_usage()? {
        FileKind::Machine => {
            let is_own = |set: &&Setting| {
                set.is_for(word) && (set.design.is_some() || set.key.starts_with("translation."))
            };
            let sets = options.sets.iter().filter(is_own).cloned().collect();
            let alone = DesignOptions { machine: None, sets, hasten: 1 };
            alone.resolve(word, None)?.design.design
        }
        FileKind::Design | FileKind::Part => options.resolve(word, None)?.design.design,
    };
    Ok(Tlb { word: word.to_owned(), name: design.name, translation: design.translation })
}
