//! Parsed TOML whose every value remembers where it was written, and the merging of such trees.
//!
//! Merging is what `extends` means: a table is merged key by key, an array of tables that all have a `name` is merged
//! by name, everything else is replaced. Some tables have a rule of their own, because a mixture of two layers would
//! mean nothing: a device that names a `preset` starts anew from it; a placement, the aging of memory, a core model
//! or a translation scheme of another `kind` starts anew; the lists of sources and assumptions are joined.

use super::error::{DesignError, Origin, suggestion};
use std::collections::BTreeMap;
use std::sync::Arc;
use toml::de::{DeTable, DeValue};

/// A value and where it was written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub node: Node,
    pub origin: Origin,
}

/// A value of TOML.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node {
    Table(BTreeMap<String, Entry>),
    Array(Vec<Entry>),
    Scalar(toml::Value),
}

/// Reads a whole file. Errors: TOML syntax, with the line.
pub(crate) fn parse(text: &str, origin_at: &dyn Fn(usize) -> Origin) -> Result<Entry, DesignError> {
    let lines = Lines::new(text);
    let table = DeTable::parse(text).map_err(|error| {
        let line = error.span().map_or(1, |span| lines.line(span.start));
        DesignError::at(origin_at(line), one_line(error.message()))
    })?;
    let origin = origin_at(1);
    Ok(Entry { node: table_node(table.into_inner(), &lines, origin_at)?, origin })
}

/// Reads a file named `file`.
pub(crate) fn parse_file(text: &str, file: &str) -> Result<Entry, DesignError> {
    let file: Arc<str> = file.into();
    parse(text, &|line| Origin::File { file: file.clone(), line })
}

fn one_line(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Offsets of line starts, to turn a byte offset into a line number.
struct Lines(Vec<usize>);

impl Lines {
    fn new(text: &str) -> Lines {
        Lines(std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect())
    }
    fn line(&self, offset: usize) -> usize {
        self.0.partition_point(|start| *start <= offset)
    }
}

fn table_node(
    table: DeTable<'_>,
    lines: &Lines,
    origin_at: &dyn Fn(usize) -> Origin,
) -> Result<Node, DesignError> {
    let mut entries = BTreeMap::new();
    for (key, value) in table {
        let origin = origin_at(lines.line(key.span().start));
        let node = value_node(value.into_inner(), lines, origin_at, &origin)?;
        entries.insert(key.into_inner().into_owned(), Entry { node, origin });
    }
    Ok(Node::Table(entries))
}

fn value_node(
    value: DeValue<'_>,
    lines: &Lines,
    origin_at: &dyn Fn(usize) -> Origin,
    origin: &Origin,
) -> Result<Node, DesignError> {
    Ok(match value {
        DeValue::String(text) => Node::Scalar(toml::Value::String(text.into_owned())),
        DeValue::Boolean(truth) => Node::Scalar(toml::Value::Boolean(truth)),
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => Node::Scalar(toml::Value::Integer(number)),
            Err(_) => {
                return Err(DesignError::at(origin, format!("the number {number} is too large")));
            }
        },
        DeValue::Float(number) => match number.as_str().parse() {
            Ok(number) => Node::Scalar(toml::Value::Float(number)),
            Err(_) => return Err(DesignError::at(origin, format!("{number} is not a number"))),
        },
        DeValue::Datetime(date) => Node::Scalar(toml::Value::Datetime(date)),
        DeValue::Array(array) => {
            let mut entries = Vec::new();
            for value in array {
                let origin = origin_at(lines.line(value.span().start));
                let node = value_node(value.into_inner(), lines, origin_at, &origin)?;
                entries.push(Entry { node, origin });
            }
            Node::Array(entries)
        }
        DeValue::Table(table) => table_node(table, lines, origin_at)?,
    })
}

impl Entry {
    pub fn text(text: impl Into<String>, origin: Origin) -> Entry {
        Entry { node: Node::Scalar(toml::Value::String(text.into())), origin }
    }

    pub fn empty_table(origin: Origin) -> Entry {
        Entry { node: Node::Table(BTreeMap::new()), origin }
    }

    pub fn as_str(&self) -> Option<&str> {
        match &self.node {
            Node::Scalar(toml::Value::String(text)) => Some(text),
            _ => None,
        }
    }

    pub fn table(&self) -> Option<&BTreeMap<String, Entry>> {
        match &self.node {
            Node::Table(table) => Some(table),
            _ => None,
        }
    }

    pub fn table_mut(&mut self) -> Option<&mut BTreeMap<String, Entry>> {
        match &mut self.node {
            Node::Table(table) => Some(table),
            _ => None,
        }
    }

    /// One step down: a key of a table; the name or the position of an element of an array.
    pub fn child(&self, segment: &str) -> Option<&Entry> {
        match &self.node {
            Node::Table(table) => table.get(segment),
            Node::Array(entries) => match element(entries, segment) {
                Some(at) => entries.get(at),
                None => None,
            },
            Node::Scalar(_) => None,
        }
    }

    pub fn child_mut(&mut self, segment: &str) -> Option<&mut Entry> {
        match &mut self.node {
            Node::Table(table) => table.get_mut(segment),
            Node::Array(entries) => match element(entries, segment) {
                Some(at) => entries.get_mut(at),
                None => None,
            },
            Node::Scalar(_) => None,
        }
    }

    /// The entry at a dotted key such as `tier.dram.capacity`.
    pub fn at(&self, path: &str) -> Option<&Entry> {
        path.split('.').try_fold(self, |entry, segment| entry.child(segment))
    }

    pub fn at_mut(&mut self, path: &str) -> Option<&mut Entry> {
        path.split('.').try_fold(self, |entry, segment| entry.child_mut(segment))
    }

    /// The entry at a dotted key, or the nearest one above it: where to point for a key that is absent.
    pub fn nearest(&self, path: &str) -> &Entry {
        let mut entry = self;
        for segment in path.split('.') {
            match entry.child(segment) {
                Some(child) => entry = child,
                None => break,
            }
        }
        entry
    }

    /// The plain value, without origins.
    pub fn value(&self) -> toml::Value {
        match &self.node {
            Node::Scalar(value) => value.clone(),
            Node::Array(entries) => toml::Value::Array(entries.iter().map(Entry::value).collect()),
            Node::Table(table) => {
                toml::Value::Table(table.iter().map(|(key, entry)| (key.clone(), entry.value())).collect())
            }
        }
    }
}

/// The value of `name` of a table in an array.
pub(crate) fn name_of(entry: &Entry) -> Option<&str> {
    entry.table()?.get("name")?.as_str()
}

fn element(entries: &[Entry], segment: &str) -> Option<usize> {
    entries
        .iter()
        .position(|entry| name_of(entry) == Some(segment))
        .or_else(|| segment.parse().ok().filter(|at| *at < entries.len()))
}

fn is_named(entries: &[Entry]) -> bool {
    !entries.is_empty() && entries.iter().all(|entry| name_of(entry).is_some())
}

/// Lays `over` upon `base`, in place.
pub(crate) fn merge(base: &mut Entry, over: Entry) {
    merge_at(base, over, &mut Vec::new());
}

/// Whether a setting may let its table start anew: the kind of something, or a device's preset.
pub(crate) fn starts_anew(key: &str) -> bool {
    let last = key.rsplit('.').next().unwrap_or(key);
    matches!(last, "kind" | "preset" | "placement" | "scheme" | "model")
}

fn merge_at(base: &mut Entry, over: Entry, path: &mut Vec<String>) {
    let path_parts: Vec<&str> = path.iter().map(String::as_str).collect();
    let starts_anew = match path_parts[..] {
        ["os" | "host", "placement"]
        | ["os" | "host", "memory", "aging"]
        | ["translation", "scheme"]
        | ["core", "model"]
        | ["core", "groups", _, "model"] => {
            let kind = over.child("kind");
            kind.is_some() && kind.map(Entry::value) != base.child("kind").map(Entry::value)
        }
        ["device", _] => over.child("preset").is_some(),
        ["ledger"] => over.child("anew").is_some_and(|anew| anew.value().as_bool() == Some(true)),
        _ => false,
    };
    let joins = matches!(path_parts[..], ["ledger", _] | ["device", _, "source" | "assumed" | "calibrated"]);
    if starts_anew {
        *base = over;
        return;
    }
    match (&mut base.node, over.node) {
        (Node::Table(below), Node::Table(above)) => {
            for (key, entry) in above {
                match below.get_mut(&key) {
                    Some(old) => {
                        path.push(key);
                        merge_at(old, entry, path);
                        path.pop();
                    }
                    None => {
                        below.insert(key, entry);
                    }
                }
            }
            // The table's own line: the last layer that says something in it.
            base.origin = over.origin;
        }
        (Node::Array(below), Node::Array(above)) if is_named(below) && is_named(&above) => {
            for entry in above {
                let name = name_of(&entry).unwrap_or_default().to_owned();
                match below.iter_mut().find(|old| name_of(old) == Some(&name)) {
                    Some(old) => {
                        path.push(name);
                        merge_at(old, entry, path);
                        path.pop();
                    }
                    None => below.push(entry),
                }
            }
        }
        (Node::Array(below), Node::Array(above)) if joins => below.extend(above),
        (_, node) => *base = Entry { node, origin: over.origin },
    }
}

/// The tree that `--set key=value` lays upon `base`. `text` is TOML (`4`, `true`, `[3, 1]`) or else a bare string
/// (`2m`, `8 GiB`). Errors: an empty key, a name or position that an array of `base` does not have.
pub(crate) fn set_layer(base: &Entry, key: &str, text: &str) -> Result<Entry, DesignError> {
    let option: Arc<str> = format!("{key}={text}").into();
    let origin = Origin::Set(option);
    let segments: Vec<&str> = key.split('.').map(str::trim).collect();
    if segments.iter().any(|segment| segment.is_empty()) {
        return Err(DesignError::at(&origin, "the key is empty; write --set core.count=4"));
    }
    let quoted = format!("value = {text}");
    let value = match parse(&quoted, &|_| origin.clone()) {
        Ok(Entry { node: Node::Table(mut table), .. }) if table.len() == 1 => table.remove("value"),
        _ => None,
    };
    let value = value.unwrap_or_else(|| Entry::text(text.trim(), origin.clone()));
    set_below(Some(base), &segments, value, &origin, "")
}

fn set_below(
    current: Option<&Entry>,
    segments: &[&str],
    value: Entry,
    origin: &Origin,
    above: &str,
) -> Result<Entry, DesignError> {
    let Some((segment, rest)) = segments.split_first() else { return Ok(value) };
    let path = if above.is_empty() { segment.to_string() } else { format!("{above}.{segment}") };
    let child = current.and_then(|current| current.child(segment));
    if let Some(Entry { node: Node::Array(entries), .. }) = current {
        if child.is_none() {
            let names: Vec<String> = entries
                .iter()
                .enumerate()
                .map(|(at, entry)| name_of(entry).map_or(at.to_string(), str::to_owned))
                .collect();
            let message = format!("{above} has no \"{segment}\"{}", suggestion(segment, &names));
            return Err(DesignError::at(origin, message));
        }
        let below = set_below(child, rest, value, origin, &path)?;
        let mut entries = entries.clone();
        if let Some(at) = element(&entries, segment) {
            merge(&mut entries[at], below);
        }
        return Ok(Entry { node: Node::Array(entries), origin: origin.clone() });
    }
    let below = set_below(child, rest, value, origin, &path)?;
    let table = BTreeMap::from([(segment.to_string(), below)]);
    Ok(Entry { node: Node::Table(table), origin: origin.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(text: &str) -> Entry {
        parse_file(text, "t.toml").unwrap()
    }

    fn merged(base: &str, over: &str) -> toml::Value {
        let mut base = tree(base);
        merge(&mut base, tree(over));
        base.value()
    }

    #[test]
    fn lines_are_those_of_the_keys() {
        let tree = tree("a = 1\n\n[b]\nc = \"x\"\n[[d]]\nname = \"e\"\nf = [\n 1,\n 2]\n");
        let place = |path: &str| tree.at(path).unwrap().origin.to_string();
        assert_eq!(place("a"), "t.toml:1");
        assert_eq!(place("b.c"), "t.toml:4");
        assert_eq!(place("d.e.f"), "t.toml:7");
        assert_eq!(place("d.0.f.1"), "t.toml:9");
    }

    #[test]
    fn a_syntax_error_names_its_line() {
        let error = parse_file("a = 1\nb = = 2\n", "x.toml").unwrap_err().to_string();
        assert!(error.starts_with("x.toml:2: "), "{error}");
        let error = parse_file("a = 1\na = 2\n", "x.toml").unwrap_err().to_string();
        assert!(error.starts_with("x.toml:2: duplicate key"), "{error}");
        let error = parse_file("a = 99999999999999999999\n", "x.toml").unwrap_err().to_string();
        assert_eq!(error, "x.toml:1: the number 99999999999999999999 is too large");
    }

    #[test]
    fn tables_merge_by_key_and_named_arrays_by_name() {
        let base = "a = 1\n[t]\nx = 1\ny = 2\n[[tier]]\nname = \"fast\"\nsize = 1\n[[tier]]\nname = \"slow\"\nsize = 2";
        let over = "[t]\ny = 3\n[[tier]]\nname = \"slow\"\nsize = 9\n[[tier]]\nname = \"far\"\nsize = 3";
        let expected = "a = 1\n[t]\nx = 1\ny = 3\n[[tier]]\nname = \"fast\"\nsize = 1\n[[tier]]\nname = \"slow\"\nsize = 9\n[[tier]]\nname = \"far\"\nsize = 3";
        assert_eq!(merged(base, over), tree(expected).value());
        assert_eq!(merged("a = [1, 2, 3]", "a = [4]"), tree("a = [4]").value(), "plain arrays are replaced");
        assert_eq!(merged("[ledger]\ncited = [\"a\"]", "[ledger]\ncited = [\"b\"]"), {
            tree("[ledger]\ncited = [\"a\", \"b\"]").value()
        });
    }

    #[test]
    fn another_placement_or_preset_starts_anew() {
        let base = "[os.placement]\nkind = \"bind\"\ntier = \"x\"\n[device.d]\nkind = \"dram\"\nchannels = 2";
        let over = "os.placement.kind = \"interleave\"\ndevice.d.preset = \"hbm2\"";
        assert_eq!(merged(base, over), tree(over).value());
        let same = "os.placement.tier = \"y\"\ndevice.d.channels = 4";
        let value = merged(base, same);
        assert_eq!(value["os"]["placement"]["kind"].as_str(), Some("bind"));
        assert_eq!(value["device"]["d"]["kind"].as_str(), Some("dram"));
    }

    #[test]
    fn set_takes_toml_or_bare_text() {
        let mut base =
            tree("[core]\ncount = 1\n[[tier]]\nname = \"dram\"\nsize = \"1 GiB\"\n[[l2]]\nentries = 1");
        for (key, text) in [
            ("core.count", "4"),
            ("core.clock", "2.3 GHz"),
            ("tier.dram.size", "\"8 GiB\""),
            ("l2.0.entries", "512"),
            ("os.pages", "2m"),
        ] {
            let layer = set_layer(&base, key, text).unwrap();
            merge(&mut base, layer);
        }
        let expected = "[core]\ncount = 4\nclock = \"2.3 GHz\"\n[os]\npages = \"2m\"\n[[tier]]\nname = \"dram\"\nsize = \"8 GiB\"\n[[l2]]\nentries = 512";
        assert_eq!(base.value(), tree(expected).value());
        assert_eq!(base.at("core.count").unwrap().origin.to_string(), "--set core.count=4");
        let error = set_layer(&base, "tier.drm.size", "1").unwrap_err().to_string();
        assert_eq!(error, "--set tier.drm.size=1: tier has no \"drm\"; did you mean \"dram\"?");
        assert!(set_layer(&base, "", "1").is_err());
    }
}
