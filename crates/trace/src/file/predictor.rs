//! Addresses as small residuals: four predictions for each access, the nearest one wins.
//!
//! A program's instruction touches addresses near those it touched before, but a trace often knows no instruction
//! addresses. The sequence of access *descriptions* (size, kind, dependence, instructions between; see
//! [`super::dictionary`]) names the place in the program nearly as well: in a path of a few accesses hardly two places
//! look alike. So each access has four predictions: the address last seen after the same long path (7 descriptions),
//! the same short path (3), the same description alone, and the stream's previous address. Stored are one control byte
//! (which prediction, how many residual bytes) and the residual's bytes. Loops make the control bytes and residuals
//! repeat, and zstd removes the repetition.
//!
//! Predicting several ways and storing the best way's number is the idea of the VPC trace compressors (M. Burtscher
//! et al., "The VPC Trace-Compression Algorithms", IEEE Transactions on Computers 54(11), 2005), here with paths in place of instruction
//! addresses and with byte-aligned residuals, so that the decoder has no data-dependent branch.

use super::varint::{unzigzag, zigzag};

/// Base-2 logarithm of the entries per table. Three tables of 64 KiB stay in a second-level cache.
const TABLE_BITS: u32 = 13;
const TABLE: usize = 1 << TABLE_BITS;
const TABLE_MASK: u32 = TABLE as u32 - 1;

/// Where each prediction lies in the one flat array; the last is the stream's previous address.
const LONG: usize = 0;
const SHORT: usize = TABLE;
const SINGLE: usize = 2 * TABLE;
const PREVIOUS: usize = 3 * TABLE;

/// How far a path hash moves with each access: its oldest description leaves after 13/2 or 13/5 accesses, rounded up.
const LONG_SHIFT: u32 = 2;
const SHORT_SHIFT: u32 = 5;

/// Bytes of the residual by the low three bits of the control byte.
pub(super) const RESIDUAL_BYTES: [u8; 8] = [0, 1, 2, 3, 4, 5, 6, 8];
const RESIDUAL_MASK: [u64; 8] =
    [0, 0xff, 0xffff, 0xff_ffff, 0xffff_ffff, 0xff_ffff_ffff, 0xffff_ffff_ffff, u64::MAX];

/// The residual's class by its number of leading zero bits.
const CLASS: [u8; 65] = {
    let mut table = [7u8; 65];
    let mut zeros = 0;
    while zeros <= 64 {
        let bytes = (64 - zeros as u32).div_ceil(8);
        table[zeros] = if bytes <= 6 { bytes as u8 } else { 7 };
        zeros += 1;
    }
    table
};

/// What the predictor keeps per stream from one batch of a chunk to the next.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PathState {
    long: u32,
    short: u32,
    previous: u64,
    seed: u32,
}

impl PathState {
    /// The state at a stream's first access in a chunk; `index` numbers the chunk's streams.
    pub(super) fn new(index: usize) -> PathState {
        PathState { seed: if index == 0 { 0 } else { spread(index as u32) }, ..PathState::default() }
    }
}

/// A description's code, spread over the table's index range.
#[inline]
pub(super) const fn spread(code: u32) -> u32 {
    code.wrapping_add(1).wrapping_mul(0x9e37_79b1) >> (32 - TABLE_BITS)
}

/// The tables shared by the streams of a chunk.
#[derive(Debug)]
pub(super) struct Predictor {
    table: Box<[u64; 4 * TABLE]>,
}

impl Default for Predictor {
    fn default() -> Predictor {
        let table = vec![0; 4 * TABLE].into_boxed_slice();
        Predictor { table: table.try_into().unwrap_or_else(|_| unreachable!("the length is the array's")) }
    }
}

impl Predictor {
    /// Forgets everything: a chunk begins.
    pub(super) fn reset(&mut self) {
        self.table.fill(0);
    }

    /// Encodes the addresses of one batch. `spreads` holds [`spread`] of each access's code.
    pub(super) fn encode(
        &mut self,
        state: &mut PathState,
        spreads: &[u32],
        addresses: &[u64],
        control: &mut Vec<u8>,
        residuals: &mut Vec<u8>,
    ) {
        let table = &mut *self.table;
        let PathState { mut long, mut short, seed, .. } = *state;
        table[PREVIOUS] = state.previous;
        let mut at = residuals.len();
        residuals.resize(at + 8 * addresses.len(), 0);
        control.extend(addresses.iter().zip(spreads).map(|(&address, &spread)| {
            let single = spread ^ seed;
            long = ((long << LONG_SHIFT) ^ single) & TABLE_MASK;
            short = ((short << SHORT_SHIFT) ^ single) & TABLE_MASK;
            let places = [
                LONG + long as usize,
                SHORT + short as usize,
                SINGLE + (single & TABLE_MASK) as usize,
                PREVIOUS,
            ];
            let residual = places.map(|place| zigzag(address.wrapping_sub(table[place])));
            // The shortest residual, the longest path among equals.
            let rank = |way: usize| CLASS[residual[way].leading_zeros() as usize] << 2 | way as u8;
            let best = rank(0).min(rank(1)).min(rank(2)).min(rank(3));
            let (way, class) = (best & 3, best >> 2);
            residuals[at..at + 8].copy_from_slice(&residual[way as usize].to_le_bytes());
            at += RESIDUAL_BYTES[class as usize] as usize;
            for place in places {
                table[place] = address;
            }
            way << 3 | class
        }));
        residuals.truncate(at);
        *state = PathState { long, short, previous: table[PREVIOUS], seed };
    }

    /// Decodes the addresses of one batch, the reverse of [`Predictor::encode`], and returns how many bytes of
    /// `residuals` it used. `residuals` must reach 8 bytes beyond the last residual; a control byte that points
    /// beyond it decodes to zeros, so that no input can make it panic.
    pub(super) fn decode(
        &mut self,
        state: &mut PathState,
        spreads: impl ExactSizeIterator<Item = u32>,
        control: &[u8],
        residuals: &[u8],
        addresses: &mut Vec<u64>,
    ) -> usize {
        let table = &mut *self.table;
        let PathState { mut long, mut short, seed, .. } = *state;
        table[PREVIOUS] = state.previous;
        let mut at = 0;
        addresses.extend(control.iter().zip(spreads).map(|(&control, spread)| {
            let single = spread ^ seed;
            long = ((long << LONG_SHIFT) ^ single) & TABLE_MASK;
            short = ((short << SHORT_SHIFT) ^ single) & TABLE_MASK;
            let places = [
                LONG + long as usize,
                SHORT + short as usize,
                SINGLE + (single & TABLE_MASK) as usize,
                PREVIOUS,
            ];
            let word = residuals
                .get(at..at + 8)
                .and_then(|bytes| bytes.try_into().ok())
                .map_or(0, u64::from_le_bytes);
            let class = (control & 7) as usize;
            at += RESIDUAL_BYTES[class] as usize;
            let prediction = table[places[(control >> 3 & 3) as usize]];
            let address = prediction.wrapping_add(unzigzag(word & RESIDUAL_MASK[class]));
            for place in places {
                table[place] = address;
            }
            address
        }));
        *state = PathState { long, short, previous: table[PREVIOUS], seed };
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn classes_cover_every_residual() {
        for bits in 0..64 {
            for residual in [1u64 << bits, (1 << bits) - 1, u64::MAX >> bits] {
                let class = CLASS[residual.leading_zeros() as usize] as usize;
                assert_eq!(residual & RESIDUAL_MASK[class], residual);
                assert!(
                    class == 0 || residual & !RESIDUAL_MASK[class - 1] != 0,
                    "{residual:#x} fits a shorter class"
                );
            }
        }
    }

    #[test]
    fn a_walk_with_a_constant_step_costs_one_byte_an_access() {
        let addresses: Vec<u64> = (0..1000).map(|i| 0x7000_0000 + 8 * i).collect();
        let (mut control, mut residuals) = (Vec::new(), Vec::new());
        let spreads = vec![spread(0); addresses.len()];
        Predictor::default().encode(
            &mut PathState::new(0),
            &spreads,
            &addresses,
            &mut control,
            &mut residuals,
        );
        // The first access pays for its address; after the paths have settled every step is one byte, always 16.
        assert_eq!(&residuals[residuals.len() - 900..], [16u8; 900]);
    }

    proptest! {
        #[test]
        fn decoding_reverses_encoding(
            accesses in prop::collection::vec((any::<u64>(), 0u32..20, any::<bool>()), 0..300),
            split in 0usize..300,
        ) {
            // Two batches of two streams, each continued once, with far and near addresses.
            let addresses: Vec<u64> = accesses.iter().map(|a| if a.2 { a.0 } else { 0x5000 + a.0 % 512 }).collect();
            let spreads: Vec<u32> = accesses.iter().map(|a| spread(a.1)).collect();
            let split = split.min(addresses.len());
            let (mut control, mut residuals) = (Vec::new(), Vec::new());
            let mut encoder = Predictor::default();
            let mut states = [PathState::new(0), PathState::new(1)];
            for round in 0..2 {
                for (stream, part) in [(0, 0..split), (1, split..addresses.len())] {
                    let part = if round == 0 { part } else { 0..part.len().min(addresses.len()) };
                    encoder.encode(&mut states[stream], &spreads[part.clone()], &addresses[part], &mut control, &mut residuals);
                }
            }
            residuals.extend([0; 8]);
            let mut decoder = Predictor::default();
            let mut states = [PathState::new(0), PathState::new(1)];
            let (mut at, mut used) = (0, 0);
            for round in 0..2 {
                for (stream, part) in [(0, 0..split), (1, split..addresses.len())] {
                    let part = if round == 0 { part } else { 0..part.len().min(addresses.len()) };
                    let mut decoded = Vec::new();
                    used += decoder.decode(
                        &mut states[stream], spreads[part.clone()].iter().copied(), &control[at..at + part.len()],
                        &residuals[used..], &mut decoded);
                    at += part.len();
                    prop_assert_eq!(&decoded[..], &addresses[part]);
                }
            }
            prop_assert_eq!(used + 8, residuals.len());
        }
    }
}
