//! Services: what a request does is planned piece by piece, then issued a few accesses at a time.

use crate::emitter::Emitter;
use crate::layout::map;
use crate::memory::{Memory, Nothing, follow};
use crate::parameters::{Choice, LARGEST_COUNT, Parameters, Problem, within};
use crate::program::{Kernel, Program, Progress, share};
use terrace_model::AddressRange;
use terrace_trace::{Event, MapKind, MarkKind};

/// Marks the beginning or the end of a request, or how many clients there are.
#[inline(always)]
fn mark<M: Memory>(memory: &mut M, kind: MarkKind, value: u64) {
    if M::WANTS_EVENTS {
        memory.event(Event::Mark { kind, name: String::new(), value });
    }
}

/// Longest time between two requests: minutes.
const LONGEST_THINK: u64 = 1_000_000_000_000;

/// Payload moves in vector registers of 32 bytes (AVX2).
pub(crate) const VECTOR_BYTES: u64 = 32;

/// Accesses issued in one step.
const STEP: u64 = 200;

/// Requests to a store of keys and values.
#[derive(Clone, Debug, PartialEq, Parameters)]
pub(crate) struct StoreRequests {
    /// Different keys.
    #[parameter(default = "400e3", range = 1..=(1 << 36), unit = "keys")]
    pub keys: u64,
    /// Requests, all threads together.
    #[parameter(default = "1e6", range = 1..=LARGEST_COUNT, unit = "requests")]
    pub requests: u64,
    /// Share of GET among the requests.
    #[parameter(default = 0.95, range = 0.0..=1.0, unit = "share")]
    pub reads: f64,
    /// Zipf exponent of the keys' popularity.
    #[parameter(default = 0.99, range = 0.01..=4.0, unit = "exponent")]
    pub zipf: f64,
    /// Share of the keys stored beforehand.
    #[parameter(default = 0.5, range = 0.0..=1.0, unit = "share")]
    pub preload: f64,
}

/// A service: its program's threads answer requests.
pub(crate) trait Service: Program {
    /// What a thread keeps from one request to the next.
    type State: Send;

    fn state(&self, thread: u32) -> Self::State;
    /// Plans one request. Growth is announced to `memory`; accesses are left to the plan.
    fn plan<M: Memory>(&self, state: &mut Self::State, plan: &mut Plan, memory: &mut M);
}

#[derive(Clone, Copy)]
enum Kind {
    /// A load that depends on none before.
    Enter,
    /// A load from where the pointer before it leads.
    Follow,
    /// Payload, where the pointer before it leads.
    Read,
    Write,
    /// What follows depends on nothing before.
    Independent,
    Barrier,
}

#[derive(Clone, Copy)]
struct Piece {
    kind: Kind,
    addr: u64,
    accesses: u64,
    instructions: u16,
}

/// The accesses of a request.
#[derive(Default)]
pub(crate) struct Plan {
    pieces: Vec<Piece>,
    next: usize,
    /// Accesses of the next piece already issued.
    done: u64,
    /// What the last pointer held.
    distance: u64,
    /// Loads since that pointer, itself included; 0 where there is none.
    behind: u64,
}

impl Plan {
    fn push(&mut self, kind: Kind, addr: u64, accesses: u64, instructions: u16) {
        self.pieces.push(Piece { kind, addr, accesses, instructions });
    }

    /// Loads the first pointer of a chain.
    pub fn enter(&mut self, addr: u64, instructions: u16) {
        self.push(Kind::Enter, addr, 1, instructions);
    }

    /// Loads a pointer from where the one before leads.
    pub fn follow(&mut self, addr: u64, instructions: u16) {
        self.push(Kind::Follow, addr, 1, instructions);
    }

    /// Reads `bytes` of payload, rounded up to vectors; each costs two instructions.
    pub fn read(&mut self, addr: u64, bytes: u64) {
        self.push(Kind::Read, addr, bytes.div_ceil(VECTOR_BYTES), 2);
    }

    /// Reads payload with more instructions for each vector.
    pub fn read_costing(&mut self, addr: u64, bytes: u64, instructions: u16) {
        self.push(Kind::Read, addr, bytes.div_ceil(VECTOR_BYTES), instructions);
    }

    /// Writes `bytes` of payload, rounded up to vectors.
    pub fn write(&mut self, addr: u64, bytes: u64) {
        self.push(Kind::Write, addr, bytes.div_ceil(VECTOR_BYTES), 2);
    }

    /// What follows depends on no pointer.
    pub fn independent(&mut self) {
        self.push(Kind::Independent, 0, 0, 0);
    }

    /// All threads come here before any goes on. The last piece of a request.
    pub fn barrier(&mut self) {
        self.push(Kind::Barrier, 0, 0, 0);
    }

    fn begin(&mut self) {
        self.pieces.clear();
        (self.next, self.done, self.distance, self.behind) = (0, 0, 0, 0);
    }

    fn accesses(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.accesses).sum()
    }

    /// Distance to the pointer that the next access depends on. The oldest that can be named are long done.
    #[inline(always)]
    fn depends_on(&self) -> u8 {
        u8::try_from(self.behind).unwrap_or(0)
    }

    /// Issues a step's worth; whether that ended at a barrier.
    #[inline(always)]
    fn issue<M: Memory>(&mut self, memory: &mut M) -> bool {
        let mut room = STEP;
        while let Some(piece) = self.pieces.get(self.next).copied() {
            let addr = follow(piece.addr, self.distance);
            match piece.kind {
                Kind::Enter | Kind::Follow => {
                    if room == 0 {
                        return false;
                    }
                    room -= 1;
                    let (addr, depends_on) = match piece.kind {
                        Kind::Enter => (piece.addr, 0),
                        _ => (addr, self.depends_on()),
                    };
                    self.distance = memory.load(addr, depends_on, piece.instructions);
                    self.behind = 1;
                }
                Kind::Read | Kind::Write => {
                    let until = piece.accesses.min(self.done + room);
                    for vector in self.done..until {
                        let (addr, depends_on) = (addr + vector * VECTOR_BYTES, self.depends_on());
                        if matches!(piece.kind, Kind::Read) {
                            memory.load_payload::<[u64; 4]>(addr, depends_on, piece.instructions);
                            self.behind += u64::from(self.behind > 0);
                        } else {
                            memory.store_payload(addr, [vector; 4], depends_on, piece.instructions);
                        }
                    }
                    room -= until - self.done;
                    self.done = until;
                    if until < piece.accesses {
                        return false;
                    }
                    self.done = 0;
                }
                Kind::Independent => (self.distance, self.behind) = (0, 0),
                Kind::Barrier => {
                    self.next += 1;
                    return true;
                }
            }
            self.next += 1;
        }
        false
    }

    fn is_issued(&self) -> bool {
        self.next == self.pieces.len()
    }
}

/// One thread of a service.
pub(crate) struct Client<S: Service> {
    service: S,
    state: S::State,
    plan: Plan,
    left: u64,
    /// Requests left when the run begins; none where it begins at once.
    at_run: Option<u64>,
    /// The next request is the first.
    first: bool,
    pace: Pace,
    /// A request was begun and is not marked as ended.
    open: bool,
}

/// The time between two requests.
#[derive(Clone, Copy, Debug, PartialEq, Parameters)]
pub(crate) struct Think {
    /// Instructions between two requests of a thread, once it runs: parsing, network, waiting. They set the rate of
    /// accesses.
    #[parameter(name = "think", default = "20e3", range = 0..=LONGEST_THINK, unit = "instructions")]
    pub instructions: u64,
}

/// Requests in the steady state, of services.
#[derive(Clone, Copy, Debug, PartialEq, Parameters)]
pub(crate) struct WarmupRequests {
    /// Requests before the run, all threads together: they are answered like the others and not counted.
    #[parameter(name = "warmup", default = 0, range = 0..=LARGEST_COUNT, unit = "requests")]
    pub requests: u64,
}

impl WarmupRequests {
    /// Errors: no request is left for the run of each thread.
    pub fn of(self, requests: u64, threads: u32) -> Result<WarmupRequests, Problem> {
        within("warmup", self.requests, 0..=requests.saturating_sub(threads.into()))?;
        Ok(self)
    }

    /// Requests of a thread before the run; `None` where nobody has any.
    pub fn share(self, thread: u32, threads: u32) -> Option<u64> {
        let own = share(self.requests, thread, threads);
        (self.requests > 0).then_some(own.end - own.start)
    }
}

/// How a service's requests follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Parameters)]
pub(crate) struct Pace {
    #[parameter(flatten)]
    pub think: Think,
    /// Mark where each request begins and ends, so that a simulation reports the distribution of their latencies.
    pub timed: Timed,
    /// Clients of each thread, each with one request under way, which wait in turn; 0 where nobody waits. Requests are
    /// then marked, and one takes from when its client sends it, right after the answer to the one before, until its own
    /// answer. `think` is the thread's work on it.
    #[parameter(default = 0, range = 0..=(1 << 20), unit = "clients")]
    pub clients: u64,
}

/// What is marked as a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Choice)]
pub(crate) enum Timed {
    /// Nothing is marked.
    #[default]
    No,
    /// The accesses: `think` is the wait for the request.
    #[choice("yes")]
    Accesses,
    /// `think` and the accesses: where the server always has a next request, `think` is its work on this one.
    Whole,
}

impl Pace {
    /// Before the first request of a thread.
    #[inline(always)]
    pub fn open<M: Memory>(&self, memory: &mut M) {
        if self.clients > 0 {
            mark(memory, MarkKind::Clients, self.clients);
        }
    }

    /// Before a request.
    #[inline(always)]
    pub fn begin<M: Memory>(&self, memory: &mut M) {
        let whole = self.timed == Timed::Whole || self.clients > 0;
        if whole {
            mark(memory, MarkKind::RequestBegin, 0);
        }
        if self.think.instructions > 0 {
            memory.compute(self.think.instructions);
        }
        if self.timed == Timed::Accesses && !whole {
            mark(memory, MarkKind::RequestBegin, 0);
        }
    }

    /// After its last access.
    #[inline(always)]
    pub fn end<M: Memory>(&self, memory: &mut M) {
        if self.timed != Timed::No || self.clients > 0 {
            mark(memory, MarkKind::RequestEnd, 0);
        }
    }
}

impl<S: Service> Client<S> {
    /// A client of one thread. `warmup` of its requests are made before the run, where the program has any there.
    pub fn new(service: &S, thread: u32, requests: u64, warmup: Option<u64>, pace: Pace) -> Client<S> {
        Client {
            service: service.clone(),
            state: service.state(thread),
            plan: Plan::default(),
            left: requests,
            at_run: warmup.map(|before| requests - before),
            first: true,
            pace,
            open: false,
        }
    }
}

impl<S: Service> Kernel for Client<S> {
    #[inline]
    fn step<M: Memory>(&mut self, memory: &mut M) -> Progress {
        if self.plan.is_issued() {
            if std::mem::replace(&mut self.open, false) {
                self.pace.end(memory);
            }
            if self.at_run == Some(self.left) {
                self.at_run = None;
                return Progress::Run;
            }
            if self.left == 0 {
                return Progress::Done;
            }
            if std::mem::replace(&mut self.first, false) {
                self.pace.open(memory);
            }
            (self.left, self.open) = (self.left - 1, true);
            self.pace.begin(memory);
            self.plan.begin();
            self.service.plan(&mut self.state, &mut self.plan, memory);
        }
        if self.plan.issue(memory) { Progress::Barrier } else { Progress::Working }
    }
}

/// Accesses to expect of a number of requests: those of the first few of one thread, extrapolated.
pub(crate) fn expected<S: Service>(service: &S, requests: u64) -> u64 {
    // Not more than the thread will plan: what it keeps may have room for those only.
    let sample = 512.min(requests / u64::from(service.threads())).max(1);
    let (mut state, mut plan, mut memory) = (service.state(0), Plan::default(), Emitter::new(Nothing));
    let mut accesses = 0;
    for _ in 0..sample {
        plan.begin();
        service.plan(&mut state, &mut plan, &mut memory);
        accesses += plan.accesses();
    }
    (accesses as f64 / sample as f64 * requests as f64) as u64
}

/// Memory that fills from its beginning and is mapped an extent at a time, each an object.
#[derive(Clone)]
pub(crate) struct Extents {
    next: u64,
    mapped: u64,
    limit: u64,
    extent: u64,
    site: u32,
    object: u64,
}

impl Extents {
    /// `which` tells the extents of a thread apart.
    pub fn new(room: AddressRange, extent: u64, site: u32, thread: u32, which: u64) -> Extents {
        let object = (u64::from(thread) + 1) << 40 | which << 32;
        Extents { next: room.start.0, mapped: room.start.0, limit: room.end().0, extent, site, object }
    }

    /// Room to reserve for `bytes`: whole extents.
    pub fn room(bytes: u64, extent: u64) -> u64 {
        bytes.next_multiple_of(extent) + extent
    }

    /// The next `bytes`. Panics when the reserved room is too small: the program's layout computed it wrongly.
    pub fn allocate<M: Memory>(&mut self, memory: &mut M, bytes: u64) -> u64 {
        let start = self.next;
        self.next += bytes;
        while self.next > self.mapped {
            let range = AddressRange::new(self.mapped, self.extent);
            assert!(range.end().0 <= self.limit, "an extent lies beyond its reserved room");
            map(memory, range, MapKind::Anonymous);
            self.object += 1;
            if M::WANTS_EVENTS {
                memory.event(Event::Alloc { object: self.object, site: self.site, range });
            }
            self.mapped += self.extent;
        }
        start
    }
}
