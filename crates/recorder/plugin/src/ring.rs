//! A thread's way into the shared memory: the slot it owns, the chunk it fills, what happens when that is full.
//!
//! Only the functions here write slots. The callbacks in `access` append records between cursor and limit and come
//! here when there is no room: because the chunk is full, because an event of another thread must be noted first, or
//! because the thread has no slot yet.

use crate::{recorder, removal};
use std::cell::UnsafeCell;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, fence};
use terrace_protocol::control::{self, Operation};
use terrace_protocol::layout::{
    CHUNK_BYTES, CHUNKS, LANES, Lane, PROCESSES, QUEUE, RECORD_BYTES, SLOTS, Shared, Slot, tag, untag,
};

/// Longest payload of a control record in words; a record must fit one chunk.
const MAX_PAYLOAD: usize = 600;

/// How long a thread waits for room before it looks whether the recorder still lives, in nanoseconds.
const WAIT_NANOS: i64 = 20_000_000;

/// How long a thread that waits for room sleeps before it asks to be woken, in nanoseconds.
const SLEEPS_NS: [i64; 6] = [50_000, 50_000, 100_000, 200_000, 400_000, 800_000];

/// The lanes of a process that is not recorded, or no longer.
static UNRECORDED: [Lane; LANES] = [const {
    Lane {
        cursor: AtomicU64::new(0),
        limit: AtomicU64::new(0),
        pending: AtomicU64::new(0),
        cut: AtomicU32::new(0),
    }
}; LANES];

/// Where discarded records go, over and over.
#[repr(C, align(64))]
struct Scratch(UnsafeCell<[u64; CHUNK_BYTES / 8]>);
// SAFETY: written without order by all discarding threads and never read.
unsafe impl Sync for Scratch {}
static SCRATCH: Scratch = Scratch(UnsafeCell::new([0; CHUNK_BYTES / 8]));

/// The lanes of this process's vCPUs.
static OWN_LANES: AtomicPtr<Lane> = AtomicPtr::new((&raw const UNRECORDED).cast_mut().cast());
/// The slot of each vCPU, or one of [`EMPTY`] and [`DISCARDED`].
static TABLE: [AtomicPtr<Slot>; LANES] = [const { AtomicPtr::new(EMPTY) }; LANES];
/// In [`TABLE`]: a thread that has no slot yet.
const EMPTY: *mut Slot = std::ptr::null_mut();
/// In [`TABLE`]: a thread that is no longer recorded.
const DISCARDED: *mut Slot = std::ptr::without_provenance_mut(align_of::<Slot>());
/// Highest vCPU number seen, plus 1.
static VCPUS: AtomicUsize = AtomicUsize::new(0);
/// This process's number in the shared table.
static PROCESS: AtomicUsize = AtomicUsize::new(0);
/// The process family: whose code this process runs.
static FAMILY: AtomicUsize = AtomicUsize::new(0);
/// Whether records are thrown away from now on.
static DISCARDING: AtomicBool = AtomicBool::new(false);
/// Chunks that are taken in turn before others are: 4 MiB, more than a core's own caches hold, so that what the recorder has
/// read has left them when it is written again, and few enough to stay in the last level.
const TURN: usize = 64;
/// Where the next turn begins.
static NEXT: AtomicUsize = AtomicUsize::new(0);
/// Tells two uses of a chunk apart.
static GENERATION: AtomicU64 = AtomicU64::new(0);
static SHARED: OnceLock<Shared> = OnceLock::new();

/// The mapping. Only called after [`attach`].
pub fn shared() -> Shared {
    *SHARED.get().expect("attached at installation")
}

/// This process's number in the shared table.
pub fn process() -> usize {
    PROCESS.load(Relaxed)
}

/// The number of the process whose translations this process runs.
pub fn family() -> usize {
    FAMILY.load(Relaxed)
}

/// Sets up the ring of a freshly started QEMU.
pub fn attach(mapping: Shared) {
    let _ = SHARED.set(mapping);
    match claim_process(mapping, 0, None) {
        Some(_) => {}
        None => discard_all(),
    }
}

/// The lane of the first vCPU.
#[inline(always)]
pub fn first_lane() -> &'static Lane {
    // SAFETY: as in `lane`.
    unsafe { &*OWN_LANES.load(Relaxed) }
}

/// The lane of a vCPU, to be used without further look.
#[inline(always)]
pub fn lane(vcpu: u32) -> &'static Lane {
    // SAFETY: QEMU announces every vCPU first, and `announce` refuses numbers beyond the lanes; both the process's in the
    // mapping and the static ones live as long as the process.
    unsafe { &*OWN_LANES.load(Relaxed).add(vcpu as usize) }
}

/// The slot of a vCPU's thread, if it is recorded.
fn slot(vcpu: u32) -> Option<&'static Slot> {
    recorded(TABLE[vcpu as usize].load(SeqCst))
}

/// What stands in [`TABLE`], if it is a slot.
fn recorded(place: *mut Slot) -> Option<&'static Slot> {
    // SAFETY: everything else in the table is a slot in the mapping, which lives as long as the process.
    (place != EMPTY && place != DISCARDED).then(|| unsafe { &*place })
}

/// A vCPU is about to run.
pub fn announce(vcpu: u32) {
    if vcpu as usize >= LANES {
        eprintln!("terrace: more than {LANES} threads at the same time cannot be recorded");
        std::process::abort();
    }
    removal::thread_begins(vcpu);
    if TABLE[vcpu as usize].load(SeqCst) == EMPTY {
        clear(lane(vcpu));
    }
    VCPUS.fetch_max(vcpu as usize + 1, SeqCst);
}

/// Whatever a lane's last user left: the next access takes the slow path.
fn clear(lane: &Lane) {
    for word in [&lane.limit, &lane.cursor, &lane.pending] {
        word.store(0, Relaxed);
    }
    lane.cut.store(0, Relaxed);
}

/// The thread of a vCPU has ended; its number may be used again.
pub fn retire(vcpu: u32) {
    removal::thread_ends(vcpu);
    let slot = slot(vcpu);
    TABLE[vcpu as usize].store(EMPTY, SeqCst);
    let lane = lane(vcpu);
    let Some(slot) = slot else { return clear(lane) };
    let state = slot.state.load(Relaxed);
    hand_over(slot, lane);
    // The lane's next user writes a cursor that is not this slot's.
    slot.current.store(0, SeqCst);
    clear(lane);
    slot.state.store(state & !0xff | 3, Release);
    wake_recorder();
}

/// The child of a fork: nothing that the parent's threads own belongs to it.
pub fn after_fork(vcpu: u32) {
    removal::after_fork(vcpu);
    let parent_serial = slot(vcpu).map_or(0, |parent| parent.serial.load(Relaxed));
    for entry in &TABLE[..VCPUS.load(Relaxed)] {
        entry.store(EMPTY, Relaxed);
    }
    if DISCARDING.load(Relaxed) || claim_process(shared(), parent_serial, Some(family())).is_none() {
        discard_all();
    }
    shared().header().forks.fetch_sub(1, SeqCst);
    reserve(vcpu, 1);
}

/// Whether records are thrown away.
pub fn is_discarding() -> bool {
    DISCARDING.load(Relaxed)
}

/// Throws away all records of this process from now on.
pub fn discard_all() {
    DISCARDING.store(true, SeqCst);
    for entry in &TABLE {
        entry.store(DISCARDED, SeqCst);
    }
    OWN_LANES.store((&raw const UNRECORDED).cast_mut().cast(), SeqCst);
}

/// The vCPU's lane with room for `records` records.
#[cold]
#[inline(never)]
pub fn reserve(vcpu: u32, records: usize) -> &'static Lane {
    let mut note_cut = false;
    loop {
        let place = TABLE[vcpu as usize].load(SeqCst);
        let lane = lane(vcpu);
        let Some(slot) = recorded(place) else {
            if place == EMPTY {
                claim_slot(vcpu);
                continue;
            }
            let start = SCRATCH.0.get() as u64;
            lane.cursor.store(start, Relaxed);
            lane.limit.store(start + CHUNK_BYTES as u64, Relaxed);
            return lane;
        };
        let cursor = lane.cursor.load(Relaxed);
        let end = chunk_end(slot);
        let wanted = records + if note_cut { control::records(1) } else { 0 };
        if cursor == 0 || cursor + (wanted * RECORD_BYTES) as u64 > end {
            hand_over(slot, lane);
            if !take_chunk(slot, lane) {
                discard_all();
            }
            continue;
        }
        lane.limit.store(end, SeqCst);
        // An event elsewhere either sees this limit and lowers it, or left its mark before.
        note_cut |= lane.cut.swap(0, SeqCst) != 0;
        if !note_cut {
            return lane;
        }
        if cursor + ((records + control::records(1)) * RECORD_BYTES) as u64 <= end {
            let sequence = shared().header().sequence.0.load(SeqCst);
            append(lane, Operation::After, &[sequence], &[]);
            return lane;
        }
    }
}

/// Writes a control record. `name` follows the words and is cut to what fits.
pub fn emit(vcpu: u32, operation: Operation, words: &[u64], name: &[u8]) {
    let name = &name[..name.len().min((MAX_PAYLOAD - words.len()) * 8)];
    let payload = words.len() + name_words(name);
    let lane = reserve(vcpu, control::records(payload));
    append(lane, operation, words, name);
}

/// Writes a control record whose first word is the next global sequence number, and has every other thread note it
/// before its next access.
pub fn emit_sequenced(vcpu: u32, operation: Operation, words: &[u64], name: &[u8]) {
    let own = emit_numbered(vcpu, operation, words, name);
    for (vcpu, place) in TABLE[..VCPUS.load(SeqCst)].iter().enumerate() {
        let other = lane(vcpu as u32);
        if recorded(place.load(SeqCst)).is_some() && !std::ptr::eq(other, own) {
            other.cut.store(1, SeqCst);
            other.limit.store(0, SeqCst);
        }
    }
}

/// Writes a control record whose first word is the next global sequence number.
pub fn emit_numbered(vcpu: u32, operation: Operation, words: &[u64], name: &[u8]) -> &'static Lane {
    let mut all = [0; 8];
    all[1..=words.len()].copy_from_slice(words);
    let words = &mut all[..=words.len()];
    let name = &name[..name.len().min((MAX_PAYLOAD - words.len()) * 8)];
    let own = reserve(vcpu, control::records(words.len() + name_words(name)));
    let slot = slot(vcpu);
    let claim = |claiming| slot.iter().for_each(|slot| slot.claiming.store(claiming, SeqCst));
    claim(1);
    words[0] = shared().header().sequence.0.fetch_add(1, SeqCst) + 1;
    append(own, operation, words, name);
    claim(0);
    own
}

/// Hands over what the thread has recorded so far: it is about to sleep or to die.
pub fn flush(vcpu: u32) {
    if let Some(slot) = slot(vcpu) {
        hand_over(slot, lane(vcpu));
        wake_recorder();
    }
}

fn name_words(name: &[u8]) -> usize {
    if name.is_empty() { 0 } else { 1 + name.len().div_ceil(8) }
}

/// Appends a control record; the caller has reserved the room. A name is its length in a word, then its bytes.
fn append(lane: &Lane, operation: Operation, words: &[u64], name: &[u8]) {
    let payload = words.len() + name_words(name);
    let cursor = lane.cursor.load(Relaxed);
    let mut place = cursor as *mut u64;
    let mut write = |word: u64| {
        // SAFETY: between cursor and limit of the thread's own chunk, or of the scratch chunk, which is as large.
        unsafe {
            place.write(word);
            place = place.add(1);
        }
    };
    write(control::head(operation, payload));
    write(0);
    words.iter().for_each(|&word| write(word));
    if !name.is_empty() {
        write(name.len() as u64);
        for bytes in name.chunks(8) {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            write(u64::from_le_bytes(word));
        }
    }
    lane.cursor.store(cursor + (control::records(payload) * RECORD_BYTES) as u64, Release);
}

fn chunk_end(slot: &Slot) -> u64 {
    let current = slot.current.load(Relaxed) as u32;
    if current == 0 { 0 } else { shared().data(untag(current)) as u64 + CHUNK_BYTES as u64 }
}

/// Puts the current chunk into the queue, if it holds anything.
fn hand_over(slot: &Slot, lane: &Lane) {
    let current = slot.current.load(Relaxed) as u32;
    if current == 0 {
        return;
    }
    let chunk = untag(current);
    let start = shared().data(chunk) as u64;
    // A lane that was taken away, because recording is over, has another cursor.
    let bytes = lane.cursor.load(Relaxed).checked_sub(start).filter(|&bytes| bytes <= CHUNK_BYTES as u64);
    let records = bytes.unwrap_or(0) / RECORD_BYTES as u64;
    if records == 0 {
        return;
    }
    let tail = slot.tail.load(Relaxed);
    let waiting = || tail.wrapping_sub(slot.head.load(Acquire));
    // Having waited once, it waits until there is much to do before it must wait again.
    if waiting() >= QUEUE as u32 && !wait_until(|| waiting() <= QUEUE as u32 * 3 / 4) {
        discard_all();
        return;
    }
    let state = shared().chunk(chunk);
    state.records.store(records as u32, Relaxed);
    let ticket = shared().header().ticket.0.fetch_add(1, Relaxed);
    state.ticket.store(ticket, Relaxed);
    slot.queue[tail as usize % QUEUE].store(current, Relaxed);
    slot.tail.store(tail.wrapping_add(1), Release);
    slot.current.store(0, Release);
    lane.cursor.store(0, Relaxed);
    lane.limit.store(0, Relaxed);
    wake_recorder_after(ticket + 1);
}

/// Takes a free chunk, in turn: what the recorder has read lately lies in its processor's caches, from which each line that
/// is written has to be taken away first.
fn take_chunk(slot: &Slot, lane: &Lane) -> bool {
    let owner = slot_number(slot) as u32 + 1;
    let mut taken = None;
    let found = wait_until(|| {
        let first = NEXT.fetch_add(1, Relaxed);
        let mut in_turn = (0..TURN).map(|i| (first + i) % TURN).chain(TURN..CHUNKS);
        taken = in_turn.find(|&chunk| {
            let state = &shared().chunk(chunk).owner;
            state.load(Relaxed) == 0 && state.compare_exchange(0, owner, SeqCst, Relaxed).is_ok()
        });
        taken.is_some()
    });
    let Some(chunk) = taken.filter(|_| found) else {
        return false;
    };
    let generation = GENERATION.fetch_add(1, Relaxed) as u32;
    slot.current.store(u64::from(tag(chunk, generation)), Release);
    lane.cursor.store(shared().data(chunk) as u64, Release);
    true
}

fn slot_number(slot: &Slot) -> usize {
    (slot as *const Slot as usize - shared().slot(0) as *const Slot as usize) / size_of::<Slot>()
}

/// Waits until `ready`; `false` when recording has ended instead.
///
/// First it sleeps, without a word to the recorder: a thread that the recorder wakes may be put on the recorder's processor,
/// though another is idle (in virtual machines, where Linux takes one that is halted for one that is busy elsewhere). The
/// two would then take turns. One that wakes by itself stays where it was.
fn wait_until(mut ready: impl FnMut() -> bool) -> bool {
    if ready() {
        return true;
    }
    let header = shared().header();
    // The recorder may sleep until more is handed over than there is room for.
    wake_recorder();
    for nanos in SLEEPS_NS {
        sleep(nanos);
        if ready() {
            return true;
        }
    }
    loop {
        if header.stop.load(Relaxed) != 0 || !header.lease.is_held() {
            return false;
        }
        header.producers_wait.fetch_add(1, SeqCst);
        let seen = header.freed.0.load(SeqCst);
        let done = ready();
        if !done {
            futex_wait(&header.freed.0, seen);
        }
        header.producers_wait.fetch_sub(1, SeqCst);
        if done || ready() {
            return true;
        }
    }
}

fn sleep(nanos: i64) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: nanos };
    // SAFETY: the time is valid for the call; what is left of it after a signal is not asked for.
    unsafe { libc::nanosleep(&time, std::ptr::null_mut()) };
}

fn futex_wait(word: &std::sync::atomic::AtomicU32, seen: u32) {
    let timeout = libc::timespec { tv_sec: 0, tv_nsec: WAIT_NANOS };
    // SAFETY: both pointers are valid for the call; the word lies in memory shared between processes.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, seen, &timeout) };
}

/// Wakes the recorder, however little there is for it.
fn wake_recorder() {
    wake_recorder_after(u64::MAX);
}

/// Wakes the recorder if it waits for no more than `handed_over` chunks.
fn wake_recorder_after(handed_over: u64) {
    let header = shared().header();
    fence(SeqCst);
    let wanted = header.wake_at.load(Relaxed);
    // One of all that get here wakes it.
    if wanted != 0
        && wanted <= handed_over
        && header.wake_at.compare_exchange(wanted, 0, SeqCst, Relaxed).is_ok()
    {
        header.filled.0.fetch_add(1, SeqCst);
        // SAFETY: the word is valid; waking has no other effect.
        unsafe { libc::syscall(libc::SYS_futex, header.filled.0.as_ptr(), libc::FUTEX_WAKE, 1) };
    }
}

/// Claims a slot for the vCPU's thread and begins its stream. Called by that thread.
fn claim_slot(vcpu: u32) {
    if DISCARDING.load(Relaxed) || shared().header().stop.load(Relaxed) != 0 {
        discard_all();
        return;
    }
    let claimed = (process() as u32 + 1) << 8 | 1;
    let Some(number) = (0..SLOTS).find(|&number| {
        let state = &shared().slot(number).state;
        state.load(Relaxed) == 0 && state.compare_exchange(0, claimed, SeqCst, Relaxed).is_ok()
    }) else {
        shared().header().unrecorded.fetch_add(1, Relaxed);
        TABLE[vcpu as usize].store(DISCARDED, SeqCst);
        return;
    };
    let header = shared().header();
    let slot = shared().slot(number);
    clear(lane(vcpu));
    slot.current.store(0, Relaxed);
    for word in [&slot.claiming, &slot.tail, &slot.head] {
        word.store(0, Relaxed);
    }
    slot.lane.store(vcpu, Relaxed);
    // SAFETY: gettid has no precondition.
    let thread = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
    slot.thread.store(thread, Relaxed);
    slot.serial.store(header.serial.fetch_add(1, Relaxed) + 1, Relaxed);
    slot.state.store(claimed + 1, SeqCst);
    header.slots_used.fetch_max(number as u32 + 1, SeqCst);
    TABLE[vcpu as usize].store(slot as *const Slot as *mut Slot, SeqCst);
    emit_sequenced(vcpu, Operation::Spawn, &[u64::from(thread)], &[]);
}

/// Claims a place in the table of processes.
fn claim_process(mapping: Shared, forked_from: u64, family: Option<usize>) -> Option<usize> {
    let header = mapping.header();
    // SAFETY: getpid has no precondition.
    let pid = unsafe { libc::getpid() } as u64;
    let number = (0..PROCESSES).find(|&number| {
        let state = &mapping.process(number).state;
        state.load(Relaxed) == 0 && state.compare_exchange(0, pid << 8 | 1, SeqCst, Relaxed).is_ok()
    });
    let Some(number) = number else {
        header.unrecorded.fetch_add(1, Relaxed);
        return None;
    };
    let process = mapping.process(number);
    process.base.store(mapping.base() as u64, Relaxed);
    process.forked_from.store(forked_from, Relaxed);
    process.registration.store(header.registered.fetch_add(1, SeqCst) + 1, Relaxed);
    let family = family.unwrap_or(number);
    process.family.store(family as u32 + 1, Relaxed);
    if !recorder::join(mapping, number) {
        process.state.store(0, SeqCst);
        if header.stop.load(Relaxed) == 0 {
            header.unrecorded.fetch_add(1, Relaxed);
        }
        return None;
    }
    PROCESS.store(number, Relaxed);
    OWN_LANES.store(mapping.lanes(number), SeqCst);
    FAMILY.store(family, Relaxed);
    process.state.store(pid << 8 | 2, SeqCst);
    header.processes_used.fetch_max(number as u32 + 1, SeqCst);
    Some(number)
}
