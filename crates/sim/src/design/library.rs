//! Where designs come from: the embedded files and the user's, joined along `extends` into one [`Design`].
//!
//! A *machine* file says what the hardware is, a *design* file what to do differently on it. A design's layers are, from
//! the bottom: its machine (the one that `--machine` names, else the one it extends, else [`DEFAULT_MACHINE`]), the
//! designs it extends, the file itself, and the `--set` options. Because a machine is only ever the bottom layer, any
//! design can stand on any machine.

use super::error::{DesignError, Origin, suggestion};
use super::file::{File, FileKind, policy_file, read_text};
use super::layer::{
    Layer, check_placement, complete, count_cores, expand, header, name_tiers, take_bandwidth_weights,
};
use super::schema::{Design, Ledger};
use super::schemes::KeyProblem;
use super::settings::{blame, blame_line, in_order};
use super::tree::{self, Entry, name_of};
use super::{Placement, SchemeParameters, schemes};
use super::{embedded, read, rules, validate};
use crate::memory;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use terrace_model::parameters::{Declared, ParameterInfo, did_you_mean, nearest};

/// The machine of a design that names none: DDR5 and memory behind CXL, the tiers that are being bought today.
pub const DEFAULT_MACHINE: &str = "zen4-cxl";

/// Longest chain of `extends`.
const DEEPEST: usize = 32;

/// An entry of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Name to use on the command line.
    pub name: String,
    /// One line.
    pub summary: String,
}

/// One setting of a resolved design, as the user would write it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Dotted key, such as `tier.dram.capacity`; `--set` takes it as it is.
    pub key: String,
    /// Value with its unit.
    pub value: String,
    /// Where it comes from: `machines/zen4-cxl.toml:31`, `preset ddr5-4800:7`, `--set core.count=4`, `default`.
    pub origin: String,
}

/// A design ready to simulate, and where each of its settings comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolved {
    /// The design.
    pub design: Design,
    /// Every setting, by key.
    pub parameters: Vec<Parameter>,
    /// What the design's ledger says that is still so: without what it says of values that the user changed.
    pub ledger: Ledger,
}

/// All machines and designs that have a name.
#[derive(Clone, Debug)]
pub struct Library {
    files: BTreeMap<String, File>,
}

fn is_path(name_or_path: &str) -> bool {
    name_or_path.ends_with(".toml") || name_or_path.contains(['/', '\\'])
}

/// What to do with each file that another extends, given the files on the way to it.
type Visit<'a> = dyn FnMut(&File, &mut Vec<String>) -> Result<(), DesignError> + 'a;

impl Library {
    /// The files that come with Terrace.
    pub fn embedded() -> Library {
        let files = embedded::FILES.iter().map(|(shown, text)| {
            let name = stem(Path::new(shown));
            let file =
                File { name: name.clone(), shown: shown.to_string(), text: (*text).into(), directory: None };
            (name, file)
        });
        // Schemes may bring a design along in their source.
        let of_schemes = schemes::ALL.iter().filter_map(|scheme| {
            let (name, shown) = (scheme.name.to_owned(), format!("scheme {}", scheme.name));
            let file = File { name: name.clone(), shown, text: scheme.design?.into(), directory: None };
            Some((name, file))
        });
        Library { files: files.chain(of_schemes).collect() }
    }

    /// With one more file under this name.
    pub(crate) fn with(mut self, name: &str, text: String) -> Library {
        let file = File { name: name.to_owned(), shown: name.to_owned(), text: text.into(), directory: None };
        self.files.insert(name.to_owned(), file);
        self
    }

    /// The machines, by name.
    pub fn machine_names(&self) -> Vec<Listed> {
        self.listed(FileKind::Machine)
    }

    /// The designs, by name.
    pub fn design_names(&self) -> Vec<Listed> {
        self.listed(FileKind::Design)
    }

    /// The text of a machine or design file, comments included. Errors: no such name or file.
    pub fn show(&self, name_or_path: &str) -> Result<String, DesignError> {
        Ok(self.find(name_or_path, None)?.text.into_owned())
    }

    /// What a name or a file stands for; a policy's name for a design. Errors: no such name or file, no TOML.
    pub fn kind(&self, name_or_path: &str) -> Result<FileKind, DesignError> {
        Ok(header(&self.find(name_or_path, None)?)?.0.kind)
    }

    /// Joins the layers of a design. `name_or_path` is an embedded name or a path to a TOML file (recognised by a
    /// slash or the ending `.toml`); a machine's name stands for that machine with its own operating system, a policy's
    /// name for that policy on the default machine.
    /// `machine` (name or path) puts the design on another machine; `sets` are dotted keys and values laid on top.
    ///
    /// Errors: unknown names, cycles, TOML syntax, unknown keys, wrong types and units, broken rules; each with the
    /// file and line at fault.
    pub fn design(
        &self,
        name_or_path: &str,
        machine: Option<&str>,
        sets: &[(String, String)],
    ) -> Result<Resolved, DesignError> {
        let top = self.find(name_or_path, None)?;
        let with = |sets: &[(String, String)]| self.with_sets(&top, machine, sets);
        with(sets).map_err(|error| {
            let error = blame(error, sets, |others| with(others).is_ok());
            blame_line(error, &top, |other| self.with_sets(&other, machine, sets).is_ok())
        })
    }

    /// As [`Library::design`]; an error names the place of the key that a rule is about.
    fn with_sets(
        &self,
        top: &File,
        machine: Option<&str>,
        sets: &[(String, String)],
    ) -> Result<Resolved, DesignError> {
        let mut designs = Vec::new();
        let mut machines = Vec::new();
        self.collect(top, &mut Vec::new(), &mut designs, &mut machines)?;
        let top_is_machine = designs.is_empty();
        let asked_file = machine.map(|asked| self.find_machine(asked)).transpose()?;
        let machine_file = match (asked_file, machines.as_slice()) {
            (Some(asked), _) if top_is_machine && asked.shown != top.shown => {
                return Err(DesignError::new(format!(
                    "\"{}\" is a machine, not a design, and cannot stand on machine \"{}\"",
                    top.name,
                    machine.unwrap_or(&asked.name)
                )));
            }
            (Some(asked), _) => asked,
            (None, [one]) => one.clone(),
            (None, []) => self.find(DEFAULT_MACHINE, None)?,
            (None, [first, second, ..]) => {
                return Err(DesignError::at(
                    &top.shown,
                    format!("extends two machines, {} and {}; choose one", first.name, second.name),
                ));
            }
        };

        let mut tree = Entry::empty_table(Origin::File { file: top.shown.as_str().into(), line: 1 });
        let mut files = Vec::new();
        let machine_layer = self.machine_tree(&machine_file, &mut tree, &mut files)?;
        let (mut name, mut summary) = (machine_layer.name.clone(), machine_layer.summary);
        for layer in designs {
            name = layer.name;
            summary = layer.summary.or(summary);
            files.push(layer.tree.origin.clone());
            tree::merge(&mut tree, expand(layer.tree)?);
        }
        for (key, value) in in_order(sets) {
            let layer = tree::set_layer(&tree, key, value)?;
            tree::merge(&mut tree, expand(layer)?);
        }
        files.retain(|file| !self.is_embedded(file));
        let mut resolved = self.finish(&mut tree, name, summary.unwrap_or_default(), machine_layer.name)?;
        let keys = resolved.parameters.iter().map(|parameter| parameter.key.as_str());
        resolved.ledger = resolved.design.ledger.without_changes(&tree, keys, &files);
        Ok(resolved)
    }

    /// Reads the merged tree and checks it.
    fn finish(
        &self,
        tree: &mut Entry,
        name: String,
        summary: String,
        machine: String,
    ) -> Result<Resolved, DesignError> {
        if let Some(table) = tree.table() {
            // These come from the files' headers; as settings they would contradict them.
            for key in ["name", "summary", "machine", "kind", "extends"] {
                if let Some(entry) = table.get(key) {
                    return Err(DesignError::at(
                        &entry.origin,
                        format!(
                            "\"{key}\" cannot be set here; a design names its machine by extends = \"...\" or --machine"
                        ),
                    ));
                }
            }
        }
        name_tiers(tree);
        check_placement(tree)?;
        let by_bandwidth = take_bandwidth_weights(tree)?;
        if let Some(table) = tree.table_mut() {
            for (key, text) in [("name", &name), ("summary", &summary), ("machine", &machine)] {
                table.insert(key.to_owned(), Entry::text(text.clone(), Origin::Default));
            }
        }
        count_cores(tree)?;
        complete(tree);
        let mut design: Design = read::read(tree)?;
        let fault_at = |tree: &Entry, (key, message): rules::Fault| {
            let origin = &tree.nearest(&key).origin;
            // Positions read worse than names.
            DesignError::at(origin, format!("{}: {message}", named_key(tree, &key)))
        };
        if by_bandwidth {
            design.os.placement = Placement::WeightedInterleave { weights: vec![1; design.tiers.len()] };
        }
        validate::validate(&design).map_err(|fault| fault_at(tree, fault))?;
        design.translation.scheme.own = scheme_keys(&design.translation.scheme, tree)?;
        let of_host = design.host.as_mut().map(|host| &mut host.policy);
        let policies = [("os.policy", Some(&mut design.os.policy)), ("host.policy", of_host)];
        for (key, policy) in policies.into_iter().filter_map(|(key, policy)| Some((key, policy?.as_mut()?))) {
            // With its defaults, so that they are listed.
            policy.parameters =
                rules::policy_parameters(policy, key).map_err(|fault| fault_at(tree, fault))?;
        }
        for (device, parameters) in &design.devices {
            memory::Device::new(parameters)
                .map_err(|message| fault_at(tree, (format!("device.{device}"), message)))?;
        }
        if by_bandwidth {
            let weights = super::weights::by_bandwidth(&design)
                .map_err(|message| fault_at(tree, ("os.placement.weights".to_owned(), message)))?;
            design.os.placement = Placement::WeightedInterleave { weights };
        }
        let parameters = parameters(&design, tree)?;
        Ok(Resolved { ledger: design.ledger.clone(), design, parameters })
    }

    fn is_embedded(&self, origin: &Origin) -> bool {
        let Origin::File { file, .. } = origin else { return false };
        self.files.values().any(|embedded| embedded.shown == **file)
    }

    fn listed(&self, kind: FileKind) -> Vec<Listed> {
        let mut listed = Vec::new();
        for file in self.files.values() {
            // Embedded files parse: a test holds that.
            if let Ok((layer, _)) = header(file)
                && layer.kind == kind
            {
                listed.push(Listed { name: layer.name, summary: layer.summary.unwrap_or_default() });
            }
        }
        listed
    }

    /// The file of a name or path, seen from the directory of the file that mentions it.
    fn find(&self, name_or_path: &str, from: Option<&Path>) -> Result<File, DesignError> {
        if is_path(name_or_path) {
            let path = from.map_or_else(|| PathBuf::from(name_or_path), |from| from.join(name_or_path));
            // Without the dots, so that one file has one name.
            let path: PathBuf = path.components().collect();
            let shown = path.display().to_string();
            let text = read_text(&path).map_err(|problem| DesignError::at(&shown, problem))?;
            let directory = Some(path.parent().map(Path::to_path_buf).unwrap_or_default());
            return Ok(File { name: stem(&path), shown, text: text.into(), directory });
        }
        if let Some(file) = self.files.get(name_or_path) {
            return Ok(file.clone());
        }
        policy_file(name_or_path).ok_or_else(|| {
            let policies = terrace_policy::all().iter().map(|policy| policy.name());
            let names = self.files.keys().map(String::as_str).chain(policies);
            let hint = match nearest(name_or_path, names) {
                None => "; see terrace design list, machine list and policy list".to_owned(),
                found => did_you_mean(found),
            };
            DesignError::new(format!("there is no machine, design or policy \"{name_or_path}\"{hint}"))
        })
    }

    /// As [`Library::find`], where only a machine will do: no other name is suggested.
    fn find_machine(&self, name_or_path: &str) -> Result<File, DesignError> {
        let found = self.find(name_or_path, None);
        if found.is_ok() || is_path(name_or_path) {
            return found;
        }
        let machines = self.machine_names();
        // A front door's word for the machine that it runs on.
        let names = machines.iter().map(|machine| machine.name.as_str()).chain(["here"]);
        let names = names.filter(|name| *name != name_or_path);
        let hint = match nearest(name_or_path, names) {
            None => "; see terrace machine list".to_owned(),
            near => did_you_mean(near),
        };
        Err(DesignError::new(format!("there is no machine \"{name_or_path}\"{hint}")))
    }

    /// Gathers the design layers below and including `file`, bottom first, and the machines they stand on.
    fn collect(
        &self,
        file: &File,
        above: &mut Vec<String>,
        designs: &mut Vec<Layer>,
        machines: &mut Vec<File>,
    ) -> Result<(), DesignError> {
        let (layer, parents) = header(file)?;
        if layer.kind == FileKind::Machine {
            if !machines.iter().any(|known| known.shown == file.shown) {
                machines.push(file.clone());
            }
            return Ok(());
        }
        if layer.kind == FileKind::Part && above.is_empty() {
            return Err(DesignError::at(
                &file.shown,
                "is a part of machines, neither a machine nor a design",
            ));
        }
        self.each_parent(file, &parents, above, &mut |parent, above| {
            self.collect(parent, above, designs, machines)
        })?;
        designs.push(layer);
        Ok(())
    }

    /// Lays a machine and what it extends into `tree`. Errors: the file is no machine.
    /// The places of their files go to `files`, those of what is extended first.
    fn machine_tree(
        &self,
        file: &File,
        tree: &mut Entry,
        files: &mut Vec<Origin>,
    ) -> Result<Layer, DesignError> {
        fn lay(
            library: &Library,
            file: &File,
            above: &mut Vec<String>,
            tree: &mut Entry,
            files: &mut Vec<Origin>,
        ) -> Result<Layer, DesignError> {
            let (mut layer, parents) = header(file)?;
            if layer.kind == FileKind::Design {
                let message = match above.last() {
                    Some(child) => format!("is a design; the machine {child} cannot extend it"),
                    None => "is a design, not a machine; a machine file says kind = \"machine\"".to_owned(),
                };
                return Err(DesignError::at(&file.shown, message));
            }
            library.each_parent(file, &parents, above, &mut |parent, above| {
                lay(library, parent, above, tree, files).map(drop)
            })?;
            let own = std::mem::replace(&mut layer.tree, Entry::empty_table(Origin::Default));
            files.push(own.origin.clone());
            tree::merge(tree, expand(own)?);
            Ok(layer)
        }
        let layer = lay(self, file, &mut Vec::new(), tree, files)?;
        if layer.kind == FileKind::Machine {
            Ok(layer)
        } else {
            Err(DesignError::at(&file.shown, "is a part of machines, not a machine"))
        }
    }

    fn each_parent(
        &self,
        file: &File,
        parents: &[Entry],
        above: &mut Vec<String>,
        visit: &mut Visit,
    ) -> Result<(), DesignError> {
        above.push(file.shown.clone());
        for parent in parents {
            let Some(name) = parent.as_str() else {
                let message = "extends: expected a name in quotes, or a list of names";
                return Err(DesignError::at(&parent.origin, message));
            };
            let found = self.find(name, file.directory.as_deref()).map_err(|error| {
                let place = error.place().map(|place| format!("{place}: ")).unwrap_or_default();
                DesignError::at(&parent.origin, format!("extends: {place}{}", error.message()))
            })?;
            if above.contains(&found.shown) || above.len() >= DEEPEST {
                let chain = above.join(" -> ");
                let message = format!("extends: {chain} -> {} goes in a circle", found.shown);
                return Err(DesignError::at(&parent.origin, message));
            }
            visit(&found, above)?;
        }
        above.pop();
        Ok(())
    }
}

fn stem(path: &Path) -> String {
    path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
}

/// All keys of a scheme, those that are left out with their defaults.
fn scheme_keys(scheme: &SchemeParameters, tree: &Entry) -> Result<toml::Table, DesignError> {
    const KEY: &str = "translation.scheme";
    let Some(entry) = schemes::find(&scheme.kind) else {
        let names: Vec<&str> = schemes::ALL.iter().map(|entry| entry.name).collect();
        let hint = suggestion(&scheme.kind, &names);
        let origin = &tree.nearest("translation.scheme.kind").origin;
        return Err(DesignError::at(origin, format!("{KEY}: \"{}\" is not valid{hint}", scheme.kind)));
    };
    let broken = |key: &str, problem: &str| {
        let key = format!("{KEY}.{key}");
        DesignError::at(&tree.nearest(&key).origin, format!("{key}: {problem}"))
    };
    entry.effective(&scheme.own).map_err(|problem| match problem {
        KeyProblem::Unreadable(misfit) => read::explain_misfit(tree, KEY, &misfit),
        KeyProblem::OutOfRange(problem) => {
            let (key, problem) = rules::not_between(&problem);
            broken(&key, &problem)
        }
        KeyProblem::Senseless(key, problem) => broken(key, &problem),
    })
}

fn named_key(tree: &Entry, key: &str) -> String {
    let mut entry = Some(tree);
    let mut shown = Vec::new();
    for segment in key.split('.') {
        let is_element = entry.is_some_and(|entry| matches!(entry.node, tree::Node::Array(_)));
        entry = entry.and_then(|entry| entry.child(segment));
        // An element of a list is called by its name; a table that has one is called by its key.
        shown.push(entry.filter(|_| is_element).and_then(name_of).unwrap_or(segment));
    }
    shown.join(".")
}

/// Every setting of `design` with its origin in `tree`.
fn parameters(design: &Design, tree: &Entry) -> Result<Vec<Parameter>, DesignError> {
    let value = toml::Value::try_from(design)
        .map_err(|error| DesignError::new(format!("the design cannot be written out: {error}")))?;
    let declared = design.current();
    let leaves = read::leaves(&value);
    let kind_of = |key: &str| {
        let of = key.rsplit_once('.').map(|(table, _)| format!("{table}.kind"))?;
        leaves.iter().find(|(key, _)| *key == of).map(|(_, kind)| kind.as_str())
    };
    let source_of = |key: &str| {
        let is_it = |one: &&ParameterInfo| {
            one.is_at(key) && (one.only_with.is_empty() || kind_of(key) == Some(one.only_with.as_str()))
        };
        declared.iter().find(is_it).map_or("", |found| found.source.as_str())
    };
    let mut parameters = Vec::new();
    for (key, normalized) in &leaves {
        // What a number rests on is no setting.
        let is_note = key.starts_with("ledger.")
            || key.starts_with("device.") && key.ends_with(".source")
            || key.starts_with("device.") && key.ends_with(".assumed")
            || key.starts_with("device.") && key.ends_with(".calibrated");
        if is_note || matches!(key.as_str(), "name" | "summary") {
            continue;
        }
        let entry = tree.at(key);
        let origin = entry.map_or(&Origin::Default, |entry| &entry.origin);
        let written = entry.and_then(read::leaf_text).filter(|text| text != "[]");
        parameters.push(Parameter {
            value: written.unwrap_or_else(|| normalized.clone()),
            origin: match origin {
                Origin::Default => match source_of(key) {
                    "" => origin.to_string(),
                    source => format!("default ({source})"),
                },
                origin => origin.to_string(),
            },
            key: key.clone(),
        });
    }
    Ok(parameters)
}
