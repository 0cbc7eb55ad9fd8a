//! Published claims as data: what a source states, what to run, and how to tell whether it holds here.
//!
//! A file under `claims/` names its source, the runs it needs and the claims about them:
//!
//! ```toml
//! source = "M. Marques, Ambix, MSc thesis, IST Lisboa, 2021"
//!
//! [run.read]                            # one run per point; {dram} is the point's value
//! machine = "xeon-5218-dcpmm"
//! design = "native-4k"
//! workload = "iwb,mode=read"
//! set = { "os.placement" = '{ kind = "ratio", first = {dram}, group = 100 }' }
//! points = [0, 50, 100]
//! with = { dram = [0, 50, 100] }
//!
//! [run.write]                           # all else as in `read`; `set` and `with` are taken over key by key
//! like = "read"
//! workload = "iwb,mode=write"
//!
//! [define]
//! gain = "max(read.throughput) / at(read.throughput, 100) - 1"
//!
//! [[claim]]
//! id = "ambix-iwb-read-best-share"
//! section = "3.2.2"
//! kind = "shape"
//! statement = "Reading is fastest with 80 % of the pages in DRAM."
//! expression = "argmax(read.throughput)"
//! published = 80
//! tolerance = 5
//! ```
//!
//! A workload can also be `suite:NAME`, a program of the suite that whoever judges the claim has recorded, or `mix:` and
//! the programs that run side by side. Where a claim reads `mix.program.NAME.alone_time` of a mix, its programs also run
//! alone.
//!
//! A claim whose expression is an order (`1 < vivt < perfect`) holds when the order does; any other is compared with
//! `published` within `tolerance`: a number in the same unit, or `"10 %"` of the published value. Rows that a constant was
//! fitted to are listed in `calibrated`, `[""]` where there is one number; they are shown and not judged, because only
//! predictions count as reproduced. `implied = "by footprint"`, or by which claim, marks one that would hold whatever the
//! policy did: it is counted apart. Where the source states a range, `published` is its middle, `tolerance` half of it, and
//! `range = true` has it shown as it was stated.

mod expression;
mod like;
mod over_time;
mod run_key;
#[cfg(test)]
mod tests;
mod verdict;

pub use expression::{Direction, Expression, Function, Operator, Reduction, Value, When};
pub use run_key::RunKey;
pub use verdict::{Row, Verdict, evaluate};

use super::error::{DesignError, suggestion};
use super::file::read_text;
use super::{LARGEST_SCALE, read, tree};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use terrace_model::{ContiguityPoint, Stats};

/// What a claim says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClaimKind {
    /// A number within a tolerance.
    Value,
    /// An order: which design beats which.
    Order,
    /// A knee, plateau or crossover: where a curve turns.
    Shape,
}

/// Instead of a workload: no program runs, and the ways of moving pages are measured
/// ([`crate::migration_benchmark`]). Its metrics are the names in [`crate::MigrationRow::stats`].
pub const MIGRATION: &str = "microbenchmark:migration";

/// What came out of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunNumbers {
    /// Accesses of the timed part: the region of interest where the input marks one, else the whole input.
    pub accesses: u64,
    /// Instructions of the timed part.
    pub instructions: u64,
    /// Core cycles of the timed part.
    pub cycles: u64,
    /// Simulated seconds of the timed part.
    pub seconds: f64,
    /// All statistics.
    pub stats: Stats,
    /// How contiguous memory was over time, where that was sampled.
    pub contiguity: Vec<ContiguityPoint>,
}

/// A published number: one, or one per point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a number or a list with one number per point")]
pub enum Published {
    /// One.
    Number(f64),
    /// One per point of the runs.
    List(Vec<f64>),
}

/// How far from the published number a result may lie.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tolerance {
    /// In the unit of the number.
    Absolute(f64),
    /// As a share of the published number.
    Relative(f64),
}

/// A published claim, complete with what to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// Unique name.
    pub id: String,
    /// Author, title, place, year.
    pub source: String,
    /// Section, figure or table.
    pub section: String,
    /// Kind.
    pub kind: ClaimKind,
    /// What the source states, in our words.
    pub statement: String,
    /// Unit of the numbers, empty for ratios.
    pub unit: String,
    /// What is compared.
    pub expression: Expression,
    /// The expression as written.
    pub expression_text: String,
    /// The source's number; absent for an order.
    pub published: Option<Published>,
    /// How near every judged row must be.
    pub tolerance: Option<Tolerance>,
    /// How small the mean relative error over the judged rows must be.
    pub mean_tolerance: Option<f64>,
    /// The source states a range: `published` is its middle and `tolerance` half of it. For what is shown alone.
    pub range: bool,
    /// Points that constants were fitted to.
    pub calibrated: Vec<String>,
    /// What is known about why it does not hold, or how our set-up differs.
    pub note: String,
    /// What makes it hold besides what it states: that all fits in the fast memory, or the claim that it follows from. Such
    /// claims are counted apart. Empty for most.
    pub implied: String,
    runs: Arc<BTreeMap<String, RunSpec>>,
}

/// A run of a claim file, before its points are filled in.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct RunSpec {
    /// The run whose keys are here where this one does not have its own. Done by [`like::complete`] before it is read.
    #[serde(default)]
    like: Option<String>,
    machine: String,
    design: String,
    workload: String,
    #[serde(default)]
    set: BTreeMap<String, toml::Value>,
    /// For all points; `with.scale` has one for each instead.
    #[serde(default = "one")]
    scale: u32,
    #[serde(default = "full")]
    fidelity: String,
    #[serde(default)]
    whole: bool,
    #[serde(default)]
    fast_forward: bool,
    /// The workload that the policy's first pass looks at; the run's own where there is none.
    #[serde(default)]
    train: String,
    /// Labels of the runs; one run without a label when empty.
    #[serde(default)]
    points: Vec<toml::Value>,
    /// Values for `{key}`, one list per key, one value per point.
    #[serde(default)]
    with: BTreeMap<String, Vec<toml::Value>>,
}

fn one() -> u32 {
    1
}

fn full() -> String {
    "full".to_owned()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileTable {
    source: String,
    run: BTreeMap<String, RunSpec>,
    #[serde(default)]
    define: BTreeMap<String, String>,
    claim: Vec<ClaimTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaimTable {
    id: String,
    section: String,
    kind: ClaimKind,
    statement: String,
    #[serde(default)]
    unit: String,
    expression: String,
    #[serde(default)]
    published: Option<Published>,
    #[serde(default)]
    tolerance: Option<toml::Value>,
    #[serde(default)]
    mean_tolerance: Option<toml::Value>,
    #[serde(default)]
    range: bool,
    #[serde(default)]
    calibrated: Vec<toml::Value>,
    #[serde(default)]
    note: String,
    #[serde(default)]
    implied: String,
}

/// The claim files that come with Terrace.
const FILES: &[(&str, &str)] = &[
    ("claims/ambix-bfs.toml", include_str!("../../../claims/ambix-bfs.toml")),
    ("claims/ambix-iwb.toml", include_str!("../../../claims/ambix-iwb.toml")),
    ("claims/ambix-npb.toml", include_str!("../../../claims/ambix-npb.toml")),
    ("claims/ambix-pb.toml", include_str!("../../../claims/ambix-pb.toml")),
    ("claims/ambix-pmbench.toml", include_str!("../../../claims/ambix-pmbench.toml")),
    ("claims/contiguity.toml", include_str!("../../../claims/contiguity.toml")),
    ("claims/gpu-migration.toml", include_str!("../../../claims/gpu-migration.toml")),
    ("claims/gpu-placement.toml", include_str!("../../../claims/gpu-placement.toml")),
    ("claims/gpu-selective.toml", include_str!("../../../claims/gpu-selective.toml")),
    ("claims/gpu.toml", include_str!("../../../claims/gpu.toml")),
    ("claims/hatric-mixes.toml", include_str!("../../../claims/hatric-mixes.toml")),
    ("claims/hatric.toml", include_str!("../../../claims/hatric.toml")),
    ("claims/nimble-programs.toml", include_str!("../../../claims/nimble-programs.toml")),
    ("claims/nimble.toml", include_str!("../../../claims/nimble.toml")),
    ("claims/ranger.toml", include_str!("../../../claims/ranger.toml")),
    ("claims/thermostat.toml", include_str!("../../../claims/thermostat.toml")),
    ("claims/trident-pv.toml", include_str!("../../../claims/trident-pv.toml")),
    ("claims/trident-tail.toml", include_str!("../../../claims/trident-tail.toml")),
    ("claims/trident-timing.toml", include_str!("../../../claims/trident-timing.toml")),
    ("claims/trident.toml", include_str!("../../../claims/trident.toml")),
    ("claims/vbi-bundles.toml", include_str!("../../../claims/vbi-bundles.toml")),
    ("claims/vbi-suite.toml", include_str!("../../../claims/vbi-suite.toml")),
    ("claims/vbi-tiers.toml", include_str!("../../../claims/vbi-tiers.toml")),
    ("claims/vbi.toml", include_str!("../../../claims/vbi.toml")),
];

/// All claims that come with Terrace, in the order of their files. Errors: a file that does not read, which a test excludes.
pub fn embedded() -> Result<Vec<Claim>, DesignError> {
    let mut claims = Vec::new();
    for (shown, text) in FILES {
        claims.extend(parse(text, shown)?);
    }
    Ok(claims)
}

/// The claims of a file of the user. Errors: the file, its syntax, its keys, its expressions, each with the line.
pub fn load(path: &Path) -> Result<Vec<Claim>, DesignError> {
    let shown = path.display().to_string();
    let text = read_text(path).map_err(|problem| DesignError::at(&shown, problem))?;
    parse(&text, &shown)
}

/// Reads the text of a claim file called `shown`.
pub fn parse(text: &str, shown: &str) -> Result<Vec<Claim>, DesignError> {
    let mut tree = tree::parse_file(text, shown)?;
    like::complete(&mut tree)?;
    let file: FileTable = read::read(&tree)?;
    let place = |key: &str| &tree.nearest(key).origin;
    for (name, run) in &file.run {
        check_run(run).map_err(|(key, message)| {
            let key = format!("run.{name}.{key}");
            DesignError::at(place(&key), format!("{key}: {message}"))
        })?;
    }
    let definitions = definitions(&file.define).map_err(|(name, message)| {
        DesignError::at(place(&format!("define.{name}")), format!("define.{name}: {message}"))
    })?;
    let runs = Arc::new(file.run);
    let mut ids = HashSet::new();
    let mut claims = Vec::new();
    for (at, table) in file.claim.into_iter().enumerate() {
        let id = table.id.clone();
        let fault = |key: &str, message: String| {
            DesignError::at(place(&format!("claim.{at}.{key}")), format!("{id}: {key}: {message}"))
        };
        if !ids.insert(id.clone()) {
            return Err(fault("id", "there is another claim of this name".into()));
        }
        claims.push(
            claim(table, &file.source, &runs, &definitions).map_err(|(key, message)| fault(key, message))?,
        );
    }
    Ok(claims)
}

/// Reads definitions, which may use each other in any order. Errors: the name and what is wrong, circles included.
fn definitions(texts: &BTreeMap<String, String>) -> Result<BTreeMap<String, Expression>, (String, String)> {
    for (name, text) in texts {
        // Each by itself first: what is wrong with one is not wrong with those that use it.
        let any = |other: &str| texts.contains_key(other).then_some(Expression::Number(0.0));
        expression::parse(text, &any).map_err(|message| (name.clone(), message))?;
    }
    let mut definitions = BTreeMap::new();
    loop {
        let mut fault = None;
        let known = definitions.len();
        for (name, text) in texts {
            if !definitions.contains_key(name) {
                match expression::parse(text, &|name| definitions.get(name).cloned()) {
                    Ok(expression) => {
                        definitions.insert(name.clone(), expression);
                    }
                    Err(message) => fault = Some((name.clone(), message)),
                }
            }
        }
        match fault {
            None => return Ok(definitions),
            // A round without a new definition: what is left cannot be read.
            Some(fault) if definitions.len() == known => return Err(fault),
            Some(_) => {}
        }
    }
}

fn check_run(run: &RunSpec) -> Result<(), (&'static str, String)> {
    let allowed = i64::from(LARGEST_SCALE);
    let each = run.with.get("scale").into_iter().flatten().map(|scale| scale.as_integer().unwrap_or(0));
    if let Some(scale) = each.chain([run.scale.into()]).find(|scale| !(1..=allowed).contains(scale)) {
        return Err(("scale", format!("{scale} is not 1 to {allowed}")));
    }
    let levels = ["full", "translation", "pages"];
    if !levels.contains(&run.fidelity.as_str()) {
        let hint = suggestion(&run.fidelity, &levels);
        return Err(("fidelity", format!("\"{}\" is not valid{hint}", run.fidelity)));
    }
    if run.fast_forward && run.whole {
        return Err(("fast_forward", "the whole input is to be counted: leave one of them out".to_owned()));
    }
    match run.with.iter().find(|(_, values)| values.len() != run.points.len()) {
        Some((key, values)) => {
            Err(("with", format!("{key} has {} values for {} points", values.len(), run.points.len())))
        }
        None => Ok(()),
    }
}

fn claim(
    table: ClaimTable,
    source: &str,
    runs: &Arc<BTreeMap<String, RunSpec>>,
    definitions: &BTreeMap<String, Expression>,
) -> Result<Claim, (&'static str, String)> {
    let expression = expression::parse(&table.expression, &|name| definitions.get(name).cloned())
        .map_err(|message| ("expression", message))?;
    for (run, ..) in expression.metrics() {
        if !runs.contains_key(run) {
            let names: Vec<_> = runs.keys().collect();
            return Err(("expression", format!("there is no run \"{run}\"{}", suggestion(run, &names))));
        }
    }
    over_time::check(&expression, runs).map_err(|message| ("expression", message))?;
    let tolerance = table.tolerance.as_ref().map(read_tolerance).transpose();
    let tolerance = tolerance.map_err(|message| ("tolerance", message))?;
    let mean_tolerance = match table.mean_tolerance.as_ref().map(read_tolerance) {
        None => None,
        Some(Ok(Tolerance::Relative(share))) => Some(share),
        Some(_) => return Err(("mean_tolerance", "expected a share such as \"10 %\"".into())),
    };
    let is_order = matches!(expression, Expression::Order(..));
    if is_order != table.published.is_none() {
        let message = match is_order {
            true => "an order has no published number",
            false => "is missing; only an order needs none",
        };
        return Err(("published", message.into()));
    }
    if !is_order && tolerance.is_none() && mean_tolerance.is_none() {
        return Err(("tolerance", "is missing; write \"10 %\" or a number".into()));
    }
    let one_number = matches!(table.published, Some(Published::Number(_)));
    if table.range && !(one_number && matches!(tolerance, Some(Tolerance::Absolute(_)))) {
        let message =
            "needs one published number, the middle, and as tolerance half of the range in its unit";
        return Err(("range", message.into()));
    }
    Ok(Claim {
        id: table.id,
        source: source.to_owned(),
        section: table.section,
        kind: table.kind,
        statement: table.statement,
        unit: table.unit,
        expression,
        expression_text: table.expression,
        published: table.published,
        tolerance,
        mean_tolerance,
        range: table.range,
        calibrated: table.calibrated.iter().map(label).collect(),
        note: table.note,
        implied: table.implied,
        runs: runs.clone(),
    })
}

fn read_tolerance(value: &toml::Value) -> Result<Tolerance, String> {
    let expected = "expected a number in the claim's unit, or a share such as \"10 %\"";
    match value {
        toml::Value::Integer(number) => Ok(Tolerance::Absolute(*number as f64)),
        toml::Value::Float(number) => Ok(Tolerance::Absolute(*number)),
        toml::Value::String(text) => text
            .strip_suffix('%')
            .and_then(|number| number.trim().parse::<f64>().ok())
            .map(|percent| Tolerance::Relative(percent / 100.0))
            .ok_or_else(|| expected.to_owned()),
        _ => Err(expected.to_owned()),
    }
}

/// A point's label, or the text that replaces `{key}`.
fn label(value: &toml::Value) -> String {
    read::text_of(value)
}

impl Claim {
    /// Every simulation the claim needs, each once.
    pub fn runs(&self) -> Vec<RunKey> {
        self.runs_with(|_| true)
    }

    /// The simulations of which the claim reads a metric with such a name.
    pub fn runs_with(&self, is_such: impl Fn(&str) -> bool) -> Vec<RunKey> {
        let mut keys = Vec::new();
        for (run, ..) in self.expression.metrics().into_iter().filter(|(_, metric, _)| is_such(metric)) {
            for (_, key) in self.keys(run) {
                if !keys.contains(&key) {
                    keys.push(key);
                }
            }
        }
        keys
    }

    /// The runs called `name` with the labels of their points; one with an empty label where there are no points.
    fn keys(&self, name: &str) -> Vec<(String, RunKey)> {
        let Some(run) = self.runs.get(name) else { return Vec::new() };
        let key = |at: usize| {
            let fill = |text: &str| {
                let mut text = text.to_owned();
                if let Some(point) = run.points.get(at) {
                    text = text.replace("{point}", &label(point));
                }
                for (key, values) in &run.with {
                    if let Some(value) = values.get(at) {
                        text = text.replace(&format!("{{{key}}}"), &label(value));
                    }
                }
                text
            };
            RunKey {
                machine: fill(&run.machine),
                design: fill(&run.design),
                workload: fill(&run.workload),
                sets: run.set.iter().map(|(key, value)| (key.clone(), fill(&label(value)))).collect(),
                scale: run
                    .with
                    .get("scale")
                    .and_then(|each| each.get(at)?.as_integer())
                    .and_then(|scale| u32::try_from(scale).ok())
                    .unwrap_or(run.scale),
                fidelity: run.fidelity.clone(),
                whole: run.whole,
                fast_forward: run.fast_forward,
                train: fill(&run.train),
            }
        };
        if run.points.is_empty() {
            vec![(String::new(), key(0))]
        } else {
            run.points.iter().enumerate().map(|(at, point)| (label(point), key(at))).collect()
        }
    }
}
