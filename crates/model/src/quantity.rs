//! Quantities that carry their unit in their text: `"64 KiB"`, `"80 ns"`, `"2.3 GHz"`, `"19.2 GB/s"`.
//!
//! A bare number is an error: every number in a machine, a design or an option says what it counts.

use crate::Time;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// A quantity whose text could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuantityError {
    text: String,
    expected: &'static str,
}

impl QuantityError {
    /// What was expected in its place.
    pub const fn expected(&self) -> &'static str {
        self.expected
    }
}

impl fmt::Display for QuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\" is not {}", self.text, self.expected)
    }
}

impl std::error::Error for QuantityError {}

/// Splits `"2.3 GHz"` into 2.3 and `GHz`, and scales by the unit's factor.
fn parse(text: &str, units: &[(&str, f64)], expected: &'static str) -> Result<f64, QuantityError> {
    let error = || QuantityError { text: text.to_owned(), expected };
    let trimmed = text.trim();
    let split = trimmed
        .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '_' | '-' | '+')))
        .ok_or_else(error)?;
    let (number, unit) = trimmed.split_at(split);
    let number: f64 = number.replace('_', "").parse().map_err(|_| error())?;
    let unit = unit.trim();
    let (_, factor) = units.iter().find(|(name, _)| *name == unit).ok_or_else(error)?;
    let value = number * factor;
    if value.is_finite() && value >= 0.0 { Ok(value) } else { Err(error()) }
}

macro_rules! text_serde {
    ($name:ident) => {
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                // Accept any scalar, so that a bare number gets the message about its missing unit.
                struct Text;
                impl serde::de::Visitor<'_> for Text {
                    type Value = $name;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($name::EXPECTED)
                    }
                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$name, E> {
                        text.parse().map_err(E::custom)
                    }
                    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<$name, E> {
                        number.to_string().parse().map_err(E::custom)
                    }
                    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<$name, E> {
                        number.to_string().parse().map_err(E::custom)
                    }
                    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<$name, E> {
                        number.to_string().parse().map_err(E::custom)
                    }
                }
                deserializer.deserialize_any(Text)
            }
        }
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

/// An amount of memory, in bytes. Text: `B`, `KiB`, `MiB`, `GiB`, `TiB`, and `kB`, `MB`, `GB`, `TB` for powers of ten.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

impl Bytes {
    const EXPECTED: &'static str = "an amount of memory with its unit, such as \"64 KiB\" or \"16 GiB\"";
    /// `n` KiB.
    pub const fn kib(n: u64) -> Bytes {
        Bytes(n << 10)
    }
    /// `n` MiB.
    pub const fn mib(n: u64) -> Bytes {
        Bytes(n << 20)
    }
    /// `n` GiB.
    pub const fn gib(n: u64) -> Bytes {
        Bytes(n << 30)
    }
}

impl FromStr for Bytes {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        const UNITS: [(&str, f64); 9] = [
            ("B", 1.0),
            ("KiB", 1024.0),
            ("MiB", 1048576.0),
            ("GiB", 1073741824.0),
            ("TiB", 1099511627776.0),
            ("kB", 1e3),
            ("MB", 1e6),
            ("GB", 1e9),
            ("TB", 1e12),
        ];
        Ok(Bytes(parse(text, &UNITS, Self::EXPECTED)?.round() as u64))
    }
}

impl fmt::Display for Bytes {
    /// The largest binary unit that needs at most two decimals and gives the exact value back, else bytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, shift) in [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)] {
            let size = 1u64 << shift;
            if self.0 >= size && (self.0 as u128 * 4).is_multiple_of(size as u128) {
                return write!(f, "{} {unit}", self.0 as f64 / size as f64);
            }
        }
        write!(f, "{} B", self.0)
    }
}
text_serde!(Bytes);

/// A bandwidth in bytes per second. Text: `B/s`, `kB/s`, `MB/s`, `GB/s`, `TB/s` (powers of ten), `MiB/s`, `GiB/s`.
#[derive(Clone, Copy, Default, PartialEq, PartialOrd)]
pub struct BytesPerSec(pub f64);

impl BytesPerSec {
    const EXPECTED: &'static str = "a bandwidth with its unit, such as \"19.2 GB/s\"";
}

impl FromStr for BytesPerSec {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        const UNITS: [(&str, f64); 7] = [
            ("B/s", 1.0),
            ("kB/s", 1e3),
            ("MB/s", 1e6),
            ("GB/s", 1e9),
            ("TB/s", 1e12),
            ("MiB/s", 1048576.0),
            ("GiB/s", 1073741824.0),
        ];
        Ok(BytesPerSec(parse(text, &UNITS, Self::EXPECTED)?))
    }
}

impl fmt::Display for BytesPerSec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, size) in [("TB/s", 1e12), ("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3)] {
            if self.0 >= size {
                return write!(f, "{} {unit}", self.0 / size);
            }
        }
        write!(f, "{} B/s", self.0)
    }
}
text_serde!(BytesPerSec);

/// A clock frequency, in hertz. Text: `Hz`, `kHz`, `MHz`, `GHz`.
#[derive(Clone, Copy, Default, PartialEq, PartialOrd)]
pub struct Frequency(pub f64);

impl Frequency {
    const EXPECTED: &'static str = "a frequency with its unit, such as \"2.3 GHz\"";
    /// Length of one cycle. Errors: none; zero hertz gives the longest time.
    pub fn period(self) -> Time {
        if self.0 > 0.0 { Time((1e15 / self.0).round() as u64) } else { Time::MAX }
    }
}

impl FromStr for Frequency {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        const UNITS: [(&str, f64); 4] = [("Hz", 1.0), ("kHz", 1e3), ("MHz", 1e6), ("GHz", 1e9)];
        let value = parse(text, &UNITS, Self::EXPECTED)?;
        if value > 0.0 {
            Ok(Frequency(value))
        } else {
            Err(QuantityError { text: text.to_owned(), expected: Self::EXPECTED })
        }
    }
}

impl fmt::Display for Frequency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, size) in [("GHz", 1e9), ("MHz", 1e6), ("kHz", 1e3)] {
            if self.0 >= size {
                return write!(f, "{} {unit}", self.0 / size);
            }
        }
        write!(f, "{} Hz", self.0)
    }
}
text_serde!(Frequency);

impl Time {
    const EXPECTED: &'static str = "a time with its unit, such as \"80 ns\" or \"2 s\"";
}

impl FromStr for Time {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        const UNITS: [(&str, f64); 9] = [
            ("fs", 1.0),
            ("ps", 1e3),
            ("ns", 1e6),
            ("us", 1e9),
            ("µs", 1e9),
            ("ms", 1e12),
            ("s", 1e15),
            ("min", 60e15),
            ("h", 3600e15),
        ];
        Ok(Time(parse(text, &UNITS, Self::EXPECTED)?.round() as u64))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0 s");
        }
        for (unit, size) in [("s", 1e15), ("ms", 1e12), ("us", 1e9), ("ns", 1e6), ("ps", 1e3)] {
            if self.0 as f64 >= size {
                return write!(f, "{} {unit}", self.0 as f64 / size);
            }
        }
        write!(f, "{} fs", self.0)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A span counted in cycles of a stated clock. Text: `"4 cycles"`; fractions are allowed (`"0.25 cycles"`).
#[derive(Clone, Copy, Default, PartialEq, PartialOrd)]
pub struct Cycles(pub f64);

impl Cycles {
    const EXPECTED: &'static str = "a number of cycles with its unit, such as \"4 cycles\"";
    /// The span at a clock whose cycle lasts `period`.
    pub fn at(self, period: Time) -> Time {
        Time((self.0 * period.0 as f64).round() as u64)
    }
}

impl FromStr for Cycles {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        Ok(Cycles(parse(text, &[("cycles", 1.0), ("cycle", 1.0)], Self::EXPECTED)?))
    }
}

impl fmt::Display for Cycles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cycles", self.0)
    }
}
text_serde!(Cycles);

/// An energy, in joules. Text: `pJ`, `nJ`, `uJ`, `mJ`, `J`.
#[derive(Clone, Copy, Default, PartialEq, PartialOrd)]
pub struct Energy(pub f64);

impl Energy {
    const EXPECTED: &'static str = "an energy with its unit, such as \"15 nJ\"";
}

impl FromStr for Energy {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        const UNITS: [(&str, f64); 5] = [("pJ", 1e-12), ("nJ", 1e-9), ("uJ", 1e-6), ("mJ", 1e-3), ("J", 1.0)];
        Ok(Energy(parse(text, &UNITS, Self::EXPECTED)?))
    }
}

impl fmt::Display for Energy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, size) in [("J", 1.0), ("mJ", 1e-3), ("uJ", 1e-6), ("nJ", 1e-9)] {
            if self.0 >= size {
                return write!(f, "{} {unit}", self.0 / size);
            }
        }
        write!(f, "{} pJ", self.0 / 1e-12)
    }
}
text_serde!(Energy);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_units() {
        assert_eq!("64 KiB".parse::<Bytes>().unwrap(), Bytes(65536));
        assert_eq!("1.5GiB".parse::<Bytes>().unwrap(), Bytes(3 << 29));
        assert_eq!("80 ns".parse::<Time>().unwrap(), Time(80_000_000));
        assert_eq!("5 h".parse::<Time>().unwrap(), "300 min".parse::<Time>().unwrap());
        assert_eq!("5 h".parse::<Time>().unwrap().to_string(), "18000 s");
        assert_eq!("2.3 GHz".parse::<Frequency>().unwrap().period(), Time(434_783));
        assert_eq!("4 cycles".parse::<Cycles>().unwrap().at(Time(500)), Time(2000));
        assert_eq!("19.2 GB/s".parse::<BytesPerSec>().unwrap().0, 19.2e9);
    }

    #[test]
    fn a_bare_number_or_a_foreign_unit_is_refused() {
        for text in ["64", "64 ns", "KiB", "-1 KiB", "1e3 KiB", ""] {
            let message = text.parse::<Bytes>().unwrap_err().to_string();
            assert!(message.contains("such as \"64 KiB\""), "{message}");
        }
        assert!("0 Hz".parse::<Frequency>().is_err());
    }

    #[test]
    fn text_round_trips() {
        for bytes in [0, 1, 4096, 65536, 3 << 29, 1 << 40, 12345] {
            assert_eq!(Bytes(bytes).to_string().parse::<Bytes>().unwrap(), Bytes(bytes));
        }
        for femtos in [0, 999, 80_000_000, 434_783, 5_000_000_000_000_000] {
            assert_eq!(Time(femtos).to_string().parse::<Time>().unwrap(), Time(femtos));
        }
    }
}
