//! What is known of an instruction when it is translated: the part of a record that never changes.
//!
//! A record in the ring names an entry; recorder and plugin share the table of them. An entry also carries what
//! happened to the general-purpose registers between the accesses, so that the recorder can follow a loaded value
//! into the address of a later access without seeing any register's content.

/// Bytes of an [`Entry`].
pub const ENTRY_BYTES: usize = 40;

/// General-purpose registers.
pub const REGISTERS: usize = 16;

/// Stands for "no register" in [`Entry`] and [`Effect`]: the number of the stack pointer, which no load defines.
pub const NO_REGISTER: u8 = 4;

/// Stands for "no register" as an [`Entry::destination`].
pub const NO_DESTINATION: u8 = REGISTERS as u8;

/// Effects that fit into an entry itself; more of them run on into the table's next places.
pub const OWN_EFFECTS: usize = 3;

/// Most effects that an entry can have, its own included: so many that blocks of up to 512 instructions rarely lose
/// one.
pub const MAX_EFFECTS: usize = OWN_EFFECTS + 4 * (ENTRY_BYTES / size_of::<Effect>());

/// Most accesses of a run ([`Base`]).
pub const RUN: usize = 8;

/// Most records of a run.
pub const RUN_RECORDS: usize = RUN - 1;

/// Places in the table that an entry with this many effects takes.
pub const fn places(effects: usize) -> usize {
    1 + effects.saturating_sub(OWN_EFFECTS).div_ceil(ENTRY_BYTES / size_of::<Effect>())
}

/// The static part of a memory access, or of a translation block without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Entry {
    /// Address of the instruction.
    pub pc: u64,
    /// Where the access's address comes from.
    pub base: Base,
    /// Instructions from the previous carrier (exclusive) in the block, or the block's start, to this instruction
    /// (inclusive).
    pub before: u16,
    /// Instructions after this one to the end of the block, if this is the block's last carrier.
    pub tail: u16,
    /// What the records of its `shape` say, and what they mean.
    pub expected: Expected,
    /// Records that one execution of the instruction makes. 0 where that is not known, and then its shape is
    /// [`shape::OTHER`], or where the address is derived. Only an instruction of which it is known carries instruction
    /// counts.
    pub callbacks: u8,
    /// Register that receives the loaded value, or [`NO_DESTINATION`].
    pub destination: u8,
    /// Base and index of the address loads use; of the only address where there is one.
    pub load_address: [u8; 2],
    /// Base and index of the address stores use.
    pub store_address: [u8; 2],
    /// How many of `effects` happen before the access.
    pub effects_before: u8,
    /// How many of `effects` happen after the access, to the end of the block; they follow the others.
    pub effects_after: u8,
    /// Which records one execution makes ([`shape`]).
    pub shape: u8,
    /// Entries from this one to the block's last, both included; 255 also stands for more.
    pub left: u8,
    /// What other instructions do to registers: the first of them.
    pub effects: [Effect; OWN_EFFECTS],
}

const _: () = assert!(size_of::<Entry>() == ENTRY_BYTES);
// Effects that run on follow without a gap.
const _: () =
    assert!(std::mem::offset_of!(Entry, effects) + OWN_EFFECTS * size_of::<Effect>() == ENTRY_BYTES);

impl Entry {
    /// An entry that says nothing.
    pub const UNKNOWN: Entry = Entry {
        pc: 0,
        before: 0,
        tail: 0,
        callbacks: 0,
        destination: NO_DESTINATION,
        load_address: [NO_REGISTER; 2],
        store_address: [NO_REGISTER; 2],
        effects_before: 0,
        effects_after: 0,
        shape: shape::OTHER,
        left: 0,
        expected: Expected(0),
        base: Base::OWN,
        effects: [Effect(0); OWN_EFFECTS],
    };

    /// Whether its execution makes no record, because its address follows from another's.
    #[inline(always)]
    pub const fn is_derived(&self) -> bool {
        self.callbacks == 0 && self.shape != shape::OTHER && self.shape != shape::EFFECTS
    }

    /// The number of the block's next entry, if this is entry `number`.
    #[inline(always)]
    pub const fn next(&self, number: u32) -> u32 {
        number.wrapping_add(places(self.effects_before as usize + self.effects_after as usize) as u32)
    }
}

/// Where the address of an access comes from.
///
/// Many accesses of a block differ from an earlier one by a distance that is known when the block is translated: both
/// count from the same register, which nothing has changed but by a constant in between. The first of them is an
/// *anchor*, and makes records; the others are *derived*, and make none. A *run* is a part of a block, up to [`RUN`]
/// accesses, whose derived accesses count from its own anchors: what is decoded at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Base(u64);

impl Base {
    /// An access with an address of its own, and a run of its own.
    pub const OWN: Base = Base(Base::BEGINS);
    /// As a slot: the address is a constant.
    pub const CONSTANT: u8 = 15;
    /// Slots, [`Base::CONSTANT`] included.
    pub const SLOTS: usize = 16;

    const SLOT_SHIFT: u32 = 48;
    const BEGINS: u64 = 1 << 52;
    const GOES_ON: u64 = 1 << 53;
    const DISTANCE: u64 = (1 << Base::SLOT_SHIFT) - 1;

    /// An address `distance` above that of the run's record number `slot`, which of an anchor is its own first one, with
    /// distance 0; or, with [`Base::CONSTANT`], the address itself.
    pub const fn new(slot: u8, distance: u64) -> Base {
        Base((slot as u64 % Base::SLOTS as u64) << Base::SLOT_SHIFT | distance & Base::DISTANCE)
    }

    /// This base, of the first access of a run.
    pub const fn beginning(self) -> Base {
        Base(self.0 | Base::BEGINS)
    }

    /// This base, of an access that a derived one follows.
    pub const fn going_on(self) -> Base {
        Base(self.0 | Base::GOES_ON)
    }

    /// Which of the run's records the address counts from.
    #[inline(always)]
    pub const fn slot(self) -> usize {
        (self.0 >> Base::SLOT_SHIFT) as usize % Base::SLOTS
    }

    /// What is added to it, modulo 2⁴⁸.
    #[inline(always)]
    pub const fn distance(self) -> u64 {
        self.0 & Base::DISTANCE
    }

    /// Whether a run begins here.
    #[inline(always)]
    pub const fn begins(self) -> bool {
        self.0 & Base::BEGINS != 0
    }

    /// Whether the next entry's access is derived.
    #[inline(always)]
    pub const fn goes_on(self) -> bool {
        self.0 & Base::GOES_ON != 0
    }
}

/// What QEMU says of an instruction's first access if it is as expected, in the bits in which QEMU says it (log2 of the
/// size in bits 4 to 6, load in bit 16, store in bit 17), and between them the access that the program makes: its size
/// in bits 8 to 15, whether it is a store in bit 24.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Expected(pub u32);

impl Expected {
    /// Bits in which QEMU describes an access.
    pub const INFO: u32 = 3 << 16 | 7 << 4;

    /// An access of `size` bytes in parts of `1 << part_shift` bytes, which begins with a load or a store.
    pub const fn new(part_shift: u32, size: u8, loads: bool) -> Expected {
        let (direction, kind) = if loads { (1, 0) } else { (2, 1) };
        Expected(part_shift << 4 | (size as u32) << 8 | direction << 16 | kind << 24)
    }

    /// A load and a store of `size` bytes at the same address, which share one record.
    pub const fn update(size: u8) -> Expected {
        Expected(Expected::new(size.trailing_zeros(), size, true).0 | Expected::BOTH)
    }

    /// As a direction: load and store.
    pub const BOTH: u32 = 3 << 16;

    /// Whether QEMU says what was expected.
    #[inline(always)]
    pub const fn is(self, info: u32) -> bool {
        (self.0 ^ info) & Expected::INFO == 0
    }

    /// Bytes of the access.
    #[inline(always)]
    pub const fn size(self) -> u8 {
        (self.0 >> 8) as u8
    }

    /// Whether it begins with a load.
    #[inline(always)]
    pub const fn loads(self) -> bool {
        self.0 >> 24 == 0
    }
}

/// Which records one execution of an instruction makes, where nothing unusual happens and its address is not derived.
pub mod shape {
    /// Not known, or none of the others.
    pub const OTHER: u8 = 0;
    /// One.
    pub const ONE: u8 = 1;
    /// As many as it makes callbacks, 2 or 4: the parts of one load or one store, in order of address.
    pub const VECTOR: u8 = 2;
    /// One, of a load and of a store to the same address.
    pub const UPDATE: u8 = 3;
    /// The entry of a block without access, whose one record carries effects alone.
    pub const EFFECTS: u8 = 4;
}

/// A register takes a value computed from up to two others: the target in the high four bits
/// of both bytes, the first source in the low four bits of the first, the second source in those of the second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Effect(pub u16);

impl Effect {
    /// `target` now derives from `first` and `second` ([`NO_REGISTER`] where there is none).
    pub const fn new(target: u8, first: u8, second: u8) -> Effect {
        Effect(u16::from_le_bytes([target << 4 | first & 15, target << 4 | second & 15]))
    }

    /// The register written.
    #[inline]
    pub const fn target(self) -> usize {
        (self.0 >> 4 & 15) as usize
    }

    /// The first register it derives from.
    #[inline]
    pub const fn first(self) -> usize {
        (self.0 & 15) as usize
    }

    /// The second register it derives from.
    #[inline]
    pub const fn second(self) -> usize {
        (self.0 >> 8 & 15) as usize
    }
}
