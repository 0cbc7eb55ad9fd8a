//! A picture of physical memory: cells of frames, coloured by who holds them and in which pages.
//!
//! It is drawn for print: on white, in colours that people with red-green blindness tell apart, every colour and shade
//! named in the legend. Equal contents give equal bytes.

mod cells;
mod svg;

use terrace_model::PageSize;

/// Most cells in a picture.
const MOST_CELLS: u64 = 20_000;

/// Parts of programs with a colour of their own; the smaller ones share one.
const MOST_PARTS: usize = 7;

/// What is drawn.
#[derive(Clone, Debug, Default)]
pub struct MemoryPicture {
    /// The headline.
    pub title: String,
    /// What stands below it.
    pub subtitle: String,
    /// Names of the parts of programs.
    pub parts: Vec<String>,
    /// Panels, row by row: those of a row show the same frames at different times.
    pub rows: Vec<Vec<MemoryPanel>>,
}

/// One memory at one time.
#[derive(Clone, Debug)]
pub struct MemoryPanel {
    /// What it shows.
    pub title: String,
    /// The panel's figures, in words.
    pub note: String,
    /// Frames in all.
    pub frames: u64,
    /// What they hold, by address, without gaps.
    pub runs: Vec<MemoryRun>,
}

/// Frames side by side that hold the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRun {
    /// How many.
    pub frames: u64,
    /// What they hold, and in pages of which size.
    pub look: Look,
}

/// How frames look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Look {
    /// Nothing.
    Free,
    /// Nothing but zeros.
    Zeroed,
    /// The page cache.
    Cached,
    /// The kernel's own.
    Kernel,
    /// Page tables.
    Tables,
    /// In the hands of an order, which zeroes it or moves something into it.
    Moving,
    /// A part of a program by its place in [`MemoryPicture::parts`], in pages of this size.
    Part(u32, PageSize),
}

impl Look {
    fn is_free(self) -> bool {
        matches!(self, Look::Free | Look::Zeroed)
    }
}

impl MemoryPicture {
    /// The picture.
    pub fn to_svg(&self) -> String {
        svg::draw(self)
    }
}

#[cfg(test)]
mod tests;
