//! A channel of banks with row buffers: DRAM, PCM, TL-DRAM.
//!
//! The controller is first-ready, first-come first-served with posted writes (Rixner et al., ISCA 2000), reduced to
//! next free times:
//! - *Bus*: slots go out in order of arrival. A request that its bank delays leaves its slot to another that is ready;
//!   its data come as soon as the bank allows. So the bus never carries more than its rate, and reordering is ideal.
//!   The price: requests that find both bus and banks idle at one instant do not wait for each other's data, an error
//!   of a few bursts within `t_rcd`.
//! - *Bank*: knows the row that it opened or will open last, and the rows that its schedule still holds open before
//!   that. A request that arrives before such a row closes is served from it, as first-ready scheduling does.
//! - *Rank*: activations at most every `t_rrd` and four per `t_faw`, as a mean rate.
//! - *Writes* wait in a queue and are drained in batches, each of which turns the bus twice.
//! - *Late requests*: cores and agents are simulated in turn, and an access that waits for another before the next one
//!   that does not, so that requests come out of the order of time. A read before the latest request of its bank is
//!   served in time that the bank has idle before that, if there is enough soon, and so is a write that comes long
//!   before the latest. Else it waits as long as the latest does. What it takes is booked, and no clock is dragged to
//!   the latest's time.
//! - *Refresh* stops the channel for `t_rfc` every `t_refi` and closes all rows.

use super::bank_timing::BankTiming;
use super::calendar::Calendar;
use super::counters::DeviceCounters;
use super::mapping::{BankMap, ChannelLine, lines};
use super::parameters::{BankParameters, DeviceParameters};
use super::server::Server;

const NO_ROW: u64 = u64::MAX;

/// Rows a bank remembers from the schedule before its last row: about as many as the requests of a controller's queue
/// that wait for one bank.
const SCHEDULED_ROWS: usize = 8;

/// A late read waits as long for its row where that is scheduled to open: a microsecond in femtoseconds, some twenty rows.
const LONGEST_ROW_WAIT: u64 = 1_000_000_000;
/// Writes of one moment may come apart by this, under the heaviest load: 10 µs in femtoseconds. Further ahead is only the
/// kernel that zeroes or copies a huge page in one go. The queue keeps rows together, so that as many as can go through it.
const AHEAD_LIMIT: u64 = 10_000_000_000;

/// One bank.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
struct Bank {
    /// Open row, or the one being opened.
    row: u64,
    /// When `row` takes its next column command.
    ready: u64,
    activated: u64,
    /// When `row` may be closed.
    may_close: u64,
    last_column: u64,
    next_scheduled: u8,
    /// Timing class of `row`.
    segment: u8,
    dirty: bool,
    /// The open row has been moved to another segment.
    moved: bool,
    /// When the last of `scheduled` closes: requests after that need not look for theirs there.
    all_closed: u64,
    /// The latest arrival of a request.
    latest: u64,
    /// Rows before `row` in the schedule, a ring.
    scheduled: [ScheduledRow; SCHEDULED_ROWS],
}

/// A row whose closing is scheduled.
#[derive(Clone, Copy, Debug)]
struct ScheduledRow {
    row: u64,
    ready: u64,
    closes: u64,
    dirty: bool,
}

#[derive(Clone, Copy, Debug)]
struct QueuedWrite {
    line: ChannelLine,
    segment: u8,
}

/// How often rows are opened at most: in each rank, and in the channel.
#[derive(Clone, Debug)]
struct Limits {
    activations: Vec<Server>,
    random_access: Server,
}

impl Limits {
    /// Books a row's opening that is asked for at `now`; how long it waits.
    #[inline]
    fn wait(&mut self, timing: &BankTiming, rank: usize, now: u64, write: bool) -> u64 {
        let wait = self.activations[rank].reserve(now, timing.activation);
        if timing.random_access == 0 {
            return wait;
        }
        let interval = if write { timing.random_write } else { timing.random_access };
        wait.max(self.random_access.reserve(now, interval))
    }
}

/// One channel.
#[derive(Clone, Debug)]
pub(super) struct BankedChannel {
    map: BankMap,
    banks: Vec<Bank>,
    /// When each bank is busy, by its number.
    calendar: Calendar,
    limits: Limits,
    dirty_precharges: Vec<Server>,
    bus: Server,
    writing: bool,
    /// Reads since the bus last turned: without any there is nothing to turn back from.
    reads_since_drain: bool,
    next_refresh: u64,
    refresh_start: u64,
    refresh_end: u64,
    waiting: Vec<QueuedWrite>,
    /// When each entry of the write queue is free again, in the order of use.
    releases: Vec<u64>,
    accepted: usize,
    released: usize,
    /// The latest arrival of a write.
    latest_write: u64,
}

impl BankedChannel {
    /// An idle channel with all banks closed.
    pub(super) fn new(device: &DeviceParameters, bank: &BankParameters) -> BankedChannel {
        let closed = Bank {
            row: NO_ROW,
            ready: 0,
            activated: 0,
            may_close: 0,
            last_column: 0,
            next_scheduled: 0,
            segment: 0,
            dirty: false,
            moved: false,
            all_closed: 0,
            latest: 0,
            scheduled: [ScheduledRow { row: NO_ROW, ready: 0, closes: 0, dirty: false }; SCHEDULED_ROWS],
        };
        let count = bank.ranks * bank.banks;
        let unit = lines(bank.bank_interleave.0);
        BankedChannel {
            map: BankMap::new(count, unit, lines(bank.row.0), bank.bank_permutation),
            banks: vec![closed; count as usize],
            calendar: Calendar::of(count as usize),
            limits: Limits {
                activations: vec![Server::default(); bank.ranks as usize],
                random_access: Server::default(),
            },
            dirty_precharges: vec![Server::default(); bank.ranks as usize],
            bus: Server::default(),
            writing: false,
            reads_since_drain: false,
            next_refresh: bank.t_refi.map_or(u64::MAX, |t| t.0),
            refresh_start: 0,
            refresh_end: 0,
            waiting: Vec::with_capacity(bank.drain_high as usize),
            releases: vec![0; device.write_queue as usize],
            accepted: 0,
            released: 0,
            latest_write: 0,
        }
    }

    /// Reads a line; when its last byte is at the controller's pins.
    #[inline]
    pub(super) fn read(
        &mut self,
        timing: &BankTiming,
        counters: &mut DeviceCounters,
        line: ChannelLine,
        segment: u8,
        now: u64,
    ) -> u64 {
        if self.writing {
            self.writing = false;
            self.bus.occupy(now, timing.write_to_read);
        }
        self.reads_since_drain = true;
        let slot = self.slot(timing, now);
        let column = self.column(timing, counters, line, segment, now, slot, false);
        column + timing.cl + timing.burst
    }

    /// Moves the row of a line to another segment of its bank, over the bitlines: when its cells hold it. Lines of a row
    /// that has moved since it was opened have gone with it.
    pub(super) fn transfer(
        &mut self,
        timing: &BankTiming,
        counters: &mut DeviceCounters,
        line: ChannelLine,
        segment: u8,
        now: u64,
    ) -> u64 {
        let place = self.map.locate(line);
        let bank = &self.banks[place.bank];
        if bank.moved && bank.row == place.row && bank.activated >= self.refresh_start {
            return bank.ready.max(now);
        }
        let sensed = self.column(timing, counters, line, segment, now, now, false);
        let bank = &mut self.banks[place.bank];
        let done = sensed.max(bank.activated + timing.segments[usize::from(segment)].ras)
            + timing.transfer.unwrap_or(0);
        bank.ready = bank.ready.max(done);
        bank.may_close = bank.may_close.max(done);
        bank.moved = true;
        done
    }

    /// Queues a write; when the queue has taken it.
    #[inline]
    pub(super) fn write(
        &mut self,
        timing: &BankTiming,
        counters: &mut DeviceCounters,
        line: ChannelLine,
        segment: u8,
        now: u64,
    ) -> u64 {
        let late = self.latest_write.saturating_sub(now);
        if late > AHEAD_LIMIT
            && let Some(accepted) = self.write_in_idle_time(timing, counters, line, segment, now, late)
        {
            return accepted;
        }
        self.latest_write = self.latest_write.max(now);
        let accepted = self.latest_write.max(self.releases[self.accepted]);
        // Until it is drained, the entry's release is not known; a drain comes before the entries run out.
        self.accepted = self.following(self.accepted);
        self.waiting.push(QueuedWrite { line, segment });
        if self.waiting.len() >= timing.high {
            self.drain(timing, counters, accepted);
        }
        accepted - late
    }

    /// A write that comes long before those in the queue goes to the device while its bank is idle, and takes its share of
    /// the turns of the bus; when that has taken it.
    #[cold]
    fn write_in_idle_time(
        &mut self,
        timing: &BankTiming,
        counters: &mut DeviceCounters,
        line: ChannelLine,
        segment: u8,
        now: u64,
        late: u64,
    ) -> Option<u64> {
        let place = self.map.locate(line);
        let cells = &timing.segments[usize::from(segment)];
        self.calendar.fit(place.bank, now, now + late, cells.rp + cells.ras)?;
        counters.row_conflicts += 1;
        let rank = place.bank >> timing.banks_per_rank_bits;
        let limited = self.limits.wait(timing, rank, now, true);
        let batch = (timing.high - timing.low).max(1) as u64;
        let span = timing.burst + (timing.read_to_write + timing.write_to_read) / batch;
        Some(now + self.bus.reserve(now, span).max(limited))
    }

    /// Books the bus for `count` consecutive lines written in one go, all of them to rows opened for them, past the
    /// queue: when the bus has carried them. For bulk writes in pieces of at most a few kilobytes, whose exact interplay
    /// with banks does not matter.
    pub(super) fn write_piece(
        &mut self,
        timing: &BankTiming,
        counters: &mut DeviceCounters,
        count: u64,
        now: u64,
    ) -> u64 {
        let mut span = timing.burst * count;
        if self.reads_since_drain {
            span += timing.read_to_write;
            self.reads_since_drain = false;
        }
        self.writing = true;
        counters.row_misses += 1;
        counters.row_hits += count - 1;
        let start = self.bus.start(now);
        if start >= self.next_refresh {
            self.enter_refresh(timing, start, start > now);
        }
        self.bus.reserve(now, span);
        start + span
    }

    /// Writes the oldest waiting lines until the low mark is left.
    fn drain(&mut self, timing: &BankTiming, counters: &mut DeviceCounters, now: u64) {
        counters.write_drains += 1;
        self.write_waiting(timing, counters, now, timing.low);
    }

    /// Writes all waiting lines.
    pub(super) fn settle(&mut self, timing: &BankTiming, counters: &mut DeviceCounters, now: u64) {
        self.write_waiting(timing, counters, now, 0);
    }

    /// Writes the oldest waiting lines until `left` are.
    fn write_waiting(&mut self, timing: &BankTiming, counters: &mut DeviceCounters, now: u64, left: usize) {
        if self.reads_since_drain {
            self.bus.occupy(now, timing.read_to_write);
            self.reads_since_drain = false;
        }
        self.writing = true;
        let batch = self.waiting.len().saturating_sub(left);
        for index in 0..batch {
            let QueuedWrite { line, segment } = self.waiting[index];
            let slot = self.slot(timing, now);
            let column = self.column(timing, counters, line, segment, now, slot, true);
            self.releases[self.released] = column + timing.cwl + timing.burst;
            self.released = self.following(self.released);
        }
        self.waiting.drain(..batch);
    }

    #[inline]
    fn following(&self, entry: usize) -> usize {
        if entry + 1 == self.releases.len() { 0 } else { entry + 1 }
    }

    /// Books the bus for one line; when its column command may go out at the earliest.
    #[inline]
    fn slot(&mut self, timing: &BankTiming, now: u64) -> u64 {
        let start = self.bus.start(now);
        if start >= self.next_refresh {
            self.enter_refresh(timing, start, start > now);
        }
        now + self.bus.reserve(now, timing.burst)
    }

    /// Moves to the refresh interval that `start` falls into; the channel stands still during its refresh.
    #[cold]
    fn enter_refresh(&mut self, timing: &BankTiming, start: u64, backlog: bool) {
        let skipped = (start - self.next_refresh) / timing.refresh_interval;
        self.refresh_start = self.next_refresh + skipped * timing.refresh_interval;
        self.refresh_end = self.refresh_start + timing.refresh;
        self.next_refresh = self.refresh_start + timing.refresh_interval;
        if start < self.refresh_end {
            // The last slot of a backlog runs into the refresh, which therefore ends that much later.
            let overrun = if backlog { start - self.refresh_start } else { 0 };
            self.bus.hold(self.refresh_start, self.refresh_end + overrun);
        }
    }

    /// Brings the line's row into its bank's buffer and issues the column command; when that is. `slot` is the bus's
    /// earliest time for it, `now` the request's arrival, when its bank may begin to prepare.
    #[allow(clippy::too_many_arguments)]
    #[inline]
    fn column(
        &mut self,
        timing: &BankTiming,
        counters: &mut DeviceCounters,
        line: ChannelLine,
        segment: u8,
        now: u64,
        slot: u64,
        write: bool,
    ) -> u64 {
        let place = self.map.locate(line);
        let rank = place.bank >> timing.banks_per_rank_bits;
        let bank = &mut self.banks[place.bank];
        let calendar = &mut self.calendar;
        let latest = if write { now } else { bank.latest.max(now) };
        let late = latest - now;
        bank.latest = bank.latest.max(now);
        let refreshed = slot >= self.refresh_end && bank.activated < self.refresh_start;
        let now = if slot >= self.refresh_end { now.max(self.refresh_end) } else { now };

        if !refreshed && bank.row == place.row {
            let closes =
                timing.close_after.map_or(u64::MAX, |after| bank.may_close.max(bank.last_column + after));
            if now.max(latest) < closes {
                let column = bank.ready.max(slot + late);
                counters.row_hits += 1;
                let begin = column.max(bank.may_close);
                bank.touch(timing, column, write);
                calendar.book(place.bank, begin, bank.may_close);
                return column - late;
            }
        }
        let open = &timing.segments[usize::from(bank.segment)];
        debug_assert!(
            now < bank.all_closed
                || bank.scheduled.iter().all(|earlier| earlier.row != place.row || now >= earlier.closes)
        );
        let cells = &timing.segments[usize::from(segment)];
        let soon = if late > 0 { slot + LONGEST_ROW_WAIT } else { u64::MAX };
        if !refreshed
            && now < bank.all_closed
            && let Some(earlier) = (bank.scheduled.iter_mut())
                .find(|earlier| earlier.row == place.row && now < earlier.closes && earlier.ready <= soon)
        {
            counters.row_hits += 1;
            let column = earlier.ready.max(slot);
            earlier.ready = column + timing.burst;
            if write && timing.dirty_differs && !earlier.dirty {
                // The row's precharge was booked as a clean one: what follows in the bank moves back by the difference.
                earlier.dirty = true;
                counters.dirty_precharges += 1;
                bank.ready += open.rp_dirty - open.rp;
                bank.may_close += open.rp_dirty - open.rp;
            }
            return column;
        }

        if now < latest
            && let Some(wait) = calendar.fit(place.bank, now, latest, cells.rp + cells.ras)
        {
            counters.row_conflicts += 1;
            let wait = wait.max(self.limits.wait(timing, rank, now, write));
            let activated = now + wait + cells.rp;
            let column = slot.max(activated + cells.rcd);
            let (ready, closes) = (column + timing.burst, activated + cells.ras);
            bank.schedule(ScheduledRow { row: place.row, ready, closes, dirty: false });
            return column;
        }
        let (now, slot) = (now.max(latest), slot + late);
        let precharge = if bank.dirty && timing.dirty_differs { open.rp_dirty } else { open.rp };
        let idle_close = timing.close_after.map(|after| bank.may_close.max(bank.last_column + after));
        let prepared = if bank.row == NO_ROW || refreshed {
            counters.row_misses += 1;
            now
        } else if let Some(closed_at) = idle_close.filter(|&at| at <= now) {
            counters.row_misses += 1;
            if bank.dirty && timing.dirty_differs {
                counters.dirty_precharges += 1;
            }
            now.max(closed_at + precharge)
        } else {
            counters.row_conflicts += 1;
            let mut close = now.max(bank.may_close);
            if bank.dirty && timing.dirty_differs {
                counters.dirty_precharges += 1;
                close = close.max(now + self.dirty_precharges[rank].reserve(now, timing.dirty_precharge));
            }
            let row = ScheduledRow { row: bank.row, ready: bank.ready, closes: close, dirty: bank.dirty };
            bank.schedule(row);
            close + precharge
        };
        let budget = self.limits.wait(timing, rank, now, write);
        let activated = prepared.max(now + budget);
        let column = slot.max(activated + cells.rcd);
        bank.row = place.row;
        bank.segment = segment;
        bank.activated = activated;
        bank.dirty = false;
        bank.moved = false;
        let begin = bank.may_close.max(activated.saturating_sub(cells.rp));
        bank.may_close = activated + cells.ras;
        bank.touch(timing, column, write);
        calendar.book(place.bank, begin, bank.may_close);
        column - late
    }
}

impl Bank {
    /// A row closes at a known time.
    #[inline]
    fn schedule(&mut self, row: ScheduledRow) {
        self.scheduled[usize::from(self.next_scheduled)] = row;
        self.next_scheduled = (self.next_scheduled + 1) % SCHEDULED_ROWS as u8;
        self.all_closed = self.all_closed.max(row.closes);
    }

    /// A column command to the open row.
    #[inline]
    fn touch(&mut self, timing: &BankTiming, column: u64, write: bool) {
        let occupied = if write {
            self.dirty = true;
            timing.cwl + timing.burst + timing.segments[usize::from(self.segment)].wr
        } else {
            timing.rtp
        };
        self.ready = column + timing.burst;
        self.last_column = column;
        self.may_close = self.may_close.max(column + occupied);
    }
}
