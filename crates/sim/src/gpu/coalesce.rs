//! Warps as the input has them, made into what an SM issues: each instruction's lanes coalesced into transactions.
//!
//! The lanes of one instruction that touch the same line of 128 bytes are one transaction, which says which sectors of 32
//! bytes they touch (CUDA C Programming Guide, section on compute capability 2.x: one request for each line of 128 bytes).

use super::parameters::{GPU_LINE, SECTOR};
use terrace_model::VirtAddr;

/// A part of one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// Address of the line's first byte.
    pub addr: VirtAddr,
    /// A bit for each sector.
    pub sectors: u8,
}

/// The first byte of the line that holds an address.
#[inline(always)]
fn line_at(addr: VirtAddr) -> VirtAddr {
    VirtAddr(addr.0 & !(GPU_LINE - 1))
}

/// What a warp does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Instructions, the last of which accesses memory by transactions.
    Access {
        /// Instructions, this one included.
        instructions: u32,
        /// The first of its transactions.
        first: u32,
        /// Number of transactions.
        count: u8,
        /// A store.
        write: bool,
        /// The access's address depends on a load.
        depends: bool,
        /// The access is the load or the store of an atomic operation.
        atomic: bool,
    },
    /// Instructions without an access.
    Compute {
        /// How many.
        instructions: u64,
    },
    /// All warps of the group wait for each other.
    Barrier,
}

/// What one warp does from its beginning to its end.
#[derive(Clone, Debug, Default)]
pub struct WarpWork {
    /// In order.
    pub steps: Vec<Step>,
    /// Transactions of all steps.
    pub transactions: Vec<Transaction>,
}

impl WarpWork {
    /// A lane's access; `instructions` is 0 where it belongs to the instruction before it. A store without instructions of
    /// its own to what was loaded is the second half of an atomic operation.
    pub fn lane(&mut self, addr: VirtAddr, bytes: u8, write: bool, depends: bool, instructions: u16) {
        let same = |step: &Step| matches!(step, Step::Access { write: of, count, .. } if *of == write && *count < u8::MAX);
        let begins = instructions > 0 || !self.steps.last().is_some_and(same);
        if begins {
            let atomic = write && instructions == 0 && self.make_atomic(line_at(addr));
            let first = self.transactions.len() as u32;
            let instructions = u32::from(instructions.max(1));
            self.steps.push(Step::Access { instructions, first, count: 0, write, depends, atomic });
        }
        let Some(Step::Access { first, count, .. }) = self.steps.last_mut() else { return };
        let end = addr.saturating_add(u64::from(bytes)).0;
        let mut at = addr.0;
        while at < end {
            let line = line_at(VirtAddr(at));
            let stop = end.min(line.0 + GPU_LINE);
            let (low, high) = (at % GPU_LINE / SECTOR, (stop - 1) % GPU_LINE / SECTOR);
            let sectors = (((1u16 << (high + 1)) - 1) & !((1 << low) - 1)) as u8;
            let own = &mut self.transactions[*first as usize..];
            // Neighbouring lanes mostly share a line.
            match own.iter_mut().rev().find(|transaction| transaction.addr == line) {
                Some(transaction) => transaction.sectors |= sectors,
                None => {
                    self.transactions.push(Transaction { addr: line, sectors });
                    *count = count.saturating_add(1);
                }
            }
            at = stop;
        }
    }

    /// The last step becomes the load of an atomic operation, if it loads from this line. Returns whether it does.
    fn make_atomic(&mut self, line: VirtAddr) -> bool {
        let Some(Step::Access { first, write: false, atomic, .. }) = self.steps.last_mut() else {
            return false;
        };
        *atomic = self.transactions[*first as usize..].iter().any(|one| one.addr == line);
        *atomic
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warp(lanes: impl Iterator<Item = (u64, u8)>) -> Vec<(u64, u8)> {
        let mut work = WarpWork::default();
        for (lane, (addr, bytes)) in lanes.enumerate() {
            work.lane(VirtAddr(addr), bytes, false, false, u16::from(lane == 0));
        }
        assert_eq!(work.steps.len(), 1);
        work.transactions.iter().map(|one| (one.addr.0 / GPU_LINE, one.sectors)).collect()
    }

    #[test]
    fn neighbours_share_a_line() {
        assert_eq!(warp((0..32).map(|lane| (4 * lane, 4))), [(0, 0b1111)]);
        assert_eq!(warp((0..32).map(|lane| (64 + 4 * lane, 4))), [(0, 0b1100), (1, 0b0011)]);
        assert_eq!(warp((0..32).map(|lane| (8 * lane, 8))), [(0, 0b1111), (1, 0b1111)]);
    }

    #[test]
    fn strides_take_a_line_each_of_which_a_sector_is_used() {
        // The line utilization of 25 % that the source has for kmeans.
        let lines = warp((0..32).map(|lane| (128 * lane, 4)));
        assert_eq!(lines.len(), 32);
        assert!(lines.iter().all(|(_, sectors)| *sectors == 0b0001));
    }

    #[test]
    fn the_same_word_is_one_sector_and_a_word_across_lines_is_two() {
        assert_eq!(warp((0..32).map(|_| (260, 4))), [(2, 0b0001)]);
        assert_eq!(warp([(126, 4)].into_iter()), [(0, 0b1000), (1, 0b0001)]);
    }

    #[test]
    fn rows_without_instructions_belong_to_the_row_before() {
        let mut work = WarpWork::default();
        for (addr, instructions) in [(0, 5), (4, 0), (1024, 1), (1028, 0)] {
            work.lane(VirtAddr(addr), 4, false, false, instructions);
        }
        let access = |instructions, first| Step::Access {
            instructions,
            first,
            count: 1,
            write: false,
            depends: false,
            atomic: false,
        };
        assert_eq!(work.steps, [access(5, 0), access(1, 1)]);
    }

    #[test]
    fn a_store_without_instructions_to_what_was_loaded_is_atomic() {
        let atomic = |rows: &[(u64, bool, u16)]| {
            let mut work = WarpWork::default();
            rows.iter().for_each(|(addr, write, own)| work.lane(VirtAddr(*addr), 4, *write, false, *own));
            let steps = work.steps.iter();
            steps.map(|step| matches!(step, Step::Access { atomic: true, .. })).collect::<Vec<_>>()
        };
        assert_eq!(atomic(&[(0, false, 2), (4, false, 0), (0, true, 0), (4, true, 0)]), [true, true]);
        assert_eq!(atomic(&[(0, false, 2), (0, true, 1)]), [false, false], "a store of its own");
        assert_eq!(atomic(&[(0, false, 2), (512, true, 0)]), [false, false], "another line");
        assert_eq!(atomic(&[(0, true, 2), (0, true, 0)]), [false], "no load");
    }
}
