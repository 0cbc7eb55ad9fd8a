//! Early reservation (section 5.3): memory for a whole block is set aside when its first region gets some.
//!
//! At a block's first allocation the controller looks for a free run as large as the block. With one, the block is mapped
//! directly: one TLB entry covers it. Without one, the largest size class that is free in one run is what the block gets
//! piece by piece. A region takes, in this order: memory set aside for its block; free memory; memory set aside for another
//! block.

use crate::os::{Fault, Os, OsError};
use crate::vbi::SizeClass;
use std::collections::{BTreeMap, HashMap};
use terrace_model::{Frame, SpaceId, VirtAddr};
use terrace_policy::Wish;

/// How the memory of a block is found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Mapping {
    /// The block has no memory yet.
    #[default]
    Unknown,
    /// Memory lies where the table of its size class says, 4 KiB at a time.
    Tables,
    /// All of it lies from this frame on.
    Direct(Frame),
    /// One table of pieces of a size class, each in one run: the first frame of each.
    Pieces(SizeClass, HashMap<u64, Frame>),
}

/// A run's first frame, its block, and the number of the block's piece. Frames that a block gave back are free, and may
/// become part of another block's run: two runs can begin at the same frame.
type Key = (u64, u32, u64);

/// Frames that are set aside.
#[derive(Clone, Debug)]
struct Run {
    /// One bit for each frame that the block, or another one, has taken.
    taken: Vec<u64>,
    frames: u64,
    left: u64,
}

impl Run {
    /// Frames that nobody has taken, by their numbers in the run.
    fn free_frames(&self) -> impl Iterator<Item = u64> {
        (0..self.frames).filter(|at| self.taken[(at / 64) as usize] >> (at % 64) & 1 == 0)
    }

    /// Shows the frames that nobody has taken in runs: the first, and how many.
    fn free_runs(&self, mut each: impl FnMut(u64, u64)) {
        let mut begin = None;
        for (at, word) in (0..).step_by(64).zip(&self.taken) {
            if *word == 0 && begin.is_some() {
                continue;
            }
            for bit in at..(at + 64).min(self.frames) {
                match (word >> (bit - at) & 1 == 0, begin) {
                    (true, None) => begin = Some(bit),
                    (false, Some(first)) => {
                        each(first, bit - first);
                        begin = None;
                    }
                    _ => {}
                }
            }
        }
        if let Some(first) = begin {
            each(first, self.frames - first);
        }
    }
}

/// Frames given back at a time when memory is taken from another block: one for the region, the others for tables.
const STOLEN: u64 = 8;

/// All that is set aside.
#[derive(Debug, Default)]
pub struct Reservations {
    runs: BTreeMap<Key, Run>,
    /// Frames of blocks that are gone.
    returned: Vec<(u64, Run)>,
    /// Frames that were taken from other blocks.
    pub stolen: u64,
    /// Frames that were given to regions of blocks.
    pub allocated: u64,
}

impl Reservations {
    /// Frames that are set aside and not used.
    pub fn unused(&self) -> u64 {
        self.runs.values().map(|run| run.left).sum()
    }

    /// The frames that are set aside and not used.
    pub fn frames(&self) -> impl Iterator<Item = Frame> {
        let runs = self.runs.iter().map(|((first, ..), run)| (*first, run));
        let runs = runs.chain(self.returned.iter().map(|(first, run)| (*first, run)));
        runs.flat_map(|(first, run)| run.free_frames().map(move |at| Frame(first + at)))
    }

    /// A block is gone, or found otherwise from now on: what it did not use is free.
    pub fn give_up(&mut self, block: u32, mapping: Mapping) {
        let mut firsts: Vec<(u64, Frame)> = match mapping {
            Mapping::Direct(first) => vec![(0, first)],
            Mapping::Pieces(_, pieces) => pieces.into_iter().collect(),
            Mapping::Unknown | Mapping::Tables => return,
        };
        // By their numbers, so that memory is given back in the same order in each run.
        firsts.sort_unstable();
        for (piece, first) in firsts {
            if let Some(run) = self.runs.remove(&(first.0, block, piece)) {
                self.returned.push((first.0, run));
            }
        }
    }

    /// Gives what blocks that are gone did not use back to the operating system's allocator.
    pub fn settle(&mut self, os: &mut Os) {
        for (first, run) in std::mem::take(&mut self.returned) {
            run.free_runs(|at, frames| os.free_run(Frame(first + at), frames));
        }
    }

    /// A run for a piece of a block.
    fn set_aside(
        &mut self,
        (block, piece): (u32, u64),
        class: SizeClass,
        wishes: &[Wish],
        os: &mut Os,
    ) -> Option<Frame> {
        let frames = class.bytes() >> 12;
        let first = os.take_run(frames.trailing_zeros(), wishes)?;
        let taken = vec![0; frames.div_ceil(64) as usize];
        self.runs.insert((first.0, block, piece), Run { taken, frames, left: frames });
        Some(first)
    }

    /// Finds out how the memory of a block will be found, at its first allocation.
    fn begin(&mut self, block: u32, class: SizeClass, wishes: &[Wish], os: &mut Os) -> Mapping {
        if let Some(first) = self.set_aside((block, 0), class, wishes, os) {
            return Mapping::Direct(first);
        }
        let smaller = SizeClass::ALL[1..].iter().rev().filter(|piece| **piece < class);
        for piece in smaller {
            if os.has_run((piece.bytes() >> 12).trailing_zeros()) {
                return Mapping::Pieces(*piece, HashMap::new());
            }
        }
        Mapping::Tables
    }

    /// Takes one frame of a run, if nobody else has it.
    fn claim(&mut self, key: Key, at: u64, os: &mut Os) -> Option<Frame> {
        let run = self.runs.get_mut(&key)?;
        let (word, bit) = ((at / 64) as usize, 1 << (at % 64));
        let frame = Frame(key.0 + at);
        if run.taken[word] & bit == 0 {
            run.taken[word] |= bit;
            run.left -= 1;
            return Some(frame);
        }
        // The block had it, and gave it back.
        os.take_block_at(frame, terrace_model::PageSize::Base).then_some(frame)
    }

    /// Memory for the region at an offset of a block. A run is looked for in the tiers that `wishes` name first.
    ///
    /// # Errors
    /// Memory is full.
    #[allow(clippy::too_many_arguments)]
    pub fn allocate(
        &mut self,
        number: u32,
        class: SizeClass,
        mapping: &mut Mapping,
        offset: u64,
        (space, page): (SpaceId, VirtAddr),
        wishes: &[Wish],
        os: &mut Os,
    ) -> Result<Fault, OsError> {
        if *mapping == Mapping::Unknown {
            *mapping = self.begin(number, class, wishes, os);
        }
        let own = match mapping {
            Mapping::Direct(first) => self.claim((first.0, number, 0), offset >> 12, os),
            Mapping::Pieces(piece, firsts) => {
                let at = offset >> piece.offset_bits();
                let first = firsts.get(&at).copied().or_else(|| {
                    let first = self.set_aside((number, at), *piece, wishes, os)?;
                    firsts.insert(at, first);
                    Some(first)
                });
                let within = (offset & (piece.bytes() - 1)) >> 12;
                first.and_then(|first| self.claim((first.0, number, at), within, os))
            }
            Mapping::Unknown | Mapping::Tables => None,
        };
        self.allocated += 1;
        if let Some(frame) = own {
            loop {
                match os.fault_in(space, page, frame) {
                    Err(_) if self.steal(number, os) => {}
                    Err(error) => {
                        os.free_block(frame);
                        return Err(error);
                    }
                    done => return done,
                }
            }
        }
        loop {
            match os.fault(space, page, wishes) {
                Err(_) if self.steal(number, os) => {}
                done => return done,
            }
        }
    }

    /// Takes frames from the block that has most of them set aside and unused, those that are farthest from what it uses.
    /// Frames of the block `number` itself are taken last. Returns whether there were some.
    pub fn steal(&mut self, number: u32, os: &mut Os) -> bool {
        let richest = self.runs.iter_mut().filter(|(_, run)| run.left > 0);
        let Some(((first, ..), run)) = richest.max_by_key(|(key, run)| (key.1 != number, run.left, **key))
        else {
            return false;
        };
        let mut wanted = STOLEN.min(run.left);
        self.stolen += wanted;
        for at in (0..run.frames).rev() {
            let (word, bit) = ((at / 64) as usize, 1 << (at % 64));
            if run.taken[word] & bit == 0 {
                run.taken[word] |= bit;
                run.left -= 1;
                os.free_block(Frame(first + at));
                wanted -= 1;
                if wanted == 0 {
                    break;
                }
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::design::Library;
    use proptest::prelude::*;
    use std::collections::HashSet;
    use terrace_model::{AddressRange, TierId};
    use terrace_trace::{MapKind, Protection};

    /// 4096 frames, and where blocks begin.
    const FRAMES: u64 = 4096;
    const BLOCK: u64 = 1 << 32;

    fn os() -> Os {
        let mut design = Library::embedded().design("native-4k", None, &[]).unwrap().design;
        design.os.reserved = terrace_model::Bytes(0);
        let mut os = Os::new(&design.os, 4, &[("dram".to_owned(), Frame(0), FRAMES)]).unwrap();
        os.new_space().unwrap();
        os
    }

    fn free(os: &Os) -> u64 {
        os.buddy(TierId(0)).free_frames()
    }

    /// Runs of frames: their number, and which of them are taken.
    fn runs() -> impl Strategy<Value = Run> {
        (1..400u64, proptest::collection::vec(prop_oneof![Just(0), Just(u64::MAX), any::<u64>()], 7))
            .prop_map(|(frames, mut taken)| {
                taken.truncate(frames.div_ceil(64) as usize);
                let used = |at: &u64| taken[(at / 64) as usize] >> (at % 64) & 1 != 0;
                let left = frames - (0..frames).filter(used).count() as u64;
                Run { taken, frames, left }
            })
    }

    proptest! {
        #[test]
        fn free_runs_are_the_free_frames_side_by_side(run in runs()) {
            let mut frames = Vec::new();
            run.free_runs(|first, count| {
                assert!(count > 0 && frames.last().is_none_or(|last: &u64| last + 1 < first), "runs do not touch");
                frames.extend(first..first + count);
            });
            prop_assert_eq!(&frames, &run.free_frames().collect::<Vec<_>>());
            prop_assert_eq!(frames.len() as u64, run.left);
        }

        /// A run that is given back leaves the same free blocks as its frames one by one.
        #[test]
        fn frames_that_come_back_as_a_run_merge_as_one_by_one(run in runs()) {
            let blocks = |at_once: bool| {
                let mut os = os();
                let first = os.take_run(9, &[]).unwrap();
                // What was taken of the run stays; what lies behind it is free, too.
                let left: Vec<u64> = run.free_frames().chain(run.frames..512).collect();
                if at_once {
                    run.free_runs(|at, frames| os.free_run(first.plus(at), frames));
                    os.free_run(first.plus(run.frames), 512 - run.frames);
                } else {
                    left.iter().for_each(|at| os.free_run(first.plus(*at), 1));
                }
                os.buddy(TierId(0)).blocks().collect::<Vec<_>>()
            };
            prop_assert_eq!(blocks(true), blocks(false));
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Touch(usize, u64),
        Drop(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let touch = (0usize..5, 0u64..1500).prop_map(|(block, page)| Step::Touch(block, page));
        let step = prop_oneof![30 => touch, 1 => (0usize..5).prop_map(Step::Drop)];
        prop::collection::vec(step, 1..2500)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn no_frame_is_given_twice_and_all_come_back(steps in steps()) {
            let classes = [1, 2, 2, 3, 2].map(|class| SizeClass::ALL[class]);
            let mut os = os();
            let mut reservations = Reservations::default();
            let mut mappings: [Mapping; 5] = Default::default();
            let mut held: [HashMap<u64, u64>; 5] = Default::default();
            for (number, class) in (1..).zip(classes) {
                let range = AddressRange::new(number * BLOCK, class.bytes());
                os.map(SpaceId(0), range, MapKind::Anonymous, Protection::READ_WRITE).unwrap();
            }
            os.fault(SpaceId(0), VirtAddr(BLOCK), &[]).unwrap();
            os.advise(SpaceId(0), AddressRange::new(BLOCK, 4096), terrace_trace::Advice::DontNeed).unwrap();
            for step in steps {
                match step {
                    Step::Touch(block, page) => {
                        let class = classes[block];
                        let page = page % (class.bytes() >> 12);
                        if held[block].contains_key(&page) {
                            continue;
                        }
                        let place = (SpaceId(0), VirtAddr((block as u64 + 1) * BLOCK + (page << 12)));
                        let number = block as u32;
                        match reservations.allocate(number, class, &mut mappings[block], page << 12, place, &[], &mut os) {
                            Ok(fault) => {
                                held[block].insert(page, fault.frame.0);
                            }
                            Err(_) => {
                                // All of it is in use: what is left went to page tables.
                                let used: usize = held.iter().map(HashMap::len).sum();
                                prop_assert!(used as u64 + 64 > FRAMES, "{used} of {FRAMES}");
                            }
                        }
                    }
                    Step::Drop(block) => {
                        let range = AddressRange::new((block as u64 + 1) * BLOCK, classes[block].bytes());
                        os.advise(SpaceId(0), range, terrace_trace::Advice::DontNeed).unwrap();
                        reservations.give_up(block as u32, std::mem::take(&mut mappings[block]));
                        reservations.settle(&mut os);
                        held[block].clear();
                    }
                }
                let frames: Vec<u64> = held.iter().flat_map(HashMap::values).copied().collect();
                prop_assert_eq!(frames.len(), frames.iter().collect::<HashSet<_>>().len());
                prop_assert!(free(&os) + reservations.unused() + frames.len() as u64 <= FRAMES);
            }
            for (block, mapping) in (0..).zip(mappings) {
                reservations.give_up(block, mapping);
            }
            reservations.settle(&mut os);
            os.clear_space(SpaceId(0), false).unwrap();
            prop_assert_eq!((free(&os), reservations.unused()), (FRAMES - 1, 0), "all but the root of the page table");
        }
    }

    #[test]
    fn a_block_that_fits_lies_in_one_run_and_a_larger_one_in_pieces() {
        let (mut os, mut reservations) = (os(), Reservations::default());
        os.map(SpaceId(0), AddressRange::new(BLOCK, 1 << 30), MapKind::Anonymous, Protection::READ_WRITE)
            .unwrap();
        let class = SizeClass::ALL[2];
        let mut give = |mapping: &mut Mapping, number: u32, class: SizeClass, page: u64| {
            let place = (SpaceId(0), VirtAddr(BLOCK + u64::from(number) * (256 << 20) + (page << 12)));
            reservations.allocate(number, class, mapping, page << 12, place, &[], &mut os).unwrap().frame.0
        };
        let mut direct = Mapping::Unknown;
        let first = give(&mut direct, 0, class, 7);
        assert_eq!(direct, Mapping::Direct(Frame(first - 7)));
        assert_eq!(give(&mut direct, 0, class, 1023), first - 7 + 1023);
        // 128 MiB do not fit into 16: pieces of 4 MiB.
        let mut pieces = Mapping::Unknown;
        let one = give(&mut pieces, 1, SizeClass::ALL[3], 1024 + 3);
        let Mapping::Pieces(piece, firsts) = &pieces else { panic!("{pieces:?}") };
        assert_eq!((*piece, firsts.get(&1)), (class, Some(&Frame(one - 3))));
        assert_eq!(reservations.unused(), 1022 + 1023);
        reservations.give_up(0, direct);
        reservations.settle(&mut os);
        assert_eq!(reservations.unused(), 1023);
    }
}
