//! The timing of a channel of banks, and of the cells of its segments.

use super::mapping::{DeviceLine, lines};
use super::parameters::{BankParameters, DeviceParameters};

/// Timing of a channel in femtoseconds.
#[derive(Clone, Debug)]
pub(super) struct BankTiming {
    pub(super) burst: u64,
    pub(super) cl: u64,
    pub(super) cwl: u64,
    pub(super) rtp: u64,
    /// Between activations of a rank.
    pub(super) activation: u64,
    /// Between activations of the channel; 0 for no limit.
    pub(super) random_access: u64,
    pub(super) random_write: u64,
    pub(super) transfer: Option<u64>,
    pub(super) dirty_precharge: u64,
    pub(super) dirty_differs: bool,
    pub(super) close_after: Option<u64>,
    pub(super) refresh_interval: u64,
    pub(super) refresh: u64,
    pub(super) read_to_write: u64,
    pub(super) write_to_read: u64,
    pub(super) high: usize,
    pub(super) low: usize,
    pub(super) banks_per_rank_bits: u32,
    /// First line of the device behind each segment; the timing of a segment is at its index, the rest behind the last.
    segment_ends: Vec<DeviceLine>,
    pub(super) segments: Vec<CellTiming>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct CellTiming {
    pub(super) rcd: u64,
    pub(super) rp: u64,
    pub(super) rp_dirty: u64,
    pub(super) ras: u64,
    pub(super) wr: u64,
}

impl BankTiming {
    /// Timing of validated parameters.
    pub(super) fn new(device: &DeviceParameters, bank: &BankParameters) -> BankTiming {
        let period = device.clock.period();
        let fs = |span: super::Span| span.at(period).0;
        let cells = |rcd, rp, ras, wr| CellTiming {
            rcd: fs(rcd),
            rp: fs(rp),
            rp_dirty: bank.t_rp_dirty.map_or(fs(rp), fs),
            ras: fs(ras),
            wr: fs(wr),
        };
        let mut segments: Vec<_> =
            bank.segments.iter().map(|s| cells(s.t_rcd, s.t_rp, s.t_ras, s.t_wr)).collect();
        segments.push(cells(bank.t_rcd, bank.t_rp, bank.t_ras, bank.t_wr));
        BankTiming {
            burst: device.burst().0,
            cl: fs(bank.t_cl),
            cwl: fs(bank.t_cwl),
            rtp: fs(bank.t_rtp),
            activation: fs(bank.t_rrd).max(fs(bank.t_faw) / 4),
            random_access: bank.random_access_interval.map_or(0, |t| t.0),
            random_write: bank.random_write_interval.or(bank.random_access_interval).map_or(0, |t| t.0),
            transfer: bank.t_transfer.map(fs),
            dirty_precharge: bank.t_rrd_precharge.map_or(0, fs),
            dirty_differs: bank.t_rp_dirty.is_some(),
            close_after: bank.close_after.map(|t| t.0),
            refresh_interval: bank.t_refi.map_or(u64::MAX, |t| t.0),
            refresh: bank.t_rfc.map_or(0, |t| t.0),
            read_to_write: fs(bank.read_to_write),
            write_to_read: fs(bank.write_to_read),
            high: bank.drain_high as usize,
            low: bank.drain_low as usize,
            banks_per_rank_bits: bank.banks.trailing_zeros(),
            segment_ends: bank
                .segments
                .iter()
                .map(|s| DeviceLine(s.end.map_or(u64::MAX, |end| lines(end.0))))
                .collect(),
            segments,
        }
    }

    /// Which timing a device line has.
    #[inline]
    pub(super) fn segment(&self, line: DeviceLine) -> u8 {
        self.segment_ends.iter().take_while(|&&end| line >= end).count() as u8
    }

    /// Device time of a read of a closed bank, of a line of this segment.
    pub(super) fn closed_read(&self, segment: u8) -> u64 {
        self.segments[usize::from(segment)].rcd + self.cl + self.burst
    }

    /// Whether rows move between these segments within their bank.
    pub(super) fn transfers(&self, from: u8, to: u8) -> bool {
        self.transfer.is_some() && from != to
    }
}
