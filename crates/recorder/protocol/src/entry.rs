//! What is known of an instruction when it is translated: the part of a record that never changes.
//!
//! A record in the ring names an entry; recorder and plugin share the table of them. An entry also carries what
//! happened to the general-purpose registers between the accesses, so that the recorder can follow a loaded value
//! into the address of a later access without seeing any register's content.

/// Bytes of an [`Entry`].
pub const ENTRY_BYTES: usize = 32;

/// Stands for "no register" in [`Entry`] and [`Effect`]: the register file has 16 places and this one, which holds
/// no load.
pub const NO_REGISTER: u8 = 16;

/// Effects that fit into an entry itself; more of them run on into the table's next places.
pub const OWN_EFFECTS: usize = 5;

/// Most effects that an entry can have, its own included: so many that blocks of up to 512 instructions rarely lose
/// one.
pub const MAX_EFFECTS: usize = OWN_EFFECTS + 4 * (ENTRY_BYTES / size_of::<Effect>());

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
    /// Instructions from the previous carrier (exclusive) in the block, or the block's start, to this instruction
    /// (inclusive).
    pub before: u16,
    /// Instructions after this one to the end of the block, if this is the block's last carrier.
    pub tail: u16,
    /// Callbacks that one execution of the instruction makes; 0 where that is not known. Only an instruction with a
    /// known number carries instruction counts.
    pub callbacks: u8,
    /// Register that receives the loaded value.
    pub destination: u8,
    /// Base and index of the address loads use.
    pub load_address: [u8; 2],
    /// Base and index of the address stores use.
    pub store_address: [u8; 2],
    /// How many of `effects` happen before the access.
    pub effects_before: u8,
    /// How many of `effects` happen after the access, to the end of the block; they follow the others.
    pub effects_after: u8,
    /// 1 for the entry of a block without access: its record carries effects alone.
    pub effects_only: u8,
    /// Aligns what follows.
    pub reserved: u8,
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
        destination: NO_REGISTER,
        load_address: [NO_REGISTER; 2],
        store_address: [NO_REGISTER; 2],
        effects_before: 0,
        effects_after: 0,
        effects_only: 0,
        reserved: 0,
        effects: [Effect(0); OWN_EFFECTS],
    };
}

/// A register takes a value computed from up to two others: 5 bits each for target, first and second source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Effect(pub u16);

impl Effect {
    /// `target` now derives from `first` and `second` ([`NO_REGISTER`] where there is none).
    pub const fn new(target: u8, first: u8, second: u8) -> Effect {
        Effect(target as u16 | (first as u16) << 5 | (second as u16) << 10)
    }

    /// The register written.
    #[inline]
    pub const fn target(self) -> usize {
        (self.0 & 31) as usize
    }

    /// The first register it derives from.
    #[inline]
    pub const fn first(self) -> usize {
        (self.0 >> 5 & 31) as usize
    }

    /// The second register it derives from.
    #[inline]
    pub const fn second(self) -> usize {
        (self.0 >> 10 & 31) as usize
    }
}
