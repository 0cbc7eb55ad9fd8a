//! A policy carried out by the kernel: DAMON watches the physical memory of two tiers and moves what a cgroup has there, hot
//! regions up (`migrate_hot`) and cold ones down (`migrate_cold`). Terrace switches the schemes on and off and counts what
//! they do.
//!
//! One thread of DAMON watches each tier. DAMON moves whole regions that look alike; pages of other cgroups in them stay, by
//! a filter. What the kernel offers for that does not know processes.

use super::AccessSource;
use super::kdamond::{self, KDAMONDS, Kdamond};
use crate::engine::Guard;
use crate::facts::{TierMap, nodes};
use crate::journal::{Journal, Kdamonds};
use crate::kernel::{Kernel, read_text};
use crate::world::World;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use terrace_policy::Schemes as Plan;

/// Where cgroups of version 2 are mounted; DAMON names them by what follows.
const CGROUPS: &str = "/sys/fs/cgroup";
/// Between two looks at what the schemes have done.
const PERIOD: Duration = Duration::from_secs(1);
/// The two threads.
const UP: usize = 0;
const DOWN: usize = 1;

/// What bounds the schemes besides the policy's own quota.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// Bytes per second; none for no bound.
    pub bandwidth: Option<u64>,
    /// Share of a core for each scheme; infinite for no bound.
    pub cpu: f64,
    /// Find out what would move, but move nothing.
    pub dry_run: bool,
}

/// The schemes at work.
pub struct Schemes {
    kernel: Arc<dyn Kernel>,
    journal: Arc<Mutex<Journal>>,
    plan: Plan,
    bounds: Bounds,
    cgroup: String,
    /// The nodes of the fast tier and of the slow one.
    nodes: [Vec<u32>; 2],
    guard: Option<Guard>,
    running: bool,
    paused: bool,
    /// Whether each scheme may find anything.
    active: [bool; 2],
    /// Bytes that each has moved so far.
    moved: [u64; 2],
}

impl Schemes {
    /// For the memory of a cgroup, by its folder. Nothing is changed before the first [`AccessSource::collect`].
    ///
    /// # Errors
    /// Someone else uses DAMON, or the cgroup has no memory of its own: in words, with the next step.
    pub fn new(
        kernel: Arc<dyn Kernel>,
        journal: Arc<Mutex<Journal>>,
        plan: Plan,
        bounds: Bounds,
        tiers: &TierMap,
        cgroup: &Path,
        guard: Option<Guard>,
    ) -> Result<Schemes, String> {
        kdamond::ensure_unused(&*kernel)?;
        let name = cgroup.strip_prefix(CGROUPS).ok().map(Path::display);
        let name = name.ok_or_else(|| format!("{} does not lie below {CGROUPS}", cgroup.display()))?;
        let memory = cgroup.join("memory.current");
        if read_text(&*kernel, &memory).is_err() {
            let above = cgroup.parent().unwrap_or(cgroup).join("cgroup.subtree_control");
            return Err(format!(
                "the memory of {} is not counted on its own, so DAMON cannot tell it apart. What helps: echo +memory > {}",
                cgroup.display(),
                above.display()
            ));
        }
        let nodes = [plan.fast, plan.slow].map(|tier| tiers.nodes[tier.index()].clone());
        if nodes.iter().any(Vec::is_empty) {
            return Err("DAMON moves pages between nodes; compressed memory is none".to_owned());
        }
        Ok(Schemes {
            cgroup: format!("/{name}"),
            kernel,
            journal,
            plan,
            bounds,
            nodes,
            guard,
            running: false,
            paused: false,
            active: [true, false],
            moved: [0; 2],
        })
    }

    fn kdamond(&self, thread: usize) -> Kdamond<'_> {
        Kdamond { kernel: &*self.kernel, thread }
    }

    fn begin(&mut self) -> io::Result<()> {
        let as_what = Kdamonds::moving();
        kdamond::claim(&*self.kernel, &self.journal, &as_what)?;
        self.running = true;
        for thread in [UP, DOWN] {
            self.set_up(thread, &as_what.operations)?;
        }
        for thread in [UP, DOWN] {
            self.kdamond(thread).set("state", "on")?;
        }
        tracing::info!(cgroup = self.cgroup, "DAMON promotes and demotes");
        Ok(())
    }

    /// Describes one thread's work; it does not begin yet.
    fn set_up(&self, thread: usize, operations: &str) -> io::Result<()> {
        let plan = &self.plan;
        let from = &self.nodes[1 - thread];
        let to = self.nodes[thread].first().copied().unwrap_or(0);
        let micros = |time: terrace_model::Time| u128::from(time.as_nanos() as u64 / 1000);
        let intervals = [plan.sampling, plan.aggregation].map(micros);
        let kdamond = self.kdamond(thread);
        kdamond.watch(operations, intervals, plan.min_regions as usize..=plan.max_regions as usize)?;
        kdamond.set("contexts/0/targets/nr_targets", 1)?;
        let regions: Vec<Range<u64>> =
            from.iter().flat_map(|node| nodes::physical(&*self.kernel, *node)).collect();
        if regions.is_empty() {
            return Err(io::Error::other("/proc/zoneinfo does not tell where the nodes' memory lies"));
        }
        kdamond.regions(0, regions.into_iter())?;
        kdamond.set("contexts/0/schemes/nr_schemes", 1)?;
        let of_scheme =
            |path: &str, value: String| kdamond.set(&format!("contexts/0/schemes/0/{path}"), value);
        let most = u32::MAX.to_string();
        let (action, looks, age) = match thread {
            UP => ("migrate_hot", (plan.hot_looks().to_string(), most.clone()), 0),
            _ => ("migrate_cold", ("0".to_owned(), "0".to_owned()), plan.cold_aggregations()),
        };
        of_scheme("action", if self.bounds.dry_run { "stat" } else { action }.to_owned())?;
        of_scheme("target_nid", to.to_string())?;
        of_scheme("access_pattern/sz/min", self.smallest(thread))?;
        of_scheme("access_pattern/sz/max", u64::MAX.to_string())?;
        of_scheme("access_pattern/nr_accesses/min", looks.0)?;
        of_scheme("access_pattern/nr_accesses/max", looks.1)?;
        of_scheme("access_pattern/age/min", age.to_string())?;
        of_scheme("access_pattern/age/max", most)?;
        let span = (intervals[1] / 1000) as u64;
        let bandwidth = self.bounds.bandwidth.map_or(u64::MAX, |bytes| bytes * span / 1000);
        of_scheme("quotas/bytes", plan.quota.0.min(bandwidth).max(1).to_string())?;
        // No bound is 0.
        let cpu = if self.bounds.cpu.is_finite() { (span as f64 * self.bounds.cpu).ceil() } else { 0.0 };
        of_scheme("quotas/ms", cpu.to_string())?;
        of_scheme("quotas/reset_interval_ms", span.max(1).to_string())?;
        of_scheme("filters/nr_filters", "1".to_owned())?;
        of_scheme("filters/0/type", "memcg".to_owned())?;
        of_scheme("filters/0/memcg_path", self.cgroup.clone())?;
        // What does not match is left out.
        of_scheme("filters/0/matching", "N".to_owned())
    }

    /// The size from which on regions are found: beyond all memory where the scheme rests.
    fn smallest(&self, thread: usize) -> String {
        let active = self.active[thread] && !self.paused;
        if active { "4096".to_owned() } else { u64::MAX.to_string() }
    }

    /// Lets the schemes find something, or nothing.
    fn steer(&mut self, active: [bool; 2], paused: bool) -> io::Result<()> {
        let before = [UP, DOWN].map(|thread| self.smallest(thread));
        (self.active, self.paused) = (active, paused);
        for thread in [UP, DOWN] {
            if self.running && self.smallest(thread) != before[thread] {
                self.kdamond(thread)
                    .set("contexts/0/schemes/0/access_pattern/sz/min", self.smallest(thread))?;
                self.kdamond(thread).set("state", "commit")?;
            }
        }
        Ok(())
    }

    /// Used share of the fast tier's nodes, whoever uses it.
    fn usage(&self) -> f64 {
        let nodes = nodes::discover(&*self.kernel);
        let fast = nodes.iter().filter(|node| self.nodes[0].contains(&node.id));
        let (used, total) =
            fast.fold((0, 0), |(used, total), node| (used + node.used().0, total + node.total.0));
        used as f64 / total.max(1) as f64
    }

    /// Bytes that a scheme has moved since the last call; of a dry run, that it would have.
    fn newly_moved(&mut self, thread: usize) -> io::Result<u64> {
        let state = read_text(&*self.kernel, format!("{KDAMONDS}/{thread}/state"))?;
        if state.trim() == "off" {
            return Err(io::Error::other("someone has stopped DAMON's thread"));
        }
        self.kdamond(thread).set("state", "update_schemes_stats")?;
        let stats = format!("{KDAMONDS}/{thread}/contexts/0/schemes/0/stats/sz_applied");
        let all: u64 = read_text(&*self.kernel, stats)?.trim().parse().unwrap_or(self.moved[thread]);
        let new = all.saturating_sub(self.moved[thread]);
        self.moved[thread] = all;
        Ok(new)
    }

    /// Has the world count what the schemes have moved since the last time.
    fn count(&mut self, world: &mut World) -> io::Result<()> {
        let [up, down] = [self.newly_moved(UP)? >> 12, self.newly_moved(DOWN)? >> 12];
        if self.bounds.dry_run {
            tracing::info!(up, down, "base pages that would have moved");
        } else {
            world.offloaded(up, down);
        }
        Ok(())
    }

    fn off(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.running, false) {
            kdamond::release(&*self.kernel, &Kdamonds::moving())?;
        }
        Ok(())
    }
}

impl AccessSource for Schemes {
    fn name(&self) -> String {
        format!("schemes of DAMON on {}", self.cgroup)
    }

    fn collect(&mut self, world: &mut World) -> io::Result<Duration> {
        if !self.running {
            self.begin()?;
        }
        let now = self.kernel.now();
        let kernel = self.kernel.clone();
        let holds = self.guard.as_mut().is_some_and(|guard| guard.holds(&*kernel, now));
        let is_full = self.usage() > self.plan.high_usage;
        self.steer([!holds, !holds && is_full], false)?;
        self.count(world)?;
        Ok(PERIOD)
    }

    fn pause(&mut self, paused: bool) -> io::Result<()> {
        self.steer(self.active, paused)
    }

    fn stop(&mut self, world: &mut World) {
        if self.running
            && let Err(error) = self.count(world)
        {
            tracing::debug!(%error, "what DAMON moved last is not counted");
        }
        if let Err(error) = self.off() {
            tracing::error!(%error, "DAMON could not be switched off; `terrace restore` tries again");
        }
    }
}
