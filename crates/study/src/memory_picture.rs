//! From a memory's frames to a picture of them, and its figures in words.

use crate::figures;
use terrace_model::PageSize;
use terrace_report::{Look, MemoryPanel, MemoryPicture, MemoryRun};
use terrace_sim::{FrameRun, Holder, MemoryFigures, MemoryMap, Part};
use terrace_trace::demangled;

/// The picture of a run: each tier before and after.
pub fn of_run(title: &str, subtitle: &str, map: &MemoryMap) -> MemoryPicture {
    let end = format!("after {}", figures::time(map.seconds));
    let tiers = map.before.iter().zip(&map.after);
    let rows = tiers.map(|(before, after)| {
        [(before, "before the program"), (after, end.as_str())]
            .map(|(tier, when)| panel(&format!("{}, {when}", tier.name), &tier.figures, &tier.runs))
            .into()
    });
    MemoryPicture {
        title: title.to_owned(),
        subtitle: subtitle.to_owned(),
        parts: map.parts.iter().map(|part| name(part, &map.parts)).collect(),
        rows: rows.collect(),
    }
}

/// A part's name as the source has it, with its process where there are several.
pub fn name(part: &Part, all: &[Part]) -> String {
    let name = demangled(&part.name);
    match all.iter().any(|other| other.process != part.process) {
        true => format!("{name} (process {})", part.process),
        false => name.into_owned(),
    }
}

/// One memory.
pub fn panel(title: &str, figures: &MemoryFigures, runs: &[FrameRun]) -> MemoryPanel {
    let looks = runs.iter().map(|run| MemoryRun {
        frames: run.frames,
        look: match run.holder {
            Holder::Free => Look::Free,
            Holder::Zeroed => Look::Zeroed,
            Holder::Kernel => Look::Kernel,
            Holder::Tables => Look::Tables,
            Holder::Cached => Look::Cached,
            Holder::Moving => Look::Moving,
            Holder::Part(part) => Look::Part(part, run.size),
        },
    });
    MemoryPanel {
        title: title.to_owned(),
        note: note(figures),
        frames: figures.frames,
        runs: looks.collect(),
    }
}

fn note(figures: &MemoryFigures) -> String {
    let index = |size: PageSize| figures.orders[size.order() as usize].fragmentation;
    format!(
        "{} of {} free; FMFI {:.2} for 2 MiB, {:.2} for 1 GiB",
        bytes(figures.free),
        bytes(figures.frames),
        index(PageSize::Huge),
        index(PageSize::Giant),
    )
}

/// Frames as bytes.
pub fn bytes(frames: u64) -> String {
    figures::readable(frames * PageSize::Base.bytes())
}
