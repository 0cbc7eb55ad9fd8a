//! Warps: work-items that run in lockstep.
//!
//! Oclgrind runs one work-item after the other, each up to the next barrier or its end. A GPU runs 32 neighbours of a group
//! together: one instruction for all of them whose ways agree. Here the ways of 32 work-items are laid beside each other.
//! Where they part, each way runs with its lanes alone, and all go on together where the ways meet ([`Flow::meeting`]).
//!
//! Left open by Oclgrind: which way runs first (here, that of the lower number, which is the one that was met first); how
//! many instructions a warp spends between two accesses (here, the most that one of its lanes did).

use super::flow::Flow;

/// Lanes of a warp, as all GPUs of one vendor have had.
pub const LANES: usize = 32;

/// A step of a work-item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The work-item comes to a piece of straight code.
    Enter(u32),
    /// The work-item accesses memory.
    Access(LaneAccess),
}

/// An access of one work-item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneAccess {
    /// The instruction.
    pub code: u32,
    /// Where.
    pub address: u64,
    /// How much.
    pub bytes: u8,
    /// A store.
    pub write: bool,
    /// The store of an atomic operation, which is one instruction with its load.
    pub atomic: bool,
    /// Instructions since the work-item's last access, this one not counted.
    pub instructions: u32,
}

/// The way of one work-item since the last barrier.
#[derive(Clone, Debug, Default)]
pub struct Lane {
    /// The piece of code that it was in.
    pub piece: Option<u32>,
    /// The work-item's steps.
    pub steps: Vec<Step>,
    at: usize,
}

impl Lane {
    fn next(&self) -> Option<Step> {
        self.steps.get(self.at).copied()
    }

    /// The piece that comes next; none where the way ends.
    fn next_piece(&self) -> Option<u32> {
        match self.next() {
            Some(Step::Enter(piece)) => Some(piece),
            _ => None,
        }
    }
}

/// Runs the lanes of one warp to the end of their steps. `emit` gets each access of the warp: the accesses of its lanes,
/// and the instructions since the last, this one included: none for the stores of atomics, which follow their loads.
pub fn run(lanes: &mut [Lane], flow: &mut Flow, emit: &mut dyn FnMut(&[LaneAccess], u32)) {
    for lane in lanes.iter_mut() {
        let mut piece = lane.piece;
        for step in &lane.steps {
            if let Step::Enter(next) = *step {
                if let Some(from) = piece {
                    flow.step(from, Some(next));
                }
                piece = Some(next);
            }
        }
        if let Some(from) = piece {
            flow.step(from, None);
        }
    }
    // Lanes come from different pieces only where barriers are not met by all alike; each of those runs alone.
    let mut starts: Vec<Option<u32>> = lanes.iter().map(|lane| lane.piece).collect();
    starts.sort_unstable();
    starts.dedup();
    for start in starts {
        let these: Vec<usize> =
            (0..lanes.len()).filter(|&at| lanes[at].piece == start && lanes[at].at == 0).collect();
        together(lanes, these, start, None, flow, emit);
    }
    for lane in lanes.iter_mut() {
        lane.steps.clear();
        lane.at = 0;
    }
}

/// Runs lanes that are in the same piece until all that go on have come to `until`. Every inner call has fewer lanes.
fn together(
    lanes: &mut [Lane],
    mut active: Vec<usize>,
    mut piece: Option<u32>,
    until: Option<u32>,
    flow: &mut Flow,
    emit: &mut dyn FnMut(&[LaneAccess], u32),
) {
    loop {
        straight(lanes, &active, emit);
        active.retain(|&at| lanes[at].next().is_some());
        let mut next: Vec<u32> = active.iter().filter_map(|&at| lanes[at].next_piece()).collect();
        next.sort_unstable();
        next.dedup();
        match (&next[..], piece) {
            ([], _) => return,
            (&[only], _) => {
                if Some(only) == until {
                    return;
                }
                enter(lanes, &active, only);
                piece = Some(only);
            }
            (ways, _) => {
                let meeting = piece.and_then(|piece| flow.meeting(piece));
                for &way in ways.iter().filter(|&&way| Some(way) != meeting) {
                    let takes = |&at: &usize| lanes[at].next_piece() == Some(way);
                    let these: Vec<usize> = active.iter().copied().filter(takes).collect();
                    // Where the inner ways do not lead to this meeting point, an outer one ends them.
                    if Some(way) == until {
                        continue;
                    }
                    enter(lanes, &these, way);
                    together(lanes, these, Some(way), meeting.or(until), flow, emit);
                }
                active.retain(|&at| lanes[at].next().is_some());
                // All are at the meeting point, at `until`, or at their end.
                let waits = active.iter().any(|&at| lanes[at].next_piece() != until);
                if !waits {
                    return;
                }
                let here: Vec<usize> =
                    active.iter().copied().filter(|&at| lanes[at].next_piece() != until).collect();
                let Some(meeting) = meeting else { return };
                debug_assert!(here.iter().all(|&at| lanes[at].next_piece() == Some(meeting)));
                enter(lanes, &here, meeting);
                active = here;
                piece = Some(meeting);
            }
        }
    }
}

fn enter(lanes: &mut [Lane], these: &[usize], piece: u32) {
    for &at in these {
        lanes[at].at += 1;
        lanes[at].piece = Some(piece);
    }
}

/// Runs the accesses of a piece of straight code.
fn straight(lanes: &mut [Lane], active: &[usize], emit: &mut dyn FnMut(&[LaneAccess], u32)) {
    let mut accesses: Vec<LaneAccess> = Vec::with_capacity(LANES);
    let mut loaded = None;
    loop {
        let heads = active.iter().filter_map(|&at| match lanes[at].next() {
            Some(Step::Access(access)) => Some(access.code),
            _ => None,
        });
        // The next instruction, which all lanes have in common, as code is straight; else the one that was met first.
        let Some(code) = heads.min() else { return };
        accesses.clear();
        let mut write = None;
        for &at in active {
            if let Some(Step::Access(access)) = lanes[at].next()
                && access.code == code
                && *write.get_or_insert(access.write) == access.write
            {
                accesses.push(access);
                lanes[at].at += 1;
            }
        }
        let instructions = accesses.iter().map(|access| access.instructions).max().unwrap_or(0);
        let second_half = loaded == Some(code) && accesses.iter().all(|access| access.atomic);
        emit(&accesses, if second_half { 0 } else { instructions.saturating_add(1) });
        loaded = (write == Some(false)).then_some(code);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn access(code: u32, address: u64) -> Step {
        let (write, atomic) = (false, false);
        Step::Access(LaneAccess { code, address, bytes: 4, write, atomic, instructions: 1 })
    }

    /// The warp's instructions: code and addresses.
    fn warp(ways: Vec<Vec<Step>>) -> Vec<(u32, Vec<u64>)> {
        let mut lanes: Vec<Lane> = ways.into_iter().map(|steps| Lane { steps, ..Lane::default() }).collect();
        let mut found = Vec::new();
        run(&mut lanes, &mut Flow::default(), &mut |accesses, _| {
            found.push((accesses[0].code, accesses.iter().map(|access| access.address).collect()));
        });
        found
    }

    #[test]
    fn lanes_that_agree_run_as_one() {
        let way = |lane: u64| vec![Step::Enter(0), access(1, lane), access(2, 100 + lane)];
        assert_eq!(warp(vec![way(0), way(1)]), [(1, vec![0, 1]), (2, vec![100, 101])]);
    }

    #[test]
    fn an_atomic_is_one_instruction_also_where_some_lanes_only_load() {
        let atomic = |write| {
            let instructions = if write { 0 } else { 2 };
            Step::Access(LaneAccess { code: 1, address: 0, bytes: 4, write, atomic: write, instructions })
        };
        let store = Step::Access(LaneAccess {
            code: 2,
            address: 8,
            bytes: 4,
            write: true,
            atomic: false,
            instructions: 0,
        });
        let begin = Step::Enter(0);
        let ways = [vec![begin, atomic(false), atomic(true), store], vec![begin, atomic(false), store]];
        let mut lanes = ways.map(|steps| Lane { steps, ..Lane::default() });
        let mut found = Vec::new();
        run(&mut lanes, &mut Flow::default(), &mut |accesses, instructions| {
            found.push((accesses[0].write, accesses.len(), instructions));
        });
        assert_eq!(found, [(false, 2, 3), (true, 1, 0), (true, 2, 1)]);
    }

    #[test]
    fn two_arms_run_apart_and_what_follows_runs_together() {
        let arm = |lane: u64, arm: u32| {
            vec![
                Step::Enter(0),
                access(1, lane),
                Step::Enter(arm),
                access(arm, lane),
                Step::Enter(30),
                access(31, lane),
            ]
        };
        let found = warp(vec![arm(0, 10), arm(1, 20), arm(2, 10)]);
        let expected = [(1, vec![0, 1, 2]), (10, vec![0, 2]), (20, vec![1]), (31, vec![0, 1, 2])];
        assert_eq!(found, expected);
    }

    #[test]
    fn loops_of_different_length_stay_in_step_and_meet_behind() {
        // Head 1, body 2 with an arm 5 in some rounds, exit 9.
        let way = |lane: u64, rounds: u64| {
            let mut steps = vec![Step::Enter(1)];
            for round in 0..rounds {
                steps.extend([Step::Enter(2), access(3, 10 * round + lane)]);
                if (round + lane).is_multiple_of(2) {
                    steps.extend([Step::Enter(5), access(6, 10 * round + lane)]);
                }
                steps.extend([Step::Enter(7), Step::Enter(1)]);
            }
            steps.extend([Step::Enter(9), access(10, lane)]);
            steps
        };
        let found = warp(vec![way(0, 1), way(1, 3), way(2, 2)]);
        let expected = [
            (3, vec![0, 1, 2]),
            (6, vec![0, 2]),
            (3, vec![11, 12]),
            (6, vec![11]),
            (3, vec![21]),
            (10, vec![0, 1, 2]),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn an_early_return_leaves_the_others() {
        let long = |lane: u64| vec![Step::Enter(0), Step::Enter(1), access(2, lane)];
        assert_eq!(warp(vec![long(0), vec![Step::Enter(0)], long(2)]), [(2, vec![0, 2])]);
    }

    #[test]
    fn a_way_goes_on_after_a_barrier() {
        let mut lanes = vec![Lane::default(), Lane::default()];
        let mut flow = Flow::default();
        let mut found = Vec::new();
        for round in 0..2u32 {
            for (at, lane) in lanes.iter_mut().enumerate() {
                if round == 0 {
                    lane.steps.push(Step::Enter(0));
                }
                lane.steps.push(access(round, at as u64));
            }
            run(&mut lanes, &mut flow, &mut |accesses, _| found.push((accesses[0].code, accesses.len())));
        }
        assert_eq!(found, [(0, 2), (1, 2)]);
    }
}

#[cfg(test)]
mod properties {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever ways lanes take, no access is lost or made, and each lane's keep their order.
        #[test]
        fn every_access_comes_once_and_in_order(
            ways in prop::collection::vec(prop::collection::vec((0u32..6, prop::bool::ANY), 0..40), 1..9),
        ) {
            let mut wanted = Vec::new();
            let mut lanes = Vec::new();
            for (at, way) in ways.iter().enumerate() {
                let mut lane = Lane::default();
                lane.steps.push(Step::Enter(0));
                let mut own = Vec::new();
                for (index, &(piece, accesses)) in way.iter().enumerate() {
                    lane.steps.push(Step::Enter(piece));
                    if accesses {
                        let address = (at * 1000 + index) as u64;
                        own.push(address);
                        lane.steps.push(tests::access(10 + piece, address));
                    }
                }
                wanted.push(own);
                lanes.push(lane);
            }
            let mut found = vec![Vec::new(); ways.len()];
            run(&mut lanes, &mut Flow::default(), &mut |accesses, _| {
                let code = accesses[0].code;
                for access in accesses {
                    assert_eq!(access.code, code);
                    found[access.address as usize / 1000].push(access.address);
                }
            });
            prop_assert_eq!(found, wanted);
        }
    }
}
