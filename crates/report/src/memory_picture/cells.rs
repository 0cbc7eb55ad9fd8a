//! From frames to cells.

use super::{Look, MOST_CELLS, MOST_PARTS, MemoryPanel, MemoryPicture};
use crate::svg;
use std::collections::BTreeMap;
use terrace_model::PageSize;

/// How a picture's frames are put into cells.
pub(super) struct Scale {
    /// Frames of a cell, a power of two.
    pub frames: u64,
    /// Frames that each row of panels shows: up to the last one that is not free in one of them.
    pub shown: Vec<u64>,
}

impl Scale {
    pub fn of(picture: &MemoryPicture) -> Scale {
        let used: Vec<u64> =
            picture.rows.iter().map(|row| row.iter().map(used).max().unwrap_or(0).max(1)).collect();
        let cells = |frames: u64| -> u64 {
            let rows = picture.rows.iter().zip(&used);
            rows.map(|(row, used)| used.div_ceil(frames) * row.len() as u64).sum()
        };
        let mut frames = 1;
        while cells(frames) > MOST_CELLS {
            frames *= 2;
        }
        let all = picture.rows.iter().map(|row| row.first().map_or(0, |panel| panel.frames));
        let shown = used.iter().zip(all).map(|(used, all)| used.next_multiple_of(frames * 64).min(all));
        Scale { frames, shown: shown.collect() }
    }
}

/// Frames up to the last that is not free.
fn used(panel: &MemoryPanel) -> u64 {
    let (mut at, mut used) = (0, 0);
    for run in &panel.runs {
        at += run.frames;
        if !run.look.is_free() {
            used = at;
        }
    }
    used
}

/// A cell: the look that most of its used frames have, and the quarters of it that are in use. Where several looks have as
/// many frames, the first in [`Look`]'s order wins. A free cell has four quarters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub look: Look,
    pub quarters: u64,
}

impl Cell {
    fn of(inside: &BTreeMap<Look, u64>) -> Option<Cell> {
        let most = |free: bool| {
            let some = inside.iter().rev().filter(|(look, _)| look.is_free() == free);
            some.max_by_key(|(_, count)| **count).map(|(look, _)| *look)
        };
        let all: u64 = inside.values().sum();
        let used: u64 = inside.iter().filter(|(look, _)| !look.is_free()).map(|(_, count)| *count).sum();
        let quarters = (8 * used + all).checked_div(2 * all)?.max(1);
        match most(false) {
            Some(look) => Some(Cell { look, quarters }),
            None => Some(Cell { look: most(true)?, quarters: 4 }),
        }
    }
}

/// The cells of a panel, by address.
pub(super) fn cells(panel: &MemoryPanel, frames: u64, shown: u64) -> Vec<Cell> {
    let mut cells = Vec::new();
    let mut inside: BTreeMap<Look, u64> = BTreeMap::new();
    let mut room = frames;
    let mut close = |inside: &mut BTreeMap<Look, u64>| {
        cells.extend(Cell::of(inside));
        inside.clear();
    };
    let mut rest = shown;
    for run in &panel.runs {
        let mut left = run.frames.min(rest);
        rest -= left;
        while left > 0 {
            let some = left.min(room);
            *inside.entry(run.look).or_default() += some;
            (left, room) = (left - some, room - some);
            if room == 0 {
                close(&mut inside);
                room = frames;
            }
        }
    }
    close(&mut inside);
    cells
}

/// The parts by the place of their colour: the largest first, `None` for those that share one. Sizes are those in the
/// last panel of each row, or in all panels where it has none.
pub(super) fn colours(picture: &MemoryPicture) -> Vec<Option<usize>> {
    let mut sizes = vec![(0u64, 0u64); picture.parts.len()];
    for row in &picture.rows {
        for (at, panel) in row.iter().enumerate() {
            for run in &panel.runs {
                if let Look::Part(part, _) = run.look {
                    let size = &mut sizes[part as usize];
                    size.1 += run.frames;
                    size.0 += if at + 1 == row.len() { run.frames } else { 0 };
                }
            }
        }
    }
    let mut order: Vec<usize> = (0..sizes.len()).filter(|part| sizes[*part].1 > 0).collect();
    order.sort_by_key(|part| (std::cmp::Reverse(sizes[*part]), *part));
    let mut colours = vec![None; sizes.len()];
    for (colour, part) in order.into_iter().take(MOST_PARTS).enumerate() {
        colours[part] = Some(colour);
    }
    colours
}

/// Frames of each look over the panels that show a time: the last of each row with `last`, else the first.
pub(super) fn totals(picture: &MemoryPicture, last: bool) -> BTreeMap<Look, u64> {
    let mut totals = BTreeMap::new();
    for row in &picture.rows {
        for run in (if last { row.last() } else { row.first() }).iter().flat_map(|panel| &panel.runs) {
            *totals.entry(run.look).or_default() += run.frames;
        }
    }
    totals
}

/// Bytes of frames as people say them.
pub(super) fn bytes(frames: u64) -> String {
    match frames {
        0 => "0 KiB".to_owned(),
        _ => svg::bytes(frames * PageSize::Base.bytes()),
    }
}
