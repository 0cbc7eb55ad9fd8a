//! Where the lanes of a warp meet again: immediate post-dominators of the flow graph that was seen so far.
//!
//! Hardware lets the lanes of a warp that took different ways go on together at the first piece of code that all ways lead
//! through, the immediate post-dominator of the branch (Fung et al., Dynamic Warp Formation, MICRO 2007, section 2.2).
//! A compiler knows it from the program; the recorder knows the steps that work-items took.

use std::collections::{BTreeMap, BTreeSet};

/// The flow graph of a kernel. Pieces of straight code are named by numbers.
#[derive(Debug, Default)]
pub struct Flow {
    successors: BTreeMap<u32, BTreeSet<Option<u32>>>,
    /// Immediate post-dominators; empty where steps came since.
    met: BTreeMap<u32, Option<u32>>,
}

impl Flow {
    /// A work-item went from one piece to another, or to its end.
    pub fn step(&mut self, from: u32, to: Option<u32>) {
        if self.successors.entry(from).or_default().insert(to) {
            self.met.clear();
        }
    }

    /// The first piece that all ways from `piece` lead through; none where they meet at the end only.
    pub fn meeting(&mut self, piece: u32) -> Option<u32> {
        if self.met.is_empty() {
            self.met = self.post_dominators();
        }
        self.met.get(&piece).copied().flatten()
    }

    /// Sets of post-dominators by iteration: kernels have few pieces, and few steps are new.
    fn post_dominators(&self) -> BTreeMap<u32, Option<u32>> {
        let everything: BTreeSet<u32> = self.successors.keys().copied().collect();
        let mut of: BTreeMap<u32, BTreeSet<u32>> =
            everything.iter().map(|&piece| (piece, everything.clone())).collect();
        let mut changed = true;
        while changed {
            changed = false;
            for (&piece, successors) in self.successors.iter().rev() {
                let mut common: Option<BTreeSet<u32>> = None;
                for successor in successors {
                    // What has no successors yet ends there.
                    let beyond = match successor {
                        Some(next) => of.get(next).cloned().unwrap_or_else(|| BTreeSet::from([*next])),
                        None => BTreeSet::new(),
                    };
                    common = Some(match common {
                        Some(common) => &common & &beyond,
                        None => beyond,
                    });
                }
                let mut all = common.unwrap_or_default();
                all.insert(piece);
                if of[&piece] != all {
                    of.insert(piece, all);
                    changed = true;
                }
            }
        }
        // The nearest of them is post-dominated by all others.
        let nearest = |piece: u32| {
            let others = of[&piece].iter().copied().filter(move |&other| other != piece);
            others.max_by_key(|other| of.get(other).map_or(1, BTreeSet::len))
        };
        everything.iter().map(|&piece| (piece, nearest(piece))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(steps: &[(u32, u32)], ends: &[u32]) -> Flow {
        let mut flow = Flow::default();
        steps.iter().for_each(|&(from, to)| flow.step(from, Some(to)));
        ends.iter().for_each(|&from| flow.step(from, None));
        flow
    }

    #[test]
    fn a_branch_meets_behind_its_two_arms() {
        let mut flow = flow(&[(0, 1), (0, 2), (1, 3), (2, 3)], &[3]);
        assert_eq!([0, 1, 2, 3].map(|piece| flow.meeting(piece)), [Some(3), Some(3), Some(3), None]);
    }

    #[test]
    fn a_loop_meets_at_its_exit() {
        // 1 is the head, 2 the body with an arm 3, 4 the latch, 5 the exit.
        let mut flow = flow(&[(0, 1), (1, 2), (2, 3), (3, 4), (2, 4), (4, 1), (1, 5)], &[5]);
        assert_eq!(flow.meeting(1), Some(5));
        assert_eq!(flow.meeting(2), Some(4));
        assert_eq!(flow.meeting(4), Some(1));
    }

    #[test]
    fn an_early_return_meets_at_the_end() {
        let mut flow = flow(&[(0, 1), (1, 2)], &[2, 0]);
        assert_eq!(flow.meeting(0), None);
        flow.step(5, Some(0));
        assert_eq!(flow.meeting(5), Some(0), "what came later counts");
    }
}
