//! What the instructions ask of the memory translation layer (section 4.5): it alone knows what memory stands behind a
//! block.

use super::address::Vbuid;

/// The side of the memory controller.
pub trait MemoryLayer {
    /// What the table of blocks keeps of a block's translation: kind and pointer. The default is a block without memory.
    type Structure: Default + std::fmt::Debug;

    /// A block is gone: all memory behind it is free. Its lines may stay in caches.
    fn disable(&mut self, block: Vbuid, structure: Self::Structure);

    /// Drops the lines of a block's last use from all caches, without writing them back: its name is about to be used again.
    fn invalidate_lines(&mut self, block: Vbuid);

    /// Writes the dirty lines of a block back, so that memory holds what was stored. The source of a clone needs it too:
    /// the paper speaks of it for promotion only, but a line that is dirty when a block is cloned would be missing in the
    /// clone.
    fn flush_lines(&mut self, block: Vbuid, structure: &mut Self::Structure);

    /// Makes `to`, which has no memory, a copy of `from` that shares its memory until either is written.
    fn clone_structure(&mut self, from: &mut Self::Structure, to: &mut Self::Structure);

    /// Moves the memory of `from` to the early part of a block that is larger, whose rest has none, or as large in another
    /// node.
    fn promote(&mut self, from: Self::Structure, to: &mut Self::Structure);
}
