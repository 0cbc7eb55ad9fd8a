//! What a device is, as a design file states it.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use terrace_model::parameters::{Bounded, Kind, ParameterValue, Parameters, Range};
use terrace_model::{Bytes, BytesPerSec, Cycles, Energy, Frequency, LINE_BYTES, Time};

/// A span of device time: in time (`"13.75 ns"`) or in cycles of the device's command clock (`"22 cycles"`), whichever
/// the data sheet states.
#[derive(Clone, Copy, PartialEq)]
pub enum Span {
    /// A time.
    Time(Time),
    /// Cycles of [`DeviceParameters::clock`].
    Cycles(Cycles),
}

impl Span {
    /// As a time, with a command clock of this period.
    pub fn at(self, period: Time) -> Time {
        match self {
            Span::Time(time) => time,
            Span::Cycles(cycles) => cycles.at(period),
        }
    }
}

impl Default for Span {
    fn default() -> Span {
        Span::Time(Time::ZERO)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Span::Time(time) => time.fmt(f),
            Span::Cycles(cycles) => cycles.fmt(f),
        }
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Span, D::Error> {
        let text = String::deserialize(deserializer)?;
        Span::read(&text)
            .map_err(|expected| serde::de::Error::custom(format!("\"{text}\" is not {expected}")))
    }
}

impl ParameterValue for Span {
    const KIND: Kind = Kind::Time;

    fn read(text: &str) -> Result<Span, String> {
        let span = text.parse().map(Span::Time).or_else(|_| text.parse().map(Span::Cycles));
        span.map_err(|_| {
            "a time or a number of command cycles, such as \"13.75 ns\" or \"11 cycles\"".to_owned()
        })
    }

    fn text(&self) -> String {
        self.to_string()
    }

    fn unit() -> &'static str {
        "time or cycles"
    }
}

/// A bound of spans: `1 s or 1000000 cycles`.
#[derive(Clone, Copy, Debug)]
pub struct SpanBound(Time, Cycles);

impl ParameterValue for SpanBound {
    const KIND: Kind = Kind::Time;

    fn read(text: &str) -> Result<SpanBound, String> {
        let parts = text
            .split_once(" or ")
            .and_then(|(time, cycles)| Some((time.parse().ok()?, cycles.parse().ok()?)));
        let (time, cycles) = parts.ok_or_else(|| "a time, or, and a number of cycles".to_owned())?;
        Ok(SpanBound(time, cycles))
    }

    fn text(&self) -> String {
        format!("{} or {}", self.0, self.1)
    }
}

impl Bounded for Span {
    type Bound = SpanBound;

    fn outside(&self, low: &SpanBound, high: &SpanBound) -> Option<(String, Range)> {
        match self {
            Span::Time(time) => time.outside(&low.0, &high.0),
            Span::Cycles(cycles) => cycles.outside(&low.1, &high.1),
        }
    }
}

/// A memory device: channels, and what is behind each of them. Exactly one of `bank` and `media` is present.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Parameters)]
#[parameter(table)]
#[serde(deny_unknown_fields)]
pub struct DeviceParameters {
    /// Where the numbers come from.
    #[serde(default)]
    pub source: Vec<String>,
    /// Keys whose values no source states, each with its reason.
    #[serde(default)]
    pub assumed: Vec<String>,
    /// Keys fitted to published measurements, each with the rows it was fitted to.
    #[serde(default)]
    pub calibrated: Vec<String>,
    /// Independent channels.
    #[parameter(range = 1..=64)]
    pub channels: u32,
    /// Consecutive bytes on one channel.
    #[parameter(range = "64 B"..="1 GiB")]
    pub channel_interleave: Bytes,
    /// Command clock, for spans given in cycles.
    #[parameter(range = "1 kHz"..="1000 GHz")]
    pub clock: Frequency,
    /// Data bandwidth of one channel's bus; a 64-byte line occupies the bus for 64 bytes divided by it.
    #[parameter(range = "1 MB/s"..="1000 TB/s")]
    pub bus_bandwidth: BytesPerSec,
    /// Time a read spends in the controller beside the device's own time, both ways together.
    #[parameter(range = "0 ns"..="1 s")]
    pub controller_latency: Time,
    /// Posted writes that one channel holds, those being written included. Writes are accepted at once while an entry
    /// is free.
    #[parameter(range = 1..=4096)]
    pub write_queue: u32,
    /// Banks with row buffers: DRAM, PCM.
    #[parameter(section)]
    #[serde(default)]
    pub bank: Option<BankParameters>,
    /// A block-addressed medium behind an on-module buffer: DCPMM.
    #[parameter(section)]
    #[serde(default)]
    pub media: Option<MediaParameters>,
    /// Energy per operation.
    #[parameter(section)]
    pub energy: DeviceEnergyParameters,
}

/// Ranks and banks of one channel and their timing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Parameters)]
#[parameter(table)]
#[serde(deny_unknown_fields)]
pub struct BankParameters {
    /// Ranks; each has its own activation budget.
    #[parameter(range = 1..=64)]
    pub ranks: u32,
    /// Banks per rank, over all bank groups.
    #[parameter(range = 1..=64)]
    pub banks: u32,
    /// Row-buffer bytes of one bank over all chips of the rank.
    #[parameter(range = "64 B"..="1 GiB")]
    pub row: Bytes,
    /// Consecutive bytes of a channel in one bank; at most `row`.
    #[parameter(range = "64 B"..="1 GiB")]
    pub bank_interleave: Bytes,
    /// Whether the bank number is permuted by the row number.
    pub bank_permutation: bool,
    /// How long an untouched row stays open: absent for the open-page policy, `"0 ns"` for closed page, in between
    /// for an adaptive controller.
    #[parameter(range = "0 ns"..="1 s")]
    #[serde(default)]
    pub close_after: Option<Time>,
    /// Activate to column command.
    #[parameter(range = "0 ns or 0 cycles"..="1 s or 1000000 cycles")]
    pub t_rcd: Span,
    /// Precharge.
    #[parameter(range = "0 ns or 0 cycles"..="1 s or 1000000 cycles")]
    pub t_rp: Span,
    /// Precharge of a row that was written, where that differs (PCM writes the row back then).
    #[parameter(range = "0 ns or 0 cycles"..="1 s or 1000000 cycles")]
    #[serde(default)]
    pub t_rp_dirty: Option<Span>,
    /// Read command to first data.
    #[parameter(range = "0 ns or 0 cycles"..="1 s or 1000000 cycles")]
    pub t_cl: Span,
    /// Write command to first data.
    #[parameter(range = "0 ns or 0 cycles"..="1 s or 1000000 cycles")]
    pub t_cwl: Span,
    /// Activate to precharge.
    #[parameter(range = "0 ns or 0 cycles"..="1 s or 1000000 cycles")]
    pub t_ras: Span,
    /// Read command to precharge.
    #[parameter(range = "0 ns or 0 cycles"..="1 s or 1000000 cycles")]
    pub t_rtp: Span,
    /// Last written data to precharge.
    #[parameter(range = "0 ns or 0 cycles"..="1 s or 1000000 cycles")]
    pub t_wr: Span,
    /// Activate to activate of another bank of the rank.
    #[parameter(range = "0 ns or 0 cycles"..="1 s or 1000000 cycles")]
    pub t_rrd: Span,
    /// Dirty precharge to dirty precharge of another bank of the rank (PCM).
    #[parameter(range = "0 ns or 0 cycles"..="1 s or 1000000 cycles")]
    #[serde(default)]
    pub t_rrd_precharge: Option<Span>,
    /// Window of at most four activations of a rank; enforced as one activation per quarter of it.
    #[parameter(range = "0 ns or 0 cycles"..="1 s or 1000000 cycles")]
    pub t_faw: Span,
    /// Idle bus time when its direction turns from reading to writing.
    #[parameter(range = "0 ns or 0 cycles"..="1 s or 1000000 cycles")]
    pub read_to_write: Span,
    /// Idle bus time when its direction turns from writing to reading.
    #[parameter(range = "0 ns or 0 cycles"..="1 s or 1000000 cycles")]
    pub write_to_read: Span,
    /// Waiting writes at which a drain begins.
    #[parameter(range = 0..=4096)]
    pub drain_high: u32,
    /// Waiting writes that a drain leaves.
    #[parameter(range = 0..=4096)]
    pub drain_low: u32,
    /// Mean time between refreshes; absent for none. All ranks of a channel refresh together.
    #[parameter(range = "0 ns"..="1 s")]
    #[serde(default)]
    pub t_refi: Option<Time>,
    /// Time of a refresh, in which the channel stands still.
    #[parameter(range = "0 ns"..="1 s")]
    #[serde(default)]
    pub t_rfc: Option<Time>,
    /// Least mean time between two activations on a channel, over all ranks; absent for no limit beside the banks'.
    /// Stands for what limits random access below the data-sheet timing in a measured machine.
    #[parameter(range = "0 ns"..="1 s")]
    #[serde(default)]
    pub random_access_interval: Option<Time>,
    /// Least mean time between two activations by writes on a channel; `random_access_interval` where absent.
    #[parameter(range = "0 ns"..="1 s")]
    #[serde(default)]
    pub random_write_interval: Option<Time>,
    /// What moving a row between two segments of its bank takes beyond its activation: its sense amplifiers drive the cells
    /// of the other segment, and no bus carries it. Absent where such moves go through the controller as any other.
    #[parameter(range = "0 ns or 0 cycles"..="1 s or 1000000 cycles")]
    #[serde(default)]
    pub t_transfer: Option<Span>,
    /// Parts of the device's addresses whose cells have other timing in the same banks (TL-DRAM's near segment), in
    /// rising order of addresses. What lies behind the last has the timing above.
    #[parameter(section)]
    #[serde(default)]
    pub segments: Vec<SegmentParameters>,
}

/// Cells with timing of their own: device addresses from the previous segment's end up to `end`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Parameters)]
#[parameter(table)]
#[serde(deny_unknown_fields)]
pub struct SegmentParameters {
    /// Device address behind the segment's last byte. Absent where a tier ends there: the first segment is then the first
    /// tier on the device, and so on.
    #[parameter(range = "64 B"..="8 TiB")]
    #[serde(default)]
    pub end: Option<Bytes>,
    /// Activate to column command.
    #[parameter(range = "0 ns or 0 cycles"..="1 s or 1000000 cycles")]
    pub t_rcd: Span,
    /// Precharge.
    #[parameter(range = "0 ns or 0 cycles"..="1 s or 1000000 cycles")]
    pub t_rp: Span,
    /// Activate to precharge.
    #[parameter(range = "0 ns or 0 cycles"..="1 s or 1000000 cycles")]
    pub t_ras: Span,
    /// Last written data to precharge.
    #[parameter(range = "0 ns or 0 cycles"..="1 s or 1000000 cycles")]
    pub t_wr: Span,
}

/// A medium that is read and written in blocks, behind a buffer of blocks that combines reads and writes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Parameters)]
#[parameter(table)]
#[serde(deny_unknown_fields)]
pub struct MediaParameters {
    /// Bytes moved between buffer and medium at a time; a power of two of at most 64 lines.
    #[parameter(range = "64 B"..="4 KiB")]
    pub block: Bytes,
    /// Blocks in the buffer of one channel's module.
    #[parameter(range = 4..=65536)]
    pub buffer_blocks: u32,
    /// Time of an access to the buffer.
    #[parameter(range = "0 ns"..="1 s")]
    pub buffer_latency: Time,
    /// Time from the start of a block's read until it is in the buffer.
    #[parameter(range = "0 ns"..="1 s")]
    pub read_latency: Time,
    /// Time the medium is busy with a block's read: the inverse of its read rate.
    #[parameter(range = "0 ns"..="1 s")]
    pub read_interval: Time,
    /// Time the medium is busy with a block's write: the inverse of its write rate.
    #[parameter(range = "0 ns"..="1 s")]
    pub write_interval: Time,
}

/// Energy per operation, for one channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Parameters)]
#[parameter(table)]
#[serde(deny_unknown_fields)]
pub struct DeviceEnergyParameters {
    /// One activation with its precharge.
    #[parameter(range = "0 pJ"..="1000 J")]
    pub activate: Energy,
    /// One line read from a row buffer or module buffer.
    #[parameter(range = "0 pJ"..="1000 J")]
    pub read: Energy,
    /// One line written to it.
    #[parameter(range = "0 pJ"..="1000 J")]
    pub write: Energy,
    /// One refresh of a channel.
    #[parameter(range = "0 pJ"..="1000 J")]
    #[serde(default)]
    pub refresh: Energy,
    /// Drawn by each channel in each second.
    #[parameter(range = "0 pJ"..="1000 J")]
    pub background_per_second: Energy,
    /// One block read from the medium.
    #[parameter(range = "0 pJ"..="1000 J")]
    #[serde(default)]
    pub media_read: Energy,
    /// One block written to the medium, or one row written back by a dirty precharge.
    #[parameter(range = "0 pJ"..="1000 J")]
    #[serde(default)]
    pub media_write: Energy,
}

impl DeviceParameters {
    /// Errors: which key has an impossible value, and what would be possible.
    pub fn validate(&self) -> Result<(), String> {
        let positive = |name: &str, value: u64| {
            if value > 0 { Ok(()) } else { Err(format!("{name} must be above zero")) }
        };
        let lines = |name: &str, bytes: Bytes| {
            if bytes.0 >= LINE_BYTES && bytes.0.is_power_of_two() {
                Ok(())
            } else {
                Err(format!("{name} is {bytes}; it must be a power of two of at least {LINE_BYTES} B"))
            }
        };
        if !(1..=64).contains(&self.channels) {
            return Err(format!("channels is {}; it must be 1 to 64", self.channels));
        }
        lines("channel_interleave", self.channel_interleave)?;
        if self.clock.0 < 1e3 || self.bus_bandwidth.0 < 1e6 {
            return Err("clock must be at least 1 kHz and bus_bandwidth at least 1 MB/s".to_owned());
        }
        if !(1..=4096).contains(&self.write_queue) {
            return Err(format!("write_queue is {}; it must be 1 to 4096", self.write_queue));
        }
        match (&self.bank, &self.media) {
            (Some(bank), None) => {
                for (name, value) in [("bank.ranks", bank.ranks), ("bank.banks", bank.banks)] {
                    if !value.is_power_of_two() || value > 64 {
                        return Err(format!("{name} is {value}; it must be a power of two of at most 64"));
                    }
                }
                lines("bank.row", bank.row)?;
                lines("bank.bank_interleave", bank.bank_interleave)?;
                if bank.bank_interleave > bank.row {
                    return Err("bank.bank_interleave must be at most bank.row".to_owned());
                }
                if !(bank.drain_low < bank.drain_high && bank.drain_high <= self.write_queue) {
                    return Err(format!(
                        "bank.drain_low is {}, bank.drain_high {}, write_queue {}; it must be low < high <= queue",
                        bank.drain_low, bank.drain_high, self.write_queue
                    ));
                }
                match (bank.t_refi, bank.t_rfc) {
                    (Some(interval), Some(span)) if interval > span => {}
                    (None, None) => {}
                    _ => {
                        return Err("bank.t_refi and bank.t_rfc come together, t_refi the longer".to_owned());
                    }
                }
                if bank.random_write_interval.is_some() && bank.random_access_interval.is_none() {
                    return Err("bank.random_write_interval needs bank.random_access_interval".to_owned());
                }
                if bank.t_transfer.is_some() && bank.segments.is_empty() {
                    return Err("bank.t_transfer needs bank.segments: rows move between segments".to_owned());
                }
                if bank.segments.len() > 7
                    || !bank.segments.is_sorted_by(|a, b| a.end < b.end || b.end.is_none())
                {
                    return Err("bank.segments must be at most 7, each with a higher end".to_owned());
                }
                Ok(())
            }
            (None, Some(media)) => {
                lines("media.block", media.block)?;
                if media.block.0 / LINE_BYTES > 64 {
                    return Err(format!("media.block is {}; it must be at most 4 KiB", media.block));
                }
                if !media.buffer_blocks.is_power_of_two() || !(4..=65536).contains(&media.buffer_blocks) {
                    return Err(format!(
                        "media.buffer_blocks is {}; it must be a power of two from 4 to 65536",
                        media.buffer_blocks
                    ));
                }
                if self.channel_interleave < media.block {
                    return Err("channel_interleave must be at least media.block".to_owned());
                }
                positive("media.read_interval", media.read_interval.0)?;
                positive("media.write_interval", media.write_interval.0)
            }
            _ => Err("a device needs either a [bank] or a [media] table".to_owned()),
        }
    }

    /// Segments without an end get one: where a tier ends. `tiers`: those that lie on the device, in their order.
    ///
    /// # Errors
    /// There is no tier for a segment, or none for what lies behind the last segment.
    pub fn end_segments(&mut self, tiers: impl Iterator<Item = Bytes>) -> Result<(), String> {
        let ends: Vec<u64> = tiers
            .scan(0, |end, capacity| {
                *end += capacity.0;
                Some(*end)
            })
            .collect();
        let segments = self.bank.iter_mut().flat_map(|bank| &mut bank.segments);
        for (at, segment) in segments.enumerate().filter(|(_, segment)| segment.end.is_none()) {
            let end = ends.get(at).filter(|_| at + 1 < ends.len()).ok_or_else(|| {
                format!(
                    "bank.segments.{at} has no end and ends where a tier does, but {} lie on the device: give the device \
                     one tier more than it has segments, or set bank.segments.{at}.end",
                    ends.len()
                )
            })?;
            segment.end = Some(Bytes(*end));
        }
        Ok(())
    }

    /// Time of a line on the bus.
    pub fn burst(&self) -> Time {
        Time((LINE_BYTES as f64 * 1e15 / self.bus_bandwidth.0).round() as u64)
    }
}
