//! What a parameter's value can be.

use super::{ChoiceInfo, Kind, Range};
use crate::{Bytes, BytesPerSec, Cycles, Energy, Frequency, PageSize, Time};
use std::path::PathBuf;

/// A value of a parameter: read from a user's text, and shown as text that reads back.
pub trait ParameterValue: Sized {
    /// What its values are.
    const KIND: Kind;

    /// Reads a value.
    ///
    /// # Errors
    /// What was expected, to follow that word.
    fn read(text: &str) -> Result<Self, String>;

    /// The value as [`ParameterValue::read`] takes it.
    fn text(&self) -> String;

    /// The words that it can be, where those are few.
    fn choices() -> Vec<ChoiceInfo> {
        Vec::new()
    }

    /// What a value counts where the parameter does not say.
    fn unit() -> &'static str {
        match Self::KIND {
            Kind::Switch => "true or false",
            Kind::Count | Kind::Number | Kind::Choice | Kind::Text => "",
            Kind::Time => "time",
            Kind::Bytes => "bytes",
            Kind::Rate => "bytes per second",
            Kind::Frequency => "frequency",
            Kind::Cycles => "cycles",
            Kind::Energy => "energy",
        }
    }
}

/// A value with an order.
pub trait Bounded: ParameterValue {
    /// What its bounds are.
    type Bound: ParameterValue;

    /// The part of it that is not between the bounds, and the range that this part should be in; none where all of it is.
    fn outside(&self, low: &Self::Bound, high: &Self::Bound) -> Option<(String, Range)>;
}

macro_rules! bounded {
    ($($name:ty),*) => {$(
        impl Bounded for $name {
            type Bound = $name;
            fn outside(&self, low: &$name, high: &$name) -> Option<(String, Range)> {
                let range = || Range { low: low.text(), high: high.text() };
                (!(low <= self && self <= high)).then(|| (self.text(), range()))
            }
        }
    )*};
}
bounded!(u8, u16, u32, u64, f64, Time, Bytes, BytesPerSec, Frequency, Cycles, Energy);

/// The largest whole number up to which 64-bit floating-point numbers have no gaps.
const LARGEST_EXACT: f64 = 9_007_199_254_740_992.0;

macro_rules! counts {
    ($($name:ident),*) => {$(
        impl ParameterValue for $name {
            const KIND: Kind = Kind::Count;

            fn read(text: &str) -> Result<$name, String> {
                let digits = text.replace('_', "");
                let whole = || {
                    let value = digits.parse::<f64>().ok()?;
                    let whole = value.fract() == 0.0 && (0.0..=LARGEST_EXACT).contains(&value);
                    whole.then_some(value as u64)
                };
                let value = digits.parse::<u64>().ok().or_else(whole);
                value.and_then(|value| $name::try_from(value).ok()).ok_or_else(|| {
                    format!("a whole number from 0 to {}, such as 1000, 1_000 or 1e3", $name::MAX)
                })
            }

            fn text(&self) -> String {
                self.to_string()
            }
        }
    )*};
}
counts!(u8, u16, u32, u64);

macro_rules! quantities {
    ($($name:ident: $kind:ident),*) => {$(
        impl ParameterValue for $name {
            const KIND: Kind = Kind::$kind;

            fn read(text: &str) -> Result<$name, String> {
                text.parse::<$name>().map_err(|error| error.expected().to_owned())
            }

            fn text(&self) -> String {
                self.to_string()
            }
        }
    )*};
}
quantities!(
    Time: Time, Bytes: Bytes, BytesPerSec: Rate, Frequency: Frequency, Cycles: Cycles, Energy: Energy
);

impl ParameterValue for bool {
    const KIND: Kind = Kind::Switch;

    fn read(text: &str) -> Result<bool, String> {
        text.parse().map_err(|_| "true or false".to_owned())
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

impl ParameterValue for f64 {
    const KIND: Kind = Kind::Number;

    fn read(text: &str) -> Result<f64, String> {
        let number = text.replace('_', "").parse::<f64>().ok().filter(|number| number.is_finite());
        number.ok_or_else(|| "a number, such as 0.5 or 1e6".to_owned())
    }

    fn text(&self) -> String {
        format!("{self:?}")
    }
}

impl ParameterValue for String {
    const KIND: Kind = Kind::Text;

    fn read(text: &str) -> Result<String, String> {
        Ok(text.to_owned())
    }

    fn text(&self) -> String {
        self.clone()
    }
}

impl ParameterValue for PathBuf {
    const KIND: Kind = Kind::Text;

    fn read(text: &str) -> Result<PathBuf, String> {
        Ok(PathBuf::from(text))
    }

    fn text(&self) -> String {
        self.display().to_string()
    }
}

impl ParameterValue for PageSize {
    const KIND: Kind = Kind::Choice;

    fn read(text: &str) -> Result<PageSize, String> {
        let found = PageSize::ALL.into_iter().find(|size| size.name() == text);
        found.ok_or_else(|| super::expected_choice(text, &PageSize::ALL.map(PageSize::name)))
    }

    fn text(&self) -> String {
        self.name().to_owned()
    }

    fn choices() -> Vec<ChoiceInfo> {
        let help = |size: PageSize| format!("Pages of {}.", Bytes(size.bytes()));
        let choice = |size: PageSize| ChoiceInfo { name: size.name().to_owned(), help: help(size) };
        PageSize::ALL.map(choice).to_vec()
    }
}

/// What an unset value is written as.
const UNSET: &str = "none";

impl<T: ParameterValue> ParameterValue for Option<T> {
    const KIND: Kind = T::KIND;

    fn read(text: &str) -> Result<Option<T>, String> {
        if text == UNSET {
            return Ok(None);
        }
        T::read(text).map(Some).map_err(|expected| format!("{expected}; or {UNSET}"))
    }

    fn text(&self) -> String {
        self.as_ref().map_or_else(|| UNSET.to_owned(), T::text)
    }

    fn choices() -> Vec<ChoiceInfo> {
        T::choices()
    }

    fn unit() -> &'static str {
        T::unit()
    }
}

impl<T: Bounded> Bounded for Option<T> {
    type Bound = T::Bound;

    fn outside(&self, low: &T::Bound, high: &T::Bound) -> Option<(String, Range)> {
        self.as_ref().and_then(|value| value.outside(low, high))
    }
}

/// A list is written as in a file.
impl<T: ParameterValue> ParameterValue for Vec<T> {
    const KIND: Kind = T::KIND;

    fn read(text: &str) -> Result<Vec<T>, String> {
        let list = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        let parts = list.split(',').map(str::trim).filter(|part| !part.is_empty());
        parts.map(T::read).collect()
    }

    fn text(&self) -> String {
        format!("[{}]", self.iter().map(T::text).collect::<Vec<_>>().join(", "))
    }

    fn choices() -> Vec<ChoiceInfo> {
        T::choices()
    }

    fn unit() -> &'static str {
        T::unit()
    }
}

impl<T: Bounded> Bounded for Vec<T> {
    type Bound = T::Bound;

    fn outside(&self, low: &T::Bound, high: &T::Bound) -> Option<(String, Range)> {
        self.iter().find_map(|value| value.outside(low, high))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_with_their_units_and_read_back() {
        assert_eq!((u32::read("1e3"), u64::read("1_000"), u8::read("255")), (Ok(1000), Ok(1000), Ok(255)));
        assert!(u8::read("256").unwrap_err().starts_with("a whole number from 0 to 255"));
        for text in ["-1", "1.5", "1e30", "", "1 s"] {
            assert!(u64::read(text).is_err(), "{text}");
        }
        assert_eq!(u64::read(&u64::MAX.to_string()), Ok(u64::MAX));
        assert!(f64::read("nan").is_err() && f64::read("inf").is_err());
        assert_eq!(Time::read("2 s").unwrap().text(), "2 s");
        assert_eq!(Time::read("2").unwrap_err(), "a time with its unit, such as \"80 ns\" or \"2 s\"");
        assert_eq!(Option::<f64>::read("none"), Ok(None));
        assert_eq!((Some(0.5).text(), None::<f64>.text()), ("0.5".to_owned(), "none".to_owned()));
        assert_eq!(Vec::<u32>::read("[3, 1]"), Ok(vec![3, 1]));
        assert_eq!(
            (vec![3u32, 1].text(), vec![3u32, 9].outside(&1, &8).unwrap().0),
            ("[3, 1]".into(), "9".into())
        );
        assert_eq!(PageSize::read("2m"), Ok(PageSize::Huge));
        assert_eq!(PageSize::read("2M").unwrap_err(), "one of 4k, 2m, 1g; did you mean \"2m\"?");
    }
}
