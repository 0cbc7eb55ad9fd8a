//! What a run of some instructions of a block will be like: made once, from the entries.

use crate::entries::{ADDRESS_MASK, Entries, Record};
use terrace_protocol::entry::{Effect, Entry, Expected, NO_REGISTER, REGISTERS, places, shape};
use terrace_trace::AccessKind;

/// Records and accesses that a template can have: longer blocks are several templates.
pub const LANES: usize = 8;

/// As a source of an origin: none, a distance of 0.
const NO_SOURCE: u8 = 0x80;

/// Origins as two registers of before the block and a distance that is added to the nearer of them, saturating.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Derived<const N: usize> {
    pub first: [u8; N],
    pub second: [u8; N],
    pub distance: [u8; N],
}

/// What the next run of some instructions of a block will be like.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Template {
    /// Second words of the records, as far as [`KNOWN`] goes, each at its [`lane`].
    pub words: [u64; LANES],
    pub size: [u8; LANES],
    pub kind: [AccessKind; LANES],
    /// What each access depends on.
    pub dependences: Derived<LANES>,
    /// Instructions retired from one access to the next. The first has none here: see `before`.
    pub instructions: [u16; LANES],
    pub records: u8,
    pub accesses: u8,
    /// Whether some access takes several records.
    pub has_vectors: bool,
    /// A bit for each [`lane`]: those of no record are not compared.
    pub absent: u8,
    /// Instructions of the block up to the first access, or all where there is none.
    pub before: u16,
    /// What the registers derive from afterwards.
    pub registers: Derived<REGISTERS>,
    /// Instructions after the last access.
    pub tail: u16,
    /// Bytes from the previous record's address to that of a record that belongs to the same access; else 0.
    pub step: [u8; LANES],
}

const _: () = assert!(size_of::<Template>() == 192);

/// The bits of a record's second word that a template knows: the entry's number, and of the access its size and
/// direction.
pub const KNOWN: u64 = 0xffff_ffff | (Expected::INFO as u64) << 32;

/// Where the vector instructions put a record: of four, the middle two change places.
const fn lane(record: usize) -> usize {
    match record % 4 {
        1 => record + 1,
        2 => record - 1,
        _ => record,
    }
}

impl Template {
    /// Of nothing.
    pub fn new() -> Template {
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
            absent: u8::MAX,
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
    pub fn make(entries: Entries, number: u32, most: usize) -> Option<(Template, [u64; LANES])> {
        let mut made = Template::new();
        let mut pcs = [0; LANES];
        let mut origins: [Origin; REGISTERS] = std::array::from_fn(|register| Origin::Before(1 << register));
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
                made.words[lane(record + part)] = u64::from(place) | u64::from(info) << 32;
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
        made.absent = (usize::from(made.records)..LANES).fold(0, |absent, record| absent | 1 << lane(record));
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
    pub unsafe fn gather(&self, records: &[Record], addresses: *mut u64) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn load(left: u8, load_address: [u8; 2], destination: u8) -> Entry {
        let expected = Expected::new(3, 8, true);
        Entry { left, callbacks: 1, destination, load_address, shape: shape::ONE, expected, ..Entry::UNKNOWN }
    }

    #[test]
    fn what_derives_from_three_registers_ends_a_template() {
        let mut table = vec![Entry::UNKNOWN; 16];
        table[2] = load(2, [3, NO_REGISTER], 0);
        table[3] = load(1, [5, 6], 1);
        table[3].effects_before = 2;
        table[3].effects[0] = Effect::new(5, 6, 7);
        table[3].effects[1] = Effect::new(6, 8, NO_REGISTER);
        // SAFETY: the entries named lie in the table.
        let entries = unsafe { Entries::new(table.as_ptr()) };
        assert!(Template::make(entries, 2, LANES).is_none());
        assert_eq!(Template::make(entries, 2, 1).unwrap().0.records, 1);
    }
}
