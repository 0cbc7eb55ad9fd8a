//! The dashboard as lines: the same on a terminal and on paper.

use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use terrace_live::engine::State;
use terrace_live::status::{Status, TierStatus};
use terrace_report::Charset;

/// Names of tiers and processes take so much.
const NAME: usize = 14;
/// A column of sizes.
const SIZE: usize = 11;

/// A status in lines of at most `width` characters.
pub fn lines(status: &Status, width: usize, charset: Charset) -> Vec<Line<'static>> {
    let mut lines = heading(status, width, charset);
    lines.push(Line::default());
    lines.push(title(format!(
        "{:NAME$} {:>SIZE$} {:>SIZE$} {:>SIZE$} {:>SIZE$}",
        "tier", "hot", "cold", "used", "of"
    )));
    lines.extend(status.tiers.iter().map(|tier| tier_line(tier, width, charset)));
    lines.push(Line::default());
    lines.extend(moves(status));
    lines.push(Line::default());
    lines.extend(processes(status));
    for note in &status.notes {
        lines.push(Line::from(format!("note: {}", clean(note))));
    }
    lines.into_iter().map(|line| cut(line, width)).collect()
}

fn heading(status: &Status, width: usize, charset: Charset) -> Vec<Line<'static>> {
    let (state, color) = match status.state {
        State::Working => ("working", Color::Green),
        State::Paused => ("paused", Color::Yellow),
        State::HeldBack => ("held back: memory pressure", Color::Red),
        State::Stopped => ("stopped: the command runs on by itself", Color::Yellow),
        State::Resting => ("resting: its processor time is used up", Color::Yellow),
    };
    let dry = if status.dry_run { ", dry run" } else { "" };
    let first = Line::from(vec![
        Span::from(format!("terrace {}: ", status.pid)),
        Span::from(clean(&status.policy)).bold(),
        Span::from(format!(", {}{dry}, ", duration(status.run_seconds))),
        Span::styled(state, Style::new().fg(color)),
    ]);
    let cpu = status.cpu;
    let mean = if status.run_seconds > 0.0 { cpu.seconds / status.run_seconds } else { 0.0 };
    let text = format!("processor {:.1}% of a core now, {:.1}% on average", cpu.share * 100.0, mean * 100.0);
    let budget = match cpu.budget {
        None => vec![Span::from(format!("{text}, no bound"))],
        Some(budget) => {
            let text = format!("{text}, of {:.1}% ", budget * 100.0);
            let room = width.saturating_sub(text.chars().count() + 2).min(20);
            let used = (mean / budget * room as f64).round() as usize;
            let mut spans = vec![Span::from(text)];
            spans.extend(bar(used, 0, room, charset));
            spans
        }
    };
    let source = Line::from(format!("accesses: {}", clean(&status.accesses)));
    vec![first, source, Line::from(budget)]
}

fn tier_line(tier: &TierStatus, width: usize, charset: Charset) -> Line<'static> {
    let text = format!(
        "{:NAME$} {:>SIZE$} {:>SIZE$} {:>SIZE$} {:>SIZE$} ",
        fit(&tier.name, NAME),
        seen(tier.hot),
        seen(tier.cold),
        bytes(tier.used),
        bytes(tier.capacity),
    );
    let room = width.saturating_sub(text.chars().count() + 2).min(40);
    let of = |bytes: u64| (bytes as f64 / tier.capacity.max(1) as f64 * room as f64).round() as usize;
    let mut spans = vec![Span::from(text)];
    let hot = of(tier.hot.unwrap_or(0));
    spans.extend(bar(hot, of(tier.used).saturating_sub(hot), room, charset));
    Line::from(spans)
}

/// What Terrace did, and what the kernel counts, by itself too.
fn moves(status: &Status) -> Vec<Line<'static>> {
    let moves = &status.moves;
    let kernel = |name: &str| {
        let is_meant = |known: &str| match name.strip_suffix('*') {
            Some(start) => known.starts_with(start),
            None => known == name,
        };
        let of = status.kernel.iter().filter(|(known, _)| is_meant(known)).map(|(_, value)| *value);
        let mut of = of.peekable();
        of.peek().is_some().then(|| of.sum::<u64>())
    };
    let row = |what: &str, pages: u64, size: Option<u64>, name: &str| {
        let theirs = kernel(name).map_or_else(|| "-".to_owned(), |value| value.to_string());
        let size = size.map_or(String::new(), bytes);
        Line::from(format!("{what:NAME$} {size:>SIZE$} {pages:>SIZE$}    {name:24} {theirs:>SIZE$}"))
    };
    let pages = |bytes: u64| bytes >> 12;
    let moved = moves.promoted + moves.demoted;
    let head = format!(
        "{:NAME$} {:>SIZE$} {:>SIZE$}    {:24} {:>SIZE$}",
        "moves", "bytes", "pages", "kernel, whole machine", "pages"
    );
    vec![
        title(head),
        row("promoted", pages(moves.promoted), Some(moves.promoted), "pgpromote_success"),
        row("demoted", pages(moves.demoted), Some(moves.demoted), "pgdemote_*"),
        row("together", pages(moved), Some(moved), "pgmigrate_success"),
        row("failed", moves.failed, None, "pgmigrate_fail"),
        Line::from(format!(
            "{:NAME$} {:>SIZE$}/s, {} waiting, {} exchanged{}",
            "now",
            bytes(moves.bytes_per_second as u64),
            moves.waiting,
            moves.exchanged,
            if status.dry_run { format!(", {} only planned", moves.planned) } else { String::new() },
        )),
    ]
}

fn processes(status: &Status) -> Vec<Line<'static>> {
    let mut head = format!("{:>8} {:NAME$} {:>SIZE$}", "process", "", "hot");
    for tier in &status.tiers {
        head += &format!(" {:>SIZE$}", fit(&tier.name, SIZE));
    }
    let mut lines = vec![title(head)];
    for process in &status.processes {
        let mut text =
            format!("{:>8} {:NAME$} {:>SIZE$}", process.pid, fit(&process.name, NAME), seen(process.hot));
        for tier in &status.tiers {
            text += &format!(" {:>SIZE$}", bytes(process.bytes.get(&tier.name).copied().unwrap_or(0)));
        }
        lines.push(Line::from(text));
    }
    lines
}

fn title(text: String) -> Line<'static> {
    Line::from(text).bold()
}

/// `[##==..]`: hot, cold, room.
fn bar(hot: usize, cold: usize, room: usize, charset: Charset) -> Vec<Span<'static>> {
    let hot = hot.min(room);
    let cold = cold.min(room - hot);
    let (dense, sparse, none) = match charset {
        Charset::Unicode => ("█", "▒", "·"),
        Charset::Ascii => ("#", "=", "."),
    };
    vec![
        Span::from("["),
        Span::styled(dense.repeat(hot), Style::new().fg(Color::Red)),
        Span::styled(sparse.repeat(cold), Style::new().fg(Color::Blue)),
        Span::from(none.repeat(room - hot - cold)),
        Span::from("]"),
    ]
}

/// What nobody sees is not nothing.
fn seen(of: Option<u64>) -> String {
    of.map_or_else(|| "-".to_owned(), bytes)
}

/// `24.0 MiB`.
fn bytes(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 40 => format!("{:.1} TiB", b as f64 / f64::from(1 << 30) / 1024.0),
        b if b >= 1 << 30 => format!("{:.1} GiB", b as f64 / f64::from(1 << 30)),
        b if b >= 1 << 20 => format!("{:.1} MiB", b as f64 / f64::from(1 << 20)),
        b => format!("{:.0} KiB", b as f64 / 1024.0),
    }
}

/// `45 s`, `2 min 10 s`, `1 h 5 min`, `3 d 4 h`.
fn duration(seconds: f64) -> String {
    let seconds = seconds as u64;
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, s) => format!("{s} s"),
        (0, 0, m, s) => format!("{m} min {s} s"),
        (0, h, m, _) => format!("{h} h {m} min"),
        (d, h, ..) => format!("{d} d {h} h"),
    }
}

/// A process may call itself anything, also what a terminal takes for an order.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

fn fit(text: &str, width: usize) -> String {
    clean(text).chars().take(width).collect()
}

/// The line as far as there is room.
fn cut(line: Line<'static>, width: usize) -> Line<'static> {
    let mut left = width;
    let style = line.style;
    let spans = line.spans.into_iter().map(|span| {
        let text: String = span.content.chars().take(left).collect();
        left -= text.chars().count();
        Span::styled(text, span.style)
    });
    Line::from(spans.collect::<Vec<_>>()).style(style)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Two tiers, and a process with a name that wants to clear the screen.
    pub fn example() -> Status {
        let text = include_str!("../../../../../live/tests/fixtures/status.json");
        serde_json::from_str(text).unwrap()
    }

    fn text(status: &Status, width: usize, charset: Charset) -> String {
        lines(status, width, charset)
            .iter()
            .map(|line| format!("{}\n", line.to_string().trim_end()))
            .collect()
    }

    #[test]
    fn a_frame_on_paper() {
        let expected = "\
terrace 42: ambix, 1 min 15 s, working
accesses: DAMON, regions of 4 KiB
processor 1.2% of a core now, 2.0% on average, of 4.0% [##########..........]

tier                   hot        cold        used          of
dram              16.0 MiB     8.0 MiB    24.0 MiB    32.0 MiB [########===....]
slow                 0 KiB   512.0 MiB   512.0 MiB     2.0 GiB [====...........]

moves                bytes       pages    kernel, whole machine          pages
promoted           8.0 MiB        2048    pgpromote_success                  -
demoted            4.0 MiB        1024    pgdemote_*                         3
together          12.0 MiB        3072    pgmigrate_success               3100
failed                               2    pgmigrate_fail                     5
now                1.2 MiB/s, 12 waiting, 1 exchanged

 process                        hot        dram        slow
    4711 redis \"a\"         12.0 MiB    24.0 MiB    40.0 MiB
    4712 ?[2J?                    -       0 KiB   472.0 MiB
note: few pages are dirty
";
        let found = text(&example(), 80, Charset::Ascii);
        assert_eq!(found, expected, "\n{found}");
        assert!(found.is_ascii());
    }

    #[test]
    fn what_it_does_is_said() {
        let said = |state| text(&Status { state, dry_run: true, ..example() }, 80, Charset::Unicode);
        assert!(said(State::Paused).contains("dry run, paused"));
        assert!(said(State::HeldBack).contains("held back: memory pressure"));
        assert!(said(State::Resting).contains("resting"));
        assert!(said(State::Working).contains("0 only planned"));
    }

    #[test]
    fn no_line_is_wider_than_asked() {
        let mut status = example();
        status.tiers.push(TierStatus {
            name: "x".repeat(90),
            capacity: 0,
            used: u64::MAX,
            hot: Some(u64::MAX),
            cold: Some(0),
        });
        status.cpu.budget = Some(1e-9);
        status.run_seconds = 1e9;
        for width in [0, 1, 40, 80, 300] {
            for line in text(&status, width, Charset::Unicode).lines() {
                assert!(line.chars().count() <= width, "{line}");
            }
        }
    }
}
