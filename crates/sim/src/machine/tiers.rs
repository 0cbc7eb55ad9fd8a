//! Tiers in the machine's physical memory, and the devices behind them.

use super::hardware_cache::{HardwareCache, Looked};
use super::hypervisor::guest_end;
use super::memory_watch::MemoryWatch;
use super::zero_lines::ZeroLines;
use crate::array::prefetch;
use crate::design::Design;
use crate::memory::{Device, DeviceLine, Initiator, Link, LinkParameters, MemoryRequest, Way};
use crate::translate::{host_table_bytes, schemes};
use terrace_model::{BytesPerSec, Frame, LINE_BYTES, Line, NodeId, PhysAddr, Stats, TierId, Time, Unit};

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
pub(super) struct Tier {
    name: String,
    pub(super) device: usize,
    /// First line of the tier in the machine's physical memory.
    pub(super) base_line: Line,
    /// First line of the tier in its device.
    pub(super) device_line: DeviceLine,
    frames: u64,
    path: Time,
    /// The node that it belongs to. Requests from there cross no link.
    home: NodeId,
    /// The link that requests from elsewhere cross, and which way.
    link: Option<(usize, Way)>,
    link_latency: Time,
    pub(super) traffic: TierLines,
    /// Reads, and the sum of the times they took.
    waits: (u64, Time),
}

/// The node of a design's `at`th tier. A GPU's own memory is the first; the other tiers are then the CPU's, and the link in
/// front of them is the one between both. Without a GPU nobody stands beside memory behind a link.
fn home_of(design: &Design, at: usize) -> NodeId {
    match (&design.gpu, &design.tiers[at].link) {
        (Some(_), _) if at == 0 => NodeId::GPU,
        (None, Some(_)) => NodeId::of_memory(at as u8),
        _ => NodeId::CPU,
    }
}

/// All memory of the machine.
#[derive(Debug)]
pub struct TieredMemory {
    pub(super) tiers: Vec<Tier>,
    links: Vec<Link>,
    pub devices: Vec<Device>,
    device_names: Vec<String>,
    /// Tier by physical address divided by 1 GiB.
    tier_of_region: Vec<u8>,
    /// First address beyond all tiers, where tables of the translation hardware lie.
    end: PhysAddr,
    /// The node whose processors copy pages that change their place.
    pub copier: NodeId,
    /// Lines read for loads and stores of the program.
    pub demand_reads: u64,
    /// One tier as a hardware cache of another.
    pub(super) hardware_cache: Option<HardwareCache>,
    /// Lines that the controller knows to be zero.
    pub(super) zeros: ZeroLines,
    /// What was carried when, where somebody wants to know.
    pub watch: Option<Box<MemoryWatch>>,
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
            let mut parameters = parameters.clone();
            let tiers = design.tiers.iter().filter(|tier| tier.device == *name).map(|tier| tier.capacity);
            let device = parameters.end_segments(tiers).and_then(|()| Device::new(&parameters));
            devices.push(device.map_err(|e| format!("device.{name}: {e}"))?);
            device_names.push(name.clone());
        }
        let mut used_lines = vec![0; devices.len()];
        let (mut tiers, mut links) = (Vec::new(), Vec::new());
        let mut tier_of_region = Vec::new();
        for (at, tier) in design.tiers.iter().enumerate() {
            let device = device_names
                .iter()
                .position(|name| *name == tier.device)
                .ok_or_else(|| format!("tier.{}.device: no device \"{}\"", tier.name, tier.device))?;
            let frames = tier.capacity.0 >> 12;
            let link = match &tier.link {
                Some(link) => {
                    links.push(Link::new(link).map_err(|e| format!("tier.{}.link: {e}", tier.name))?);
                    Some((links.len() - 1, Way::There))
                }
                None => None,
            };
            tiers.push(Tier {
                name: tier.name.clone(),
                device,
                base_line: Line(tier_of_region.len() as u64 * REGION_LINES),
                device_line: DeviceLine(used_lines[device]),
                frames,
                path: tier.path_latency,
                home: home_of(design, at),
                link,
                link_latency: tier.link.as_ref().map_or(Time::ZERO, |link| link.latency),
                traffic: TierLines::default(),
                waits: (0, Time::ZERO),
            });
            used_lines[device] += frames * (4096 / LINE_BYTES);
            let regions = tier.capacity.0.div_ceil(1 << 30).max(1) as usize;
            tier_of_region.extend(std::iter::repeat_n(at as u8, regions));
        }
        if design.gpu.is_some() && !links.is_empty() {
            // What is in front of the CPU's memory is the link between both nodes: the CPU crosses it to the GPU's memory.
            let own = tiers.iter_mut().filter(|tier: &&mut Tier| tier.home == NodeId::GPU);
            own.for_each(|tier| tier.link = Some((0, Way::Back)));
        }
        let end = PhysAddr((tier_of_region.len() as u64) << 30);
        let mut beyond = schemes::find(&design.translation.scheme.kind)
            .map_or(0, |scheme| scheme.memory_bytes(&design.translation.scheme).next_multiple_of(1 << 30));
        if design.translation.nested.as_ref().is_some_and(|nested| nested.host.is_some()) {
            beyond += host_table_bytes(end.0, design.translation.levels);
        }
        tier_of_region.extend(std::iter::repeat_n(0, beyond.div_ceil(1 << 30) as usize));
        // What a guest's operating system takes for its frames is looked up here before it is backed.
        let guest = (guest_end(design) >> 30) as usize;
        let missing = guest.saturating_sub(tier_of_region.len());
        tier_of_region.extend(std::iter::repeat_n(0, missing));
        Ok(TieredMemory {
            end,
            tiers,
            links,
            copier: if design.gpu.is_some() { NodeId::GPU } else { NodeId::CPU },
            devices,
            device_names,
            tier_of_region,
            demand_reads: 0,
            hardware_cache: None,
            zeros: ZeroLines::default(),
            watch: None,
        })
    }

    /// Name, first frame and number of frames of every tier.
    pub fn layout(&self) -> Vec<(String, Frame, u64)> {
        self.tiers.iter().map(|t| (t.name.clone(), t.base_line.frame(), t.frames)).collect()
    }

    /// First address beyond all tiers. Tables of the translation hardware lie there, on the first tier's device: those of
    /// the scheme, then under nested paging the host's page table.
    pub fn end(&self) -> PhysAddr {
        self.end
    }

    /// The tier of a physical line.
    #[inline(always)]
    pub fn tier_of_line(&self, line: Line) -> TierId {
        TierId(self.tier_of_region[(line.0 / REGION_LINES) as usize])
    }

    /// The node that a physical line belongs to.
    pub fn home_of_line(&self, line: Line) -> NodeId {
        self.tiers[self.tier_of_line(line).index()].home
    }

    /// A request that copies a line of a page that changes its place.
    #[inline]
    pub fn page_copy(&self, line: Line, at: Time, by: Initiator) -> MemoryRequest {
        MemoryRequest { line, at, by, from: self.copier }
    }

    /// From now on the first tier is a direct-mapped cache of the last one's lines, as DRAM is of DCPMM in memory mode.
    /// Neither holds anything yet.
    pub fn use_first_as_cache(&mut self) {
        let last = self.tiers.len() - 1;
        let cache = HardwareCache::new(self.first_tier_lines(), last, self.tiers[last].base_line);
        self.hardware_cache = Some(cache);
    }

    /// Brings what a read of a line will need into the host's caches.
    #[inline]
    pub fn host_prefetch(&self, line: Line) {
        if let Some(cache) = &self.hardware_cache
            && self.tier_of_line(line).index() == cache.tier
        {
            let (slot, _) = cache.place(line);
            prefetch(&cache.tags, slot as usize);
        }
    }

    /// Channels of all devices together.
    pub fn channels(&self) -> usize {
        self.devices.iter().map(|device| device.parameters().channels as usize).sum()
    }

    /// The channel of a physical line, counted over the devices in their order.
    #[inline]
    pub fn channel_of(&self, line: Line) -> usize {
        let tier = &self.tiers[self.tier_of_line(line).index()];
        let before = self.devices[..tier.device].iter().map(|device| device.parameters().channels as usize);
        before.sum::<usize>() + self.devices[tier.device].channel_of(tier.place_of(line))
    }

    /// The physical lines of the first tier.
    pub fn first_tier_lines(&self) -> std::ops::Range<Line> {
        let lines = self.tiers.first().map_or(0, |tier| tier.frames * (4096 / LINE_BYTES));
        Line(0)..Line(lines)
    }

    /// Reads a physical line; the answer is when its data is back at the last-level cache.
    #[inline]
    pub fn read(&mut self, request: MemoryRequest) -> Time {
        if self.zeros.contains(request.line) {
            return request.at;
        }
        self.demand_reads += u64::from(request.by as usize == Initiator::Demand as usize);
        if self.hardware_cache.is_some() {
            return self.read_cached(request);
        }
        self.read_tier(request)
    }

    #[inline]
    fn read_tier(&mut self, request: MemoryRequest) -> Time {
        let MemoryRequest { line, at, by, from } = request;
        let tier = &mut self.tiers[self.tier_of_region[(line.0 / REGION_LINES) as usize] as usize];
        tier.traffic.reads[by as usize] += 1;
        let device = &mut self.devices[tier.device];
        let local = tier.place_of(line);
        // The path is counted once, on the way there.
        let arrives = at + tier.path;
        let (ready, done) = match tier.link {
            Some((link, way)) if from != tier.home => {
                let link = &mut self.links[link];
                let sent = link.send_request(way, arrives);
                let ready = device.read(local, sent, by);
                (ready, link.return_line(way, ready))
            }
            _ => {
                let ready = device.read(local, arrives, by);
                (ready, ready)
            }
        };
        tier.waits.0 += 1;
        tier.waits.1 += done - at;
        if let Some(watch) = &mut self.watch {
            watch.read(self.tier_of_region[(line.0 / REGION_LINES) as usize], request, ready, done);
        }
        done
    }

    /// Writes a physical line; nobody waits for it, unless the device's queue is full.
    #[inline]
    pub fn write(&mut self, request: MemoryRequest) -> Time {
        self.zeros.remove(request.line);
        if self.hardware_cache.is_some() {
            return self.write_cached(request);
        }
        self.write_tier(request)
    }

    #[inline]
    fn write_tier(&mut self, request: MemoryRequest) -> Time {
        let MemoryRequest { line, at, by, from } = request;
        let tier = &mut self.tiers[self.tier_of_region[(line.0 / REGION_LINES) as usize] as usize];
        tier.traffic.writes[by as usize] += 1;
        let device = &mut self.devices[tier.device];
        let local = tier.place_of(line);
        let arrives = at + tier.path;
        let arrives = match tier.link {
            Some((link, way)) if from != tier.home => self.links[link].send_line(way, arrives),
            _ => arrives,
        };
        let accepted = device.write(local, arrives, by);
        if let Some(watch) = &mut self.watch {
            watch.write(self.tier_of_region[(line.0 / REGION_LINES) as usize], request, arrives, accepted);
        }
        accepted
    }

    /// The place of a line in the hardware cache, and what must leave it; none for lines that it does not cache. The
    /// line is in the cache afterwards.
    fn look_up(&mut self, line: Line, write: bool) -> Option<Looked> {
        let cache = self.hardware_cache.as_mut()?;
        let tier = self.tier_of_region[(line.0 / REGION_LINES) as usize] as usize;
        (tier == cache.tier).then(|| cache.look_up(line, write))
    }

    /// The tag lies beside the data in the fast tier, so a miss reads there first.
    #[inline(never)]
    fn read_cached(&mut self, request: MemoryRequest) -> Time {
        let Some(found) = self.look_up(request.line, false) else { return self.read_tier(request) };
        let slot = request.for_line(found.slot);
        let tag = self.read_tier(slot);
        if found.hit {
            return tag;
        }
        let data = self.read_tier(request.sent_at(tag));
        if let Some(victim) = found.victim {
            self.write_tier(request.for_line(victim).sent_at(tag).on_behalf_of(Initiator::Writeback));
        }
        let filled = self.write_tier(slot.sent_at(data));
        data.max(filled)
    }

    /// No tag is read for a line that leaves the last-level cache while its slot holds it (Hildebrand et al., ISPASS 2021).
    #[inline(never)]
    fn write_cached(&mut self, request: MemoryRequest) -> Time {
        let Some(found) = self.look_up(request.line, true) else { return self.write_tier(request) };
        let slot = request.for_line(found.slot);
        if found.hit && request.by == Initiator::Writeback {
            return self.write_tier(slot);
        }
        let tag = self.read_tier(slot);
        let evicted = found.victim.map_or(request.at, |victim| {
            self.write_tier(request.for_line(victim).sent_at(tag).on_behalf_of(Initiator::Writeback))
        });
        // Posted as any write, unless a queue is full.
        let accepted = self.write_tier(slot.sent_at(tag));
        if accepted > tag || evicted > tag { accepted.max(evicted) } else { request.at }
    }

    /// Idle latencies of a read and of a write of a tier, at the last-level cache. Writes are posted; what the
    /// device's medium takes for one is in its bandwidth.
    pub fn idle_latencies(&self, tier: TierId, design: &Design) -> (Time, Time) {
        let link = design.tiers[tier.index()].link.as_ref().map_or(Time::ZERO, LinkParameters::idle_read);
        let tier = &self.tiers[tier.index()];
        let device = self.devices[tier.device].idle_read_latency_at(tier.device_line);
        let read = tier.path + link + device;
        (read, read)
    }

    /// What a line takes to a tier's controller and back.
    pub fn round_trip(&self, line: Line) -> Time {
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
    pub fn zero(&mut self, first: Line, lines: u64, now: Time, pace: Time) -> Time {
        if self.hardware_cache.is_some() {
            let write = |taken: Time, nth: u64| {
                let at = taken.max(now + pace.times(nth));
                self.write(MemoryRequest::of_cpu(first + nth, at, Initiator::Zero))
            };
            return (0..lines).fold(now, write);
        }
        let tier = &mut self.tiers[self.tier_of_region[(first.0 / REGION_LINES) as usize] as usize];
        tier.traffic.writes[Initiator::Zero as usize] += lines;
        let local = tier.place_of(first);
        self.devices[tier.device].write_stream(local, lines, now + tier.path, pace, Initiator::Zero)
    }

    /// The controller notes that these lines are zero. Until one is written, reads of it are answered without the device.
    pub fn note_zeros(&mut self, first: Line, lines: u64) {
        self.zeros.insert(first, lines);
    }

    /// From now on what is carried is noted with its time, while the watch's clock runs.
    pub fn watch(&mut self, design: &Design) {
        let tiers = self.tiers.iter().map(|tier| (tier.home, tier.link.map(|(_, way)| way)));
        let overhead = design.tiers.iter().find_map(|tier| Some(tier.link.as_ref()?.packet_overhead.0));
        self.watch = Some(Box::new(MemoryWatch::new(tiers, overhead.unwrap_or_default())));
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
    use crate::design::Library;

    fn read(memory: &mut TieredMemory, line: Line, from: NodeId, at: u64) -> f64 {
        let at = Time::from_nanos(at);
        let request = MemoryRequest { line, at, by: Initiator::Demand, from };
        (memory.read(request) - at).0 as f64 / 1e6
    }

    #[test]
    fn a_request_crosses_the_link_between_two_nodes_in_either_direction_and_no_other() {
        let design = Library::embedded().design("gpu-local", Some("gpu-gtx480"), &[]).unwrap().design;
        let mut memory = TieredMemory::new(&design).unwrap();
        // The GPU's memory comes first, in two regions of 1 GiB.
        let (of_gpu, of_cpu) = (Line(0), Line(2 * REGION_LINES));
        assert_eq!((memory.home_of_line(of_gpu), memory.home_of_line(of_cpu)), (NodeId::GPU, NodeId::CPU));
        // 16 B of a request and 80 B of a line at 128 GB/s, and 71.4 ns for both ways.
        let crossing = 71.4 + 16.0 / 128.0 + 80.0 / 128.0;
        for (line, own, other) in [(of_gpu, NodeId::GPU, NodeId::CPU), (of_cpu, NodeId::CPU, NodeId::GPU)] {
            // The row of the first read is open each time.
            read(&mut memory, line, own, 1000);
            let near = read(&mut memory, line + 1, own, 1500);
            let far = read(&mut memory, line + 2, other, 2000);
            assert!((far - near - crossing).abs() < 1e-3, "{line:?}: {near} and {far}");
        }
    }

    #[test]
    fn all_cores_cross_the_link_of_memory_that_nobody_stands_beside() {
        let mut design = Library::embedded().design("gpu-local", Some("gpu-gtx480"), &[]).unwrap().design;
        design.gpu = None;
        let mut memory = TieredMemory::new(&design).unwrap();
        let line = Line(2 * REGION_LINES);
        assert_eq!(memory.home_of_line(line), NodeId::of_memory(1));
        let [one, other] = [NodeId::CPU, NodeId::GPU].map(|from| {
            let at = 1000 * u64::from(from.0 + 1);
            read(&mut memory, line, from, at);
            read(&mut memory, line + 1, from, at + 500)
        });
        assert_eq!(one, other);
        // The path and the link, and something for the device.
        assert!(one > 20.0 + 71.4 + 16.0 / 128.0 + 80.0 / 128.0, "{one}");
    }

    #[test]
    fn policies_know_what_a_first_read_takes() {
        let design = Library::embedded().design("native-4k", Some("zen4-cxl"), &[]).unwrap().design;
        let mut memory = TieredMemory::new(&design).unwrap();
        let read = [0, 64].map(|region| read(&mut memory, Line(region * REGION_LINES), NodeId::CPU, 1000));
        let stated = [0, 1].map(|tier| memory.idle_latencies(TierId(tier), &design).0.as_nanos());
        assert!((0..2).all(|tier| (stated[tier] - read[tier]).abs() < 1e-5), "{stated:?} and {read:?}");
    }
}
