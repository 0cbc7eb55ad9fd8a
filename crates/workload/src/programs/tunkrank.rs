//! TunkRank: the influence of users by who follows them.

use crate::WorkloadInfo;
use crate::graph::{Graph, GraphParameters};
use crate::layout::Layout;
use crate::memory::{Backing, Contents, Memory};
use crate::parameters::*;
use crate::program::{Kernel, Program, Progress, share};

const INFO: WorkloadInfo = WorkloadInfo {
    name: "tunkrank",
    summary: "influence of users, from that of their followers, on a Kronecker graph (CloudSuite graph analytics)",
    description: "\
A user's influence is the sum over the followers of one plus a share of their own influence, divided by how many they \
follow. Users are visited in order; for each follower its number is read and then its record, influence and number of \
those followed, which lies anywhere. The sum is stored in the user's own record at once.

Stands for TunkRank in GraphLab, the graph analytics of CloudSuite (Ferdman et al., 2012), on the graph of Twitter. \
It differs: the graph is a Kronecker graph, as skewed, in which who follows is followed; users are visited in order \
instead of by a scheduler that skips those whose influence no longer changes; a run is bounded by edges, so that it can \
be a part of a pass over the graph. Threads take contiguous users and meet at no barrier, as in GraphLab's \
asynchronous engine.",
    parameters: declared::<Parameters>,
    exact: false,
};

#[derive(Clone, Debug, PartialEq, Parameters)]
pub(crate) struct Parameters {
    #[parameter(flatten)]
    graph: GraphParameters,
    /// Directed edges examined, all threads together.
    #[parameter(default = "12e6", range = 1..=LARGEST_COUNT, unit = "edges")]
    edges: u64,
    #[parameter(flatten)]
    start: Start,
    #[parameter(flatten)]
    settle: Settle,
    #[parameter(flatten)]
    threads: Threads,
    #[parameter(flatten)]
    seed: Seed,
}

/// A user's influence and how many the user follows.
const RECORD_BYTES: u64 = 16;
/// The probability that a follower passes a message on.
const PASSED_ON: f64 = 0.05;
/// Edges by which emission looks ahead for records.
const AHEAD: u64 = 16;

#[derive(Clone)]
pub(crate) struct TunkRank {
    graph: Graph,
    edges: u64,
    threads: u32,
    users: u64,
    layout: Layout,
}

impl Program for TunkRank {
    const INFO: &WorkloadInfo = &INFO;
    type Parameters = Parameters;
    type Thread = Influence;

    fn new(parameters: &Parameters) -> Result<TunkRank, Problem> {
        let threads = parameters.threads.count;
        let mut layout = Layout::new(parameters.start.init).settling(parameters.settle.instructions);
        let graph = Graph::new(&parameters.graph, parameters.seed.number, &mut layout)?;
        let users = layout.array("users", RECORD_BYTES * graph.vertices);
        let edges = at_least("edges", parameters.edges, threads.into())?;
        Ok(TunkRank { graph, edges, threads, users, layout })
    }

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn threads(&self) -> u32 {
        self.threads
    }

    fn thread(&self, index: u32) -> Influence {
        let own = share(self.graph.vertices, index, self.threads);
        let edges = share(self.edges, index, self.threads);
        Influence {
            program: self.clone(),
            at: Place::Pass,
            left: edges.end - edges.start,
            left_before: 0,
            user: own.start,
            own,
            edge: 0,
            end: 0,
            depends_on: 0,
            sum: 0.0,
        }
    }

    fn kernel_accesses(&self) -> u64 {
        // Two loads for each edge; for each user an offset and the sum. Where edges are drawn, how many users have how many
        // of them is known only afterwards.
        let users = self.edges as f64 * self.graph.vertices as f64 / self.graph.directed_edges as f64;
        2 * self.edges + (2.0 * users) as u64
    }

    fn needs_contents(&self) -> bool {
        !self.graph.implicit
    }

    fn prepare(&self, memory: &Backing) {
        self.graph.prepare(memory);
        for user in 0..self.graph.vertices {
            let following = self.graph.directed_edges / self.graph.vertices;
            memory.write(self.users + RECORD_BYTES * user + 8, following);
        }
    }
}

/// Where a thread stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Before a pass over its users.
    Pass,
    /// Before a user.
    User,
    /// Among a user's followers.
    Followers,
}

/// One thread's users.
pub(crate) struct Influence {
    program: TunkRank,
    own: std::ops::Range<u64>,
    at: Place,
    /// Edges not yet examined, now and when the pass began.
    left: u64,
    left_before: u64,
    user: u64,
    edge: u64,
    end: u64,
    depends_on: u8,
    sum: f64,
}

impl Influence {
    /// Adds what some followers contribute.
    #[inline(always)]
    fn gather<M: Memory>(&mut self, memory: &mut M, count: u64) {
        let TunkRank { users, ref graph, .. } = self.program;
        for edge in self.edge..self.edge + count {
            if let Some(coming) = graph.coming_end(memory, edge + AHEAD) {
                memory.prefetch(users.wrapping_add(RECORD_BYTES.wrapping_mul(coming)));
            }
            let follower = graph.end(memory, self.user, edge, self.depends_on, 1);
            self.depends_on = 0;
            // Multiply-add, divide, add, count and branch.
            let [influence, following]: [u64; 2] = memory.load(users + RECORD_BYTES * follower, 1, 5);
            self.sum += (1.0 + PASSED_ON * f64::from_bits(influence)) / following.max(1) as f64;
        }
        self.edge += count;
        self.left -= count;
    }
}

impl Kernel for Influence {
    #[inline]
    fn step<M: Memory>(&mut self, memory: &mut M) -> Progress {
        let TunkRank { users, ref graph, .. } = self.program;
        let graph = graph.clone();
        let mut budget = 64;
        while budget > 0 && self.left > 0 {
            match self.at {
                Place::Pass => {
                    // A thread none of whose users has a follower would never end.
                    if self.own.is_empty() || self.left == self.left_before {
                        return Progress::Done;
                    }
                    self.left_before = self.left;
                    self.user = self.own.start;
                    self.edge = graph.offset(memory, self.user, 0, 3);
                    self.at = Place::User;
                }
                Place::User => {
                    self.end = graph.offset(memory, self.user + 1, 0, 2);
                    self.depends_on = 1;
                    self.at = Place::Followers;
                }
                Place::Followers => {
                    let count = (self.end - self.edge).min(budget).min(self.left);
                    self.gather(memory, count);
                    budget -= count;
                    if self.edge == self.end {
                        memory.store(users + RECORD_BYTES * self.user, self.sum.to_bits(), 0, 3);
                        self.sum = 0.0;
                        self.user += 1;
                        budget = budget.saturating_sub(1);
                        self.at = if self.user == self.own.end { Place::Pass } else { Place::User };
                    }
                }
            }
        }
        if self.left == 0 { Progress::Done } else { Progress::Working }
    }
}
