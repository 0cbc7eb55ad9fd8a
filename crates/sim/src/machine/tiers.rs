//! Tiers in the machine's physical memory, and the devices behind them.

use crate::design::Design;
use crate::memory::{Device, Initiator, Link};
use terrace_model::{BytesPerSec, Frame, LINE_BYTES, Stats, TierId, Time, Unit};

/// Tiers start at multiples of this many lines, so that the tier of a line is a table look-up.
const REGION_LINES: u64 = (1 << 30) / LINE_BYTES;

/// Line transfers by initiator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierTraffic {
    /// Lines read, by [`Initiator`].
    pub reads: [u64; Initiator::ALL.len()],
    /// Lines written, by [`Initiator`].
    pub writes: [u64; Initiator::ALL.len()],
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
    traffic: TierTraffic,
    /// Reads, and the sum of the times they took.
    waits: (u64, Time),
}

/// All memory of the machine.
#[derive(Debug)]
pub struct TieredMemory {
    tiers: Vec<Tier>,
    devices: Vec<Device>,
    device_names: Vec<String>,
    /// Tier by physical address divided by 1 GiB.
    tier_of_region: Vec<u8>,
    /// Lines read for loads and stores of the program.
    pub demand_reads: u64,
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
                traffic: TierTraffic::default(),
                waits: (0, Time::ZERO),
            });
            used_lines[device] += frames * (4096 / LINE_BYTES);
            let regions = tier.capacity.0.div_ceil(1 << 30).max(1) as usize;
            tier_of_region.extend(std::iter::repeat_n(at as u8, regions));
        }
        Ok(TieredMemory { tiers, devices, device_names, tier_of_region, demand_reads: 0 })
    }

    /// Name, first frame and number of frames of every tier.
    pub fn layout(&self) -> Vec<(String, u64, u64)> {
        self.tiers.iter().map(|t| (t.name.clone(), (t.base_line * LINE_BYTES) >> 12, t.frames)).collect()
    }

    /// The tier of a physical line.
    #[inline(always)]
    pub fn tier_of_line(&self, line: u64) -> TierId {
        TierId(self.tier_of_region[(line / REGION_LINES) as usize])
    }

    /// Reads a physical line; the answer is when its data is back at the last-level cache.
    #[inline]
    pub fn read(&mut self, line: u64, now: Time, by: Initiator) -> Time {
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
        self.demand_reads += u64::from(by as usize == Initiator::Demand as usize);
        tier.waits.0 += 1;
        tier.waits.1 += done - now;
        done
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
                let line = LINE_BYTES as f64;
                let payload = line / (line + link.packet_overhead.0 as f64);
                let (down, up) = (link.read_bandwidth.0 * payload, link.write_bandwidth.0 * payload);
                (BytesPerSec(read.min(down)), BytesPerSec(write.min(up)))
            }
        }
    }

    /// Reads of every tier by anyone, and the sum of the times they took.
    pub fn waits(&self) -> impl Iterator<Item = (u64, Time)> + '_ {
        self.tiers.iter().map(|tier| tier.waits)
    }

    /// Writes a physical line; nobody waits for it, unless the device's queue is full.
    #[inline]
    pub fn write(&mut self, line: u64, now: Time, by: Initiator) -> Time {
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

    /// The kernel writes zeros to a new page, at `pace` per line, past the caches: when the device has taken them.
    pub fn zero(&mut self, frame: Frame, bytes: u64, now: Time, pace: Time) -> Time {
        let first = frame.addr().line();
        let lines = bytes / LINE_BYTES;
        let tier = &mut self.tiers[self.tier_of_region[(first / REGION_LINES) as usize] as usize];
        tier.traffic.writes[Initiator::Zero as usize] += lines;
        let local = first - tier.base_line + tier.device_line;
        self.devices[tier.device].write_stream(local, lines, now + tier.path, pace, Initiator::Zero)
    }

    /// Traffic of every tier, in the machine's order.
    pub fn traffic(&self) -> impl Iterator<Item = (&str, &TierTraffic)> {
        self.tiers.iter().map(|tier| (tier.name.as_str(), &tier.traffic))
    }

    /// Device counters and energy up to `now`.
    pub fn report(&self, now: Time, stats: &mut Stats) {
        for (name, device) in self.device_names.iter().zip(&self.devices) {
            device.counters().report(&format!("device.{name}"), stats);
            stats.real(format!("energy.{name}"), device.energy(now).total(), Unit::Joules);
        }
    }
}
