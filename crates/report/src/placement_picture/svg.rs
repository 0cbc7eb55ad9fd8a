//! The drawing.

use super::{PlacementBand, PlacementPicture};
use crate::svg::{bytes, escaped};
use std::fmt::Write;

const LEFT: f64 = 74.0;
const PLOT: f64 = 620.0;
const RIGHT: f64 = 26.0;
const ACCESSES: f64 = 120.0;
const PLACES: f64 = 190.0;
const STRIP: f64 = 54.0;
const GAP: f64 = 34.0;

/// Colours from the slow tiers' to the first tier's, in steps of a quarter: orange to blue (Okabe and Ito).
const TIERS: [&str; 5] = ["#e69f00", "#e9c46f", "#c9c9c4", "#6ba7cc", "#0072b2"];
/// Colours from few accesses to many.
const HEAT: [&str; 4] = ["#e3dcea", "#b9a3cc", "#7d5aa0", "#3c1a5b"];
const UP: &str = "#0072b2";
const DOWN: &str = "#c2700a";

pub(super) fn draw(picture: &PlacementPicture) -> String {
    let rows = picture.columns.first().map_or(0, |band| band.resident.len());
    let mut body = String::new();
    text(&mut body, (16.0, 26.0), "title", "start", &picture.title);
    text(&mut body, (16.0, 44.0), "note", "start", &picture.subtitle);

    let mut y = 76.0;
    let [first, others] = &picture.tiers;
    heading(&mut body, y, "Accesses that reach memory, by address");
    legend(&mut body, y, &[("few", HEAT[0]), ("", HEAT[1]), ("", HEAT[2]), ("many", HEAT[3])]);
    let hottest = hottest(picture);
    let heat = |band: &PlacementBand, row: usize| heat_of(band.accesses[row], hottest);
    map(&mut body, picture, (y, ACCESSES), rows, &HEAT, heat);

    y += ACCESSES + GAP;
    heading(&mut body, y, "Where that memory lies");
    let half = format!("half {first}");
    legend(
        &mut body,
        y,
        &[(others, TIERS[0]), ("", TIERS[1]), (&half, TIERS[2]), ("", TIERS[3]), (first, TIERS[4])],
    );
    map(&mut body, picture, (y, PLACES), rows, &TIERS, |band, row| place_of(band.resident[row]));

    y += PLACES + GAP;
    moves(&mut body, picture, y);
    y += STRIP + GAP;
    served(&mut body, picture, y);
    y += STRIP;
    time_axis(&mut body, picture, y);
    let (width, height) = (LEFT + PLOT + RIGHT, y + 40.0);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n\
         <style>text{{font-family:Helvetica,Arial,sans-serif;fill:#222}}.title{{font-size:16px;font-weight:bold}}\
         .panel{{font-size:13px;font-weight:bold}}.note{{font-size:12px;fill:#444}}.axis{{font-size:10.5px;fill:#555}}\
         </style>\n<rect width=\"{width}\" height=\"{height}\" rx=\"6\" fill=\"#fff\"/>\n{body}</svg>\n"
    )
}

/// The fewest accesses of a cell that count as many: what the busiest twentieth of all cells has.
fn hottest(picture: &PlacementPicture) -> u64 {
    let mut counts: Vec<u64> =
        picture.columns.iter().flat_map(|band| band.accesses.iter().copied()).filter(|n| *n > 0).collect();
    counts.sort_unstable();
    counts.get(counts.len().saturating_sub(1) * 19 / 20).copied().unwrap_or(1).max(1)
}

/// Each level stands for a quarter of the range, the lowest for all below an eighth.
fn heat_of(accesses: u64, hottest: u64) -> Option<usize> {
    let share = accesses as f64 / hottest as f64;
    (share > 0.02).then(|| [0.125, 0.4, 0.75].iter().filter(|level| share >= **level).count())
}

fn place_of([first, others]: [u64; 2]) -> Option<usize> {
    let all = first + others;
    (all > 0).then(|| match first {
        0 => 0,
        _ if others == 0 => 4,
        _ => 1 + ((3 * first) / all).min(2) as usize,
    })
}

/// Cells by level, a path of strokes for each: addresses grow upward.
fn map(
    out: &mut String,
    picture: &PlacementPicture,
    (top, height): (f64, f64),
    rows: usize,
    colours: &[&str],
    level: impl Fn(&PlacementBand, usize) -> Option<usize>,
) {
    let columns = picture.columns.len();
    let mut paths = vec![String::new(); colours.len()];
    for row in 0..rows {
        let mut at = 0;
        let mut ends = vec![None; colours.len()];
        while at < columns {
            let this = level(&picture.columns[at], row);
            let same = picture.columns[at..].iter().take_while(|band| level(band, row) == this).count();
            if let Some(this) = this {
                let path = &mut paths[this];
                match ends[this].replace(at + same) {
                    Some(end) => write!(path, "m{} 0h{same}", at - end),
                    None => write!(path, "M{at} {}h{same}", rows - 1 - row),
                }
                .ok();
            }
            at += same;
        }
    }
    let scale = (PLOT / columns.max(1) as f64, height / rows.max(1) as f64);
    let _ = writeln!(
        out,
        "<g transform=\"translate({LEFT} {top}) scale({:.4} {:.4})\" stroke-width=\"1.02\" fill=\"none\">\
         <g transform=\"translate(0 .5)\">",
        scale.0, scale.1
    );
    for (path, colour) in paths.iter().zip(colours).filter(|(path, _)| !path.is_empty()) {
        let _ = writeln!(out, "<path stroke=\"{colour}\" d=\"{path}\"/>");
    }
    let _ = writeln!(out, "</g></g>");
    frame(out, top, height);
    // Addresses: how much memory lies below.
    let all = picture.row_bytes * rows as u64;
    let mut step = 1u64 << 20;
    while all / step > 5 {
        step *= 2;
    }
    for at in (0..=all).step_by(step as usize) {
        let y = top + height * (1.0 - at as f64 / all.max(1) as f64);
        text(out, (LEFT - 6.0, y + 3.5), "axis", "end", &bytes(at));
    }
}

/// Bytes promoted, upward, and demoted, downward.
fn moves(out: &mut String, picture: &PlacementPicture, top: f64) {
    heading(out, top, "What moves");
    let rate = |band: &PlacementBand, at: usize| band.moved[at] as f64 / picture.column_seconds;
    let most = picture.columns.iter().flat_map(|band| [rate(band, 0), rate(band, 1)]).fold(0.0, f64::max);
    let total = |at: usize| picture.columns.iter().map(|band| band.moved[at]).sum::<u64>();
    legend(
        out,
        top,
        &[
            (&format!("promoted, {} in all", bytes(total(0))), UP),
            (&format!("demoted, {}", bytes(total(1))), DOWN),
        ],
    );
    let (middle, half) = (top + STRIP / 2.0, STRIP / 2.0);
    let step = PLOT / picture.columns.len().max(1) as f64;
    for (at, colour, sign) in [(0, UP, -1.0), (1, DOWN, 1.0)] {
        let mut path = String::new();
        for (column, band) in picture.columns.iter().enumerate().filter(|(_, band)| band.moved[at] > 0) {
            let tall = (sign * half * rate(band, at) / most).abs().max(0.8) * sign;
            let _ = write!(path, "M{:.1} {middle}v{tall:.1}", LEFT + (column as f64 + 0.5) * step);
        }
        if !path.is_empty() {
            let _ =
                writeln!(out, "<path stroke=\"{colour}\" stroke-width=\"{:.2}\" d=\"{path}\"/>", step * 0.9);
        }
    }
    let _ = writeln!(out, "<path stroke=\"#777\" stroke-width=\".7\" d=\"M{LEFT} {middle}h{PLOT}\"/>");
    frame(out, top, STRIP);
    if most > 0.0 {
        let label = format!("{}/s", bytes(most as u64));
        text(out, (LEFT - 6.0, top + 9.0), "axis", "end", &label);
    }
}

/// The share of the accesses that the first tier served.
fn served(out: &mut String, picture: &PlacementPicture, top: f64) {
    let all = picture.columns.iter().fold([0; 2], |sum, b| [sum[0] + b.served[0], sum[1] + b.served[1]]);
    let mean = 100.0 * all[0] as f64 / (all[0] + all[1]).max(1) as f64;
    let said = format!("Share of the accesses that {} serves: {mean:.0} % over all", picture.tiers[0]);
    heading(out, top, &said);
    let step = PLOT / picture.columns.len().max(1) as f64;
    let mut path = String::new();
    let mut joined = false;
    for (column, PlacementBand { served: [first, others], .. }) in picture.columns.iter().enumerate() {
        if first + others == 0 {
            joined = false;
            continue;
        }
        let y = top + STRIP * (1.0 - *first as f64 / (first + others) as f64);
        let command = if std::mem::replace(&mut joined, true) { 'L' } else { 'M' };
        let _ = write!(path, "{command}{:.1} {y:.1}", LEFT + (column as f64 + 0.5) * step);
    }
    let _ = writeln!(
        out,
        "<path stroke=\"#ddd\" stroke-width=\".7\" d=\"M{LEFT} {}h{PLOT}\"/>\
         <path stroke=\"{UP}\" stroke-width=\"1.6\" fill=\"none\" d=\"{path}\"/>",
        top + STRIP / 2.0
    );
    frame(out, top, STRIP);
    for (label, at) in [("100 %", 0.0), ("50 %", 0.5), ("0 %", 1.0)] {
        text(out, (LEFT - 6.0, top + STRIP * at + 3.5), "axis", "end", label);
    }
}

fn time_axis(out: &mut String, picture: &PlacementPicture, bottom: f64) {
    let all = picture.column_seconds * picture.columns.len() as f64;
    let (unit, name) = match all {
        1.0.. => (1.0, "s"),
        1e-3.. => (1e-3, "ms"),
        _ => (1e-6, "us"),
    };
    let mut step: f64 = 1.0;
    for factor in [2.0, 2.5, 2.0].into_iter().cycle() {
        if all / unit / step <= 8.0 {
            break;
        }
        step *= factor;
    }
    let mut at = 0.0;
    while at * unit <= all {
        let x = LEFT + PLOT * at * unit / all.max(1e-12);
        let _ = writeln!(out, "<path stroke=\"#555\" d=\"M{x:.1} {bottom}v4\"/>");
        text(out, (x, bottom + 16.0), "axis", "middle", &format!("{at} {name}"));
        at += step;
    }
    text(out, (LEFT + PLOT, bottom + 32.0), "axis", "end", "simulated time");
}

fn heading(out: &mut String, y: f64, words: &str) {
    text(out, (LEFT, y - 7.0), "panel", "start", words);
}

/// Squares and words at the right above a panel.
fn legend(out: &mut String, y: f64, entries: &[(&str, &str)]) {
    let width = |words: &str| if words.is_empty() { 13.0 } else { 22.0 + 6.0 * words.len() as f64 };
    let mut x = LEFT + PLOT - entries.iter().map(|(words, _)| width(words)).sum::<f64>();
    for (words, colour) in entries {
        let _ = writeln!(
            out,
            "<rect x=\"{x:.1}\" y=\"{}\" width=\"11\" height=\"10\" fill=\"{colour}\"/>",
            y - 16.0
        );
        text(out, (x + 15.0, y - 7.0), "axis", "start", words);
        x += width(words);
    }
}

fn frame(out: &mut String, top: f64, height: f64) {
    let _ = writeln!(
        out,
        "<rect x=\"{LEFT}\" y=\"{top}\" width=\"{PLOT}\" height=\"{height}\" fill=\"none\" stroke=\"#555\"/>"
    );
}

fn text(out: &mut String, (x, y): (f64, f64), class: &str, anchor: &str, text: &str) {
    if text.is_empty() {
        return;
    }
    let escaped = escaped(text);
    let anchor = if anchor == "start" { String::new() } else { format!(" text-anchor=\"{anchor}\"") };
    let _ = writeln!(out, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\"{anchor}>{escaped}</text>");
}
