//! The drawing.

use super::cells::{Cell, Scale, bytes, cells, colours, totals};
use super::{Look, MemoryPanel, MemoryPicture};
use crate::svg::escaped;
use std::collections::BTreeMap;
use std::fmt::Write;
use terrace_model::PageSize;

/// Width of a panel.
const PANEL: u64 = 512;
/// Room at the left for addresses, and between panels.
const AXIS: u64 = 70;
const MARGIN: u64 = 16;
const LINE: u64 = 18;

/// Okabe and Ito's colours, which people with red-green blindness tell apart; the last is for all that share one.
const COLOURS: [[u8; 3]; 8] = [
    [0, 114, 178],
    [213, 94, 0],
    [0, 158, 115],
    [204, 121, 167],
    [230, 159, 0],
    [86, 180, 233],
    [148, 103, 189],
    [140, 110, 90],
];

/// A colour and what stands beside it in the legend.
type Entry = (String, Vec<(String, String)>);

pub(super) fn draw(picture: &MemoryPicture) -> String {
    let scale = Scale::of(picture);
    let colours = colours(picture);
    let columns = picture.rows.iter().map(Vec::len).max().unwrap_or(1) as u64;
    // Room for the explanation, too.
    let width = MARGIN + columns * (AXIS + PANEL) + MARGIN;
    let mut body = String::new();
    text(&mut body, MARGIN, 30, "title", &picture.title);
    text(&mut body, MARGIN, 50, "note", &picture.subtitle);
    let mut y = 78;
    for (row, shown) in picture.rows.iter().zip(&scale.shown) {
        if row.iter().all(|panel| panel.runs.iter().all(|run| run.look.is_free())) {
            if let Some(panel) = row.first() {
                let said = format!("{}: {}, free all the time", memory_of(&panel.title), bytes(panel.frames));
                text(&mut body, MARGIN + AXIS, y + 2, "note", &said);
                y += 26;
            }
            continue;
        }
        let mut height = 0;
        for (at, panel) in row.iter().enumerate() {
            let x = MARGIN + at as u64 * (AXIS + PANEL) + AXIS;
            height = height.max(draw_panel(&mut body, panel, (x, y), &scale, *shown, &colours));
        }
        y += height + 22;
    }
    let explanation = format!(
        "One cell is {} ({}), in the colour of most of what is in use there, filled as far as it is in use. Addresses grow \
         from left to right, row by row.",
        bytes(scale.frames),
        if scale.frames == 1 { "a frame".to_owned() } else { format!("{} frames", scale.frames) },
    );
    for line in wrapped(&explanation, (width - 2 * MARGIN) / 6) {
        text(&mut body, MARGIN, y, "note", &line);
        y += 16;
    }
    y = legend(&mut body, picture, &colours, y - 2, width);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{y}\" viewBox=\"0 0 {width} {y}\">\n\
         <style>text{{font-family:Helvetica,Arial,sans-serif;fill:#222}}.title{{font-size:17px;font-weight:bold}}\
         .panel{{font-size:14px;font-weight:bold}}.note{{font-size:12px;fill:#444}}.axis{{font-size:10px;fill:#666}}\
         .legend{{font-size:12px}}</style>\n\
         <rect width=\"{width}\" height=\"{y}\" fill=\"#fff\"/>\n{body}</svg>\n"
    )
}

fn draw_panel(
    out: &mut String,
    panel: &MemoryPanel,
    (x, y): (u64, u64),
    scale: &Scale,
    shown: u64,
    colours: &[Option<usize>],
) -> u64 {
    let cells = cells(panel, scale.frames, shown);
    let columns: u64 = match cells.len() {
        ..=1024 => 32,
        1025..=4096 => 64,
        _ => 128,
    };
    let side = PANEL / columns;
    let rows = (cells.len() as u64).div_ceil(columns);
    let top = y + 28;
    text(out, x, y + 2, "panel", &panel.title);
    text(out, x, y + 19, "note", &panel.note);
    let _ = writeln!(out, "<g shape-rendering=\"crispEdges\">");
    for (row, line) in cells.chunks(columns as usize).enumerate() {
        let mut at = 0;
        while at < line.len() {
            let same = line[at..].iter().take_while(|cell| **cell == line[at]).count();
            let Cell { look, quarters } = line[at];
            if look != Look::Free {
                let height = side * quarters / 4;
                let _ = writeln!(
                    out,
                    "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{height}\" fill=\"{}\"/>",
                    x + at as u64 * side,
                    top + (row as u64 + 1) * side - height,
                    same as u64 * side,
                    fill(look, colours),
                );
            }
            at += same;
        }
    }
    let _ = writeln!(out, "</g>");
    grid(out, (x, top), side, columns, rows);
    axis(out, (x, top), side, rows, columns * scale.frames);
    let mut bottom = top + rows * side;
    if panel.frames > shown {
        text(out, x, bottom + 15, "note", &format!("and {} beyond, free", bytes(panel.frames - shown)));
        bottom += LINE;
    }
    bottom - y
}

/// Fine lines between cells, and a frame around all.
fn grid(out: &mut String, (x, y): (u64, u64), side: u64, columns: u64, rows: u64) {
    let mut lines = String::new();
    for column in 1..columns {
        let _ = write!(lines, "M{} {y}v{}", x + column * side, rows * side);
    }
    for row in 1..rows {
        let _ = write!(lines, "M{x} {}h{}", y + row * side, columns * side);
    }
    let _ = writeln!(
        out,
        "<path d=\"{lines}\" stroke=\"#fff\" stroke-width=\"0.6\" stroke-opacity=\"0.55\" fill=\"none\"/>\n\
         <rect x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#555\"/>",
        columns * side,
        rows * side
    );
}

/// Addresses at the left, about every 40 pixels.
fn axis(out: &mut String, (x, y): (u64, u64), side: u64, rows: u64, frames_of_row: u64) {
    let step = (40 / side).max(1).next_power_of_two();
    for row in (0..rows).step_by(step as usize) {
        let label = if row == 0 { "0".to_owned() } else { bytes(row * frames_of_row) };
        let at = y + row * side;
        let _ = writeln!(
            out,
            "<path d=\"M{} {at}h5\" stroke=\"#555\"/><text class=\"axis\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{label}</text>",
            x - 5,
            x - 8,
            at + 4
        );
    }
}

/// Every look that occurs, with how much of it there is. Returns where it ends.
fn legend(out: &mut String, picture: &MemoryPicture, colours: &[Option<usize>], top: u64, width: u64) -> u64 {
    let two = picture.rows.iter().any(|row| row.len() > 1);
    let (before, after) = (totals(picture, false), totals(picture, true));
    let mut looks: Vec<Look> = before.keys().chain(after.keys()).copied().collect();
    looks.sort();
    looks.dedup();
    let amount = |looks: &[Look]| {
        let sum =
            |totals: &BTreeMap<Look, u64>| -> u64 { looks.iter().filter_map(|look| totals.get(look)).sum() };
        match (two, sum(&before), sum(&after)) {
            (true, before, after) if before != after && before > 0 => {
                format!("{} → {}", bytes(before), bytes(after))
            }
            (_, _, after) => bytes(after),
        }
    };
    let mut entries: Vec<Entry> = Vec::new();
    for look in looks.iter().filter(|look| !matches!(look, Look::Part(..))) {
        let name = match look {
            Look::Free => "free",
            Look::Zeroed => "free, zeroed ahead",
            Look::Cached => "page cache",
            Look::Kernel => "kernel",
            Look::Tables => "page tables",
            _ => "being zeroed or moved",
        };
        entries.push((format!("{name}: {}", amount(&[*look])), vec![(fill(*look, colours), String::new())]));
    }
    let places = (0..=COLOURS.len()).filter_map(|place| {
        let of_place = |look: &&Look| match look {
            Look::Part(part, _) => colours[*part as usize].unwrap_or(COLOURS.len() - 1) == place,
            _ => false,
        };
        let own: Vec<Look> = looks.iter().filter(of_place).copied().collect();
        (!own.is_empty()).then_some(own)
    });
    for own in places {
        let parts: std::collections::BTreeSet<u32> = own
            .iter()
            .filter_map(|look| if let Look::Part(part, _) = look { Some(*part) } else { None })
            .collect();
        let name = match parts.first() {
            Some(part) if parts.len() == 1 => shortened(&picture.parts[*part as usize]),
            _ => format!("{} smaller parts", parts.len()),
        };
        let mut swatches = Vec::new();
        for size in PageSize::ALL {
            let same: Vec<Look> =
                own.iter().filter(|look| matches!(look, Look::Part(_, of) if *of == size)).copied().collect();
            if let Some(look) = same.first() {
                swatches.push((fill(*look, colours), format!("{size} {}", amount(&same))));
            }
        }
        entries.push((name, swatches));
    }
    place_entries(out, &entries, top, width)
}

fn place_entries(out: &mut String, entries: &[Entry], top: u64, width: u64) -> u64 {
    let (mut x, mut y) = (MARGIN, top);
    for (name, swatches) in entries {
        let letters = |text: &str| text.chars().count() as u64 * 7;
        let length: u64 =
            swatches.iter().map(|(_, label)| 22 + letters(label)).sum::<u64>() + letters(name) + 24;
        if x > MARGIN && x + length > width {
            (x, y) = (MARGIN, y + LINE);
        }
        let plain = swatches.iter().all(|(_, label)| label.is_empty());
        if !plain {
            text(out, x, y + 11, "legend", &format!("{name}:"));
            x += letters(name) + 8;
        }
        for (fill, label) in swatches {
            let _ = writeln!(
                out,
                "<rect x=\"{x}\" y=\"{y}\" width=\"12\" height=\"12\" fill=\"{fill}\" stroke=\"#555\" stroke-width=\"0.7\"/>"
            );
            let label = if plain { name } else { label };
            text(out, x + 17, y + 11, "legend", label);
            x += 22 + letters(label);
        }
        x += 14;
    }
    y + LINE + MARGIN
}

/// The memory that a panel's title names, without when it shows it.
fn memory_of(title: &str) -> &str {
    title.split_once(',').map_or(title, |(memory, _)| memory)
}

/// Lines of at most so many letters.
fn wrapped(text: &str, letters: u64) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is always a line");
        if line.is_empty() {
            line.push_str(word);
        } else if (line.len() + 1 + word.len()) as u64 <= letters {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

fn shortened(name: &str) -> String {
    match name.chars().count() {
        ..=40 => name.to_owned(),
        _ => format!("{}…", name.chars().take(39).collect::<String>()),
    }
}

/// Shades by the size of the page: the lighter, the smaller.
fn fill(look: Look, colours: &[Option<usize>]) -> String {
    let [red, green, blue] = match look {
        Look::Free => [255, 255, 255],
        Look::Zeroed => [226, 240, 217],
        Look::Cached => [200, 200, 200],
        Look::Kernel => [85, 85, 85],
        Look::Tables => [0, 0, 0],
        Look::Moving => [240, 228, 66],
        Look::Part(part, size) => {
            let colour = COLOURS[colours[part as usize].unwrap_or(COLOURS.len() - 1)];
            match size {
                PageSize::Base => colour.map(|value| 255 - (255 - value) / 5 * 2),
                PageSize::Huge => colour,
                PageSize::Giant => colour.map(|value| (u16::from(value) * 11 / 20) as u8),
            }
        }
    };
    format!("#{red:02x}{green:02x}{blue:02x}")
}

fn text(out: &mut String, x: u64, y: u64, class: &str, text: &str) {
    let escaped = escaped(text);
    let _ = writeln!(out, "<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{escaped}</text>");
}
