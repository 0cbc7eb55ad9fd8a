//! Samples that the kernel takes of an event on a processor, with the address that each is about (`perf_event_open(2)`).
//!
//! Every processor has an event and a ring of its own, which the kernel fills and we empty. What does not fit is lost, and
//! counted.

use super::SamplingEvent;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// What is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// One in so many accesses of user code, by the processor's own sampler.
    Accesses {
        /// The sampler's event.
        event: SamplingEvent,
        /// Accesses to a sample.
        one_in: u64,
    },
    /// Every fault that had to read a page from swap or from a file.
    MajorFaults,
}

/// One sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The process.
    pub pid: u32,
    /// When, in nanoseconds of the clock of [`super::Kernel::now`]; of an access not known.
    pub time: u64,
    /// The address that was accessed, or whose page was missing.
    pub address: u64,
    /// A store; a load, or not known, otherwise.
    pub store: bool,
}

/// Samples of one processor, as long as it lives.
pub trait Samples: Send {
    /// Tells of each sample since the last call, oldest first; returns how many more were lost.
    fn read(&mut self, found: &mut dyn FnMut(Sample)) -> u64;
}

/// Pages of a ring, a power of two: 3,000 samples of accesses.
const RING_PAGES: usize = 32;
const PAGE: usize = 4096;

const PROCESS: u64 = 1 << 1;
const TIME: u64 = 1 << 2;
const ADDRESS: u64 = 1 << 3;
const DATA_SOURCE: u64 = 1 << 15;

/// `struct perf_event_attr` in its fourth version.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Attributes {
    counters: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_registers: u64,
    sample_stack: u32,
    clock: i32,
}

const _: () = assert!(size_of::<Attributes>() == 96);

const DISABLED: u64 = 1 << 0;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const PRECISE_SHIFT: u32 = 15;
const USE_CLOCK: u64 = 1 << 25;
const SOFTWARE: u32 = 1;
const PAGE_FAULTS_MAJOR: u64 = 6;
const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;

impl Attributes {
    fn new(event: Event) -> Attributes {
        let all = Attributes { size: size_of::<Attributes>() as u32, ..Attributes::default() };
        match event {
            Event::Accesses { event, one_in } => Attributes {
                counters: event.counters,
                config: event.config,
                config1: event.config1,
                // IBS counts in sixteens.
                sample_period: one_in.max(16).next_multiple_of(16),
                sample_type: PROCESS | TIME | ADDRESS | DATA_SOURCE,
                flags: u64::from(event.precise & 3) << PRECISE_SHIFT,
                ..all
            },
            Event::MajorFaults => Attributes {
                counters: SOFTWARE,
                config: PAGE_FAULTS_MAJOR,
                sample_period: 1,
                sample_type: PROCESS | TIME | ADDRESS,
                flags: USE_CLOCK,
                clock: libc::CLOCK_BOOTTIME,
                ..all
            },
        }
    }

    /// Opens the event for whatever runs on a processor.
    fn open(&self, cpu: u32) -> io::Result<OwnedFd> {
        let (everyone, no_group) = (-1, -1);
        // SAFETY: the structure is the one that the call reads, with its size.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                std::ptr::from_ref(self),
                everyone,
                cpu,
                no_group,
                CLOSE_ON_EXEC,
            )
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has just made this descriptor for us.
        Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
    }

    /// As [`Attributes::open`], of user code only where the sampler can tell it apart: IBS cannot before 6.15.
    fn open_narrowly(self, cpu: u32) -> io::Result<OwnedFd> {
        if self.counters == SOFTWARE {
            return self.open(cpu);
        }
        let narrow = Attributes { flags: self.flags | EXCLUDE_KERNEL, ..self };
        narrow.open(cpu).or_else(|_| self.open(cpu))
    }
}

/// Whether these accesses may be sampled, by an event that never counts.
pub(super) fn try_accesses(event: SamplingEvent) -> io::Result<u64> {
    let mut attributes = Attributes::new(Event::Accesses { event, one_in: 1 << 20 });
    attributes.flags |= DISABLED;
    attributes.open_narrowly(0).map(|_| 0)
}

/// Begins to sample.
pub(super) fn open(event: Event, cpu: u32) -> io::Result<Box<dyn Samples>> {
    let fd = Attributes::new(event).open_narrowly(cpu)?;
    Ok(Box::new(Mapped::new(fd)?))
}

/// An event's ring, mapped: a page of the kernel's about it, and the ring.
struct Mapped {
    base: *mut u8,
    _event: OwnedFd,
}

// SAFETY: the mapping belongs to this value alone, and the kernel does not care which thread reads it.
unsafe impl Send for Mapped {}

/// Where the kernel's page says how far it has written, and we how far we have read.
const HEAD: usize = 1024;
const TAIL: usize = 1032;

impl Mapped {
    fn new(event: OwnedFd) -> io::Result<Mapped> {
        let (bytes, access) = ((1 + RING_PAGES) * PAGE, libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: a new mapping wherever the kernel finds room.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), bytes, access, libc::MAP_SHARED, event.as_raw_fd(), 0)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Mapped { base: base.cast(), _event: event })
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        // SAFETY: inside the first page of the mapping, aligned; the kernel reads and writes it atomically.
        unsafe { &*self.base.add(at).cast() }
    }
}

impl Samples for Mapped {
    fn read(&mut self, found: &mut dyn FnMut(Sample)) -> u64 {
        let (head, tail) = (self.word(HEAD).load(Ordering::Acquire), self.word(TAIL).load(Ordering::Relaxed));
        // SAFETY: the ring follows the first page; between tail and head the kernel writes nothing until we say that we
        // are done.
        let lost = unsafe { records(self.base.add(PAGE), RING_PAGES * PAGE, tail..head, found) };
        self.word(TAIL).store(head, Ordering::Release);
        lost
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: `new` made this mapping, and nothing refers to it any more.
        unsafe { libc::munmap(self.base.cast(), (1 + RING_PAGES) * PAGE) };
    }
}

const LOST: u32 = 2;
const SAMPLE: u32 = 9;
const HEADER: u64 = 8;
/// A sample's process, time and address behind the header, and what the sampler says of the access behind them.
const FAULT_BYTES: u64 = HEADER + 24;
const ACCESS_BYTES: u64 = FAULT_BYTES + 8;
/// `PERF_MEM_OP_STORE`.
const STORE: u64 = 1 << 2;

/// The records of a part of a ring of `size` bytes, a power of two; how many are said to have been lost. What makes no sense
/// ends the part.
///
/// # Safety
/// `size` bytes lie at `ring`, and nobody writes those of the part.
unsafe fn records(
    ring: *const u8,
    size: usize,
    part: std::ops::Range<u64>,
    found: &mut dyn FnMut(Sample),
) -> u64 {
    let word = |at: u64| {
        let mut bytes = [0; 8];
        for (offset, byte) in bytes.iter_mut().enumerate() {
            // SAFETY: inside the ring, by the remainder.
            *byte = unsafe { ring.add(at.wrapping_add(offset as u64) as usize % size).read() };
        }
        u64::from_ne_bytes(bytes)
    };
    let mut lost = 0;
    let mut at = part.start;
    // More than the ring holds cannot be there.
    while at < part.end && part.end - at <= size as u64 {
        let header = word(at);
        let (kind, length) = (header as u32, header >> 48);
        if length < HEADER || length > part.end - at {
            break;
        }
        if kind == LOST && length >= HEADER + 16 {
            lost += word(at + HEADER + 8);
        } else if kind == SAMPLE && length >= FAULT_BYTES {
            let says = if length >= ACCESS_BYTES { word(at + FAULT_BYTES) } else { 0 };
            found(Sample {
                pid: word(at + HEADER) as u32,
                time: word(at + HEADER + 8),
                address: word(at + HEADER + 16),
                store: says & STORE != 0,
            });
        }
        at += length;
    }
    lost
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RING: usize = 256;

    fn record(kind: u32, words: &[u64]) -> Vec<u8> {
        let header = u64::from(kind) | (HEADER + 8 * words.len() as u64) << 48;
        std::iter::once(&header).chain(words).flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn read(ring: &[u8], part: std::ops::Range<u64>) -> (Vec<Sample>, u64) {
        let mut samples = Vec::new();
        // SAFETY: the slice is the ring, and nobody writes it.
        let lost = unsafe { records(ring.as_ptr(), ring.len(), part, &mut |sample| samples.push(sample)) };
        (samples, lost)
    }

    #[test]
    fn records_run_on_over_the_ring_s_end() {
        let all = [
            record(SAMPLE, &[7 | 8 << 32, 100, 0x1008]),
            record(LOST, &[1, 5]),
            record(SAMPLE, &[9, 200, 0x2000, STORE]),
            record(77, &[3]),
            record(SAMPLE, &[7, 300, 0x3000, 2]),
        ]
        .concat();
        let mut ring = vec![0; RING];
        let start = 10 * RING as u64 - 64;
        for (at, byte) in all.iter().enumerate() {
            ring[(start as usize + at) % RING] = *byte;
        }
        let sample = |pid, time, address, store| Sample { pid, time, address, store };
        let expected =
            [sample(7, 100, 0x1008, false), sample(9, 200, 0x2000, true), sample(7, 300, 0x3000, false)];
        assert_eq!(read(&ring, start..start + all.len() as u64), (expected.to_vec(), 5));
        assert_eq!(read(&ring, start..start), (Vec::new(), 0));
        // Cut in the middle of a record.
        assert_eq!(read(&ring, start..start + 40).0.len(), 1);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(
            ring in proptest::collection::vec(any::<u8>(), RING..=RING),
            start in any::<u64>(),
            length in 0..2 * RING as u64,
        ) {
            let (samples, _) = read(&ring, start..start.saturating_add(length));
            prop_assert!(samples.len() <= RING / FAULT_BYTES as usize);
        }
    }
}
