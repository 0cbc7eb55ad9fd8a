//! The decoder's shortest way: what a translated block's instructions have in common every time they run is worked out
//! once, and from then on the block's records are compared with it and decoded all at once.
//!
//! A block's records differ from one run to the next in the addresses, in the instructions retired before it, and in what
//! its first addresses derive from. Everything else is in its [`Template`]: what the records' second words must be, sizes,
//! kinds and instruction counts of the accesses, and for each dependence either a load of the block itself or up to two
//! registers whose origins lie before it. With 8 accesses in a template the work is a few vector instructions, however
//! many of them it has.

use crate::origins::Origins;
use crate::stream::{ADDRESS_BITS, ADDRESS_MASK, Entries, Record};
use std::ops::Range;
use terrace_protocol::entry::{Effect, Entry, Expected, NO_REGISTER, REGISTERS, places, shape};
use terrace_protocol::layout::{BLOCK_ENTRIES, BLOCKS};
use terrace_trace::AccessKind;

/// Records and accesses that a template can have: longer blocks are several templates.
pub const LANES: usize = 8;

/// Entries in the whole table.
const ENTRIES: usize = BLOCKS * BLOCK_ENTRIES;

/// What the index says of an entry: its template's number, with the template's records and accesses above it. To find the next
/// block's first record must not wait for the template itself.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
struct Found(u32);

impl Found {
    /// Not looked at yet.
    const NEW: Found = Found(0);
    /// No template begins here.
    const NONE: Found = Found(1);
    /// The least number of a template.
    const FIRST: usize = 2;
    /// Bits of a template's number.
    const BITS: u32 = 24;

    /// A template; `None` if there are too many.
    fn new(number: usize, template: &Template) -> Option<Found> {
        let counts = u32::from(template.records) | u32::from(template.accesses) << 4;
        (number < 1 << Found::BITS).then_some(Found(number as u32 | counts << Found::BITS))
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

/// As a source of an origin: none, a distance of 0.
const NO_SOURCE: u8 = 0x80;

/// Origins as two registers of before the block and a distance that is added to the nearer of them, saturating.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
struct Derived<const N: usize> {
    first: [u8; N],
    second: [u8; N],
    distance: [u8; N],
}

/// What the next run of some instructions of a block will be like.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
struct Template {
    /// Second words of the records, as far as [`KNOWN`] goes.
    words: [u64; LANES],
    size: [u8; LANES],
    kind: [AccessKind; LANES],
    /// What each access depends on.
    dependences: Derived<LANES>,
    /// Instructions retired from one access to the next. The first has none here: see `before`.
    instructions: [u16; LANES],
    records: u8,
    accesses: u8,
    /// Whether some access takes several records.
    has_vectors: bool,
    /// Two bits for each record: those that are none are not compared.
    absent: u16,
    /// Instructions of the block up to the first access, or all where there is none.
    before: u16,
    /// What the registers derive from afterwards.
    registers: Derived<REGISTERS>,
    /// Instructions after the last access.
    tail: u16,
    /// Bytes from the previous record's address to that of a record that belongs to the same access; else 0.
    step: [u8; LANES],
}

const _: () = assert!(size_of::<Template>() == 192);

/// The bits of a record's second word that a template knows: the entry's number, and of the access its size and
/// direction.
const KNOWN: u64 = 0xffff_ffff | (Expected::INFO as u64) << 32;

/// The templates of all blocks seen.
pub struct Blocks {
    /// By the number of the entry with which it begins.
    index: Box<[Found]>,
    templates: Vec<Template>,
    /// Instruction addresses of their accesses.
    pcs: Vec<[u64; LANES]>,
    /// Places in `templates` whose blocks are gone.
    free: Vec<usize>,
}

impl Default for Blocks {
    fn default() -> Blocks {
        // Zeroed memory that is never touched costs nothing.
        Blocks {
            // SAFETY: zeros are `Found::NEW`.
            index: unsafe { Box::<[Found]>::new_zeroed_slice(ENTRIES).assume_init() },
            templates: vec![Template::new(); Found::FIRST],
            pcs: vec![[0; LANES]; Found::FIRST],
            free: Vec::new(),
        }
    }
}

impl Blocks {
    /// Forgets what begins with these entries, because others take their places.
    pub fn forget(&mut self, entries: Range<usize>) {
        for found in &mut self.index[entries] {
            let gone = std::mem::replace(found, Found::NEW).number();
            if gone >= Found::FIRST {
                self.free.push(gone);
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn learn(&mut self, entries: Entries, number: usize) -> Found {
        let made = (1..=LANES).rev().find_map(|most| Template::make(entries, number as u32, most));
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
        self.index[number] = found;
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
        return std::arch::is_x86_feature_detected!("ssse3");
        #[cfg(not(target_arch = "x86_64"))]
        return false;
    }

    /// Decodes `records` block by block until one is not as expected or fewer than [`LANES`] are left, or until `room`
    /// accesses are not exceeded only just. Returns how many records and accesses those were.
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
    #[target_feature(enable = "ssse3")]
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
        let known = _mm_set1_epi64x(KNOWN as i64);
        let address = _mm_set1_epi64x(ADDRESS_MASK as i64);
        let one = _mm_set1_epi8(1);
        let mut pending = *carry;
        let mut registers = origins.load_vector();
        let (mut at, mut length) = (0, 0);
        while at + LANES <= records.len() {
            let number = records[at][1] as usize % ENTRIES;
            let mut found = self.index[number];
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
                let record = records.as_ptr().add(at).cast::<__m128i>();
                let word = template.words.as_ptr().cast::<__m128i>();
                let column = out.addr.add(length).cast::<__m128i>();
                let mut equal = [_mm_setzero_si128(); LANES / 2];
                for (pair, equal) in equal.iter_mut().enumerate() {
                    let (a, b) =
                        (_mm_loadu_si128(record.add(2 * pair)), _mm_loadu_si128(record.add(2 * pair + 1)));
                    let second = _mm_and_si128(_mm_unpackhi_epi64(a, b), known);
                    *equal = _mm_cmpeq_epi32(second, _mm_load_si128(word.add(pair)));
                    _mm_storeu_si128(column.add(pair), _mm_and_si128(_mm_unpacklo_epi64(a, b), address));
                }
                let equal =
                    _mm_packs_epi16(_mm_packs_epi32(equal[0], equal[1]), _mm_packs_epi32(equal[2], equal[3]));
                if _mm_movemask_epi8(equal) as u16 | template.absent != u16::MAX {
                    break;
                }
                if template.has_vectors && !template.gather(&records[at..at + LANES], out.addr.add(length)) {
                    break;
                }
                let eight = |bytes: *const u8| _mm_loadl_epi64(bytes.cast());
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
            pending = u64::from(template.tail) + if found.accesses() == 0 { instructions } else { 0 };
            length += found.accesses();
            at += found.records();
        }
        *carry = pending;
        origins.store_vector(registers);
        (at, length)
    }
}

impl Template {
    fn new() -> Template {
        let derived = Derived { first: [NO_SOURCE; LANES], second: [NO_SOURCE; LANES], distance: [0; LANES] };
        Template {
            words: [0; LANES],
            size: [0; LANES],
            kind: [AccessKind::Read; LANES],
            dependences: derived,
            instructions: [0; LANES],
            records: 0,
            accesses: 0,
            has_vectors: false,
            absent: u16::MAX,
            before: 0,
            registers: Derived {
                first: [NO_SOURCE; REGISTERS],
                second: [NO_SOURCE; REGISTERS],
                distance: [0; REGISTERS],
            },
            tail: 0,
            step: [0; LANES],
        }
    }

    /// The template of up to `most` instructions from entry `number` on, with the addresses of its accesses'
    /// instructions. `None` where there is none, or where something derives from more than two registers.
    fn make(entries: Entries, number: u32, most: usize) -> Option<(Template, [u64; LANES])> {
        let mut made = Template::new();
        let mut pcs = [0; LANES];
        let mut origins = [const { Origin::Before(0) }; REGISTERS];
        for (register, origin) in origins.iter_mut().enumerate() {
            *origin = Origin::Before(1 << register);
        }
        let (mut place, mut carry, mut loads) = (number, 0, 0);
        let left = entries.get(number).left;
        for _ in 0..most.min(usize::from(left)) {
            let entry = entries.get(place);
            let (records, accesses) = match entry.shape {
                shape::EFFECTS if made.records == 0 => (1, 0),
                shape::ONE => (1, 1),
                shape::VECTOR if entry.callbacks > 0 => (usize::from(entry.callbacks), 1),
                shape::UPDATE if entry.callbacks == 2 => (2, 2),
                _ => break,
            };
            let (record, access) = (usize::from(made.records), usize::from(made.accesses));
            if record + records > LANES || access + accesses > LANES {
                break;
            }
            let expected = entry.expected;
            for part in 0..records {
                // The second record of an update is the store.
                let turn = if entry.shape == shape::UPDATE && part == 1 { 3 << 16 } else { 0 };
                let info = if entry.shape == shape::EFFECTS { 0 } else { expected.0 & Expected::INFO ^ turn };
                made.words[record + part] = u64::from(place) | u64::from(info) << 32;
                if entry.shape == shape::VECTOR && part > 0 {
                    made.step[record + part] = 1 << (expected.0 >> 4 & 7);
                    made.has_vectors = true;
                }
            }
            let Some(before) = entry.before.checked_add(carry) else { break };
            carry = entry.tail;
            if record == 0 {
                made.before = before;
            }
            let (first, after) = (entry.effects_before, entry.effects_after);
            derive(&mut origins, entries.effects(place, 0, first));
            if entry.shape != shape::EFFECTS {
                made.instructions[access] = if access == 0 { 0 } else { before };
                let address = join(&origins, entry.load_address);
                made.access(access, entry, expected.loads(), address.derived(loads)?);
                pcs[access] = entry.pc;
                if expected.loads() {
                    loads += 1;
                    for origin in &mut origins {
                        if let Origin::Load(distance) = origin {
                            *distance += 1;
                        }
                    }
                    if let Some(register) = origins.get_mut(usize::from(entry.destination)) {
                        *register = Origin::Load(0);
                    }
                }
            }
            if entry.shape == shape::UPDATE {
                let address = join(&origins, entry.store_address);
                made.access(access + 1, entry, false, address.derived(loads)?);
                pcs[access + 1] = entry.pc;
            }
            derive(&mut origins, entries.effects(place, first, after));
            made.records += records as u8;
            made.accesses += accesses as u8;
            if entry.shape == shape::EFFECTS {
                break;
            }
            place = place.wrapping_add(places(usize::from(first) + usize::from(after)) as u32);
        }
        if made.records == 0 {
            return None;
        }
        made.tail = if made.accesses == 0 { 0 } else { carry };
        made.absent = ((1u32 << 16) - (1u32 << (2 * made.records))) as u16;
        for (register, origin) in origins.iter().enumerate() {
            let (first, second, distance) = origin.derived(loads)?;
            made.registers.first[register] = first;
            made.registers.second[register] = second;
            made.registers.distance[register] = distance;
        }
        Some((made, pcs))
    }

    fn access(&mut self, index: usize, entry: &Entry, loads: bool, derived: (u8, u8, u8)) {
        self.size[index] = entry.expected.size();
        self.kind[index] = if loads { AccessKind::Read } else { AccessKind::Write };
        let dependences = &mut self.dependences;
        (dependences.first[index], dependences.second[index], dependences.distance[index]) = derived;
    }

    /// Writes the addresses of accesses that take several records each; `false` where such records are not each other's
    /// continuation.
    ///
    /// # Safety
    /// `records` are [`LANES`], and so many addresses may be written.
    unsafe fn gather(&self, records: &[Record], addresses: *mut u64) -> bool {
        let (mut previous, mut access) = (0, 0);
        for (record, &step) in records.iter().zip(&self.step).take(usize::from(self.records)) {
            let address = record[0] & ADDRESS_MASK;
            if step == 0 {
                // SAFETY: promised by the caller; there are no more accesses than records.
                unsafe { addresses.add(access).write(address) };
                access += 1;
            } else if address != previous + u64::from(step) {
                return false;
            }
            previous = address;
        }
        true
    }
}

/// What a register derives from, while a template is made.
#[derive(Clone, Copy)]
enum Origin {
    /// A load of the template itself, so many loads ago.
    Load(u8),
    /// What these registers derived from before it, one bit each.
    Before(u16),
}

impl Origin {
    /// The nearer of both. Whatever lies before the template is farther away than any load in it.
    fn join(self, other: Origin) -> Origin {
        match (self, other) {
            (Origin::Load(a), Origin::Load(b)) => Origin::Load(a.min(b)),
            (Origin::Load(_), Origin::Before(_)) => self,
            (Origin::Before(_), Origin::Load(_)) => other,
            (Origin::Before(a), Origin::Before(b)) => Origin::Before(a | b),
        }
    }

    /// As two registers and a distance, after so many loads; `None` for more registers.
    fn derived(self, loads: u8) -> Option<(u8, u8, u8)> {
        let registers = match self {
            Origin::Load(distance) => return Some((NO_SOURCE, NO_SOURCE, distance)),
            Origin::Before(registers) => registers,
        };
        // The register that stands for none derives from nothing.
        let some = registers & !(1 << NO_REGISTER);
        let mut numbers = (0..REGISTERS as u8).filter(|r| some & 1 << r != 0);
        let first = numbers.next().unwrap_or(NO_REGISTER);
        let second = numbers.next().unwrap_or(first);
        numbers.next().is_none().then_some((first, second, loads))
    }
}

fn join(origins: &[Origin; REGISTERS], registers: [u8; 2]) -> Origin {
    let [a, b] = registers.map(|register| origins[usize::from(register) % REGISTERS]);
    a.join(b)
}

fn derive(origins: &mut [Origin; REGISTERS], effects: &[Effect]) {
    for effect in effects {
        origins[effect.target()] = origins[effect.first()].join(origins[effect.second()]);
    }
}
