//! From what a user asks for to an engine that runs: what this machine supports is chosen, and the reasons are given.

use crate::access::AccessSource;
use crate::access::damon::{self, Damon};
use crate::access::entry_dropping::EntryDropping;
use crate::access::faults::SampledFaults;
use crate::access::page_out::PageOut;
use crate::access::samples::ProcessorSamples;
use crate::access::schemes::{self, Schemes};
use crate::doctor::setting_that_runs;
use crate::engine::{Engine, Guard, Limits};
use crate::facts::{Fact, Facts, TierMap};
use crate::fault_cost;
use crate::journal::Journal;
use crate::kernel::Kernel;
use crate::launch::NewPages;
use crate::space::Dirtiness;
use crate::targets::{Selection, Targets};
use crate::world::{self, Managed, World};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use terrace_model::Time;
use terrace_policy::{
    Capability, Entry, HintedPages, MemorySystem, Moment, Needs, NextTick, Policy, PolicyError, Profile,
    Setup, Signal, registry,
};
use toml::Table;

/// Policies in the order in which they are tried where none is named, each with the parameters that live Linux needs.
/// The first needs the most and knows the most: stores as well as accesses. The last does without DAMON.
///
/// Nothing drops translations when accessed bits are cleared, so none may insist on `flush`. What was accessed is known
/// after some tenths of a second, later than Ambix's own `delay` is over.
pub const PREFERRED: &[(&str, &[(&str, &str)])] = &[
    ("ambix", &[("flush", "false"), ("delay", "500 ms")]),
    ("nimble", &[]),
    ("idle", &[("flush", "false")]),
    ("thermostat", &[("prefilter", "false")]),
];

/// The policy that places data structures by hints.
const BY_HINTS: &str = "annotated";

/// The parameter of policies that weigh accesses by what they cost in the slow tier.
const SLOW_LATENCY: &str = "slow_latency";

/// What is wanted.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The policy; none for what fits this machine.
    pub policy: Option<String>,
    /// The policy's parameters, as far as given.
    pub parameters: Table,
    /// Limits of tiers, and whether anything is done at all.
    pub world: world::Options,
    /// What Terrace may use.
    pub limits: Limits,
    /// How finely accesses are watched.
    pub damon: damon::Options,
    /// The kernel carries out the policy by itself, as schemes of DAMON.
    pub offload: bool,
    /// The seed of the policy's random choices.
    pub seed: u64,
    /// What another run found out about the command's data structures; without a name the policy is then the one that places
    /// by it.
    pub hints: Option<Profile>,
}

impl Config {
    /// Whether the policy, with these parameters, wants each node measured: [`Facts::measure`].
    pub fn wants_probe(&self) -> bool {
        let entry = self.policy.as_ref().and_then(|name| registry::find(name).ok());
        entry.is_some_and(|entry| entry.needs(&self.parameters).is_ok_and(|needs| needs.probe))
    }
}

/// Why nothing runs.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// Nothing of what is wanted exists, or it makes no sense.
    #[error("{0}")]
    Usage(String),
    /// This machine cannot do it.
    #[error("{0}")]
    Machine(String),
}

/// An engine, ready to run.
pub struct Session {
    /// The engine.
    pub engine: Engine,
    /// The policy's name.
    pub policy: String,
    /// The policy's parameters, all of them.
    pub parameters: Table,
    /// What was chosen, and why, in sentences.
    pub choices: Vec<String>,
    /// Where the new pages of a command that is launched go.
    pub new_pages: NewPages,
    /// Where those of its data structures go, by site.
    pub hinted: BTreeMap<u64, HintedPages>,
    /// The tiers.
    pub tiers: TierMap,
    /// The changes to the system.
    pub journal: Arc<Mutex<Journal>>,
}

impl Session {
    /// Prepares everything; nothing has been moved yet.
    ///
    /// # Errors
    /// A wrong name or value, or a machine that cannot do it: in words, with the next step.
    pub fn prepare(
        kernel: &Arc<dyn Kernel>,
        facts: &Facts,
        selection: Selection,
        config: &Config,
    ) -> Result<Session, Problem> {
        facts.knows_base_page().map_err(|missing| Problem::Machine(missing.to_string()))?;
        let mut choices = Vec::new();
        let managed = config.world.managed;
        let help = config.world.trackers.is_some() && managed != Managed::Sampled;
        match managed {
            Managed::All => Ok(()),
            Managed::EntriesDropped => facts.drops_entries(),
            Managed::Sampled => facts.sampled_faults(),
        }
        .map_err(|missing| Problem::Machine(missing.to_string()))?;
        if help && !facts.tracking.can_be_helped() {
            return Err(Problem::Machine(
                "stores cannot be tracked here: that takes PAGEMAP_SCAN and a userfaultfd with asynchronous write \
                 protection (Linux 6.7); without --track-stores soft-dirty bits serve"
                    .to_owned(),
            ));
        }
        facts.finds_pages().map_err(|missing| Problem::Machine(missing.to_string()))?;
        let capabilities = match managed {
            Managed::EntriesDropped => facts.capabilities_with_entry_dropping(),
            Managed::Sampled => facts.capabilities_with_sampled_faults(),
            Managed::All if help => facts.capabilities_with_help(),
            Managed::All => facts.capabilities(),
        };
        let capabilities = match (&config.hints, &config.world.structures) {
            (None, None) => capabilities,
            _ => capabilities.with(Capability::Objects),
        };
        let mut world = World::new(kernel.clone(), facts.tiers.clone(), capabilities, &config.world)
            .map_err(Problem::Usage)?;
        let latency = facts.tiers.compressed().and_then(|_| fault_cost::measure());
        world.may_use(config.limits.cpu, latency);
        if config.hints.is_some() {
            // What is free, and within limits, is what structures can be given.
            world.refresh();
        }
        let (name, parameters, policy) = choose(&world, config, latency, &mut choices)?;
        let needs = policy.needs();
        let dirtiness = dirtiness(facts, needs, help, &mut choices);
        world.serve(needs.signals, dirtiness);
        let journal = Arc::new(Mutex::new(Journal::new(kernel.clone(), &crate::journal::folder())));
        if let Fact::Known(mode) = facts.placement.numa_balancing
            && mode > 0
            && needs.capabilities.contains(Capability::Migration)
            && facts.tiers.only_tier().is_none()
        {
            choices.push(format!(
                "the kernel's NUMA balancing is on (mode {mode}) and moves pages, too; `sysctl \
                 kernel.numa_balancing=0` leaves them to the policy"
            ));
        }
        let new_pages = match policy.shares(world.topology()) {
            Some(shares) => NewPages::from_shares(&shares, &facts.tiers).map_err(Problem::Machine)?,
            None => NewPages::AsUsual,
        };
        let pressure_file = match &selection {
            Selection::Cgroup(folder) => folder.join("memory.pressure"),
            _ => PathBuf::from("/proc/pressure/memory"),
        };
        let hinted = policy.hints();
        if config.hints.is_some() && hinted.is_empty() {
            return Err(Problem::Usage(format!(
                "--hints: the policy {name} places nothing by hints; leave out --policy, or name {BY_HINTS}"
            )));
        }
        let (policy, source) = if config.offload {
            let guard = config.limits.pressure.map(|limit| Guard::new(pressure_file.clone(), limit));
            let schemes = offload(kernel, &journal, &*policy, facts, &selection, config, guard)?;
            choices.push(format!("{}: the kernel promotes and demotes by itself", schemes.name()));
            (Box::new(Offloaded) as Box<dyn Policy>, Some(Box::new(schemes) as Box<dyn AccessSource>))
        } else {
            (policy, source(kernel, &journal, needs, facts, config, &mut choices)?)
        };
        let targets = Targets::new(selection, std::process::id());
        let engine = Engine::new(world, policy, targets, source, config.limits, pressure_file);
        let tiers = facts.tiers.clone();
        Ok(Session { engine, policy: name, parameters, choices, new_pages, hinted, tiers, journal })
    }
}

/// In place of a policy that the kernel carries out: it orders nothing.
struct Offloaded;

impl Policy for Offloaded {
    fn needs(&self) -> Needs {
        Needs::default()
    }

    fn on(&mut self, _: Moment, _: &[Signal], _: &mut dyn MemorySystem) -> NextTick {
        NextTick::Never
    }
}

fn offload(
    kernel: &Arc<dyn Kernel>,
    journal: &Arc<Mutex<Journal>>,
    policy: &dyn Policy,
    facts: &Facts,
    selection: &Selection,
    config: &Config,
    guard: Option<Guard>,
) -> Result<Schemes, Problem> {
    let plan = policy.schemes().ok_or_else(|| {
        Problem::Usage(
            "this policy is no pair of schemes for DAMON, so the kernel cannot carry it out; `damon` is one"
                .to_owned(),
        )
    })?;
    let Selection::Cgroup(cgroup) = selection else {
        return Err(Problem::Usage(
            "DAMON's schemes know cgroups, not processes: name one with --cgroup".to_owned(),
        ));
    };
    if !config.world.limits.is_empty() {
        return Err(Problem::Usage(
            "DAMON's schemes know no limits of tiers; leave out --limit, or --offload".to_owned(),
        ));
    }
    match &facts.tracking.damon.migration {
        Fact::Absent(reason) => return Err(Problem::Machine(reason.clone())),
        // What is not known is tried.
        Fact::Known(()) | Fact::Unknown(_) => {}
    }
    let bounds = schemes::Bounds {
        bandwidth: config.limits.bandwidth.map(|bytes| bytes.0),
        cpu: config.limits.cpu,
        dry_run: config.world.dry_run,
    };
    Schemes::new(kernel.clone(), journal.clone(), plan, bounds, &facts.tiers, cgroup, guard)
        .map_err(Problem::Machine)
}

type Chosen = (String, Table, Box<dyn terrace_policy::Policy>);

/// `latency` is what an access to the slow tier was measured to cost: policies that want it get it.
fn choose(
    world: &World,
    config: &Config,
    latency: Option<Time>,
    choices: &mut Vec<String>,
) -> Result<Chosen, Problem> {
    let (topology, capabilities) = (world.topology(), world.capabilities());
    let setup = Setup { topology, capabilities, seed: config.seed, profile: config.hints.as_ref() };
    let open = |name: &str, parameters: &Table| {
        let entry = registry::find(name)?;
        let mut parameters = parameters.clone();
        if let Some(latency) =
            latency.filter(|_| entry.parameters().iter().any(|one| one.name == SLOW_LATENCY))
        {
            parameters.entry(SLOW_LATENCY).or_insert_with(|| latency.to_string().into());
        }
        let parameters = &parameters;
        let policy = entry.open(parameters, setup)?;
        Ok::<_, PolicyError>((entry.name().to_owned(), entry.effective(parameters)?, policy))
    };
    if let Some(latency) = latency {
        choices.push(format!("an access to compressed memory was measured to cost {latency}"));
    }
    let by_hints = config.hints.as_ref().map(|_| BY_HINTS);
    let named = config.policy.as_deref().and_then(|name| registry::find(name).ok()?.renamed(name));
    choices.extend(named);
    if let Some(name) = config.policy.as_deref().or(by_hints) {
        return open(name, &config.parameters).map_err(|error| match &error {
            PolicyError::Refused { .. } => {
                let with = registry::find(name)
                    .ok()
                    .and_then(|entry| setting_that_runs(entry, &config.parameters, setup));
                let hint = with.map_or(String::new(), |with| format!(". Here it runs with {}", sets(&with)));
                Problem::Machine(format!("{error}{hint}; `terrace doctor` shows what this machine offers"))
            }
            _ => Problem::Usage(error.to_string()),
        });
    }
    let mut refusals: Vec<PolicyError> = Vec::new();
    for (name, preset) in PREFERRED {
        let mut parameters = Table::new();
        for (key, value) in *preset {
            registry::set(&mut parameters, key, value);
        }
        let with: Vec<String> = parameters.iter().map(|(key, value)| format!("{key}={value}")).collect();
        parameters.extend(config.parameters.clone());
        match open(name, &parameters) {
            Ok(chosen) => {
                let with = if with.is_empty() { String::new() } else { format!(" ({})", sets(&with)) };
                choices.push(format!("policy: {name}{with}, {}", reason(&refusals)));
                return Ok(chosen);
            }
            Err(error) => refusals.push(error),
        }
    }
    let others = match those_that_run(&config.parameters, setup) {
        others if others.is_empty() => String::new(),
        others => format!("These can: {}. ", others.join(", ")),
    };
    Err(Problem::Machine(format!(
        "none of the policies that Terrace chooses by itself can run here: {}. {others}`terrace doctor` shows what \
         would enable more",
        by_reason(&refusals).join("; ")
    )))
}

fn reason(refusals: &[PolicyError]) -> String {
    match refusals {
        [] => "the best informed that runs here".to_owned(),
        _ => format!("because {}", by_reason(refusals).join(", and ")),
    }
}

/// Each different reason once, after the names of the policies that refuse for it.
fn by_reason(refusals: &[PolicyError]) -> Vec<String> {
    let mut found: Vec<(Vec<&str>, String)> = Vec::new();
    for refusal in refusals {
        let (policy, why) = match refusal {
            PolicyError::Refused { policy, refusal } => (Some(*policy), refusal.to_string()),
            other => (None, other.to_string()),
        };
        match found
            .iter_mut()
            .find(|(policies, known)| policy.is_none() == policies.is_empty() && *known == why)
        {
            Some((policies, _)) => policies.extend(policy),
            None => found.push((policy.into_iter().collect(), why)),
        }
    }
    let said = |(policies, why): (Vec<&str>, String)| match policies.as_slice() {
        [] => why,
        [policy] => format!("{policy} does not start: {why}"),
        [first @ .., last] => format!("{} and {last} do not start: {why}", first.join(", ")),
    };
    found.into_iter().map(said).collect()
}

/// All policies that run with what is given, as one names them on the command line.
fn those_that_run(given: &Table, setup: Setup<'_>) -> Vec<String> {
    let option = |entry: &Entry| match entry.open(given, setup) {
        Ok(_) => Some(format!("--policy {}", entry.name())),
        Err(PolicyError::Refused { .. }) => {
            let with = setting_that_runs(entry, given, setup)?;
            Some(format!("--policy {} {}", entry.name(), sets(&with)))
        }
        Err(_) => None,
    };
    registry::all().iter().filter_map(option).collect()
}

/// Settings as one gives them on the command line.
fn sets(settings: &[String]) -> String {
    settings.iter().map(|setting| format!("--set {setting}")).collect::<Vec<_>>().join(" ")
}

fn dirtiness(facts: &Facts, needs: Needs, help: bool, choices: &mut Vec<String>) -> Dirtiness {
    let of_stores = [Capability::DirtyBits, Capability::Traffic];
    if !of_stores.iter().any(|capability| needs.capabilities.contains(*capability)) {
        return Dirtiness::Unknown;
    }
    if help {
        choices.push(
            "stores: write protection in the command and what it starts, exact at 4 KiB, by 2 MiB on huge pages; \
             none of statically linked programs"
                .to_owned(),
        );
        Dirtiness::Tracked
    } else if let Fact::Known(()) = facts.tracking.soft_dirty {
        choices.push("stores: soft-dirty bits, exact at 4 KiB, by 2 MiB on huge pages".to_owned());
        Dirtiness::SoftDirty
    } else {
        choices.push("stores: write protection that the program has registered itself".to_owned());
        Dirtiness::Tracked
    }
}

/// What helped commands are managed of, where they take out entries.
const ONLY_SHARED: &str =
    "on shared memory that the command and what it starts map; no other memory is managed";

fn source(
    kernel: &Arc<dyn Kernel>,
    journal: &Arc<Mutex<Journal>>,
    needs: Needs,
    facts: &Facts,
    config: &Config,
    choices: &mut Vec<String>,
) -> Result<Option<Box<dyn AccessSource>>, Problem> {
    match config.world.managed {
        Managed::All => {}
        Managed::EntriesDropped => {
            choices.push(format!("accesses: entry dropping, exact to the page, {ONLY_SHARED}"));
            return Ok(Some(Box::new(EntryDropping::new())));
        }
        Managed::Sampled => {
            choices.push(format!(
                "accesses: minor faults of the pages that the policy watches, with their times, {ONLY_SHARED}"
            ));
            return Ok(Some(Box::new(SampledFaults::new())));
        }
    }
    let cpus: Vec<u32> = facts.nodes.iter().flat_map(|node| node.cpus.iter().copied()).collect();
    if needs.capabilities.contains(Capability::AccessSamples)
        && let Fact::Known(sampler) = facts.tracking.sampler
    {
        choices.push(format!("accesses: {} samples, on all {} processors", sampler.name, cpus.len()));
        return Ok(Some(Box::new(ProcessorSamples::new(kernel.clone(), sampler, cpus))));
    }
    let of_accesses = [Capability::AccessedBits, Capability::HintFaults, Capability::CountedFaults];
    if !of_accesses.iter().any(|capability| needs.capabilities.contains(*capability)) {
        return Ok(None);
    }
    if !needs.capabilities.contains(Capability::AccessedBits) && facts.tiers.compressed().is_some() {
        choices.push("accesses: the page-out probe, on the pages that the policy watches".to_owned());
        return Ok(Some(Box::new(PageOut::new(kernel.clone(), &cpus))));
    }
    let damon = Damon::new(kernel.clone(), journal.clone(), config.damon).map_err(Problem::Machine)?;
    choices.push(format!("accesses: DAMON, at most {} regions", config.damon.regions));
    Ok(Some(Box::new(damon)))
}
