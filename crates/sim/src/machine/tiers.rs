//! Tiers in the machine's physical memory, and the devices behind them.

use super::hypervisor::guest_end;
use super::zero_lines::ZeroLines;
use crate::array::{Divider, prefetch};
use crate::design::Design;
use crate::memory::{Device, Initiator, Link};
use crate::translate::{host_table_bytes, schemes};
use terrace_model::{BytesPerSec, LINE_BYTES, Stats, TierId, Time, Unit};

/// Tiers start at multiples of this many lines, so that the tier of a line is a table look-up.
const REGION_LINES: u64 = (1 << 30) / LINE_BYTES;

/// Line transfers by initiator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierLines {
    /// Lines read, by [`Initiator`].
    pub reads: [u64; Initiator::COUNT],
    /// Lines written, by [`Initiator`].
    pub writes: [u64; Initiator::COUNT],
}

impl TierLines {
    /// Adds them to the statistics of a run, as those of the tier `name`.
    pub fn count_into(&self, name: &str, stats: &mut Stats) {
        let (reads, writes): (u64, u64) = (self.reads.iter().sum(), self.writes.iter().sum());
        stats.count(format!("tier.{name}.reads"), reads, Unit::Count);
        stats.count(format!("tier.{name}.writes"), writes, Unit::Count);
        stats.count(format!("tier.{name}.bytes_read"), reads * LINE_BYTES, Unit::Bytes);
        stats.count(format!("tier.{name}.bytes_written"), writes * LINE_BYTES, Unit::Bytes);
        for by in Initiator::ALL {
            let bytes = (self.reads[by as usize] + self.writes[by as usize]) * LINE_BYTES;
            stats.count(format!("tier.{name}.bytes_by.{}", by.name()), bytes, Unit::Bytes);
        }
    }

    /// Adds what came between two counts.
    pub fn add_since(&mut self, before: &TierLines, after: &TierLines) {
        for by in 0..Initiator::ALL.len() {
            self.reads[by] += after.reads[by] - before.reads[by];
            self.writes[by] += after.writes[by] - before.writes[by];
        }
    }
}

#[derive(Debug)]
struct Tier {
    name: String,
    device: usize,
    /// First line of the tier in the machine's physical memory.
    base_line: u64,
    /// First line of the tier in its device.
    device_line: u64,
    frames: u64,
    path: Time,
    link: Option<Link>,
    link_latency: Time,
    traffic: TierLines,
    /// Reads, and the sum of the times they took.
    waits: (u64, Time),
}

/// Tags of a direct-mapped cache of 64-byte lines.
#[derive(Debug)]
struct HardwareCache {
    /// The tier whose lines it holds.
    tier: usize,
    /// Per slot 0 when empty, else which of the lines that fall there it holds, plus 1, and whether it was written.
    tags: Vec<u32>,
    /// Slots are so many blocks of `1 << block` lines.
    blocks: Divider,
    block: u32,
    hits: u64,
    misses: u64,
}

/// What a look-up found.
struct Looked {
    slot: u64,
    hit: bool,
    /// A written line that has to leave for this one.
    victim: Option<u64>,
}

const WRITTEN: u32 = 1 << 31;

const LINES_PER_MIB: u64 = (1 << 20) / LINE_BYTES;

impl HardwareCache {
    fn new(lines: u64, tier: usize) -> HardwareCache {
        // Whole MiB, so that no tier has more blocks than can be divided by.
        let slots = if lines < LINES_PER_MIB { lines.max(1) } else { lines - lines % LINES_PER_MIB };
        let block = slots.trailing_zeros();
        let blocks = Divider::new(slots >> block);
        HardwareCache { tier, tags: vec![0; slots as usize], blocks, block, hits: 0, misses: 0 }
    }

    /// The slot of a line, and which of the lines it is that fall there.
    #[inline]
    fn place(&self, line: u64) -> (u64, u64) {
        let (round, block) = self.blocks.divide(line >> self.block);
        (block << self.block | line & ((1 << self.block) - 1), round)
    }

    fn look_up(&mut self, line: u64, write: bool) -> Looked {
        let slots = self.tags.len() as u64;
        let (slot, round) = self.place(line);
        let wanted = round as u32 + 1;
        let tag = &mut self.tags[slot as usize];
        let (held, written) = (*tag & !WRITTEN, *tag & WRITTEN != 0);
        let hit = held == wanted;
        let victim = (!hit && written).then(|| u64::from(held - 1) * slots + slot);
        *tag = wanted | if write || (hit && written) { WRITTEN } else { 0 };
        if hit {
            self.hits += 1;
        } else {
            self.misses += 1;
        }
        Looked { slot, hit, victim }
    }
}

/// All memory of the machine.
#[derive(Debug)]
pub struct TieredMemory {
    tiers: Vec<Tier>,
    devices: Vec<Device>,
    device_names: Vec<String>,
    /// Tier by physical address divided by 1 GiB.
    tier_of_region: Vec<u8>,
    /// First address beyond all tiers, where tables of the translation hardware lie.
    end: u64,
    /// Lines read for loads and stores of the program.
    pub demand_reads: u64,
    /// One tier as a hardware cache of another.
    hardware_cache: Option<HardwareCache>,
    /// Lines that the controller knows to be zero.
    zeros: ZeroLines,
}

impl TieredMemory {
    /// Tiers and devices of a design.
    ///
    /// # Errors
    /// An unknown device, or parameters that a device refuses.
    pub fn new(design: &Design) -> Result<TieredMemory, String> {
        let mut devices = Vec::new();
        let mut device_names = Vec::new();
        for (name, parameters) in &design.devices {
            devices.push(Device::new(parameters).map_err(|e| format!("device.{name}: {e}"))?);
            device_names.push(name.clone());
        }
        let mut used_lines = vec![0; devices.len()];
        let mut tiers = Vec::new();
        let mut tier_of_region = Vec::new();
        for (at, tier) in design.tiers.iter().enumerate() {
            let device = device_names
                .iter()
                .position(|name| *name == tier.device)
                .ok_or_else(|| format!("tier.{}.device: no device \"{}\"", tier.name, tier.device))?;
            let frames = tier.capacity.0 >> 12;
            let link = match &tier.link {
                Some(link) => Some(Link::new(link).map_err(|e| format!("tier.{}.link: {e}", tier.name))?),
                None => None,
            };
            tiers.push(Tier {
                name: tier.name.clone(),
                device,
                base_line: tier_of_region.len() as u64 * REGION_LINES,
                device_line: used_lines[device],
                frames,
                path: tier.path_latency,
                link,
                link_latency: tier.link.as_ref().map_or(Time::ZERO, |link| link.latency),
                traffic: TierLines::default(),
                waits: (0, Time::ZERO),
            });
            used_lines[device] += frames * (4096 / LINE_BYTES);
            let regions = tier.capacity.0.div_ceil(1 << 30).max(1) as usize;
            tier_of_region.extend(std::iter::repeat_n(at as u8, regions));
        }
        let end = (tier_of_region.len() as u64) << 30;
        let mut beyond = schemes::find(&design.translation.scheme.kind)
            .map_or(0, |scheme| scheme.memory_bytes(&design.translation.scheme).next_multiple_of(1 << 30));
        if design.translation.nested.as_ref().is_some_and(|nested| nested.host.is_some()) {
            beyond += host_table_bytes(end, design.translation.levels);
        }
        tier_of_region.extend(std::iter::repeat_n(0, beyond.div_ceil(1 << 30) as usize));
        // What a guest's operating system takes for its frames is looked up here before it is backed.
        let guest = (guest_end(design) >> 30) as usize;
        let missing = guest.saturating_sub(tier_of_region.len());
        tier_of_region.extend(std::iter::repeat_n(0, missing));
        Ok(TieredMemory {
            end,
            tiers,
            devices,
            device_names,
            tier_of_region,
            demand_reads: 0,
            hardware_cache: None,
            zeros: ZeroLines::default(),
        })
    }

    /// Name, first frame and number of frames of every tier.
    pub fn layout(&self) -> Vec<(String, u64, u64)> {
        self.tiers.iter().map(|t| (t.name.clone(), (t.base_line * LINE_BYTES) >> 12, t.frames)).collect()
    }

    /// First address beyond all tiers. Tables of the translation hardware lie there, on the first tier's device: those of
    /// the scheme, then under nested paging the host's page table.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// The tier of a physical line.
    #[inline(always)]
    pub fn tier_of_line(&self, line: u64) -> TierId {
        TierId(self.tier_of_region[(line / REGION_LINES) as usize])
    }

    /// From now on the first tier is a direct-mapped cache of the last one's lines, as DRAM is of DCPMM in memory mode.
    /// Neither holds anything yet.
    pub fn use_first_as_cache(&mut self) {
        let lines = self.tiers[0].frames * (4096 / LINE_BYTES);
        self.hardware_cache = Some(HardwareCache::new(lines, self.tiers.len() - 1));
    }

    /// Brings what a read of a line will need into the host's caches.
    #[inline]
    pub fn host_prefetch(&self, line: u64) {
        if let Some(cache) = &self.hardware_cache {
            let tier = self.tier_of_line(line).index();
            if tier == cache.tier {
                let (slot, _) = cache.place(line - self.tiers[tier].base_line);
                prefetch(&cache.tags, slot as usize);
            }
        }
    }

    /// Channels of all devices together.
    pub fn channels(&self) -> usize {
        self.devices.iter().map(|device| device.parameters().channels as usize).sum()
    }

    /// The channel of a physical line, counted over the devices in their order.
    #[inline]
    pub fn channel_of(&self, line: u64) -> usize {
        let tier = &self.tiers[self.tier_of_line(line).index()];
        let before: usize =
            self.devices[..tier.device].iter().map(|device| device.parameters().channels as usize).sum();
        before + self.devices[tier.device].channel_of(line - tier.base_line + tier.device_line)
    }

    /// The physical lines of the first tier.
    pub fn first_tier_lines(&self) -> std::ops::Range<u64> {
        let lines = self.tiers.first().map_or(0, |tier| tier.frames * (4096 / LINE_BYTES));
        0..lines
    }

    /// Reads a physical line; the answer is when its data is back at the last-level cache.
    #[inline]
    pub fn read(&mut self, line: u64, now: Time, by: Initiator) -> Time {
        if self.zeros.contains(line) {
            return now;
        }
        self.demand_reads += u64::from(by as usize == Initiator::Demand as usize);
        if self.hardware_cache.is_some() {
            return self.read_cached(line, now, by);
        }
        self.read_tier(line, now, by)
    }

    #[inline]
    fn read_tier(&mut self, line: u64, now: Time, by: Initiator) -> Time {
        let tier = &mut self.tiers[self.tier_of_region[(line / REGION_LINES) as usize] as usize];
        tier.traffic.reads[by as usize] += 1;
        let device = &mut self.devices[tier.device];
        let local = line - tier.base_line + tier.device_line;
        // The path is counted once, on the way there.
        let arrives = now + tier.path;
        let done = match &mut tier.link {
            None => device.read(local, arrives, by),
            Some(link) => {
                let sent = link.send_request(arrives);
                let ready = device.read(local, sent, by);
                link.return_line(ready)
            }
        };
        tier.waits.0 += 1;
        tier.waits.1 += done - now;
        done
    }

    /// Writes a physical line; nobody waits for it, unless the device's queue is full.
    #[inline]
    pub fn write(&mut self, line: u64, now: Time, by: Initiator) -> Time {
        self.zeros.remove(line);
        if self.hardware_cache.is_some() {
            return self.write_cached(line, now, by);
        }
        self.write_tier(line, now, by)
    }

    #[inline]
    fn write_tier(&mut self, line: u64, now: Time, by: Initiator) -> Time {
        let tier = &mut self.tiers[self.tier_of_region[(line / REGION_LINES) as usize] as usize];
        tier.traffic.writes[by as usize] += 1;
        let device = &mut self.devices[tier.device];
        let local = line - tier.base_line + tier.device_line;
        let arrives = now + tier.path;
        let arrives = match &mut tier.link {
            None => arrives,
            Some(link) => link.send_line(arrives),
        };
        device.write(local, arrives, by)
    }

    /// The place of a line in the hardware cache, and what must leave it; none for lines that it does not cache. The
    /// line is in the cache afterwards.
    fn look_up(&mut self, line: u64, write: bool) -> Option<Looked> {
        let cache = self.hardware_cache.as_mut()?;
        let tier = self.tier_of_region[(line / REGION_LINES) as usize] as usize;
        if tier != cache.tier {
            return None;
        }
        let base = self.tiers[tier].base_line;
        let found = cache.look_up(line - base, write);
        Some(Looked {
            slot: self.tiers[0].base_line + found.slot,
            victim: found.victim.map(|at| base + at),
            ..found
        })
    }

    /// The tag lies beside the data in the fast tier, so a miss reads there first.
    #[inline(never)]
    fn read_cached(&mut self, line: u64, now: Time, by: Initiator) -> Time {
        let Some(found) = self.look_up(line, false) else { return self.read_tier(line, now, by) };
        let tag = self.read_tier(found.slot, now, by);
        if found.hit {
            return tag;
        }
        let data = self.read_tier(line, tag, by);
        if let Some(victim) = found.victim {
            self.write_tier(victim, tag, Initiator::Writeback);
        }
        let filled = self.write_tier(found.slot, data, by);
        data.max(filled)
    }

    #[inline(never)]
    fn write_cached(&mut self, line: u64, now: Time, by: Initiator) -> Time {
        let Some(found) = self.look_up(line, true) else { return self.write_tier(line, now, by) };
        let tag = self.read_tier(found.slot, now, by);
        let evicted = match found.victim {
            Some(victim) if !found.hit => self.write_tier(victim, tag, Initiator::Writeback),
            _ => now,
        };
        // Posted as any write, unless a queue is full.
        let accepted = self.write_tier(found.slot, tag, by);
        if accepted > tag || evicted > tag { accepted.max(evicted) } else { now }
    }

    /// Idle latencies of a read and of a write of a tier, at the last-level cache. Writes are posted; what the
    /// device's medium takes for one is in its bandwidth.
    pub fn idle_latencies(&self, tier: TierId) -> (Time, Time) {
        let tier = &self.tiers[tier.index()];
        let read = tier.path + tier.link_latency + self.devices[tier.device].idle_read_latency();
        (read, read)
    }

    /// What a line takes to a tier's controller and back.
    pub fn round_trip(&self, line: u64) -> Time {
        let tier = &self.tiers[self.tier_of_line(line).index()];
        tier.path + tier.link_latency
    }

    /// Peak bandwidths of reads and of writes of a tier: the device's, or the link's where that is less.
    pub fn bandwidths(&self, tier: TierId, design: &Design) -> (BytesPerSec, BytesPerSec) {
        let at = tier.index();
        let device = &self.devices[self.tiers[at].device];
        let (read, write) = (device.peak_read_bandwidth().0, device.peak_write_bandwidth().0);
        match &design.tiers[at].link {
            None => (BytesPerSec(read), BytesPerSec(write)),
            Some(link) => {
                let down = link.payload(link.read_bandwidth).0;
                let up = link.payload(link.write_bandwidth).0;
                (BytesPerSec(read.min(down)), BytesPerSec(write.min(up)))
            }
        }
    }

    /// Reads of every tier by anyone, and the sum of the times they took.
    pub fn waits(&self) -> impl Iterator<Item = (u64, Time)> + '_ {
        self.tiers.iter().map(|tier| tier.waits)
    }

    /// The kernel writes zeros to `lines` lines from `first` on, at `pace` per line, past the caches. Returns when the
    /// device has taken them.
    pub fn zero(&mut self, first: u64, lines: u64, now: Time, pace: Time) -> Time {
        if self.hardware_cache.is_some() {
            let write = |taken: Time, line: u64| {
                self.write(first + line, taken.max(now + pace.times(line)), Initiator::Zero)
            };
            return (0..lines).fold(now, write);
        }
        let tier = &mut self.tiers[self.tier_of_region[(first / REGION_LINES) as usize] as usize];
        tier.traffic.writes[Initiator::Zero as usize] += lines;
        let local = first - tier.base_line + tier.device_line;
        self.devices[tier.device].write_stream(local, lines, now + tier.path, pace, Initiator::Zero)
    }

    /// The controller notes that these lines are zero. Until one is written, reads of it are answered without the device.
    pub fn note_zeros(&mut self, first: u64, lines: u64) {
        self.zeros.insert(first, lines);
    }

    /// Traffic of every tier, in the machine's order.
    pub fn traffic(&self) -> impl Iterator<Item = (&str, &TierLines)> {
        self.tiers.iter().map(|tier| (tier.name.as_str(), &tier.traffic))
    }

    /// Device counters and energy up to `now`.
    pub fn report(&self, now: Time, stats: &mut Stats) {
        if let Some(cache) = &self.hardware_cache {
            stats.count("cache.memory.hit", cache.hits, Unit::Count);
            stats.count("cache.memory.miss", cache.misses, Unit::Count);
        }
        if self.zeros.reads > 0 {
            stats.count("memory.zero_line_reads", self.zeros.reads, Unit::Count);
        }
        for (name, device) in self.device_names.iter().zip(&self.devices) {
            let device = device.settled(now);
            device.counters().report(&format!("device.{name}"), stats);
            stats.real(format!("energy.{name}"), device.energy(now).total(), Unit::Joules);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_direct_mapped_cache_gives_up_what_falls_on_the_same_slot() {
        let mut cache = HardwareCache::new(4, 1);
        let mut look = |line, write| {
            let found = cache.look_up(line, write);
            (found.slot, found.hit, found.victim)
        };
        assert_eq!(look(1, false), (1, false, None));
        assert_eq!(look(1, true), (1, true, None));
        assert_eq!(look(1, false), (1, true, None), "reading keeps it written");
        assert_eq!(look(9, false), (1, false, Some(1)));
        assert_eq!(look(5, true), (1, false, None), "line 9 was only read");
        assert_eq!(look(2, false), (2, false, None));
        assert_eq!(look(13, false), (1, false, Some(5)));
        assert_eq!((cache.hits, cache.misses), (2, 5));
    }

    #[test]
    fn a_line_has_the_slot_that_a_division_gives() {
        for slots in [1, 6, 1000, LINES_PER_MIB, 3 * LINES_PER_MIB, 37 * LINES_PER_MIB] {
            let cache = HardwareCache::new(slots, 1);
            for line in [0, 1, slots - 1, slots, 5 * slots - 1, 77 * slots + slots / 3, (1 << 39) + 12_345] {
                assert_eq!(cache.place(line), (line % slots, line / slots), "{line} in {slots}");
            }
        }
        // What is beyond a whole MiB holds nothing.
        assert_eq!(HardwareCache::new(LINES_PER_MIB + 64, 1).place(LINES_PER_MIB), (0, 1));
    }
}
