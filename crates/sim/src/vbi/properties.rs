//! The property bit vector of a block (section 4.1.1). The paper names the properties and leaves their bits open.

/// A flag that says what a block holds, or a hint how it will be used. Its number is its bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Property {
    /// Flag: code.
    Code = 0,
    /// Flag: never written once it is filled.
    ReadOnly = 1,
    /// Flag: the kernel's.
    Kernel = 2,
    /// Flag: may be compressed.
    Compressible = 3,
    /// Flag: outlives the power.
    Persistent = 4,
    /// Flag: a file's bytes, which come from storage.
    File = 5,
    /// Hint: latency matters.
    LatencySensitive = 16,
    /// Hint: bandwidth matters.
    BandwidthSensitive = 17,
    /// Hint: compresses well.
    CompressesWell = 18,
    /// Hint: a wrong bit does little harm.
    ErrorTolerant = 19,
}

/// Flags and hints of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Properties(u32);

impl Properties {
    /// Nothing is known of the block.
    pub const NONE: Properties = Properties(0);

    /// These properties.
    pub fn of(properties: &[Property]) -> Properties {
        Properties(properties.iter().fold(0, |bits, property| bits | 1 << *property as u8))
    }

    /// With one more.
    #[must_use]
    pub const fn with(self, property: Property) -> Properties {
        Properties(self.0 | 1 << property as u8)
    }

    /// Whether it has a property.
    pub const fn has(self, property: Property) -> bool {
        self.0 >> property as u8 & 1 != 0
    }
}
