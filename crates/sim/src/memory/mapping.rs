//! Line number to channel, bank and row.
//!
//! Consecutive units of `channel_interleave` go round the channels, then consecutive units of `bank_interleave` round
//! the banks of all ranks. Powers of two are permuted by an exclusive-or with the bits above (permutation-based page
//! interleaving, Zhang, Zhu and Zhang, MICRO 2000), so that no power-of-two stride falls on a single channel or bank.
//! Three or six channels are taken by modulo, without permutation.

use std::ops::Add;
use terrace_model::LINE_BYTES;

/// A line of 64 bytes of a device, by its number there. The first line of each device is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceLine(pub u64);

impl Add<u64> for DeviceLine {
    type Output = DeviceLine;

    #[inline(always)]
    fn add(self, lines: u64) -> DeviceLine {
        DeviceLine(self.0 + lines)
    }
}

/// A line of a channel, by its number there. The first line of each channel is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ChannelLine(pub(super) u64);

/// Where a line lies within its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChannelPlace {
    /// Channel.
    pub(super) channel: usize,
    /// The line within the channel.
    pub(super) line: ChannelLine,
}

/// Splits device lines over channels.
#[derive(Clone, Debug)]
pub(super) struct ChannelMap {
    channels: u64,
    /// `ceil(2^64 / channels)`: a multiplication instead of a division.
    reciprocal: u128,
    /// log2 of the channels where they are a power of two.
    channel_bits: Option<u32>,
    unit_bits: u32,
}

impl ChannelMap {
    /// `unit` lines, a power of two, per channel in turn.
    pub(super) fn new(channels: u32, unit_lines: u64) -> ChannelMap {
        let channels = u64::from(channels);
        ChannelMap {
            channels,
            reciprocal: (1u128 << 64).div_ceil(u128::from(channels)),
            channel_bits: channels.is_power_of_two().then(|| channels.trailing_zeros()),
            unit_bits: unit_lines.trailing_zeros(),
        }
    }

    /// The channel of a device line, and its number there.
    #[inline]
    pub(super) fn locate(&self, DeviceLine(line): DeviceLine) -> ChannelPlace {
        let unit = line >> self.unit_bits;
        let offset = line & ((1 << self.unit_bits) - 1);
        let (upper, channel) = match self.channel_bits {
            Some(0) => (unit, 0),
            Some(bits) => {
                let upper = unit >> bits;
                (upper, (unit ^ fold(upper, bits)) & (self.channels - 1))
            }
            None => {
                // Exact below 2^64 / channels units, which no memory reaches.
                let upper = ((u128::from(unit) * self.reciprocal) >> 64) as u64;
                (upper, unit - upper * self.channels)
            }
        };
        let line = ChannelLine((upper << self.unit_bits) | offset);
        ChannelPlace { channel: channel as usize, line }
    }
}

/// A line's bank (over all ranks) and row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BankRow {
    /// Bank, counted over all ranks of the channel.
    pub(super) bank: usize,
    /// Row within the bank.
    pub(super) row: u64,
}

/// Splits channel lines over banks and rows.
#[derive(Clone, Debug)]
pub(super) struct BankMap {
    bank_bits: u32,
    unit_bits: u32,
    units_per_row_bits: u32,
    permute: bool,
}

impl BankMap {
    /// `banks` over all ranks, `unit_lines` per bank in turn, `row_lines` per row; all powers of two.
    pub(super) fn new(banks: u32, unit_lines: u64, row_lines: u64, permute: bool) -> BankMap {
        BankMap {
            bank_bits: banks.trailing_zeros(),
            unit_bits: unit_lines.trailing_zeros(),
            units_per_row_bits: (row_lines / unit_lines).trailing_zeros(),
            permute,
        }
    }

    /// The bank and row of a channel line.
    #[inline]
    pub(super) fn locate(&self, ChannelLine(line): ChannelLine) -> BankRow {
        let unit = line >> self.unit_bits;
        let row = (unit >> self.bank_bits) >> self.units_per_row_bits;
        let permutation = if self.permute { fold(row, self.bank_bits) } else { 0 };
        BankRow { bank: ((unit ^ permutation) & ((1 << self.bank_bits) - 1)) as usize, row }
    }
}

/// Exclusive-or of up to sixteen consecutive groups of `bits` bits; the lowest `bits` bits of the result count.
#[inline]
fn fold(value: u64, bits: u32) -> u64 {
    let mut folded = value;
    if bits * 8 < 64 {
        folded ^= folded >> (bits * 8);
    }
    folded ^= folded >> (bits * 4);
    folded ^= folded >> (bits * 2);
    folded ^ (folded >> bits)
}

/// Lines in `bytes`.
pub(super) fn lines(bytes: u64) -> u64 {
    bytes / LINE_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_line_has_a_place_of_its_own() {
        for channels in [1, 2, 3, 4, 6, 8, 12, 16] {
            let map = ChannelMap::new(channels, 4);
            let banks = BankMap::new(16, 32, 128, true);
            let mut seen = HashSet::new();
            for line in 0..200_000u64 {
                let place = map.locate(DeviceLine(line));
                assert!(place.channel < channels as usize);
                assert!(seen.insert((place.channel, place.line)), "{channels} channels, line {line}");
                assert!(banks.locate(place.line).bank < 16);
            }
        }
    }

    #[test]
    fn a_row_holds_its_number_of_lines() {
        let banks = BankMap::new(8, 16, 128, true);
        let mut lines_of = std::collections::HashMap::new();
        for line in 0..8 * 128 * 64 {
            let place = banks.locate(ChannelLine(line));
            *lines_of.entry((place.bank, place.row)).or_insert(0u32) += 1;
        }
        assert_eq!(lines_of.len(), 8 * 64);
        assert!(lines_of.values().all(|&lines| lines == 128));
    }

    #[test]
    fn power_of_two_strides_use_every_channel_evenly() {
        for stride_bits in 0..16 {
            let map = ChannelMap::new(4, 4);
            let mut count = [0u32; 4];
            for index in 0..4096u64 {
                count[map.locate(DeviceLine(index << stride_bits)).channel] += 1;
            }
            assert!(count.iter().all(|&n| n == 1024), "stride 2^{stride_bits} lines: {count:?}");
        }
    }
}
