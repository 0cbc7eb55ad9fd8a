//! In which pieces a recorded program takes its memory: transparent huge pages find no place in smaller ones.
//!
//! Where the C library's allocator is asked for huge pages (`GLIBC_TUNABLES=glibc.malloc.hugetlb=1`), the heap grows by
//! whole ones, and without that by 132 KiB. A recording that is made for the question has the setting, as that of
//! `terrace check` has.

use crate::input::Input;
use terrace_calibrate::native;
use terrace_model::PageSize;
use terrace_report::RunRecord;

/// Share of the memory from which it matters that no transparent huge page had a place there.
const MUCH: f64 = 0.25;

/// A program that is still to be recorded with the heap that it has where huge pages are turned on. Where its environment
/// decides that, it stays as it is.
pub(super) fn tuned(input: Input) -> Input {
    match native::asks_for_huge_pages() {
        Some(setting) => input.with_variable(setting),
        None => input,
    }
}

/// How the input was recorded.
pub(super) struct Recording {
    /// The program was not asked to take memory as it does where huge pages are turned on.
    may_be_tuned: bool,
    /// Recorded for this question, with the setting.
    was_tuned: bool,
}

impl Recording {
    pub(super) fn of(input: &Input, is_live: bool) -> Recording {
        let environment = input.recorded_environment();
        let tunes = |all: &[String]| all.iter().any(|one| native::tunes_huge_pages(one));
        let may_be_tuned = environment.is_some_and(|all| !tunes(all));
        let asks = |all: &[String]| all.iter().any(|one| native::asks_huge_pages_of_glibc(one));
        Recording { may_be_tuned, was_tuned: is_live && environment.is_some_and(asks) }
    }

    /// The share of the memory in which transparent huge pages found no place, where that is much and the program could
    /// take its memory in other pieces.
    pub(super) fn small_pieces(&self, transparent: &[(&str, &RunRecord)]) -> Option<f64> {
        let share = |run: &RunRecord| {
            let resident: u64 = super::ways::sizes(run).iter().sum();
            let without = run.stats.integer("os.huge_unfit") * PageSize::Base.bytes();
            (without as f64 / resident.max(1) as f64).min(1.0)
        };
        // A policy may leave to its own later passes what another one wants at the fault.
        let most = transparent.iter().map(|(_, run)| share(run)).max_by(f64::total_cmp)?;
        (self.may_be_tuned && most >= MUCH).then_some(most)
    }

    /// What a reader should know of it.
    pub(super) fn remark(&self, transparent: &[(&str, &RunRecord)]) -> Option<String> {
        let about =
            |run: &RunRecord| run.notes.iter().find(|note| note.contains("beyond their mapping")).cloned();
        let note =
            transparent.iter().find_map(|(way, run)| Some(format!("Pieces: under {way} {}.", about(run)?)));
        let setting = self.was_tuned.then(|| {
            "Recorded with GLIBC_TUNABLES=glibc.malloc.hugetlb=1, as terrace check does: glibc's heap then grows by whole \
             huge pages. Run the program so to have what is shown."
                .to_owned()
        });
        let said: Vec<String> = note.into_iter().chain(setting).collect();
        (!said.is_empty()).then(|| said.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_model::Unit;

    fn run(resident: u64, unfit: u64) -> RunRecord {
        let mut run = RunRecord::default();
        run.stats.count("os.peak_resident_bytes.4k", resident, Unit::Bytes);
        run.stats.count("os.huge_unfit", unfit, Unit::Count);
        run.notes = vec![format!(
            "{unfit} pages came smaller, since the larger one would reach beyond their mapping"
        )];
        run
    }

    #[test]
    fn memory_in_small_pieces_counts_where_the_program_could_take_it_otherwise() {
        let (most, little) = (run(8 << 20, 1536), run(8 << 20, 100));
        let plain = Recording { may_be_tuned: true, was_tuned: false };
        assert_eq!(plain.small_pieces(&[("thp", &most)]), Some(0.75));
        assert_eq!(plain.small_pieces(&[("thp", &little)]), None);
        assert_eq!(plain.small_pieces(&[]), None);
        let said = plain.remark(&[("thp", &most)]).unwrap();
        assert!(said.starts_with("Pieces: under thp 1536 pages came smaller"), "{said}");
        let tuned = Recording { may_be_tuned: false, was_tuned: true };
        assert_eq!(tuned.small_pieces(&[("thp", &most)]), None);
        assert!(tuned.remark(&[]).unwrap().contains("GLIBC_TUNABLES=glibc.malloc.hugetlb=1"));
    }
}
