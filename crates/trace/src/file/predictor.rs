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
//! et al., "The VPC Trace-Compression Algorithms", IEEE Transactions on Computers 54(11), 2005), here with paths in place of
//! instruction addresses and with byte-aligned residuals, so that the decoder has no data-dependent branch.

use super::packed::{Packed, TABLE_BITS, spread};
use super::varint::zigzag;
use crate::{AccessKind, Batch};
use std::hint::select_unpredictable;

const TABLE: usize = 1 << TABLE_BITS;
const TABLE_MASK: u32 = TABLE as u32 - 1;
/// Tables, one behind the other in a flat array. The fourth is never used: with it, a place that is masked to the
/// array's length needs no check.
const WAYS: usize = 4;

/// Ways to predict: the number in a control byte.
const LONG: usize = 0;
const SHORT: usize = 1;
const SINGLE: usize = 2;
const PREVIOUS: u8 = 3;

/// How far a path hash moves with each access: its oldest description leaves after 13/2 or 13/5 accesses, rounded up.
const LONG_SHIFT: u32 = 2;
const SHORT_SHIFT: u32 = 5;

/// Bits of a control byte: the residual's length in bytes, 0 to 8, and above it the way of the prediction.
const LENGTH_BITS: u8 = 0xf;
const WAY_SHIFT: u32 = 4;

/// The residual's bits and its sign bit, by its length. A residual is the difference in two's complement, shortened.
const RESIDUAL: [(u64, u64); 16] = {
    let mut table = [(u64::MAX, 1 << 63); 16];
    table[0] = (0, 0);
    let mut length = 1;
    while length < 8 {
        table[length] = ((1 << (8 * length)) - 1, 1 << (8 * length - 1));
        length += 1;
    }
    table
};

/// The length of a residual.
#[inline(always)]
fn residual_length(residual: u64) -> u8 {
    // All bits equal to the sign bit become 0; one bit more for the sign, none for the difference 0.
    let magnitude = zigzag(residual);
    ((71 - magnitude.leading_zeros()) / 8) as u8
}

/// How many bytes of residuals these control bytes ask for.
pub(super) fn residual_bytes(control: &[u8]) -> usize {
    // Narrow sums first: that many of them are added at once.
    let sum = |part: &[u8]| part.iter().map(|&control| u16::from(control & LENGTH_BITS)).sum::<u16>();
    control.chunks(4096).map(|part| usize::from(sum(part))).sum()
}

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

/// The tables shared by the streams of a chunk.
#[derive(Debug)]
pub(super) struct Predictor {
    table: Box<[u64; WAYS * TABLE]>,
}

impl Default for Predictor {
    fn default() -> Predictor {
        let table = vec![0; WAYS * TABLE].into_boxed_slice();
        Predictor { table: table.try_into().unwrap_or_else(|_| unreachable!("the length is the array's")) }
    }
}

impl Predictor {
    /// Forgets everything: a chunk begins.
    pub(super) fn reset(&mut self) {
        self.table.fill(0);
    }

    /// Encodes the addresses of one batch, whose accesses have these codes.
    pub(super) fn encode(
        &mut self,
        state: &mut PathState,
        codes: &[u32],
        addresses: &[u64],
        control: &mut Vec<u8>,
        residuals: &mut Vec<u8>,
    ) {
        let table = &mut *self.table;
        let PathState { mut long, mut short, mut previous, seed } = *state;
        let mut at = residuals.len();
        residuals.resize(at + 8 * addresses.len(), 0);
        let begin = control.len();
        control.resize(begin + addresses.len(), 0);
        for ((control, &address), &code) in control[begin..].iter_mut().zip(addresses).zip(codes) {
            let places = Places::next(&mut long, &mut short, spread(code) ^ seed);
            if table[places.at(LONG)] == address {
                // The best there is, and what loops do: way 0, no residual.
                places.store(table, address);
                previous = address;
                continue;
            }
            // The shortest residual, the longest path among equals.
            let mut residual = address.wrapping_sub(table[places.at(LONG)]);
            let mut length = residual_length(residual);
            let mut way = LONG as u8;
            let mut shorter = |other: u64, other_way: u8| {
                let other_length = residual_length(other);
                let is_shorter = other_length < length;
                residual = select_unpredictable(is_shorter, other, residual);
                length = select_unpredictable(is_shorter, other_length, length);
                way = select_unpredictable(is_shorter, other_way, way);
            };
            shorter(address.wrapping_sub(table[places.at(SHORT)]), SHORT as u8);
            shorter(address.wrapping_sub(table[places.at(SINGLE)]), SINGLE as u8);
            shorter(address.wrapping_sub(previous), PREVIOUS);
            residuals[at..at + 8].copy_from_slice(&residual.to_le_bytes());
            at += usize::from(length);
            places.store(table, address);
            previous = address;
            *control = way << WAY_SHIFT | length;
        }
        residuals.truncate(at);
        *state = PathState { long, short, previous, seed };
    }

    /// Decodes the accesses of one batch, the reverse of [`Predictor::encode`], over the batch's columns, and
    /// returns how many bytes of `residuals` it used.
    ///
    /// This loop is most of what reading a trace costs: it keeps its state in registers, has no branch that depends
    /// on the data, and fills all columns at once, so that the columns' work hides the latency of the tables.
    ///
    /// # Panics
    /// When `residuals` does not reach 8 bytes beyond the last residual ([`residual_bytes`]).
    pub(super) fn decode(
        &mut self,
        state: &mut PathState,
        descriptions: impl ExactSizeIterator<Item = Packed>,
        control: &[u8],
        residuals: &[u8],
        batch: &mut Batch,
    ) -> usize {
        let table = &mut *self.table;
        let PathState { mut long, mut short, mut previous, seed } = *state;
        let mut at = 0;
        assert!(
            residual_bytes(control) + 8 <= residuals.len(),
            "residuals end before the last one's padding"
        );
        let length = control.len();
        // No element is filled where the batch was as long in its last use.
        batch.addr.resize(length, 0);
        batch.size.resize(length, 0);
        batch.kind.resize(length, AccessKind::Read);
        batch.depends_on.resize(length, 0);
        batch.instructions.resize(length, 0);
        let columns = batch.addr.iter_mut().zip(&mut batch.size).zip(&mut batch.kind);
        let columns = columns.zip(&mut batch.depends_on).zip(&mut batch.instructions);
        for ((((((address, size), kind), depends_on), instructions), &control), description) in
            columns.zip(control).zip(descriptions)
        {
            *size = description.size();
            *kind = description.kind();
            *depends_on = description.depends_on();
            *instructions = description.instructions();

            let places = Places::next(&mut long, &mut short, description.spread() ^ seed);
            // SAFETY: `at` is at most the sum of the lengths, and 8 bytes follow it: asserted above.
            let word = u64::from_le_bytes(unsafe { residuals.as_ptr().add(at).cast::<[u8; 8]>().read() });
            let length = usize::from(control & LENGTH_BITS);
            at += length;
            let (mask, sign) = RESIDUAL[length];
            let residual = ((word & mask) ^ sign).wrapping_sub(sign);
            let seen = table[places.chosen(control)];
            let predicted = select_unpredictable(control >> WAY_SHIFT & 3 == PREVIOUS, previous, seen);
            previous = predicted.wrapping_add(residual);
            places.store(table, previous);
            *address = previous;
        }
        *state = PathState { long, short, previous, seed };
        at
    }
}

/// Where the predictions of an access lie in the tables.
#[derive(Clone, Copy)]
struct Places {
    long: u32,
    short: u32,
    single: u32,
}

impl Places {
    /// Moves the path hashes on by an access whose spread code is `single`.
    #[inline(always)]
    fn next(long: &mut u32, short: &mut u32, single: u32) -> Places {
        *long = ((*long << LONG_SHIFT) ^ single) & TABLE_MASK;
        *short = ((*short << SHORT_SHIFT) ^ single) & TABLE_MASK;
        Places { long: *long, short: *short, single: single & TABLE_MASK }
    }

    /// The place of one way.
    #[inline(always)]
    fn at(self, way: usize) -> usize {
        let place = match way {
            LONG => self.long,
            SHORT => self.short,
            _ => self.single,
        };
        (way * TABLE + place as usize) & (WAYS * TABLE - 1)
    }

    /// The place of a control byte's way; any place for [`PREVIOUS`]. The three places lie in a word, so that
    /// choosing one is a shift.
    #[inline(always)]
    fn chosen(self, control: u8) -> usize {
        const BASES: u64 = (TABLE as u64) << 16 | (2 * TABLE as u64) << 32;
        let word = u64::from(self.long) | u64::from(self.short) << 16 | u64::from(self.single) << 32 | BASES;
        (word >> (control & 3 << WAY_SHIFT)) as usize & (WAYS * TABLE - 1)
    }

    /// Remembers an address in the three tables.
    #[inline(always)]
    fn store(self, table: &mut [u64; WAYS * TABLE], address: u64) {
        for way in [LONG, SHORT, SINGLE] {
            table[self.at(way)] = address;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::packed::Packed;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn residuals_are_as_short_as_their_value_allows() {
        for (residual, length) in [
            (0i64, 0),
            (1, 1),
            (-1, 1),
            (127, 1),
            (-128, 1),
            (128, 2),
            (-129, 2),
            (i64::MAX, 8),
            (i64::MIN, 8),
        ] {
            assert_eq!(residual_length(residual as u64), length, "{residual}");
            let (mask, sign) = RESIDUAL[length as usize];
            assert_eq!(((residual as u64 & mask) ^ sign).wrapping_sub(sign), residual as u64);
        }
    }

    #[test]
    fn a_walk_with_a_constant_step_costs_one_byte_an_access() {
        let addresses: Vec<u64> = (0..1000).map(|i| 0x7000_0000 + 8 * i).collect();
        let (mut control, mut residuals) = (Vec::new(), Vec::new());
        let codes = vec![0; addresses.len()];
        Predictor::default().encode(&mut PathState::new(0), &codes, &addresses, &mut control, &mut residuals);
        // The first access pays for its address; after the paths have settled every step is one byte, always 8.
        assert_eq!(&residuals[residuals.len() - 900..], [8u8; 900]);
    }

    proptest! {
        #[test]
        fn decoding_reverses_encoding(
            accesses in prop::collection::vec((any::<u64>(), 0u32..20, any::<bool>()), 0..300),
            split in 0usize..300,
        ) {
            // Two batches of two streams, each continued once, with far and near addresses.
            let addresses: Vec<u64> = accesses.iter().map(|a| if a.2 { a.0 } else { 0x5000 + a.0 % 512 }).collect();
            let codes: Vec<u32> = accesses.iter().map(|a| a.1).collect();
            let split = split.min(addresses.len());
            let (mut control, mut residuals) = (Vec::new(), Vec::new());
            let mut encoder = Predictor::default();
            let mut states = [PathState::new(0), PathState::new(1)];
            for round in 0..2 {
                for (stream, part) in [(0, 0..split), (1, split..addresses.len())] {
                    let part = if round == 0 { part } else { 0..part.len().min(addresses.len()) };
                    encoder.encode(&mut states[stream], &codes[part.clone()], &addresses[part], &mut control, &mut residuals);
                }
            }
            residuals.extend([0; 8]);
            let mut decoder = Predictor::default();
            let mut states = [PathState::new(0), PathState::new(1)];
            let (mut at, mut used) = (0, 0);
            for round in 0..2 {
                for (stream, part) in [(0, 0..split), (1, split..addresses.len())] {
                    let part = if round == 0 { part } else { 0..part.len().min(addresses.len()) };
                    let mut decoded = Batch::default();
                    let descriptions = codes[part.clone()].iter().map(|&code| Packed::default().with(code));
                    used += decoder.decode(
                        &mut states[stream], descriptions, &control[at..at + part.len()],
                        &residuals[used..], &mut decoded);
                    at += part.len();
                    prop_assert_eq!(&decoded.addr[..], &addresses[part]);
                }
            }
            prop_assert_eq!(used + 8, residuals.len());
        }
    }
}
