//! Designs on a machine that is itself the guest of a hypervisor, as `terrace calibrate` saw it.
//!
//! There a page walk goes through the guest's table and the hypervisor's. Where the latter has pages of 4 KiB, no TLB entry
//! holds more of a huge page than that. A preset says so (`hypervisor.pages`) without a machine simulating it, since not
//! every design can be simulated in a guest. Studies put all of their designs under the hypervisor, or none of them.

use crate::Error;
use crate::designs::{Changes, Setting};
use terrace_model::PageSize;
use terrace_sim::Fidelity;
use terrace_sim::design::{Aging, Design};

/// The hypervisor's page table.
const HOST: &str = "translation.nested.host";
/// What the guest's memory went through: where neighbours lie far apart in it, walks read more of the hypervisor's table.
pub(crate) const AGING: &str = "os.memory.aging.kind";
/// Memory of more bytes takes ten seconds and more to age, in every run.
const LARGEST_AGED: u64 = 64 << 30;

/// The changes, with what puts the designs of `words` under the hypervisor of their machine; `machine` is theirs where the
/// changes name none. Without one, under one already, or where a design cannot be in a guest, they stay as they are.
///
/// All designs get the same: whether memory ages is decided once, by the machine as it is, and where a tier is resized no
/// memory ages.
///
/// # Errors
/// Designs that cannot be resolved.
pub fn under<'a>(
    changes: &Changes,
    words: impl IntoIterator<Item = &'a str>,
    machine: Option<&str>,
    fidelity: Fidelity,
) -> Result<Changes, Error> {
    entered(changes, words, machine, fidelity, false)
}

/// As [`under`], for runs whose tiers the study itself resizes. A tier of a few MiB that aged is scattered over fewer
/// pages of the hypervisor's table than a tier of many GiB, so that in such runs no memory ages.
///
/// # Errors
/// Designs that cannot be resolved.
pub fn under_with_resized_tiers<'a>(
    changes: &Changes,
    words: impl IntoIterator<Item = &'a str>,
    machine: Option<&str>,
    fidelity: Fidelity,
) -> Result<Changes, Error> {
    entered(changes, words, machine, fidelity, true)
}

fn entered<'a>(
    changes: &Changes,
    words: impl IntoIterator<Item = &'a str>,
    machine: Option<&str>,
    fidelity: Fidelity,
    are_resized: bool,
) -> Result<Changes, Error> {
    let run = |word: &'a str| {
        let design = changes.resolve(word, machine)?.design.design;
        Ok::<_, Error>((word, GuestRun { design, sets: changes.sets_of(word), is_resized: are_resized }))
    };
    let (words, runs): (Vec<&str>, Vec<GuestRun>) =
        words.into_iter().map(run).collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
    let found = additions(&runs, fidelity);
    let mut entered = changes.clone();
    match &found[..] {
        [sets, others @ ..] if others.iter().all(|other| other == sets) => {
            entered.sets.extend(sets.iter().map(|(key, value)| Setting::of_all(*key, *value)));
        }
        _ => entered.sets.extend(words.iter().zip(&found).flat_map(|(word, sets)| {
            let of = |(key, value): &(&str, &str)| Setting {
                design: Some((*word).to_owned()),
                ..Setting::of_all(*key, *value)
            };
            sets.iter().map(of)
        })),
    }
    let is_possible = words.iter().all(|word| entered.resolve(word, machine).is_ok());
    Ok(if is_possible { entered } else { changes.clone() })
}

/// A run before it is put under the hypervisor of its machine.
pub(crate) struct GuestRun {
    /// What would run.
    pub design: Design,
    /// What the user set in it.
    pub sets: Vec<Setting>,
    /// The study changes the size of its tiers.
    pub is_resized: bool,
}

/// What puts runs that are compared under the hypervisors of their machines, keys with values for each run.
pub(crate) fn additions(runs: &[GuestRun], fidelity: Fidelity) -> Vec<Vec<(&'static str, &'static str)>> {
    let is_nested = |run: &GuestRun| run.sets.iter().any(|set| set.key.starts_with("translation.nested"));
    // At that fidelity nothing is translated.
    if fidelity == Fidelity::Pages || runs.iter().any(is_nested) {
        return vec![Vec::new(); runs.len()];
    }
    let capacity = runs.first().map(|run| run.design.tiers[0].capacity);
    let ages = runs.iter().all(|run| {
        run.design.hypervisor.as_ref().is_some_and(|hypervisor| hypervisor.pages == PageSize::Base)
            && run.design.os.memory.aging == Aging::None
            && run.design.tiers[0].capacity.0 <= LARGEST_AGED
            && Some(run.design.tiers[0].capacity) == capacity
            && !run.is_resized
            && !run.sets.iter().any(|set| set.key.starts_with("tier.") && set.key.ends_with(".capacity"))
            && !sets_aging(&run.sets)
    });
    let of = |run: &GuestRun| {
        let hypervisor = run.design.hypervisor.as_ref();
        let host = hypervisor.filter(|_| !run.design.translates_for_free());
        let host = host.map(|hypervisor| (HOST, hypervisor.pages.name()));
        host.into_iter().chain(ages.then_some((AGING, "builds"))).collect()
    };
    runs.iter().map(of).collect()
}

/// Whether somebody said what memory went through.
pub(crate) fn sets_aging(sets: &[Setting]) -> bool {
    sets.iter().any(|set| set.key.starts_with("os.memory.aging"))
}

/// What a reader of the results of a design should know of the hypervisor under its machine, if there is one.
pub fn remark(design: &Design, fidelity: Fidelity) -> Option<String> {
    let aging = match &design.os.memory.aging {
        Aging::None => format!(
            "No other program used memory before; where some did (--set {AGING}=builds), huge pages gain more"
        ),
        _ => format!(
            "Other programs used memory before. Where none did (--set {AGING}=none), huge pages gain less"
        ),
    };
    remark_with(design, fidelity, &aging)
}

/// As [`remark`], for runs whose tiers the study itself resizes.
pub fn remark_with_resized_tiers(design: &Design, fidelity: Fidelity) -> Option<String> {
    let aging = match &design.os.memory.aging {
        Aging::None => "No other program used memory before, in any of the runs".to_owned(),
        _ => format!(
            "Tiers of different sizes aged, as --set asks, so that the runs differ in what memory went through too; \
             --set {AGING}=none makes that the same"
        ),
    };
    remark_with(design, fidelity, &aging)
}

fn remark_with(design: &Design, fidelity: Fidelity, aging: &str) -> Option<String> {
    let hypervisor = design.hypervisor.as_ref().filter(|_| fidelity != Fidelity::Pages)?;
    let pages = match hypervisor.pages {
        PageSize::Base => "4 KiB",
        _ => "2 MiB or more",
    };
    let machine = &design.machine;
    let is_under = design.translation.nested.as_ref().is_some_and(|nested| nested.host.is_some());
    let sees = format!("{machine} is a guest whose hypervisor maps its memory by pages of {pages}");
    Some(match (is_under, hypervisor.pages) {
        (false, _) => format!(
            "{sees}; designs are simulated as if there were no hypervisor, so page walks take longer there than here"
        ),
        (true, PageSize::Base) => format!("{sees}; page walks go through its table too. {aging}"),
        (true, _) => format!("{sees}; page walks go through its table too"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// A machine file of a guest.
    fn guest(folder: &Path, pages: &str) -> Changes {
        let file = folder.join("guest.toml");
        let text = format!("kind = \"machine\"\nextends = \"zen4-cxl\"\n[hypervisor]\npages = \"{pages}\"\n");
        std::fs::write(&file, text).unwrap();
        Changes { machine: Some(file.display().to_string()), ..Changes::default() }
    }

    fn design(changes: &Changes, word: &str) -> Design {
        changes.resolve(word, None).unwrap().design.design
    }

    #[test]
    fn all_designs_are_under_the_hypervisor_of_their_machine() {
        let folder = tempfile::tempdir().unwrap();
        let changes = guest(folder.path(), "4k");
        let words = ["native-4k", "native-thp", "colt", "perfect-tlb"];
        let entered = under(&changes, words, None, Fidelity::Full).unwrap();
        for word in &words[..3] {
            let design = design(&entered, word);
            assert_eq!(design.translation.nested.as_ref().unwrap().host, Some(PageSize::Base), "{word}");
            assert!(matches!(design.os.memory.aging, Aging::Builds { .. }), "{word}");
            let remark = remark(&design, Fidelity::Full).unwrap();
            assert!(
                remark.starts_with("guest is a guest whose hypervisor maps its memory by pages of 4 KiB;"),
                "{remark}"
            );
        }
        assert!(design(&entered, "perfect-tlb").translation.nested.is_none());
        let words = entered.resolve("native-4k", None).unwrap().words.join(" ");
        assert!(
            words.ends_with("--set translation.nested.host=4k --set os.memory.aging.kind=builds"),
            "{words}"
        );
    }

    #[test]
    fn runs_that_are_compared_have_one_history_of_memory() {
        let folder = tempfile::tempdir().unwrap();
        let changes = guest(folder.path(), "4k");
        let words = ["first-touch", "nimble", "perfect-tlb", "all-fast"];
        let histories = |entered: &Changes| -> Vec<bool> {
            words.iter().map(|word| design(entered, word).os.memory.aging == Aging::None).collect()
        };
        assert_eq!(histories(&under(&changes, words, None, Fidelity::Full).unwrap()), [false; 4]);
        // A tier of a few MiB that aged is no tier of many GiB that aged.
        let entered = under_with_resized_tiers(&changes, words, None, Fidelity::Full).unwrap();
        assert_eq!(histories(&entered), [true; 4]);
        assert!(design(&entered, "all-fast").translation.nested.is_some());
        let said = remark_with_resized_tiers(&design(&entered, "nimble"), Fidelity::Full).unwrap();
        assert!(said.ends_with("No other program used memory before, in any of the runs"), "{said}");
        for set in [
            "tier.dram.capacity=8 GiB",
            "nimble:tier.dram.capacity=8 GiB",
            "nimble:os.memory.aging.kind=none",
        ] {
            let sets = vec![Setting::parse(set).unwrap()];
            let changed = Changes { sets, ..changes.clone() };
            let entered = under(&changed, words, None, Fidelity::Full).unwrap();
            assert_eq!(histories(&entered), [true; 4], "{set}");
            assert!(design(&entered, "nimble").translation.nested.is_some(), "{set}");
        }
    }

    #[test]
    fn a_hypervisor_with_huge_pages_leaves_memory_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let entered = under(&guest(folder.path(), "2m"), ["native-4k"], None, Fidelity::Full).unwrap();
        let design = design(&entered, "native-4k");
        assert_eq!(design.translation.nested.as_ref().unwrap().host, Some(PageSize::Huge));
        assert_eq!(design.os.memory.aging, Aging::None);
        assert!(remark(&design, Fidelity::Full).unwrap().ends_with("page walks go through its table too"));
    }

    #[test]
    fn what_cannot_be_in_a_guest_keeps_all_designs_out_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let changes = guest(folder.path(), "4k");
        for other in ["vbi-full", "virtual-4k"] {
            let entered = under(&changes, ["native-4k", other], None, Fidelity::Full).unwrap();
            assert_eq!(entered, changes, "{other}");
        }
        assert!(
            remark(&design(&changes, "native-4k"), Fidelity::Full)
                .unwrap()
                .contains("as if there were no hypervisor")
        );
    }

    #[test]
    fn what_the_user_sets_stays_and_other_machines_have_no_hypervisor() {
        let folder = tempfile::tempdir().unwrap();
        let mut changes = guest(folder.path(), "4k");
        changes.sets.push(Setting::of_all("os.memory.aging.kind", "none"));
        let entered = under(&changes, ["native-4k"], None, Fidelity::Full).unwrap();
        assert_eq!(design(&entered, "native-4k").os.memory.aging, Aging::None);
        changes.sets.push(Setting::of_all(HOST, "2m"));
        assert_eq!(under(&changes, ["native-4k"], None, Fidelity::Full).unwrap(), changes);
        let native = Changes::default();
        assert_eq!(under(&native, ["native-4k"], None, Fidelity::Full).unwrap(), native);
        assert_eq!(remark(&design(&native, "native-4k"), Fidelity::Full), None);
    }
}
