//! The decoder's shortest way: what a translated block's instructions have in common every time they run is worked out
//! once, and from then on the block's records are compared with it and decoded all at once.
//!
//! The records of a block's run differ from one execution to the next in the addresses, in the instructions retired before
//! it, and in what its first addresses derive from. Everything else is in its [`Template`]: what the records' second words
//! must be, from which of them and how far each address is, sizes, kinds and instruction counts of the accesses, and for
//! each dependence either a load of the run itself or up to two registers whose origins lie before it. With 8 accesses in a
//! template the work is a few vector instructions, however many of them it has.

#![cfg_attr(
    not(target_arch = "x86_64"),
    allow(
        dead_code,
        unused_imports,
        unused_variables,
        reason = "blocks are decoded by AVX2, elsewhere record by record"
    )
)]

mod template;

use crate::entries::{ADDRESS_BITS, ADDRESS_MASK, Entries, Record};
use crate::origins::Origins;
use std::ops::Range;
pub use template::LANES;
use template::{Derived, KNOWN, Template};
use terrace_protocol::entry::REGISTERS;
use terrace_protocol::layout::{BLOCK_ENTRIES, BLOCKS};
use terrace_trace::AccessKind;

/// Entries in the whole table.
const ENTRIES: usize = BLOCKS * BLOCK_ENTRIES;

/// What the index says of an entry: its template's number, with the template's records and accesses above it. To find the
/// next block's first record must not wait for the template itself.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Found(u32);

const _: () = assert!(Found::MOST <= 1 << Found::BITS);

impl Found {
    /// Not looked at yet.
    const NEW: Found = Found(0);
    /// No template begins here.
    const NONE: Found = Found(1);
    /// The least number of a template.
    const FIRST: usize = 2;
    /// Bits of a template's number.
    const BITS: u32 = 24;
    /// No more templates than these, 160 MiB with the instruction addresses: the recorder's memory is bounded.
    const MOST: usize = 1 << 19;

    /// A template; `None` if there are too many.
    fn new(number: usize, template: &Template) -> Option<Found> {
        let counts = u32::from(template.records) | u32::from(template.accesses) << 4;
        (number < Found::MOST).then_some(Found(number as u32 | counts << Found::BITS))
    }

    #[inline(always)]
    fn number(self) -> usize {
        (self.0 & ((1 << Found::BITS) - 1)) as usize
    }

    #[inline(always)]
    fn records(self) -> usize {
        (self.0 >> Found::BITS & 15) as usize
    }

    #[inline(always)]
    fn accesses(self) -> usize {
        (self.0 >> (Found::BITS + 4)) as usize
    }
}
/// The templates of all blocks seen.
pub struct Blocks {
    /// Templates by the number of the entry with which a block begins: a [`Found`] as a number, because zeroed memory that
    /// is never touched costs nothing.
    index: Vec<u32>,
    templates: Vec<Template>,
    /// Instruction addresses of their accesses.
    pcs: Vec<[u64; LANES]>,
    /// Places in `templates` whose blocks are gone.
    free: Vec<usize>,
}

impl Default for Blocks {
    fn default() -> Blocks {
        Blocks {
            index: vec![Found::NEW.0; ENTRIES],
            templates: vec![Template::new(); Found::FIRST],
            pcs: vec![[0; LANES]; Found::FIRST],
            free: Vec::new(),
        }
    }
}

impl Blocks {
    /// Templates there are.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.templates.len() - Found::FIRST - self.free.len()
    }

    /// Forgets what begins with these entries, because others take their places.
    pub fn forget(&mut self, entries: Range<usize>) {
        for found in &mut self.index[entries] {
            let gone = Found(std::mem::replace(found, Found::NEW.0)).number();
            if gone >= Found::FIRST {
                self.free.push(gone);
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn learn(&mut self, entries: Entries, number: usize) -> Found {
        let made = Template::make(entries, number as u32);
        let place = self.free.last().copied().unwrap_or(self.templates.len());
        let made = made.and_then(|(template, pcs)| Some((Found::new(place, &template)?, template, pcs)));
        let found = made.map_or(Found::NONE, |(found, template, pcs)| {
            if self.free.pop().is_none() {
                self.templates.push(template);
                self.pcs.push(pcs);
            } else {
                (self.templates[place], self.pcs[place]) = (template, pcs);
            }
            found
        });
        self.index[number] = found.0;
        found
    }
}

/// Columns of a batch from the next access on, each with room for [`LANES`] more accesses than asked for.
#[derive(Clone, Copy)]
pub struct Places {
    pub addr: *mut u64,
    pub size: *mut u8,
    pub kind: *mut AccessKind,
    pub depends_on: *mut u8,
    pub instructions: *mut u16,
    /// Null where instruction addresses are not wanted.
    pub pc: *mut u64,
}

impl Blocks {
    /// Whether this processor has what [`Blocks::decode`] needs.
    pub fn can_decode() -> bool {
        #[cfg(target_arch = "x86_64")]
        return std::arch::is_x86_feature_detected!("avx2");
        #[cfg(not(target_arch = "x86_64"))]
        return false;
    }

    /// Decodes `records` block by block until one is not as expected, until fewer than [`LANES`] are left, or until another
    /// block would exceed `room` accesses. Returns how many records and accesses those were.
    ///
    /// # Safety
    /// [`Blocks::can_decode`], and each column of `out` is writable for `room` + [`LANES`] accesses.
    pub unsafe fn decode<const DEPENDENCES: bool, const PCS: bool>(
        &mut self,
        records: &[Record],
        entries: Entries,
        room: usize,
        out: Places,
        carry: &mut u64,
        origins: &mut Origins,
    ) -> (usize, usize) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: promised by the caller.
        return unsafe {
            self.decode_vector::<DEPENDENCES, PCS>(records, entries, room, out, carry, origins)
        };
        #[cfg(not(target_arch = "x86_64"))]
        return (0, 0);
    }

    /// See [`Blocks::decode`].
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    unsafe fn decode_vector<const DEPENDENCES: bool, const PCS: bool>(
        &mut self,
        records: &[Record],
        entries: Entries,
        room: usize,
        out: Places,
        carry: &mut u64,
        origins: &mut Origins,
    ) -> (usize, usize) {
        use std::arch::x86_64::*;
        let known = _mm256_set1_epi64x(KNOWN as i64);
        let address = _mm256_set1_epi64x(ADDRESS_MASK as i64);
        // Constants are a distance from the last place, where no run has a record.
        let last = _mm256_set_epi64x(0, -1, -1, -1);
        let one = _mm_set1_epi8(1);
        let mut pending = *carry;
        let mut registers = origins.load_vector();
        let (mut at, mut length) = (0, 0);
        while at + LANES <= records.len() {
            let number = records[at][1] as usize % ENTRIES;
            let mut found = Found(self.index[number]);
            if found == Found::NEW {
                found = self.learn(entries, number);
            }
            // SAFETY: the index holds places in `templates` only.
            let template = unsafe { self.templates.get_unchecked(found.number()) };
            let instructions = pending + (records[at][0] >> ADDRESS_BITS) + u64::from(template.before);
            if found == Found::NONE || length + found.accesses() > room || instructions > u64::from(u16::MAX)
            {
                break;
            }
            // SAFETY: LANES records lie from `at` on, the template's arrays are as long, and the columns have room for that
            // many from `length` on.
            unsafe {
                let record = records.as_ptr().add(at).cast::<__m256i>();
                let word = template.words.as_ptr().cast::<__m256i>();
                let mut equal = 0;
                let mut firsts = [last; LANES / 4];
                for (four, firsts) in firsts.iter_mut().enumerate() {
                    let a = _mm256_loadu_si256(record.add(2 * four));
                    let b = _mm256_loadu_si256(record.add(2 * four + 1));
                    let seconds = _mm256_and_si256(_mm256_unpackhi_epi64(a, b), known);
                    let same = _mm256_cmpeq_epi64(seconds, _mm256_load_si256(word.add(four)));
                    equal |= _mm256_movemask_pd(_mm256_castsi256_pd(same)) << (4 * four);
                    *firsts = _mm256_unpacklo_epi64(a, b);
                }
                if equal as u8 | template.absent != u8::MAX {
                    break;
                }
                if template.continued != 0 && !template.continues(&records[at..]) {
                    break;
                }
                let eight = |bytes: *const u8| _mm_loadl_epi64(bytes.cast());
                firsts[1] = _mm256_and_si256(firsts[1], last);
                let column = out.addr.add(length).cast::<__m256i>();
                for four in 0..LANES / 4 {
                    let from = _mm256_cvtepi8_epi32(eight(template.from[4 * four].as_ptr().cast()));
                    let [a, b] =
                        firsts.map(|firsts| _mm256_castsi256_pd(_mm256_permutevar8x32_epi32(firsts, from)));
                    let base = _mm256_castpd_si256(_mm256_blendv_pd(a, b, _mm256_castsi256_pd(from)));
                    let distance = _mm256_load_si256(template.distance.as_ptr().cast::<__m256i>().add(four));
                    let sum = _mm256_and_si256(_mm256_add_epi64(base, distance), address);
                    _mm256_storeu_si256(column.add(four), sum);
                }
                _mm_storel_epi64(out.size.add(length).cast(), eight(template.size.as_ptr()));
                _mm_storel_epi64(out.kind.add(length).cast(), eight(template.kind.as_ptr().cast()));
                let counts = _mm_loadu_si128(template.instructions.as_ptr().cast());
                let counts = _mm_or_si128(counts, _mm_cvtsi64_si128(instructions as i64));
                _mm_storeu_si128(out.instructions.add(length).cast(), counts);
                if DEPENDENCES {
                    let Derived { first, second, distance } = &template.dependences;
                    let first = _mm_shuffle_epi8(registers, eight(first.as_ptr()));
                    let second = _mm_shuffle_epi8(registers, eight(second.as_ptr()));
                    let nearer = _mm_adds_epu8(_mm_min_epu8(first, second), eight(distance.as_ptr()));
                    _mm_storel_epi64(out.depends_on.add(length).cast(), _mm_add_epi8(nearer, one));
                    let sixteen = |bytes: &[u8; REGISTERS]| _mm_loadu_si128(bytes.as_ptr().cast());
                    let Derived { first, second, distance } = &template.registers;
                    let first = _mm_shuffle_epi8(registers, sixteen(first));
                    let second = _mm_shuffle_epi8(registers, sixteen(second));
                    registers = _mm_adds_epu8(_mm_min_epu8(first, second), sixteen(distance));
                } else {
                    _mm_storel_epi64(out.depends_on.add(length).cast(), _mm_setzero_si128());
                }
                if PCS {
                    out.pc
                        .add(length)
                        .copy_from_nonoverlapping(self.pcs.get_unchecked(found.number()).as_ptr(), LANES);
                }
            }
            // Without a branch: which blocks have accesses is as hard to foretell as the program.
            let none = u64::from(found.accesses() == 0).wrapping_neg();
            pending = u64::from(template.tail) + (instructions & none);
            length += found.accesses();
            at += found.records();
        }
        *carry = pending;
        origins.store_vector(registers);
        (at, length)
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use terrace_protocol::entry::{Base, Entry, Expected, NO_DESTINATION, NO_REGISTER, shape};

    const LOAD: u64 = 1 << 16 | 3 << 4;
    const STORE: u64 = 2 << 16 | 3 << 4;

    /// A load or store of 8 bytes.
    fn entry(left: u8, loads: bool, address: [u8; 2], destination: u8) -> Entry {
        Entry {
            left,
            before: 1,
            callbacks: 1,
            destination,
            load_address: address,
            store_address: address,
            shape: shape::ONE,
            expected: Expected::new(3, 8, loads),
            ..Entry::UNKNOWN
        }
    }

    struct Decoded {
        records: usize,
        addr: Vec<u64>,
        depends_on: Vec<u8>,
        instructions: Vec<u16>,
        carry: u64,
    }

    fn decode(blocks: &mut Blocks, table: &[Entry], records: &[Record], room: usize) -> Decoded {
        let length = room + LANES;
        let (mut addr, mut depends_on, mut instructions) =
            (vec![0; length], vec![0; length], vec![0; length]);
        let (mut size, mut kind) = (vec![0; length], vec![AccessKind::Read; length]);
        let out = Places {
            addr: addr.as_mut_ptr(),
            size: size.as_mut_ptr(),
            kind: kind.as_mut_ptr(),
            depends_on: depends_on.as_mut_ptr(),
            instructions: instructions.as_mut_ptr(),
            pc: std::ptr::null_mut(),
        };
        let (mut carry, mut origins) = (0, Origins::default());
        // SAFETY: the tests name entries inside the table, ask before, and the columns are long enough.
        let (records, made) = unsafe {
            let entries = Entries::new(table.as_ptr());
            blocks.decode::<true, false>(records, entries, room, out, &mut carry, &mut origins)
        };
        for column in [&mut depends_on, &mut size] {
            column.truncate(made);
        }
        addr.truncate(made);
        instructions.truncate(made);
        assert!(size.iter().all(|&size| size == 8));
        Decoded { records, addr, depends_on, instructions, carry }
    }

    /// Twice rax := [rbx]; rcx := [rax + rdx]; [rbx + rcx] := something; three instructions behind it, and as many
    /// records of something else as a look at the last block reaches.
    #[test]
    fn a_block_by_hand() {
        if !Blocks::can_decode() {
            return;
        }
        let mut table = vec![Entry::UNKNOWN; 16];
        table[2] = entry(3, true, [3, NO_REGISTER], 0);
        table[3] = Entry { base: Base::new(1, 0), ..entry(2, true, [0, 2], 1) };
        table[4] = Entry { tail: 3, base: Base::new(2, 0), ..entry(1, false, [3, 1], NO_DESTINATION) };
        let run = |pending: u64, at: u64| {
            [[at | pending << 48, 2 | LOAD << 32], [at + 1, 3 | LOAD << 32], [at + 2, 4 | STORE << 32]]
        };
        let other = [[0, 1]; LANES];
        let records = [&run(0, 0x1000)[..], &run(9, 0x2000)[..], &other[..]].concat();
        let mut blocks = Blocks::default();
        let decoded = decode(&mut blocks, &table, &records, 100);
        assert_eq!((decoded.records, decoded.carry, blocks.count()), (6, 3, 1));
        assert_eq!(decoded.addr, [0x1000, 0x1001, 0x1002, 0x2000, 0x2001, 0x2002]);
        // The second load's address derives from the first load, the store's from the second; rbx from none.
        assert_eq!(decoded.depends_on, [0, 1, 1, 0, 1, 1]);
        assert_eq!(decoded.instructions, [1, 1, 1, 3 + 9 + 1, 1, 1]);
        // Cut short in the second run: what is left belongs to the other ways.
        let mut cut = records.clone();
        cut.remove(4);
        assert_eq!(decode(&mut blocks, &table, &cut, 100).records, 3);
        assert_eq!(decode(&mut blocks, &table, &records, 5).records, 3);
    }

    #[test]
    fn blocks_whose_entries_are_gone_are_forgotten() {
        if !Blocks::can_decode() {
            return;
        }
        let mut table = vec![Entry::UNKNOWN; 16];
        table[2] = entry(1, true, [3, NO_REGISTER], 0);
        let records = [[[0x1000, 2 | LOAD << 32]; 1].as_slice(), [[0, 1]; LANES].as_slice()].concat();
        let mut blocks = Blocks::default();
        assert_eq!(decode(&mut blocks, &table, &records, 100).instructions, [1]);
        table[2].before = 7;
        assert_eq!(decode(&mut blocks, &table, &records, 100).instructions, [1]);
        blocks.forget(0..BLOCK_ENTRIES);
        assert_eq!(blocks.count(), 0);
        assert_eq!(decode(&mut blocks, &table, &records, 100).instructions, [7]);
        assert_eq!((blocks.count(), blocks.templates.len()), (1, Found::FIRST + 1));
    }
}
