//! One file as a layer of a design: its header, what it says in short written out, and what it may say of tiers.

use super::error::{DesignError, Origin, suggestion};
use super::file::{File, FileKind};
use super::tree::{self, Entry, Node, name_of};
use super::{MemoryParameters, NestedParameters};
use crate::memory;
use serde::Serialize;
use std::collections::{BTreeMap, HashSet};

/// A parsed file without its header keys.
pub(super) struct Layer {
    pub name: String,
    pub summary: Option<String>,
    pub kind: FileKind,
    pub tree: Entry,
}

/// Parses a file and takes its header keys (`name`, `summary`, `kind`, `extends`) out of the tree.
pub(super) fn header(file: &File) -> Result<(Layer, Vec<Entry>), DesignError> {
    let mut tree = tree::parse_file(&file.text, &file.shown)?;
    let table = tree.table_mut().expect("a TOML file is a table");
    let mut text = |key: &str| match table.remove(key) {
        None => Ok(None),
        Some(entry) => match entry.as_str() {
            Some(text) => Ok(Some((text.to_owned(), entry.origin.clone()))),
            None => Err(DesignError::at(&entry.origin, format!("{key}: expected text in quotes"))),
        },
    };
    let name = text("name")?.map_or_else(|| file.name.clone(), |(name, _)| name);
    let summary = text("summary")?.map(|(summary, _)| summary);
    let kind = match text("kind")? {
        None => FileKind::Design,
        Some((kind, origin)) => match kind.as_str() {
            "machine" => FileKind::Machine,
            "design" => FileKind::Design,
            "part" => FileKind::Part,
            other => {
                let hint = suggestion(other, &["machine", "design", "part"]);
                return Err(DesignError::at(origin, format!("kind: \"{other}\" is not valid{hint}")));
            }
        },
    };
    let parents = match table.remove("extends") {
        None => Vec::new(),
        Some(Entry { node: Node::Array(parents), .. }) => parents,
        Some(parent) => vec![parent],
    };
    for (key, what) in [("tier", "tier"), ("core.groups", "group of cores")] {
        let Some(Node::Array(entries)) = tree.at(key).map(|entries| &entries.node) else { continue };
        let mut names = HashSet::new();
        for entry in entries {
            let Some(name) = name_of(entry) else { continue };
            if !names.insert(name) {
                let message = format!("there is another {what} named \"{name}\"");
                return Err(DesignError::at(&entry.origin, message));
            }
        }
    }
    Ok((Layer { name, summary, kind, tree }, parents))
}

/// Writes out what a layer says in short: a placement by its name alone, a device by its preset.
pub(super) fn expand(mut layer: Entry) -> Result<Entry, DesignError> {
    for key in ["os.placement", "host.placement"] {
        if let Some(placement) = layer.at_mut(key)
            && let Some(kind) = placement.as_str()
        {
            let kind = Entry::text(kind, placement.origin.clone());
            placement.node = Node::Table(BTreeMap::from([("kind".to_owned(), kind)]));
        }
    }
    expand_scheme(&mut layer)?;
    if let Some(core) = layer.child_mut("core") {
        expand_model(core)?;
        if let Some(Entry { node: Node::Array(groups), .. }) = core.child_mut("groups") {
            groups.iter_mut().try_for_each(expand_model)?;
        }
    }
    if let Some(devices) = layer.at_mut("device").and_then(Entry::table_mut) {
        for device in devices.values_mut() {
            let Some(preset) = device.table_mut().and_then(|table| table.remove("preset")) else { continue };
            let mut start = preset_tree(&preset)?;
            let own = std::mem::replace(device, Entry::empty_table(Origin::Default));
            tree::merge(&mut start, own);
            // Marks the device as complete, so that it replaces the one of the layers below.
            if let Some(table) = start.table_mut() {
                table.insert("preset".to_owned(), preset);
            }
            *device = start;
        }
    }
    Ok(layer)
}

/// Makes a table of a scheme that is named alone, and takes the older spelling: a table `translation.contiguity`.
fn expand_scheme(layer: &mut Entry) -> Result<(), DesignError> {
    let Some(translation) = layer.at_mut("translation").and_then(Entry::table_mut) else { return Ok(()) };
    if let Some(scheme) = translation.get_mut("scheme")
        && let Some(kind) = scheme.as_str()
    {
        let kind = Entry::text(kind, scheme.origin.clone());
        scheme.node = Node::Table(BTreeMap::from([("kind".to_owned(), kind)]));
    }
    let Some(mut older) = translation.remove("contiguity") else { return Ok(()) };
    if let Some(scheme) = translation.get("scheme") {
        return Err(DesignError::at(
            &scheme.origin,
            "translation.scheme: translation.contiguity is an older spelling of it; write only one of them",
        ));
    }
    if let Some(kind) = older.child_mut("kind") {
        let newer = match kind.as_str() {
            Some("coalesced") => Some("colt"),
            Some("range") => Some("rmm"),
            _ => None,
        };
        if let Some(newer) = newer {
            kind.node = Node::Scalar(toml::Value::String(newer.to_owned()));
        }
    }
    translation.insert("scheme".to_owned(), older);
    Ok(())
}

/// Makes a table of a core model that is named alone, and takes the older spelling: `kind`.
fn expand_model(core: &mut Entry) -> Result<(), DesignError> {
    let Some(core) = core.table_mut() else { return Ok(()) };
    if let Some(model) = core.get_mut("model")
        && let Some(kind) = model.as_str()
    {
        let kind = Entry::text(kind, model.origin.clone());
        model.node = Node::Table(BTreeMap::from([("kind".to_owned(), kind)]));
    }
    let Some(older) = core.remove("kind") else { return Ok(()) };
    if core.contains_key("model") {
        return Err(DesignError::at(
            &older.origin,
            "core.kind: is an older spelling of core.model; write only one of them",
        ));
    }
    let origin = older.origin.clone();
    let mut model = BTreeMap::new();
    let kind = match older.as_str() {
        Some("out-of-order") => Entry::text("interval", origin.clone()),
        Some("in-order") => {
            // Every load was waited for.
            let loads = Node::Scalar(toml::Value::Integer(1));
            model.insert("loads".to_owned(), Entry { node: loads, origin: origin.clone() });
            older
        }
        _ => older,
    };
    model.insert("kind".to_owned(), kind);
    core.insert("model".to_owned(), Entry { node: Node::Table(model), origin });
    Ok(())
}

fn preset_tree(preset: &Entry) -> Result<Entry, DesignError> {
    let Some(name) = preset.as_str() else {
        return Err(DesignError::at(&preset.origin, "preset: expected the name of a device in quotes"));
    };
    let Some(text) = memory::preset_table(name) else {
        let names: Vec<_> = memory::preset_names().collect();
        let hint = suggestion(name, &names);
        return Err(DesignError::at(&preset.origin, format!("there is no device preset \"{name}\"{hint}")));
    };
    let name: std::sync::Arc<str> = name.into();
    tree::parse(text, &|line| Origin::Preset { name: name.clone(), line })
}

/// Replaces `fastest` and `slowest` by the names of the first and the last tier, so that a design can speak of tiers
/// without knowing the machine; and drops the marks that [`expand`] left.
pub(super) fn name_tiers(tree: &mut Entry) {
    let names = |tiers: Option<&Entry>| -> Vec<String> {
        match tiers.map(|tiers| &tiers.node) {
            Some(Node::Array(tiers)) => tiers.iter().filter_map(name_of).map(str::to_owned).collect(),
            _ => Vec::new(),
        }
    };
    let machine = names(tree.child("tier"));
    // In a virtual machine `os` speaks of the guest's tiers, and a single one has a name of its own.
    let guest = match (tree.child("vm"), names(tree.at("vm.tier"))) {
        (None, _) => machine.clone(),
        (Some(_), tiers) if tiers.is_empty() => vec![super::guests::RAM.to_owned()],
        (Some(_), tiers) => tiers,
    };
    let resolve = |entry: &mut Entry, names: &[String]| {
        let name = match entry.as_str() {
            Some("fastest") => names.first(),
            Some("slowest") => names.last(),
            _ => None,
        };
        if let Some(name) = name {
            entry.node = Node::Scalar(toml::Value::String(name.clone()));
        }
    };
    for (key, names) in [
        ("os.placement.tier", &guest),
        ("os.page_table_tier", &guest),
        ("host.placement.tier", &machine),
        ("host.page_table_tier", &machine),
    ] {
        if let Some(entry) = tree.at_mut(key) {
            resolve(entry, names);
        }
    }
    if let Some(Node::Array(tiers)) = tree.at_mut("vm.tier").map(|tiers| &mut tiers.node) {
        for table in tiers.iter_mut().filter_map(Entry::table_mut) {
            if let Some(entry) = table.get_mut("host_tier") {
                resolve(entry, &machine);
            }
        }
    }
    if let Some(devices) = tree.at_mut("device").and_then(Entry::table_mut) {
        for table in devices.values_mut().filter_map(Entry::table_mut) {
            table.remove("preset");
        }
    }
}

/// Gives tables of which only some keys are written their defaults for the others.
pub(super) fn complete(tree: &mut Entry) {
    complete_table(tree, "host.memory", &MemoryParameters::default());
    complete_table(tree, "translation.nested.tlb", &NestedParameters::default().tlb);
}

fn complete_table(tree: &mut Entry, key: &str, defaults: &impl Serialize) {
    let Some(written) = tree.at_mut(key).filter(|entry| entry.table().is_some()) else { return };
    let text = toml::to_string(defaults).expect("parameters are TOML");
    let mut whole = tree::parse(&text, &|_| Origin::Default).expect("what was written as TOML reads as TOML");
    tree::merge(&mut whole, written.clone());
    *written = whole;
}

/// Placements without parameters take none; serde does not look.
pub(super) fn check_placement(tree: &Entry) -> Result<(), DesignError> {
    let Some(table) = tree.at("os.placement").and_then(Entry::table) else { return Ok(()) };
    let kind = table.get("kind").and_then(Entry::as_str).unwrap_or_default();
    let extra = table.iter().find(|(key, _)| key.as_str() != "kind");
    match extra {
        Some((key, entry)) if matches!(kind, "first-touch" | "interleave") => Err(DesignError::at(
            &entry.origin,
            format!("unknown key \"{key}\"; the placement \"{kind}\" takes none"),
        )),
        _ => Ok(()),
    }
}

/// Whether the weights say `bandwidth`; if so puts a list in their place until the devices are known.
pub(super) fn take_bandwidth_weights(tree: &mut Entry) -> Result<bool, DesignError> {
    let Some(weights) = tree.at_mut("os.placement.weights") else { return Ok(false) };
    match weights.as_str() {
        Some("bandwidth") => {
            weights.node = Node::Array(Vec::new());
            Ok(true)
        }
        Some(text) => Err(DesignError::at(
            &weights.origin,
            format!(
                "os.placement.weights: found \"{text}\", expected a list with one weight per tier, or \"bandwidth\""
            ),
        )),
        None => Ok(false),
    }
}

/// Where there are groups of cores, their sum is the number of cores.
pub(super) fn count_cores(tree: &mut Entry) -> Result<(), DesignError> {
    let Some(groups) = tree.at("core.groups") else { return Ok(()) };
    let Node::Array(entries) = &groups.node else { return Ok(()) };
    if entries.is_empty() {
        return Ok(());
    }
    let origin = groups.origin.clone();
    let number = |entry: &Entry| entry.child("count")?.value().as_integer().filter(|count| *count > 0);
    let Some(sum) = entries.iter().map(number).try_fold(0i64, |sum, count| sum.checked_add(count?)) else {
        // What is wrong with a group's count is said where it is read.
        return Ok(());
    };
    let Some(core) = tree.child_mut("core").and_then(Entry::table_mut) else { return Ok(()) };
    if let Some(Entry { origin: set @ Origin::Set(_), .. }) = core.get("count") {
        let message = "core.count: the groups of cores say how many there are; set core.groups.NAME.count";
        return Err(DesignError::at(set, message));
    }
    let sum = Node::Scalar(toml::Value::Integer(sum.clamp(0, i64::from(u32::MAX))));
    core.insert("count".to_owned(), Entry { node: sum, origin });
    Ok(())
}
