//! Figures as people read them.

use std::fmt::Write as _;
use terrace_model::Bytes;

/// Three significant digits: `812`, `1.50 k`, `20.3 M`, `4.10 G`.
pub fn short(value: f64) -> String {
    let mut text = String::new();
    let (scaled, suffix) = match value {
        v if v >= 1e12 => (v / 1e12, " T"),
        v if v >= 1e9 => (v / 1e9, " G"),
        v if v >= 1e6 => (v / 1e6, " M"),
        v if v >= 1e3 => (v / 1e3, " k"),
        v => (v, ""),
    };
    let decimals = match scaled {
        _ if suffix.is_empty() => 0,
        s if s < 10.0 => 2,
        s if s < 100.0 => 1,
        _ => 0,
    };
    let _ = write!(text, "{scaled:.decimals$}{suffix}");
    text
}

/// `3.1%`: a tenth of a percent is what bounds are stated in.
pub fn tenth(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

/// A share; what exceeds ten times as a factor.
pub fn share(share: f64) -> String {
    if share >= 10.0 { format!("{share:.0}x") } else { tenth(share) }
}

/// A time in seconds with the unit that suits it: `2 s`, `125 ms`, `40 us`.
pub fn time(seconds: f64) -> String {
    let (value, unit) = match seconds {
        s if s >= 1.0 => (s, "s"),
        s if s >= 1e-3 => (s * 1e3, "ms"),
        s => (s * 1e6, "us"),
    };
    format!("{} {unit}", (value * 100.0).round() / 100.0)
}

/// `5%`, `12.5%`.
pub fn percent(share: f64) -> String {
    format!("{}%", (share * 1000.0).round() / 10.0)
}

/// Two decimals of the largest binary unit, for people.
pub fn readable(bytes: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.iter().find(|(_, shift)| bytes >> shift > 0) {
        Some((unit, shift)) => format!("{:.2} {unit}", bytes as f64 / (1u64 << shift) as f64),
        None => Bytes(bytes).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let texts: Vec<String> = [0.0, 812.0, 1500.0, 20_300_000.0, 4.1e9, 2e12].map(short).into();
        assert_eq!(texts, ["0", "812", "1.50 k", "20.3 M", "4.10 G", "2.00 T"]);
    }

    #[test]
    fn times_have_their_unit() {
        assert_eq!([2.0, 0.125, 4e-5].map(time), ["2 s", "125 ms", "40 us"]);
    }
}
