//! Size classes, block names and addresses (sections 4.1.1 and 6.1).
//!
//! An address has 64 bits: three of the size class, then the block's number in its class, then the offset. The paper
//! states the split of the smallest and the largest class; the others follow from their sizes. Five bits after the class
//! name a virtual machine; 0 is the host, so that guests take blocks of their own without asking anybody.

use super::VbiError;
use std::fmt;
use terrace_model::LINE_BYTES;

const CLASS_BITS: u32 = 3;
const CLASS_SHIFT: u32 = 64 - CLASS_BITS;
const VM_BITS: u32 = 5;
const VM_SHIFT: u32 = CLASS_SHIFT - VM_BITS;

/// One of the eight sizes of blocks, from 4 KiB in steps of 32 to 128 TiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SizeClass(u8);

impl SizeClass {
    /// All classes, smallest first.
    pub const ALL: [SizeClass; 8] = {
        let mut all = [SizeClass(0); 8];
        let mut at = 0;
        while at < 8 {
            all[at] = SizeClass(at as u8);
            at += 1;
        }
        all
    };

    /// The smallest class that holds so many bytes.
    ///
    /// # Errors
    /// More than 128 TiB.
    pub fn holding(bytes: u64) -> Result<SizeClass, VbiError> {
        let fits = |class: &SizeClass| class.bytes() >= bytes;
        SizeClass::ALL.into_iter().find(fits).ok_or(VbiError::TooLarge(bytes))
    }

    /// The class's number, the three highest bits of an address.
    #[inline(always)]
    pub const fn number(self) -> usize {
        self.0 as usize
    }

    /// Bits of an offset.
    #[inline(always)]
    pub const fn offset_bits(self) -> u32 {
        12 + 5 * self.0 as u32
    }

    /// Bits of a block's number in its class, those of the virtual machine included.
    pub const fn id_bits(self) -> u32 {
        CLASS_SHIFT - self.offset_bits()
    }

    /// Blocks that one virtual machine has of the class.
    pub const fn blocks_per_vm(self) -> u64 {
        1 << (self.id_bits() - VM_BITS)
    }

    /// Size of a block.
    #[inline(always)]
    pub const fn bytes(self) -> u64 {
        1 << self.offset_bits()
    }

    /// The next larger class.
    pub fn larger(self) -> Option<SizeClass> {
        SizeClass::ALL.get(self.number() + 1).copied()
    }
}

/// A virtual machine, or the host: 0 to 31.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VmId(u8);

impl VmId {
    /// The host.
    pub const HOST: VmId = VmId(0);
    /// Virtual machines and the host.
    pub const COUNT: u32 = 1 << VM_BITS;

    /// A virtual machine by its number.
    ///
    /// # Errors
    /// A number beyond 31.
    pub fn new(number: u32) -> Result<VmId, VbiError> {
        if number < VmId::COUNT { Ok(VmId(number as u8)) } else { Err(VbiError::NoSuchVm(number)) }
    }

    /// The virtual machine's number.
    pub const fn number(self) -> u32 {
        self.0 as u32
    }
}

/// A block's name in the whole system: its class, its virtual machine and its number there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Vbuid(u64);

impl Vbuid {
    /// Block `index` of a virtual machine's blocks of a class.
    ///
    /// # Errors
    /// The virtual machine has not so many.
    pub fn new(class: SizeClass, vm: VmId, index: u64) -> Result<Vbuid, VbiError> {
        if index >= class.blocks_per_vm() {
            return Err(VbiError::NoFreeBlock(class, vm));
        }
        let address = (class.number() as u64) << CLASS_SHIFT
            | u64::from(vm.number()) << VM_SHIFT
            | index << class.offset_bits();
        Ok(Vbuid(address))
    }

    /// The block's class.
    #[inline(always)]
    pub const fn class(self) -> SizeClass {
        SizeClass((self.0 >> CLASS_SHIFT) as u8)
    }

    /// The block's virtual machine.
    pub const fn vm(self) -> VmId {
        VmId((self.0 >> VM_SHIFT) as u8 & ((1 << VM_BITS) - 1))
    }

    /// The block's number in its class, the virtual machine's bits included: the index of its entry in the VIT.
    pub const fn id(self) -> u64 {
        (self.0 << CLASS_BITS) >> CLASS_BITS >> self.class().offset_bits()
    }

    /// The block's number among its virtual machine's blocks of the class.
    pub const fn index(self) -> u64 {
        self.id() & (self.class().blocks_per_vm() - 1)
    }

    /// Size of the block.
    #[inline(always)]
    pub const fn bytes(self) -> u64 {
        self.class().bytes()
    }

    /// The address of a byte in it.
    ///
    /// # Errors
    /// The offset lies outside it.
    pub fn at(self, offset: u64) -> Result<VbiAddress, VbiError> {
        let bytes = self.bytes();
        if offset < bytes {
            Ok(VbiAddress(self.0 | offset))
        } else {
            Err(VbiError::OutOfBounds { offset, bytes })
        }
    }
}

impl fmt::Debug for Vbuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.class().number(), self.vm().number(), self.index())
    }
}

/// The address of a byte, one and the same for all processes and caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VbiAddress(pub u64);

impl VbiAddress {
    /// The address's block.
    pub const fn block(self) -> Vbuid {
        let class = SizeClass((self.0 >> CLASS_SHIFT) as u8);
        Vbuid(self.0 >> class.offset_bits() << class.offset_bits())
    }

    /// The address's place in the block.
    pub const fn offset(self) -> u64 {
        self.0 & (self.block().bytes() - 1)
    }

    /// The number of its cache line.
    pub const fn line(self) -> u64 {
        self.0 / LINE_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_size_classes() {
        // Size, bits of the offset, of the block's number, and of it without the virtual machine.
        let rows: [(u64, u32, u32, u32); 8] = [
            (4 << 10, 12, 49, 44),
            (128 << 10, 17, 44, 39),
            (4 << 20, 22, 39, 34),
            (128 << 20, 27, 34, 29),
            (4 << 30, 32, 29, 24),
            (128 << 30, 37, 24, 19),
            (4 << 40, 42, 19, 14),
            (128 << 40, 47, 14, 9),
        ];
        for (class, (bytes, offset, id, without_vm)) in SizeClass::ALL.into_iter().zip(rows) {
            assert_eq!((class.bytes(), class.offset_bits(), class.id_bits()), (bytes, offset, id));
            assert_eq!(class.blocks_per_vm(), 1 << without_vm);
            assert_eq!(SizeClass::holding(bytes), Ok(class));
            assert_eq!(SizeClass::holding(bytes + 1).ok(), class.larger());
        }
        assert_eq!(SizeClass::holding((128 << 40) + 1), Err(VbiError::TooLarge((128 << 40) + 1)));
    }

    #[test]
    fn an_address_is_class_machine_number_and_offset() {
        // Figure 5's example: the class of 4 GiB is 100.
        let class = SizeClass::ALL[4];
        let block = Vbuid::new(class, VmId::new(31).unwrap(), (1 << 24) - 1).unwrap();
        let address = block.at(0xffff_ffff).unwrap();
        assert_eq!(address.0, 0b100 << 61 | 0x1fff_ffff_ffff_ffff);
        assert_eq!((address.block(), address.offset()), (block, 0xffff_ffff));
        assert_eq!((block.vm().number(), block.index(), block.id()), (31, (1 << 24) - 1, (1 << 29) - 1));
        assert_eq!(block.at(1 << 32), Err(VbiError::OutOfBounds { offset: 1 << 32, bytes: 1 << 32 }));
        assert_eq!(Vbuid::new(class, VmId::HOST, 1 << 24), Err(VbiError::NoFreeBlock(class, VmId::HOST)));
        assert_eq!(VmId::new(32), Err(VbiError::NoSuchVm(32)));
    }
}
