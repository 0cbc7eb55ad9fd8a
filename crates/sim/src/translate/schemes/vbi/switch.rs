//! What it costs that a block's memory is found otherwise from now on. Section 5.2 has the kinds of structures, and no
//! costs.
//!
//! A block that leaves its run, or its pieces, gets the table of its size class. So does a block that moved to another
//! node, or to a larger size, which takes over what its old structure said (section 4.4). The controller reads the lines of
//! the old structure. It writes those lines of the new one that say where memory is, and the block's entry in the table of
//! blocks. What there is no memory for has no entries. A structure of one entry, that of a block in one run, is in the
//! block's own entry. All of it happens when the block's memory is needed next.

use super::keys::{Switching, levels};
use super::reserve::Mapping;
use super::rewrite::Rewrite;
use super::state::Controller;
use super::{Vbi, block_entry, piece_entry};
use crate::os::{Os, PageTable};
use crate::translate::Walker;
use crate::vbi::SizeClass;
use std::collections::BTreeSet;
use terrace_model::{AddressRange, LINE_BYTES, PhysAddr, Time};

/// The lines of a table with so many levels that say where the memory of these addresses is; none of a table without levels,
/// which is the block's own entry.
fn lines(table: &PageTable, parts: &[AddressRange], levels: u32) -> Vec<PhysAddr> {
    let mut lines = Vec::new();
    if levels == 0 {
        return lines;
    }
    let mut last = [PhysAddr(u64::MAX); 8];
    for part in parts {
        for (addr, size, _) in table.pages_in(*part) {
            let Some(leaf) = table.find(addr) else { continue };
            let lowest = size.index() as u32 + 1;
            for level in lowest..=levels.max(lowest).min(table.levels()) {
                let entry = table.entry_address(&leaf, addr, level);
                let line = PhysAddr(entry.0 & !(LINE_BYTES - 1));
                if last[level as usize % 8] != line {
                    last[level as usize % 8] = line;
                    lines.push(line);
                }
            }
        }
    }
    lines
}

impl Controller {
    /// The block's memory was found by `old`. From now on the table of its size class finds it. Notes the lines to read and
    /// write.
    pub(super) fn replace_structure(&mut self, number: u32, old: (&Mapping, SizeClass), table: &PageTable) {
        if self.keys.switching == Switching::Free {
            return;
        }
        let memory = self.memory;
        let Some(block) = self.blocks.layer().get(number) else { return };
        let parts = block.parts();
        let reads = match (block.rewrite.take(), old) {
            // The structure that is replaced was not written.
            (Some(rewrite), _) => rewrite.reads,
            (None, (Mapping::Direct(_), _)) => Vec::new(),
            (None, (Mapping::Pieces(piece, firsts), _)) => {
                let line = |at: &u64| piece_entry(number, at << piece.offset_bits()) & !(LINE_BYTES - 1);
                let lines: BTreeSet<u64> = firsts.keys().map(line).collect();
                lines.into_iter().map(|line| memory + line).collect()
            }
            (None, (Mapping::Unknown | Mapping::Tables, class)) => lines(table, &parts, levels(class)),
        };
        let mut writes = lines(table, &parts, levels(block.class));
        if reads.is_empty() && !parts.iter().any(|part| !table.pages_in(*part).is_empty()) {
            return;
        }
        writes.push(memory + block_entry(number));
        block.rewrite = Some(Box::new(Rewrite { reads, writes }));
    }

    /// Blocks that were promoted, or that moved to another node, have other structures.
    pub(super) fn replace_structures(&mut self, os: &Os) {
        for (number, mapping, class) in std::mem::take(&mut self.blocks.layer().grown) {
            if let Some(space) = self.blocks.layer().get(number).map(|block| block.space) {
                self.replace_structure(number, (&mapping, class), os.table(space));
            }
        }
    }
}

impl Vbi {
    /// The structure of a block was replaced: its lines are read and written. Returns when the access at hand goes on.
    #[cold]
    #[inline(never)]
    pub(super) fn rewrite<W: Walker>(
        kernel: &mut Controller,
        walker: &mut W,
        rewrite: &Rewrite,
        now: Time,
    ) -> Time {
        let Rewrite { reads, writes } = rewrite;
        kernel.counters.switch_reads += reads.len() as u64;
        kernel.counters.switch_writes += writes.len() as u64;
        let through = kernel.keys.walks_through_llc;
        let mut known = now;
        for line in reads {
            known = known.max(walker.fetch_below::<Vbi>(kernel, *line, through, now));
        }
        let mut done = known;
        for line in writes {
            done = done.max(walker.store_below(*line, known));
        }
        walker.note_lookup("the block's structure is replaced", now, done);
        if kernel.keys.switching == Switching::Waits { done } else { now }
    }
}
