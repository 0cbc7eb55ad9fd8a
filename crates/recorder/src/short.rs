//! The decoder's short way: instructions whose shape says which records they make, and which did make these. That is
//! nearly all of them.

use crate::entries::{ADDRESS_BITS, ADDRESS_MASK, Entries, Record};
use crate::origins::{Origins, Tracker};
use terrace_protocol::entry::{Base, Entry, shape};
use terrace_trace::AccessKind;

/// Decodes what it can and leaves the rest to [`Stream::decode`], which without it gives the same.
///
/// [`Stream::decode`]: crate::stream::Stream::decode
///
/// Its results stand in arrays beside its state, and are copied from there into a batch's columns: one address in a
/// register reaches all of it, and the loop's variables have the others.
pub struct Short {
    /// Instructions that belong to the next access.
    pub carry: u64,
    /// Addresses from which derived ones count.
    pub bases: Bases,
    /// What later addresses derive from.
    pub origins: Origins,
    /// Addresses decoded.
    pub addr: [u64; SHORT_ROOM],
    /// Sizes of the accesses in bytes.
    pub size: [u8; SHORT_ROOM],
    /// Loads or stores.
    pub kind: [AccessKind; SHORT_ROOM],
    /// How many loads back their dependences lie.
    pub depends_on: [u8; SHORT_ROOM],
    /// Instructions retired up to each.
    pub instructions: [u16; SHORT_ROOM],
    /// Addresses of their instructions, where asked for.
    pub pc: [u64; SHORT_ROOM],
}

/// Accesses that the short way decodes at once: few enough to stay in the first-level cache, and one for the store of
/// an update.
const SHORT_ROOM: usize = 256 + 1;

impl Short {
    pub fn new() -> Short {
        Short {
            carry: 0,
            bases: Bases::default(),
            origins: Origins::default(),
            addr: [0; SHORT_ROOM],
            size: [0; SHORT_ROOM],
            kind: [AccessKind::Read; SHORT_ROOM],
            depends_on: [0; SHORT_ROOM],
            instructions: [0; SHORT_ROOM],
            pc: [0; SHORT_ROOM],
        }
    }

    /// Decodes records until one needs the long way, or until `room` accesses are there; the last instruction may add
    /// one more. With `one_run` it also ends where a run does ([`Base`]). Returns how many records and accesses those were.
    pub fn decode<const DEPENDENCES: bool, const PCS: bool>(
        &mut self,
        records: &[Record],
        entries: Entries,
        room: usize,
        one_run: bool,
    ) -> (usize, usize) {
        #[cfg(target_arch = "x86_64")]
        if DEPENDENCES && std::arch::is_x86_feature_detected!("ssse3") {
            // SAFETY: asked just now.
            return unsafe { self.decode_vector::<PCS>(records, entries, room, one_run) };
        }
        let mut origins = self.origins;
        let done = self.decode_with::<_, DEPENDENCES, PCS>(&mut origins, records, entries, room, one_run);
        self.origins = origins;
        done
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "ssse3")]
    fn decode_vector<const PCS: bool>(
        &mut self,
        records: &[Record],
        entries: Entries,
        room: usize,
        one_run: bool,
    ) -> (usize, usize) {
        // SAFETY: this function is only called where there is SSSE3.
        let mut origins = unsafe { crate::origins::Vector::new(&self.origins) };
        let done = self.decode_with::<_, true, PCS>(&mut origins, records, entries, room, one_run);
        self.origins = origins.origins();
        done
    }

    /// All records of an instruction have come.
    pub fn complete<const DEPENDENCES: bool>(&mut self, entries: Entries, number: u32) {
        let entry = entries.get(number);
        self.bases.passed(entry, number);
        if DEPENDENCES {
            self.origins.apply(entries.effects(number, entry.effects_before, entry.effects_after));
        }
    }

    #[inline(always)]
    fn decode_with<T: Tracker, const DEPENDENCES: bool, const PCS: bool>(
        &mut self,
        origins: &mut T,
        records: &[Record],
        entries: Entries,
        room: usize,
        one_run: bool,
    ) -> (usize, usize) {
        let room = room.min(SHORT_ROOM - 1);
        let mut carry = self.carry;
        let (mut left, mut length) = (records, 0);
        while length < room {
            let derived = self.bases.following();
            let (number, address, instructions, entry);
            if let Some(next) = derived {
                number = next;
                entry = entries.get(number);
                address = self.bases.derived(entry.base);
                instructions = carry + u64::from(entry.before);
            } else if let [[first, second], rest @ ..] = left {
                let (first, second) = (*first, *second);
                number = second as u32;
                entry = entries.get(number);
                address = first & ADDRESS_MASK;
                instructions = carry + u64::from(entry.before) + (first >> ADDRESS_BITS);
                if instructions > u64::from(u16::MAX) {
                    break;
                }
                let is_expected = entry.expected.is((second >> 32) as u32);
                let ends = one_run && entry.base.begins() && left.len() < records.len();
                if ends || entry.is_derived() {
                    break;
                } else if (entry.shape == shape::ONE || entry.shape == shape::UPDATE) && is_expected {
                    left = rest;
                } else if entry.shape == shape::EFFECTS {
                    left = rest;
                    carry = instructions;
                    if DEPENDENCES {
                        origins.apply(entries.effects(number, 0, entry.effects_before));
                    }
                    continue;
                } else if entry.shape == shape::VECTOR && is_expected {
                    let Some(rest) = more_records(entry, address, second, rest) else { break };
                    left = rest;
                } else {
                    break;
                }
                self.bases.anchor(entry.base, address);
            } else {
                break;
            }
            self.bases.passed(entry, number);
            let access = entry.expected;
            carry = u64::from(entry.tail);
            let has_effects = DEPENDENCES && (entry.effects_before, entry.effects_after) != (0, 0);
            if has_effects {
                origins.apply(entries.effects(number, 0, entry.effects_before));
            }
            if DEPENDENCES {
                self.depends_on[length] = origins.dependence(entry.load_address);
                origins.access(access.loads(), entry.destination);
            }
            self.addr[length] = address;
            self.size[length] = access.size();
            self.kind[length] = if access.loads() { AccessKind::Read } else { AccessKind::Write };
            self.instructions[length] = instructions as u16;
            if PCS {
                self.pc[length] = entry.pc;
            }
            length += 1;
            if entry.shape == shape::UPDATE {
                if DEPENDENCES {
                    self.depends_on[length] = origins.dependence(entry.store_address);
                }
                self.addr[length] = address;
                self.size[length] = access.size();
                self.kind[length] = AccessKind::Write;
                self.instructions[length] = 0;
                if PCS {
                    self.pc[length] = entry.pc;
                }
                length += 1;
            }
            if has_effects {
                origins.apply(entries.effects(number, entry.effects_before, entry.effects_after));
            }
        }
        self.carry = carry;
        (records.len() - left.len(), length)
    }
}

/// What derived accesses count from, and whether one is next.
#[derive(Default)]
pub struct Bases {
    /// Addresses of the run's records; 0 for [`Base::CONSTANT`].
    addresses: [u64; Base::SLOTS],
    /// The entry of the derived access that follows the last one, or 0.
    following: u32,
}

impl Bases {
    /// The entry of the derived access that is next, before any record.
    #[inline(always)]
    pub fn following(&self) -> Option<u32> {
        (self.following != 0).then_some(self.following)
    }

    /// The address of a derived access.
    #[inline(always)]
    pub fn derived(&self, base: Base) -> u64 {
        self.addresses[base.slot()].wrapping_add(base.distance()) & ADDRESS_MASK
    }

    /// The record of an anchor has this address.
    #[inline(always)]
    pub fn anchor(&mut self, base: Base, address: u64) {
        self.addresses[base.slot()] = address;
    }

    /// All of an instruction's records have passed.
    #[inline(always)]
    pub fn passed(&mut self, entry: &Entry, number: u32) {
        self.following = if entry.base.goes_on() { entry.next(number) } else { 0 };
    }
}

/// What follows the records of a vector, of which `rest` begins with the second. `None` where they are not as expected, or
/// not all there yet.
#[inline(never)]
fn more_records<'a>(entry: &Entry, address: u64, second: u64, rest: &'a [Record]) -> Option<&'a [Record]> {
    let (more, rest) = rest.split_at_checked(usize::from(entry.callbacks.checked_sub(1)?))?;
    let size = 1 << (second >> 36 & 7);
    more.iter().zip(1..).all(|(&record, part)| record == [address + part * size, second]).then_some(rest)
}
