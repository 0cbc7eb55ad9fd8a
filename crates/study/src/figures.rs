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

/// `3.1%`: a tenth of a percent is what bounds are stated in. What rounds to zero has no sign.
pub fn tenth(share: f64) -> String {
    format!("{:.1}%", if share.abs() < 0.0005 { 0.0 } else { share * 100.0 })
}

/// A share; what exceeds ten times as a factor.
pub fn share(share: f64) -> String {
    if share >= 10.0 { format!("{share:.0}x") } else { tenth(share) }
}

/// A gain in time, with its ends where they differ from it as written: `19.9% faster (15.0% to 25.0%)`, `3.0% slower`,
/// `8.5 times as long`.
pub fn faster(gain: f64, ends: Option<[f64; 2]>) -> String {
    match is_less(gain) {
        true => in_time(inverse(gain), ends.map(|[low, high]| [inverse(high), inverse(low)]), "slower"),
        false => in_time(gain, ends, "faster"),
    }
}

/// A loss in time, as [`faster`] has a gain.
pub fn slower(loss: f64, ends: Option<[f64; 2]>) -> String {
    match is_less(loss) {
        true => in_time(inverse(loss), ends.map(|[low, high]| [inverse(high), inverse(low)]), "faster"),
        false => in_time(loss, ends, "slower"),
    }
}

/// Whether a share is below zero as it is written.
fn is_less(share: f64) -> bool {
    (share * 1000.0).round() < 0.0
}

/// The slowdown that is the other side of a speed-up less 1, and the other way round.
fn inverse(share: f64) -> f64 {
    1.0 / (1.0 + share) - 1.0
}

fn in_time(share: f64, ends: Option<[f64; 2]>, word: &str) -> String {
    let is_factor = word == "slower" && share >= 1.0;
    let shown = |share: f64| match is_factor {
        true => format!("{:.1}", 1.0 + share),
        false => tenth(share),
    };
    // Ends that are written alike say nothing.
    let ends = ends.map(|ends| ends.map(shown)).filter(|[low, high]| low != high);
    let ends = ends.map_or(String::new(), |[low, high]| format!(" ({low} to {high})"));
    let word = if is_factor { "times as long" } else { word };
    format!("{} {word}{ends}", shown(share))
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
    fn what_rounds_to_zero_has_no_sign() {
        assert_eq!([-0.0004, 0.0004, -0.0006, 0.031].map(tenth), ["0.0%", "0.0%", "-0.1%", "3.1%"]);
    }

    #[test]
    fn a_loss_is_the_time_that_it_takes_more() {
        assert_eq!(faster(0.199, None), "19.9% faster");
        assert_eq!(faster(0.02, Some([-0.01, 0.05])), "2.0% faster (-1.0% to 5.0%)");
        assert_eq!(faster(0.02, Some([0.0199, 0.0201])), "2.0% faster");
        // Half the speed is twice the time.
        assert_eq!(faster(-0.2, None), "25.0% slower");
        assert_eq!(faster(-0.5, None), "2.0 times as long");
        let gain = 1.0 / 8.5 - 1.0;
        assert_eq!(faster(gain, Some([1.0 / 9.0 - 1.0, 1.0 / 8.0 - 1.0])), "8.5 times as long (8.0 to 9.0)");
        assert_eq!(
            [0.03, 0.0, -0.0001].map(|loss| slower(loss, None)),
            ["3.0% slower", "0.0% slower", "0.0% slower"]
        );
        assert_eq!(slower(-0.001, Some([-0.003, 0.002])), "0.1% faster (-0.2% to 0.3%)");
        assert_eq!(slower(1.5, None), "2.5 times as long");
    }

    #[test]
    fn times_have_their_unit() {
        assert_eq!([2.0, 0.125, 4e-5].map(time), ["2 s", "125 ms", "40 us"]);
    }
}
