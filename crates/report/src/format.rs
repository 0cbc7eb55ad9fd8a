//! Numbers as people read them, and text that fits a width.

/// The characters that a terminal can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charset {
    /// 7-bit characters only.
    Ascii,
    /// Box drawing and block elements.
    Unicode,
}

impl Charset {
    /// Unicode where the locale (`LC_ALL`, else `LC_CTYPE`, else `LANG`) says UTF-8, else ASCII.
    pub fn from_environment() -> Charset {
        let set = |name| std::env::var(name).ok().filter(|value: &String| !value.is_empty());
        let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).unwrap_or_default();
        Charset::from_locale(&locale)
    }

    fn from_locale(locale: &str) -> Charset {
        let locale = locale.to_ascii_lowercase();
        if locale.contains("utf-8") || locale.contains("utf8") { Charset::Unicode } else { Charset::Ascii }
    }

    /// The sign between a number and what it multiplies.
    pub(crate) fn times(self) -> &'static str {
        if self == Charset::Unicode { "×" } else { "x" }
    }
}

/// Three significant digits and a decimal prefix: `16.8 M`.
pub(crate) fn count(value: u64) -> String {
    scaled(value as f64, &[(1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")], "")
}

/// Binary multiples: `8.00 GiB`.
pub(crate) fn bytes(value: u64) -> String {
    let kib = 1024.0;
    let units =
        [(kib * kib * kib * kib, " TiB"), (kib * kib * kib, " GiB"), (kib * kib, " MiB"), (kib, " KiB")];
    scaled(value as f64, &units, " B")
}

/// A time in seconds, in its natural unit: `1.84 ms`.
pub(crate) fn seconds(value: f64) -> String {
    if value < 1e-9 {
        return format!("{} ns", significant(value * 1e9));
    }
    scaled(value, &[(1.0, " s"), (1e-3, " ms"), (1e-6, " us"), (1e-9, " ns")], " s")
}

/// An energy in joules, in its natural unit: `1.16 mJ`.
pub(crate) fn joules(value: f64) -> String {
    if value < 1e-9 {
        return format!("{} nJ", significant(value * 1e9));
    }
    scaled(value, &[(1.0, " J"), (1e-3, " mJ"), (1e-6, " uJ"), (1e-9, " nJ")], " J")
}

/// From this share of a unit on, three digits would read 1000 (or 1024) of the smaller one.
const ROUNDS_UP: f64 = 0.9995;

fn scaled(value: f64, units: &[(f64, &str)], base: &str) -> String {
    match units.iter().find(|(size, _)| value >= *size * ROUNDS_UP) {
        Some((size, unit)) => format!("{}{unit}", significant(value / size)),
        None if value.fract() == 0.0 => format!("{value}{base}"),
        None => format!("{}{base}", significant(value)),
    }
}

/// About three significant digits; an exponent only where a number is too long for a column.
pub(crate) fn significant(value: f64) -> String {
    let magnitude = value.abs();
    match magnitude {
        m if !m.is_finite() => "-".to_owned(),
        0.0 => "0".to_owned(),
        m if m < 0.001 => "<0.001".to_owned(),
        m if m < 0.1 => format!("{value:.3}"),
        m if m < 9.995 => format!("{value:.2}"),
        m if m < 99.95 => format!("{value:.1}"),
        m if m < 999_999.5 => format!("{value:.0}"),
        _ => format!("{value:.1e}"),
    }
}

/// A speed-up: two decimals where they can be read.
pub(crate) fn speedup(value: f64) -> String {
    if (0.005..999.5).contains(&value) { format!("{value:.2}") } else { significant(value) }
}

/// A share of 0 to 1 as a percentage without decimals, `<1%` for what would round to nothing.
pub(crate) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent > 0.0 && percent < 0.5 { "<1%".to_owned() } else { format!("{percent:.0}%") }
}

/// `text` in at most `width` characters: the middle gives way, since names differ at both ends.
pub(crate) fn fit(text: &str, width: usize, charset: Charset) -> String {
    let text: Vec<char> = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.len() <= width {
        return text.into_iter().collect();
    }
    let ellipsis = if charset == Charset::Unicode { "…" } else { ".." };
    let kept = width.saturating_sub(ellipsis.chars().count());
    let head = kept.div_ceil(2);
    let tail = kept - head;
    text[..head]
        .iter()
        .copied()
        .chain(ellipsis.chars())
        .chain(text[text.len() - tail..].iter().copied())
        .collect()
}

/// `text` broken at spaces into lines of at most `width` characters; a longer word is cut.
pub(crate) fn wrap(text: &str, width: usize, indent: &str) -> String {
    let width = width.max(indent.chars().count() + 8);
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        let mut word: Vec<char> = word.chars().collect();
        loop {
            let gap = usize::from(!line.trim().is_empty());
            let room = width.saturating_sub(line.chars().count() + gap);
            if word.len() <= room {
                line.extend(std::iter::repeat_n(' ', gap).chain(word.iter().copied()));
                break;
            }
            if gap == 0 {
                let rest = word.split_off(room);
                line.extend(word);
                word = rest;
            }
            lines.push(std::mem::replace(&mut line, indent.to_owned()));
        }
    }
    lines.push(line);
    lines.join("\n")
}

/// `+3.1%`, `-0.4%`, `0.0%`: a tenth of a percent is what targets are stated in.
pub fn slowdown(share: f64) -> String {
    let tenths = (share * 1000.0).round();
    if tenths == 0.0 { "0.0%".to_owned() } else { format!("{:+.1}%", tenths / 10.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_by_hand() {
        assert_eq!(count(999), "999");
        assert_eq!(count(16_777_216), "16.8 M");
        assert_eq!(bytes(8 << 30), "8.00 GiB");
        assert_eq!(bytes((1 << 30) - 1), "1.00 GiB");
        assert_eq!(bytes(100), "100 B");
        assert_eq!(seconds(0.00184), "1.84 ms");
        assert_eq!(seconds(0.0), "0 ns");
        assert_eq!(seconds(73.0), "73.0 s");
        assert_eq!(joules(0.00116), "1.16 mJ");
        assert_eq!(joules(25e-12), "0.025 nJ");
        assert_eq!(percent(0.004), "<1%");
        assert_eq!(percent(0.0), "0%");
        assert_eq!(percent(0.46), "46%");
        assert_eq!([0.031, -0.004, -0.0001, 12.0].map(slowdown), ["+3.1%", "-0.4%", "0.0%", "+1200.0%"]);
    }

    #[test]
    fn long_names_keep_both_ends_and_control_characters_vanish() {
        assert_eq!(fit("native-2m", 20, Charset::Ascii), "native-2m");
        assert_eq!(fit("weighted-interleave-3-1", 11, Charset::Unicode), "weigh…e-3-1");
        assert_eq!(fit("weighted-interleave-3-1", 11, Charset::Ascii), "weigh..-3-1");
        assert_eq!(fit("a\x1b[2Jb", 10, Charset::Ascii), "a [2Jb");
    }

    #[test]
    fn wrapped_text_fits_and_loses_no_letter() {
        let text = format!("short words and {} at the end", "x".repeat(50));
        let wrapped = wrap(&text, 30, "  ");
        assert!(wrapped.lines().all(|line| line.chars().count() <= 30), "{wrapped}");
        let letters = |s: &str| s.chars().filter(|c| !c.is_whitespace()).collect::<String>();
        assert_eq!(letters(&wrapped), letters(&text));
    }

    #[test]
    fn locale_decides_the_charset() {
        assert_eq!(Charset::from_locale("en_GB.UTF-8"), Charset::Unicode);
        assert_eq!(Charset::from_locale("C.utf8"), Charset::Unicode);
        assert_eq!(Charset::from_locale("POSIX"), Charset::Ascii);
    }
}
