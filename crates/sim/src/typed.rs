//! A typed value out of a plain one, and where in it something does not fit.
//!
//! Every type that is read is compiled anew for each way in which its reader can hand it a table. This reader has one; a
//! wrapper around TOML's own, which has one for dates as well, took a sixth of what it costs to compile the simulator.

use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error, IntoDeserializer, MapAccess, SeqAccess,
    Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;
use std::fmt::{self, Display, Formatter};
use toml::Value;

/// Reads `value` as a `T`.
///
/// # Errors
/// An unknown or missing key, a value of another type or out of its type's range.
pub(crate) fn read<T: DeserializeOwned>(value: &Value) -> Result<T, Misfit> {
    T::deserialize(Reader(value)).map_err(|mut misfit| {
        misfit.path.reverse();
        misfit
    })
}

/// A value does not fit.
#[derive(Debug)]
pub struct Misfit {
    /// The keys, or positions in lists, that lead to the part that does not fit, or to the table that it is missing from.
    /// While a value is being read, the last one comes first.
    pub path: Vec<String>,
    /// What is wrong, in serde's words.
    pub message: String,
}

impl Misfit {
    /// What does not fit is below this key.
    fn below(mut self, key: impl Display) -> Misfit {
        self.path.push(key.to_string());
        self
    }
}

impl Display for Misfit {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Misfit {}

impl Error for Misfit {
    fn custom<T: Display>(message: T) -> Misfit {
        Misfit { path: Vec::new(), message: message.to_string() }
    }
}

struct Reader<'a>(&'a Value);

impl<'de> Deserializer<'de> for Reader<'de> {
    type Error = Misfit;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match self.0 {
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Integer(number) => visitor.visit_i64(*number),
            Value::Float(number) => visitor.visit_f64(*number),
            Value::Boolean(value) => visitor.visit_bool(*value),
            Value::Datetime(time) => visitor.visit_string(time.to_string()),
            Value::Array(values) => {
                let mut list = List { values: values.iter(), position: 0 };
                let read = visitor.visit_seq(&mut list)?;
                if list.values.len() > 0 {
                    return Err(Misfit::invalid_length(values.len(), &"fewer elements in array"));
                }
                Ok(read)
            }
            Value::Table(table) => visitor.visit_map(Table::of(table)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        match self.0 {
            Value::String(text) => visitor.visit_enum(name(text)),
            other => Err(Misfit::invalid_type(found(other), &"a name in quotes")),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map
        struct identifier ignored_any
    }
}

fn found(value: &Value) -> Unexpected<'_> {
    match value {
        Value::String(text) => Unexpected::Str(text),
        Value::Integer(number) => Unexpected::Signed(*number),
        Value::Float(number) => Unexpected::Float(*number),
        Value::Boolean(value) => Unexpected::Bool(*value),
        Value::Datetime(_) => Unexpected::Other("date"),
        Value::Array(_) => Unexpected::Seq,
        Value::Table(_) => Unexpected::Map,
    }
}

/// A key of a table, or the name of a variant.
fn name(text: &str) -> StrDeserializer<'_, Misfit> {
    text.into_deserializer()
}

struct List<'a> {
    values: std::slice::Iter<'a, Value>,
    /// Where the next one stands.
    position: usize,
}

impl<'de> SeqAccess<'de> for List<'de> {
    type Error = Misfit;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Misfit> {
        let Some(value) = self.values.next() else { return Ok(None) };
        let position = self.position;
        self.position += 1;
        seed.deserialize(Reader(value)).map(Some).map_err(|misfit| misfit.below(position))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.values.len())
    }
}

struct Table<'a> {
    entries: toml::map::Iter<'a, String, Value>,
    /// The entry whose key was read last.
    current: Option<(&'a String, &'a Value)>,
}

impl Table<'_> {
    fn of(table: &toml::Table) -> Table<'_> {
        Table { entries: table.iter(), current: None }
    }
}

impl<'de> MapAccess<'de> for Table<'de> {
    type Error = Misfit;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Misfit> {
        self.current = self.entries.next();
        let Some((key, _)) = self.current else { return Ok(None) };
        seed.deserialize(name(key)).map(Some).map_err(|misfit| misfit.below(key))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Misfit> {
        let Some((key, value)) = self.current else {
            return Err(Misfit::custom("a value was asked for before its key"));
        };
        seed.deserialize(Reader(value)).map_err(|misfit| misfit.below(key))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.entries.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use std::collections::BTreeMap;

    #[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
    #[serde(rename_all = "kebab-case")]
    enum Kind {
        Near,
        FarAway,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Tier {
        kind: Kind,
        size: u16,
        #[serde(default)]
        share: Option<f64>,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    struct Whole {
        tiers: Vec<Tier>,
        #[serde(default)]
        by_kind: BTreeMap<Kind, bool>,
        #[serde(default)]
        pair: Option<(i64, String)>,
    }

    fn of(text: &str) -> Result<Whole, Misfit> {
        read(&Value::Table(text.parse().unwrap()))
    }

    #[test]
    fn what_fits_is_read() {
        let text = "tiers = [{ kind = 'near', size = 3 }, { kind = 'far-away', size = 4, share = 0.5 }]
            by_kind = { near = true, far-away = false }
            pair = [-1, 'x']";
        let tiers = vec![
            Tier { kind: Kind::Near, size: 3, share: None },
            Tier { kind: Kind::FarAway, size: 4, share: Some(0.5) },
        ];
        let by_kind = BTreeMap::from([(Kind::Near, true), (Kind::FarAway, false)]);
        assert_eq!(of(text).unwrap(), Whole { tiers, by_kind, pair: Some((-1, "x".to_owned())) });
    }

    #[test]
    fn a_date_is_read_as_its_text() {
        let pair = of("tiers = []\npair = [1, 2026-01-01]").unwrap().pair;
        assert_eq!(pair, Some((1, "2026-01-01".to_owned())));
    }

    #[test]
    fn what_does_not_fit_is_named_with_its_place() {
        let tier = |keys: &str| format!("tiers = [{{ kind = 'near', size = 3 }}, {{ {keys} }}]");
        for (text, path, message) in [
            (tier("kind = 'near'"), "tiers.1", "missing field `size`"),
            (
                tier("kind = 'near', size = 70_000"),
                "tiers.1.size",
                "invalid value: integer `70000`, expected u16",
            ),
            (tier("kind = 'middle', size = 1"), "tiers.1.kind", "unknown variant `middle`"),
            (
                tier("kind = { near = 1 }, size = 1"),
                "tiers.1.kind",
                "invalid type: map, expected a name in quotes",
            ),
            (tier("kind = 'near', size = 1, seize = 2"), "tiers.1.seize", "unknown field `seize`"),
            (tier("kind = 'near', size = 1, share = true"), "tiers.1.share", "invalid type: boolean `true`"),
            (
                "tiers = []\nby_kind = { middle = true }".to_owned(),
                "by_kind.middle",
                "unknown variant `middle`",
            ),
            ("tiers = []\npair = [1, 'x', 2]".to_owned(), "pair", "invalid length 3"),
        ] {
            let misfit = of(&text).unwrap_err();
            assert_eq!(misfit.path.join("."), path, "{text}");
            assert!(misfit.message.starts_with(message), "{text}: {misfit}");
        }
    }
}
