//! What a run of a block will be like: made once, from the entries.

use crate::entries::{ADDRESS_MASK, Entries, Record};
use terrace_protocol::entry::{
    Base, Effect, Entry, Expected, NO_REGISTER, REGISTERS, RUN, RUN_RECORDS, shape,
};
use terrace_trace::AccessKind;

/// Records and accesses that a template can have.
pub const LANES: usize = RUN;

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

/// What the next execution of a run will be like.
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
    /// A bit for each record that goes on where the one before it ended, as part of the same access.
    pub continued: u8,
    /// A bit for each [`lane`]: those of no record are not compared.
    pub absent: u8,
    /// Instructions of the block up to the first access, or all where there is none.
    pub before: u16,
    /// What the registers derive from afterwards.
    pub registers: Derived<REGISTERS>,
    /// Instructions after the last access.
    pub tail: u16,
    /// The record that each access's address comes from, as a permutation of halves of words: for each half its place in
    /// four records, of which those with the sign bit are the last four.
    pub from: [[i8; 2]; LANES],
    /// What is added to it.
    pub distance: [u64; LANES],
}

const _: () = assert!(size_of::<Template>() == 256);

/// Bytes that QEMU moves at once of a longer value.
const PART: u64 = 8;

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
    /// A template of nothing.
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
            continued: 0,
            absent: u8::MAX,
            before: 0,
            registers: Derived {
                first: [NO_SOURCE; REGISTERS],
                second: [NO_SOURCE; REGISTERS],
                distance: [0; REGISTERS],
            },
            tail: 0,
            from: [[0; 2]; LANES],
            distance: [0; LANES],
        }
    }

    /// The template of the run that begins with entry `number`, with the addresses of its accesses' instructions. `None`
    /// where there is none, or where something derives from more than two registers.
    pub fn make(entries: Entries, number: u32) -> Option<(Template, [u64; LANES])> {
        let mut made = Template::new();
        let mut pcs = [0; LANES];
        let mut origins: [Origin; REGISTERS] = std::array::from_fn(|register| Origin::Before(1 << register));
        let (mut place, mut carry, mut loads) = (number, 0, 0);
        for i in 0..entries.get(number).left {
            let entry = entries.get(place);
            if entry.base.begins() != (i == 0) {
                break;
            }
            let records = if entry.is_derived() { 0 } else { usize::from(entry.callbacks) };
            let (records, accesses) = match entry.shape {
                shape::EFFECTS => (1, 0),
                shape::ONE | shape::VECTOR => (records, 1),
                shape::UPDATE => (records, 2),
                _ => break,
            };
            let (record, access) = (usize::from(made.records), usize::from(made.accesses));
            if record + records > RUN_RECORDS || access + accesses > LANES {
                return None;
            }
            let info = if entry.shape == shape::EFFECTS { 0 } else { entry.expected.0 & Expected::INFO };
            for part in 0..records {
                made.words[lane(record + part)] = u64::from(place) | u64::from(info) << 32;
                made.continued |= u8::from(part > 0) << (record + part);
            }
            made.records += records as u8;
            made.accesses += accesses as u8;
            pcs[access..access + accesses].fill(entry.pc);
            (access..access + accesses).try_for_each(|access| made.address(access, entry.base))?;
            let before = entry.before.checked_add(carry)?;
            carry = entry.tail;
            if i == 0 {
                made.before = before;
            }
            let (first, after) = (entry.effects_before, entry.effects_after);
            derive(&mut origins, entries.effects(place, 0, first));
            if entry.shape != shape::EFFECTS {
                made.instructions[access] = if access == 0 { 0 } else { before };
                let address = join(&origins, entry.load_address);
                made.access(access, entry, entry.expected.loads(), address.derived(loads)?);
                if entry.expected.loads() {
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
            }
            derive(&mut origins, entries.effects(place, first, after));
            place = entry.next(place);
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

    /// Sets where an access's address comes from; `None` where no record so far has it.
    fn address(&mut self, access: usize, base: Base) -> Option<()> {
        // The last record's place is never a record's, and read as 0.
        let constant = base.slot() == usize::from(Base::CONSTANT);
        let record = if constant { LANES - 1 } else { base.slot() };
        if !constant && record >= usize::from(self.records) {
            return None;
        }
        let (half, is_last) = (lane(record) as i8 % 4 * 2, lane(record) >= 4);
        self.from[access] = [half, (half + 1) | if is_last { i8::MIN } else { 0 }];
        self.distance[access] = base.distance();
        Some(())
    }

    /// Whether the records that go on where the one before them ended really do.
    pub fn continues(&self, records: &[Record]) -> bool {
        (1..usize::from(self.records)).all(|i| {
            let (previous, next) = (records[i - 1][0] & ADDRESS_MASK, records[i][0] & ADDRESS_MASK);
            self.continued & 1 << i == 0 || next == previous + PART
        })
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
    fn what_derives_from_three_registers_has_no_template() {
        let mut table = vec![Entry::UNKNOWN; 16];
        table[2] = load(2, [3, NO_REGISTER], 0);
        table[3] = Entry { base: Base::new(1, 0), ..load(1, [5, 6], 1) };
        table[3].effects_before = 2;
        table[3].effects[0] = Effect::new(5, 6, 7);
        table[3].effects[1] = Effect::new(6, 8, NO_REGISTER);
        // SAFETY: the entries named lie in the table.
        let entries = unsafe { Entries::new(table.as_ptr()) };
        assert!(Template::make(entries, 2).is_none());
        table[2].left = 1;
        // SAFETY: as above.
        let entries = unsafe { Entries::new(table.as_ptr()) };
        assert_eq!(Template::make(entries, 2).unwrap().0.records, 1);
    }
}
