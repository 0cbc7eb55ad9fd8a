//! The text of a file of hints: TOML, of which every key is known.

use crate::{Hints, Place, Site, VERSION, Wrong};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use terrace_seam::{Heat, Hint};
use toml::Spanned;

/// What a file begins with.
const HEAD: &str = "\
# How large and how hot the data structures of a program were, by allocation site.
# Written by `terrace profile`; taken by `terrace sim`, `compare` and `run` as --hints FILE.
# A person may add to a site: hint = \"BO\" (the fast tier), \"CO\" (the slow tier) or \"BW\" (both).
";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: Spanned<i64>,
    #[serde(default)]
    program: String,
    #[serde(default)]
    command: String,
    #[serde(default)]
    partial: String,
    #[serde(default)]
    site: Vec<Spanned<Entry>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: Spanned<String>,
    module: Option<Spanned<String>>,
    build_id: Option<Spanned<String>>,
    offset: Option<Spanned<String>>,
    #[serde(default)]
    line: String,
    bytes: u64,
    loads: u64,
    stores: u64,
    #[serde(default)]
    memory_loads: u64,
    #[serde(default)]
    memory_stores: u64,
    hint: Option<Spanned<String>>,
}

/// As it is written: numbers of a `u64` that TOML cannot hold are not reached by counting.
#[derive(Serialize)]
struct Written<'a> {
    version: i64,
    #[serde(skip_serializing_if = "str::is_empty")]
    program: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    command: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    partial: &'a str,
    site: Vec<WrittenSite<'a>>,
}

#[derive(Serialize)]
struct WrittenSite<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    module: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    build_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<String>,
    #[serde(skip_serializing_if = "str::is_empty")]
    line: &'a str,
    bytes: i64,
    loads: i64,
    stores: i64,
    memory_loads: i64,
    memory_stores: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'static str>,
}

/// Longest build identifier that is taken, in bytes: linkers write 20 at most.
const LONGEST_ID: usize = 64;

/// Whom a message speaks of.
struct Reader<'a> {
    text: &'a str,
    shown: &'a str,
}

impl Reader<'_> {
    fn line(&self, at: usize) -> usize {
        1 + self.text.bytes().take(at).filter(|byte| *byte == b'\n').count()
    }

    fn wrong(&self, at: usize, problem: impl Into<String>) -> Wrong {
        Wrong { place: format!("{}:{}", self.shown, self.line(at)), problem: problem.into() }
    }

    fn site(&self, entry: Spanned<Entry>) -> Result<Site, Wrong> {
        let entry = entry.into_inner();
        if entry.name.get_ref().trim().is_empty() {
            return Err(self.wrong(entry.name.span().start, "a site needs a name, such as \"main+0x1b4\""));
        }
        let hint = match &entry.hint {
            None => None,
            Some(hint) => Some(
                hint.get_ref()
                    .parse::<Hint>()
                    .map_err(|problem| self.wrong(hint.span().start, one_line(&problem)))?,
            ),
        };
        Ok(Site {
            place: self.place(&entry)?,
            name: entry.name.into_inner(),
            line: entry.line,
            bytes: entry.bytes,
            issued: Heat { reads: entry.loads, writes: entry.stores },
            memory: Heat { reads: entry.memory_loads, writes: entry.memory_stores },
            hint,
        })
    }

    fn place(&self, entry: &Entry) -> Result<Option<Place>, Wrong> {
        let (module, offset) = match (&entry.module, &entry.offset) {
            (None, None) => {
                return match &entry.build_id {
                    None => Ok(None),
                    Some(id) => {
                        Err(self.wrong(id.span().start, "build_id says nothing without module and offset"))
                    }
                };
            }
            (Some(module), Some(offset)) => (module, offset),
            (Some(one), None) | (None, Some(one)) => {
                return Err(
                    self.wrong(one.span().start, "module and offset say a place together; one is missing")
                );
            }
        };
        if module.get_ref().is_empty() || module.get_ref().contains('/') {
            return Err(self
                .wrong(module.span().start, "module is a file's name without its folder, such as \"app\""));
        }
        let number =
            offset.get_ref().strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
        let number = number.ok_or_else(|| {
            self.wrong(offset.span().start, "offset is an address in hexadecimal digits, such as \"0x11d4\"")
        })?;
        let build_id = match &entry.build_id {
            None => Vec::new(),
            Some(id) => bytes_of(id.get_ref()).ok_or_else(|| {
                self.wrong(
                    id.span().start,
                    "build_id is pairs of hexadecimal digits, at most 64, as `file` and `readelf -n` print them",
                )
            })?,
        };
        Ok(Some(Place { module: module.get_ref().clone(), build_id, offset: number }))
    }
}

/// Pairs of hexadecimal digits.
fn bytes_of(text: &str) -> Option<Vec<u8>> {
    let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_hex || !text.len().is_multiple_of(2) || text.len() > 2 * LONGEST_ID {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

pub fn parse(text: &str, shown: &str) -> Result<Hints, Wrong> {
    let reader = Reader { text, shown };
    let file: File = toml::from_str(text).map_err(|error| {
        reader.wrong(error.span().map_or(0, |span| span.start), one_line(error.message()))
    })?;
    if *file.version.get_ref() != VERSION {
        let version = file.version.get_ref();
        return Err(reader.wrong(
            file.version.span().start,
            format!("version {version} of such files is not known; this Terrace reads version {VERSION}"),
        ));
    }
    if file.site.is_empty() {
        return Err(reader.wrong(text.len(), "there is no [[site]]; `terrace profile` finds a program's"));
    }
    let mut lines: HashMap<String, usize> = HashMap::new();
    let mut sites = Vec::with_capacity(file.site.len());
    for entry in file.site {
        let at = entry.get_ref().name.span().start;
        let site = reader.site(entry)?;
        if let Some(first) = lines.insert(site.name.clone(), reader.line(at)) {
            let name = one_line(&site.name);
            return Err(
                reader.wrong(at, format!("the site \"{name}\" is there twice, first in line {first}"))
            );
        }
        sites.push(site);
    }
    Ok(Hints { program: file.program, command: file.command, partial: file.partial, sites })
}

pub fn write(hints: &Hints) -> String {
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let site = |site: &'_ Site| -> (Option<String>, Option<String>) {
        let id = site.place.as_ref().filter(|place| !place.build_id.is_empty());
        let digits = |id: &[u8]| id.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        (
            id.map(|place| digits(&place.build_id)),
            site.place.as_ref().map(|place| format!("{:#x}", place.offset)),
        )
    };
    let sites = hints.sites.iter().map(|one| {
        let (build_id, offset) = site(one);
        WrittenSite {
            name: &one.name,
            module: one.place.as_ref().map(|place| place.module.as_str()),
            build_id,
            offset,
            line: &one.line,
            bytes: number(one.bytes),
            loads: number(one.issued.reads),
            stores: number(one.issued.writes),
            memory_loads: number(one.memory.reads),
            memory_stores: number(one.memory.writes),
            hint: one.hint.map(Hint::name),
        }
    });
    let Hints { program, command, partial, .. } = hints;
    let written = Written { version: VERSION, program, command, partial, site: sites.collect() };
    // Plain strings and numbers of 63 bits are all that TOML has to hold.
    format!("{HEAD}\n{}", toml::to_string(&written).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GOOD: &str = "version = 1\n\n[[site]]\nname = \"main+0x1b4\"\nbytes = 10\nloads = 1\nstores = 2\n";

    #[test]
    fn mistakes_are_named_by_line() {
        for (from, to, expected) in [
            (
                "version = 1",
                "version = 2",
                "h:1: version 2 of such files is not known; this Terrace reads version 1",
            ),
            ("version = 1\n", "", "h:1: missing field `version`"),
            ("[[site]]", "[[sites]]", "h:3: unknown field `sites`"),
            ("loads = 1", "load = 1", "h:6: unknown field `load`, expected one of"),
            ("stores = 2\n", "", "h:3: missing field `stores`"),
            ("bytes = 10", "bytes = -10", "h:5: invalid value: integer `-10`"),
            ("bytes = 10", "bytes = \"10\"", "h:5: invalid type: string"),
            ("main+0x1b4", " ", "h:4: a site needs a name"),
            ("stores = 2", "stores = 2\nhint = \"fast\"", "h:8: \"fast\" is no hint; there are BO"),
            ("stores = 2", "stores = 2\nmodule = \"app\"", "h:8: module and offset say a place together"),
            ("stores = 2", "stores = 2\nbuild_id = \"00\"", "h:8: build_id says nothing without"),
            (
                "stores = 2",
                "stores = 2\nmodule = \"/bin/app\"\noffset = \"0x1\"",
                "h:8: module is a file's name",
            ),
            ("stores = 2", "stores = 2\nmodule = \"app\"\noffset = \"12\"", "h:9: offset is an address"),
            (
                "stores = 2",
                "stores = 2\nmodule = \"app\"\noffset = \"0x12\"\nbuild_id = \"abc\"",
                "h:10: build_id is pairs",
            ),
            (
                "stores = 2",
                "stores = 2\n[[site]]\nname = \"main+0x1b4\"\nbytes=1\nloads=1\nstores=1",
                "h:9: the site \"main+0x1b4\" is there twice, first in line 4",
            ),
            ("stores = 2", "stores 2", "h:7: "),
        ] {
            let text = GOOD.replace(from, to);
            assert_ne!(text, GOOD, "{from}");
            let error = parse(&text, "h").unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}, expected {expected}");
        }
        let error = parse("version = 1\n", "h").unwrap_err().to_string();
        assert_eq!(error, "h:2: there is no [[site]]; `terrace profile` finds a program's");
    }

    fn name() -> impl Strategy<Value = String> {
        "[a-zA-Z_+0-9:<>\"\\\\ ä-]{0,20}x"
    }

    fn heat() -> impl Strategy<Value = Heat> {
        (0..1u64 << 62, 0..1u64 << 62).prop_map(|(reads, writes)| Heat { reads, writes })
    }

    fn place() -> impl Strategy<Value = Option<Place>> {
        let place = ("[a-z.+-]{1,9}", prop::collection::vec(any::<u8>(), 0..20), any::<u64>());
        prop::option::of(place.prop_map(|(module, build_id, offset)| Place { module, build_id, offset }))
    }

    fn site() -> impl Strategy<Value = Site> {
        let hint = prop::option::of(prop::sample::select(&Hint::ALL[..]));
        (name(), place(), "[ -~]{0,9}", 0..1u64 << 62, heat(), heat(), hint).prop_map(
            |(name, place, line, bytes, issued, memory, hint)| Site {
                name,
                place,
                line,
                bytes,
                issued,
                memory,
                hint,
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(
            program in "[ -~]{0,12}",
            command in "[ -~ä\n]{0,12}",
            partial in "[ -~]{0,12}",
            mut sites in prop::collection::vec(site(), 1..6),
        ) {
            sites.sort_by(|a, b| a.name.cmp(&b.name));
            sites.dedup_by(|a, b| a.name == b.name);
            let hints = Hints { program, command, partial, sites };
            prop_assert_eq!(parse(&write(&hints), "h"), Ok(hints));
        }
    }
}
