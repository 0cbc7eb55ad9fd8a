//! A channel with a block-addressed medium behind an on-module buffer: Intel's DCPMM.
//!
//! A module moves 256-byte blocks between its 3D XPoint medium and a small buffer that merges neighbouring reads and
//! combines neighbouring writes; the bus carries 64-byte lines (Yang et al., *An Empirical Guide to the Behavior and
//! Use of Scalable Persistent Memory*, FAST 2020). A dirty block whose lines were not all written is read from the
//! medium before it is written back. The source does not state the buffer's organisation: here it is four-way
//! set-associative with LRU, reads and writes alike. The medium serves one block after another, and a demand read does
//! not overtake a queued write.

use super::counters::DeviceCounters;
use super::mapping::ChannelLine;
use super::parameters::{DeviceParameters, MediaParameters};
use super::server::Server;
use terrace_model::LINE_BYTES;

const WAYS: usize = 4;
const EMPTY: u64 = u64::MAX;

/// Timing of a module in femtoseconds.
#[derive(Clone, Debug)]
pub(super) struct MediaTiming {
    burst: u64,
    buffer_latency: u64,
    read_latency: u64,
    read_interval: u64,
    write_interval: u64,
    block_bits: u32,
    set_mask: u64,
    full: u64,
}

impl MediaTiming {
    /// Timing of validated parameters.
    pub(super) fn new(device: &DeviceParameters, media: &MediaParameters) -> MediaTiming {
        let lines = media.block.0 / LINE_BYTES;
        MediaTiming {
            burst: device.burst().0,
            buffer_latency: media.buffer_latency.0,
            read_latency: media.read_latency.0,
            read_interval: media.read_interval.0,
            write_interval: media.write_interval.0,
            block_bits: lines.trailing_zeros(),
            set_mask: u64::from(media.buffer_blocks) / WAYS as u64 - 1,
            full: u64::MAX >> (64 - lines),
        }
    }

    /// Device time of a read that misses the buffer.
    pub(super) fn miss_read(&self) -> u64 {
        self.read_latency + self.buffer_latency + self.burst
    }

    /// Which line of its block a line is.
    #[inline]
    fn place_in_block(&self, line: ChannelLine) -> u64 {
        line.0 & ((1 << self.block_bits) - 1)
    }
}

/// A buffered block.
#[derive(Clone, Copy, Debug)]
struct Entry {
    block: u64,
    /// When its data are in the buffer.
    ready: u64,
    used: u64,
    /// Lines written since it came.
    written: u64,
    /// Whether it was read from the medium, so that all its lines are present.
    complete: bool,
}

/// One channel with one module.
#[derive(Clone, Debug)]
pub(super) struct MediaChannel {
    entries: Vec<Entry>,
    uses: u64,
    bus: Server,
    medium: Server,
    /// When each entry of the write queue is free again, in the order of use.
    releases: Vec<u64>,
    accepted: usize,
}

impl MediaChannel {
    /// An idle channel with an empty buffer.
    pub(super) fn new(device: &DeviceParameters, media: &MediaParameters) -> MediaChannel {
        let empty = Entry { block: EMPTY, ready: 0, used: 0, written: 0, complete: false };
        MediaChannel {
            entries: vec![empty; media.buffer_blocks as usize],
            uses: 0,
            bus: Server::default(),
            medium: Server::default(),
            releases: vec![0; device.write_queue as usize],
            accepted: 0,
        }
    }

    /// Reads a line; when its last byte is at the controller's pins.
    #[inline]
    pub(super) fn read(
        &mut self,
        timing: &MediaTiming,
        counters: &mut DeviceCounters,
        line: ChannelLine,
        now: u64,
    ) -> u64 {
        let slot = now + self.bus.reserve(now, timing.burst);
        let block = line.0 >> timing.block_bits;
        let (at, hit) = self.find(timing, block);
        let in_buffer = if hit && (self.entries[at].complete || self.has_line(timing, at, line)) {
            counters.buffer_hits += 1;
            slot.max(self.entries[at].ready)
        } else {
            // A block held only for its written lines is completed in place.
            if !hit {
                self.evict(timing, counters, at, now);
            }
            counters.media_reads += 1;
            let wait = self.medium.reserve(now, timing.read_interval);
            let ready = (now + wait).max(slot) + timing.read_latency;
            let written = if hit { self.entries[at].written } else { 0 };
            self.entries[at] = Entry { block, ready, used: 0, written, complete: true };
            ready
        };
        self.use_entry(at);
        in_buffer + timing.buffer_latency + timing.burst
    }

    /// Queues a write; when the queue has taken it.
    #[inline]
    pub(super) fn write(
        &mut self,
        timing: &MediaTiming,
        counters: &mut DeviceCounters,
        line: ChannelLine,
        now: u64,
    ) -> u64 {
        let accepted = now.max(self.releases[self.accepted]);
        let slot = accepted + self.bus.reserve(accepted, timing.burst);
        let block = line.0 >> timing.block_bits;
        let (at, hit) = self.find(timing, block);
        let mut released = slot + timing.burst;
        if hit {
            counters.buffer_hits += 1;
        } else {
            let wait = self.evict(timing, counters, at, accepted);
            released = released.max(accepted + wait);
            self.entries[at] = Entry { block, ready: released, used: 0, written: 0, complete: false };
        }
        self.entries[at].written |= 1 << timing.place_in_block(line);
        self.use_entry(at);
        self.releases[self.accepted] = released;
        self.accepted = if self.accepted + 1 == self.releases.len() { 0 } else { self.accepted + 1 };
        accepted
    }

    fn has_line(&self, timing: &MediaTiming, at: usize, line: ChannelLine) -> bool {
        self.entries[at].written >> timing.place_in_block(line) & 1 == 1
    }

    #[inline]
    fn use_entry(&mut self, at: usize) {
        self.uses += 1;
        self.entries[at].used = self.uses;
    }

    /// The entry that holds the block and true, or the one to replace and false.
    #[inline]
    fn find(&self, timing: &MediaTiming, block: u64) -> (usize, bool) {
        // Mixes higher bits in, so that page strides do not fall into one set.
        let set = (block ^ (block >> 4) ^ (block >> 8) ^ (block >> 12)) & timing.set_mask;
        let first = set as usize * WAYS;
        let mut oldest = first;
        for at in first..first + WAYS {
            if self.entries[at].block == block {
                return (at, true);
            }
            if self.entries[at].used < self.entries[oldest].used {
                oldest = at;
            }
        }
        (oldest, false)
    }

    /// Makes the entry free. A dirty block goes to the medium; how long that has to wait.
    #[inline]
    fn evict(&mut self, timing: &MediaTiming, counters: &mut DeviceCounters, at: usize, now: u64) -> u64 {
        let entry = self.entries[at];
        if entry.written == 0 {
            return 0;
        }
        let mut service = timing.write_interval;
        if !entry.complete && entry.written != timing.full {
            counters.media_reads += 1;
            service += timing.read_interval;
        }
        counters.media_writes += 1;
        self.medium.reserve(now, service)
    }
}
