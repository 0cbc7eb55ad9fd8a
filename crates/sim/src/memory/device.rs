//! A device: its channels together, and the bounds that its parameters imply.

use super::bank_timing::BankTiming;
use super::banked::BankedChannel;
use super::counters::{DeviceCounters, DeviceEnergy, Initiator};
use super::mapping::{ChannelMap, DeviceLine, lines};
use super::media::{MediaChannel, MediaTiming};
use super::parameters::{DeviceParameters, SegmentParameters};
use terrace_model::{BytesPerSec, LINE_BYTES, Time};

/// A memory device. Lines are numbered from zero within the device, 64 bytes each; there is no highest line.
#[derive(Clone, Debug)]
pub struct Device {
    parameters: DeviceParameters,
    map: ChannelMap,
    channels: Channels,
    read_overhead: u64,
    counters: DeviceCounters,
}

#[derive(Clone, Debug)]
enum Channels {
    Banked(BankTiming, Vec<BankedChannel>),
    Media(MediaTiming, Vec<MediaChannel>),
}

impl Device {
    /// An idle device. Errors: parameters that [`DeviceParameters::validate`] refuses, with its message.
    pub fn new(parameters: &DeviceParameters) -> Result<Device, String> {
        parameters.validate()?;
        let count = parameters.channels as usize;
        let channels = match (&parameters.bank, &parameters.media) {
            (Some(bank), _) => Channels::Banked(
                BankTiming::new(parameters, bank),
                vec![BankedChannel::new(parameters, bank); count],
            ),
            (None, Some(media)) => Channels::Media(
                MediaTiming::new(parameters, media),
                vec![MediaChannel::new(parameters, media); count],
            ),
            (None, None) => unreachable!("validate refuses a device without bank and media"),
        };
        Ok(Device {
            map: ChannelMap::new(parameters.channels, lines(parameters.channel_interleave.0)),
            channels,
            read_overhead: parameters.controller_latency.0,
            counters: DeviceCounters::default(),
            parameters: parameters.clone(),
        })
    }

    /// The channel that a line lies on.
    #[inline]
    pub fn channel_of(&self, line: DeviceLine) -> usize {
        self.map.locate(line).channel
    }

    /// Reads a line: when its data are at the controller, ready to leave for the processor.
    #[inline]
    pub fn read(&mut self, line: DeviceLine, now: Time, by: Initiator) -> Time {
        self.counters.reads[by as usize] += 1;
        let place = self.map.locate(line);
        let done = match &mut self.channels {
            Channels::Banked(timing, channels) => {
                let segment = timing.segment(line);
                channels[place.channel].read(timing, &mut self.counters, place.line, segment, now.0)
            }
            Channels::Media(timing, channels) => {
                channels[place.channel].read(timing, &mut self.counters, place.line, now.0)
            }
        };
        Time(done + self.read_overhead)
    }

    /// Writes a line: when the controller has accepted it. Writes are posted: that is `now` unless the channel's write
    /// queue is full.
    #[inline]
    pub fn write(&mut self, line: DeviceLine, now: Time, by: Initiator) -> Time {
        self.counters.writes[by as usize] += 1;
        let place = self.map.locate(line);
        let accepted = match &mut self.channels {
            Channels::Banked(timing, channels) => {
                let segment = timing.segment(line);
                channels[place.channel].write(timing, &mut self.counters, place.line, segment, now.0)
            }
            Channels::Media(timing, channels) => {
                channels[place.channel].write(timing, &mut self.counters, place.line, now.0)
            }
        };
        Time(accepted)
    }

    /// Moves a line to a line of another segment by moving its row over the bitlines (TL-DRAM): when it is there. Both rows
    /// are taken to lie on the same bitlines, whatever the number of the line that it moves to says. None where the device
    /// has no such moves, or both lie in one segment: then the line goes through the controller.
    pub fn transfer(&mut self, from: DeviceLine, to: DeviceLine, now: Time, by: Initiator) -> Option<Time> {
        let place = self.map.locate(from);
        let Channels::Banked(timing, channels) = &mut self.channels else { return None };
        let segment = timing.segment(from);
        if !timing.transfers(segment, timing.segment(to)) {
            return None;
        }
        self.counters.reads[by as usize] += 1;
        self.counters.writes[by as usize] += 1;
        let channel = &mut channels[place.channel];
        Some(Time(channel.transfer(timing, &mut self.counters, place.line, segment, now.0)))
    }

    /// Reads `count` consecutive lines, issuing one every `pace`: when the last is at the controller. For runs short
    /// enough that other traffic need not come between; a copy of many pages is issued by its agent piece by piece.
    pub fn read_run(&mut self, first: DeviceLine, count: u64, now: Time, pace: Time, by: Initiator) -> Time {
        (0..count).fold(now, |last, index| last.max(self.read(first + index, now + pace.times(index), by)))
    }

    /// Writes `count` consecutive lines, issuing one every `pace` or, where the write queue is full, when the line
    /// before was accepted: when the last is accepted.
    pub fn write_run(&mut self, first: DeviceLine, count: u64, now: Time, pace: Time, by: Initiator) -> Time {
        (0..count)
            .fold(now, |accepted, index| self.write(first + index, accepted.max(now + pace.times(index)), by))
    }

    /// Writes `count` consecutive lines as a paced stream of 4 KiB pieces, each behind the one before: the buses are busy
    /// for as long as the lines take, without a look at single banks. For zeroing and copying whole pages, where
    /// line-by-line timing would cost more than everything else. Returns when the last piece was written.
    pub fn write_stream(
        &mut self,
        first: DeviceLine,
        count: u64,
        now: Time,
        pace: Time,
        by: Initiator,
    ) -> Time {
        const PIECE: u64 = 4096 / LINE_BYTES;
        let Channels::Banked(timing, channels) = &mut self.channels else {
            return self.write_run(first, count, now, pace, by);
        };
        self.counters.writes[by as usize] += count;
        let all = channels.len() as u64;
        let mut done = 0;
        let mut end = now.0;
        while done < count {
            let piece = PIECE.min(count - done);
            let at = end.max(now.0 + pace.0 * done);
            // Round robin by piece, so that remainders spread over all channels.
            let first_channel = (first.0 + done) / PIECE % all;
            for turn in 0..all.min(piece) {
                let lines = piece / all + u64::from(turn < piece % all);
                let channel = ((first_channel + turn) % all) as usize;
                end = end.max(channels[channel].write_piece(timing, &mut self.counters, lines, at));
            }
            done += piece;
        }
        Time(end)
    }

    /// Latency of a read of an idle device: from a closed bank, or from the medium. Of several segments, the last's.
    pub fn idle_read_latency(&self) -> Time {
        self.idle_read_latency_at(DeviceLine(u64::MAX))
    }

    /// Latency of a read of an idle device, for a line of the device, which lies in a segment.
    pub fn idle_read_latency_at(&self, line: DeviceLine) -> Time {
        Time(
            self.read_overhead
                + match &self.channels {
                    Channels::Banked(timing, _) => timing.closed_read(timing.segment(line)),
                    Channels::Media(timing, _) => timing.miss_read(),
                },
        )
    }

    /// Bandwidth of sequential reads: [`Device::peak_mixed`] of 1.
    pub fn peak_read_bandwidth(&self) -> BytesPerSec {
        self.peak_mixed(1.0)
    }

    /// Bandwidth of sequential writes: [`Device::peak_mixed`] of 0.
    pub fn peak_write_bandwidth(&self) -> BytesPerSec {
        self.peak_mixed(0.0)
    }

    /// The bound for sequential streams of which the share `read_share` (0 to 1) are reads.
    ///
    /// Banks: a line costs `burst`, and where both directions occur each write another
    /// `(read_to_write + write_to_read) / (drain_high - drain_low)`, the two turns of its batch; refresh leaves
    /// `1 - t_rfc / t_refi` of the time. Activations do not bind: a row serves many sequential lines.
    /// Medium: the larger of the bus's `burst` and the medium's
    /// `(read_share * read_interval + (1 - read_share) * write_interval) / lines per block`.
    pub fn peak_mixed(&self, read_share: f64) -> BytesPerSec {
        let reads = read_share.clamp(0.0, 1.0);
        let writes = 1.0 - reads;
        let burst = self.parameters.burst().as_secs();
        let per_line = match (&self.parameters.bank, &self.parameters.media) {
            (Some(bank), _) => {
                let period = self.parameters.clock.period();
                let turns = (bank.read_to_write.at(period) + bank.write_to_read.at(period)).as_secs();
                let turn =
                    if reads > 0.0 { turns / f64::from(bank.drain_high - bank.drain_low) } else { 0.0 };
                (burst + writes * turn) / self.refresh_free()
            }
            (None, Some(media)) => {
                let lines = (media.block.0 / LINE_BYTES) as f64;
                let medium = reads * media.read_interval.as_secs() + writes * media.write_interval.as_secs();
                burst.max(medium / lines)
            }
            (None, None) => unreachable!("validate refuses a device without bank and media"),
        };
        BytesPerSec(LINE_BYTES as f64 * f64::from(self.parameters.channels) / per_line)
    }

    /// The bound for reads of single lines at random, every one of which opens a row or reads a block. Banks: the
    /// least of the bus (less its refresh), the ranks' activation budgets, the channel's `random_access_interval` and
    /// all banks cycling at `t_ras + t_rp`.
    pub fn peak_random_read_bandwidth(&self) -> BytesPerSec {
        let burst = self.parameters.burst().as_secs();
        let per_line = match (&self.parameters.bank, &self.parameters.media) {
            (Some(bank), _) => {
                let at = |span: super::Span| span.at(self.parameters.clock.period()).as_secs();
                let ranks = f64::from(bank.ranks);
                let activation = at(bank.t_rrd).max(at(bank.t_faw) / 4.0) / ranks;
                let cycle = (at(bank.t_ras) + at(bank.t_rp)) / (ranks * f64::from(bank.banks));
                let cap = bank.random_access_interval.map_or(0.0, Time::as_secs);
                (burst / self.refresh_free()).max(activation).max(cycle).max(cap)
            }
            (None, Some(media)) => burst.max(media.read_interval.as_secs()),
            (None, None) => unreachable!("validate refuses a device without bank and media"),
        };
        BytesPerSec(LINE_BYTES as f64 * f64::from(self.parameters.channels) / per_line)
    }

    /// Share of the time that refresh leaves.
    fn refresh_free(&self) -> f64 {
        match self.parameters.bank.as_ref().map(|bank| (bank.t_refi, bank.t_rfc)) {
            Some((Some(interval), Some(span))) => 1.0 - span.as_secs() / interval.as_secs(),
            _ => 1.0,
        }
    }

    /// The device as if all writes that wait in its queues had been drained at `now`: at the end of a run they are
    /// counted by the rows that they would have found. The drains themselves count as none.
    pub fn settled(&self, now: Time) -> Device {
        let mut device = self.clone();
        if let Channels::Banked(timing, channels) = &mut device.channels {
            channels.iter_mut().for_each(|channel| channel.settle(timing, &mut device.counters, now.0));
        }
        device
    }

    /// What was counted so far.
    pub fn counters(&self) -> &DeviceCounters {
        &self.counters
    }

    /// The parameters the device was made from.
    pub fn parameters(&self) -> &DeviceParameters {
        &self.parameters
    }

    /// Refreshes of all channels up to `now`.
    pub fn refreshes(&self, now: Time) -> u64 {
        let interval = self.parameters.bank.as_ref().and_then(|bank| bank.t_refi);
        interval.map_or(0, |interval| now.0 / interval.0 * u64::from(self.parameters.channels))
    }

    /// Energy of what was counted, and of refresh and background from the start up to `now`.
    pub fn energy(&self, now: Time) -> DeviceEnergy {
        let each = &self.parameters.energy;
        let counted = &self.counters;
        let blocks_written = counted.media_writes + counted.dirty_precharges;
        DeviceEnergy {
            activate: counted.activations() as f64 * each.activate.0,
            read: counted.total_reads() as f64 * each.read.0,
            write: counted.total_writes() as f64 * each.write.0,
            media: counted.media_reads as f64 * each.media_read.0
                + blocks_written as f64 * each.media_write.0,
            refresh: self.refreshes(now) as f64 * each.refresh.0,
            background: f64::from(self.parameters.channels) * now.as_secs() * each.background_per_second.0,
        }
    }

    /// Lines below which each segment ends, as device addresses; for tiers that share the device.
    pub fn segments(&self) -> &[SegmentParameters] {
        self.parameters.bank.as_ref().map_or(&[], |bank| &bank.segments)
    }
}
