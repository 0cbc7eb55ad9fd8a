//! The control loop: follows the targets, looks at their pages, calls the policy, carries out its orders, all within a
//! budget.

mod budget;
mod follow;
mod pressure;
mod summary;
mod vmstat;

pub use budget::Allowance;
pub use follow::Members;
pub use pressure::Guard;
pub use summary::summary;
pub use vmstat::Vmstat;

use crate::access::AccessSource;
use crate::space::Space;
use crate::targets::Targets;
use crate::world::World;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use terrace_model::{Bytes, Stats, Unit};
use terrace_policy::{MemorySystem, Moment, NextTick, Policy, Report, Signal};

/// How often new and ended processes are looked for.
const MEMBERSHIP: Duration = Duration::from_millis(500);
/// How long orders are carried out before the loop looks around.
const SLICE: Duration = Duration::from_millis(20);
/// How often pages are counted where the policy never looks at them itself.
const COUNT: Duration = Duration::from_secs(5);
/// How soon they are counted after a process has joined; from then on ever less often.
const COUNT_LEAST: Duration = Duration::from_secs(1);
/// The longest rest: a stop or a pause is noticed so soon.
const REST: Duration = Duration::from_millis(200);
/// How often pressure is looked at while there are orders.
const GUARD: Duration = Duration::from_millis(500);
/// Signals that may wait for the end of a pause: some megabytes.
const SIGNALS_IN_PAUSE: usize = 1 << 16;
/// The shortest time between two looks at all pages.
const REFRESH_LEAST: Duration = Duration::from_millis(50);
/// Processor time that may be saved up, in seconds of the budget: a burst at the start or after a rest.
const BURST_SECONDS: f64 = 10.0;

/// What the engine may use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Share of one core; infinite for no limit.
    pub cpu: f64,
    /// Bytes per second for moves; none for no limit.
    pub bandwidth: Option<Bytes>,
    /// Share of time that tasks may lose waiting for memory before moves stop; none for no guard.
    pub pressure: Option<f64>,
}

impl Default for Limits {
    /// 3 % of one core, moves as fast as that allows, a guard at 10 %.
    fn default() -> Limits {
        Limits { cpu: 0.03, bandwidth: None, pressure: Some(0.10) }
    }
}

/// One policy at work on some processes.
pub struct Engine {
    world: World,
    policy: Box<dyn Policy>,
    targets: Targets,
    members: Members,
    source: Option<Box<dyn AccessSource>>,
    cpu: Allowance,
    bandwidth: Allowance,
    limits: Limits,
    guard: Option<Guard>,
    vmstat: Vmstat,
    /// Page-seconds of each tier, for the mean over time.
    occupied: Vec<f64>,
    /// So long that was added up.
    counted: Duration,
    next_count: Duration,
    /// Until the count after that.
    count_pause: Duration,
    started: Duration,
    last_turn: Duration,
    last_cpu: Duration,
    next_membership: Duration,
    next_guard: Duration,
    next_look: Duration,
    next_refresh: Duration,
    tick: Option<Moment>,
    calls: u64,
    held: u64,
    paused: bool,
    finished: bool,
    /// There was a process at some time.
    populated: bool,
}

/// What it is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// The engine looks, decides and moves.
    Working,
    /// Someone has paused it.
    Paused,
    /// Orders wait because tasks lose too much time waiting for memory.
    HeldBack,
    /// The engine has used up its processor time for now.
    Resting,
    /// The engine manages nothing any more; the command that it started runs on.
    Stopped,
}

/// What the loop does after a turn of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopControl {
    /// The loop sleeps for this long and then calls [`Engine::turn`] again.
    Sleep(Duration),
    /// The loop ends: all targets have ended.
    Exit,
}

impl Engine {
    /// A policy that was opened for this world.
    pub fn new(
        world: World,
        policy: Box<dyn Policy>,
        targets: Targets,
        source: Option<Box<dyn AccessSource>>,
        limits: Limits,
        pressure_file: std::path::PathBuf,
    ) -> Engine {
        let now = world.kernel().now();
        let cpu = world.kernel().cpu_time();
        let allowance = |rate: f64| match rate.is_finite() {
            true => Allowance::new(rate, rate * BURST_SECONDS),
            false => Allowance::unlimited(),
        };
        Engine {
            cpu: allowance(limits.cpu),
            bandwidth: limits
                .bandwidth
                .map_or_else(Allowance::unlimited, |bytes| Allowance::new(bytes.0 as f64, 0.0)),
            guard: limits.pressure.map(|limit| Guard::new(pressure_file, limit)),
            limits,
            vmstat: Vmstat::new(&**world.kernel()),
            occupied: vec![0.0; world.topology().tiers.len()],
            counted: Duration::ZERO,
            next_count: now,
            count_pause: COUNT_LEAST,
            world,
            policy,
            source,
            started: now,
            last_turn: now,
            last_cpu: cpu,
            next_membership: now,
            next_guard: now,
            next_look: now,
            next_refresh: now,
            tick: Some(Moment::START),
            calls: 0,
            held: 0,
            paused: false,
            finished: false,
            // Targets that end before the first look were there all the same.
            populated: targets.any(),
            targets,
            members: Members::default(),
        }
    }

    /// One round of the loop. Never sleeps.
    pub fn turn(&mut self) -> LoopControl {
        let now = self.world.kernel().now();
        self.settle(now);
        if now >= self.next_membership {
            self.next_membership = now + MEMBERSHIP;
            if !self.follow(now) {
                return LoopControl::Exit;
            }
        }
        let overdrawn = self.cpu.wait();
        if !overdrawn.is_zero() {
            return LoopControl::Sleep(overdrawn.clamp(Duration::from_millis(1), REST));
        }
        if self.paused {
            self.count_in_pause(now);
            return LoopControl::Sleep(REST);
        }
        let moment = Moment((now - self.started).as_nanos() as u64);
        self.world.set_now(moment);
        let due = self.tick.is_some_and(|tick| tick <= moment);
        if due {
            // The policy is to see what was accessed until now.
            self.next_look = Duration::ZERO;
        }
        self.look(now);
        if now >= self.next_count {
            // A process that has just joined grows faster than most policies look.
            let pause = if self.tick.is_none() { self.count_pause.min(COUNT) } else { self.count_pause };
            self.next_count = now + pause;
            self.count_pause = pause * 2;
            self.refresh();
        }
        if due || self.world.has_signals() {
            self.call(moment, due);
        }
        self.carry_out(now);
        LoopControl::Sleep(self.rest(moment))
    }

    /// Where pages lie is shown during a pause, too. The policy gets the signals of what is gone by then
    /// later. Counting stops when many signals wait.
    fn count_in_pause(&mut self, now: Duration) {
        if now >= self.next_count && self.world.signals_waiting() < SIGNALS_IN_PAUSE {
            self.next_count = now + COUNT;
            self.refresh();
        }
    }

    /// Time and processor time have passed.
    fn settle(&mut self, now: Duration) {
        let cpu = self.world.kernel().cpu_time();
        let passed = now.saturating_sub(self.last_turn);
        self.cpu.pass(passed);
        self.bandwidth.pass(passed);
        self.cpu.spend(cpu.saturating_sub(self.last_cpu).as_secs_f64());
        // Before the first turn is done, what a tier has in use is not the targets' alone.
        if self.last_turn > self.started {
            self.counted += passed;
            for (sum, tier) in self.occupied.iter_mut().zip(&self.world.topology().tiers) {
                *sum += (tier.used.0 >> 12) as f64 * passed.as_secs_f64();
            }
        }
        (self.last_turn, self.last_cpu) = (now, cpu);
    }

    /// Takes over what the access source has found.
    fn look(&mut self, now: Duration) {
        let Some(source) = &mut self.source else { return };
        if now < self.next_look {
            return;
        }
        let world = &mut self.world;
        match source.collect(world) {
            Ok(next) => self.next_look = now + next,
            // What the source has set up may count on a process that has ended. Without that process it begins anew.
            Err(error) if world.any_has_ended() => {
                tracing::debug!(source = source.name(), %error, "a process has ended meanwhile");
                self.look_for_changes();
                self.next_look = Duration::ZERO;
            }
            Err(error) => {
                tracing::warn!(source = source.name(), %error, "the access source has failed and is given up");
                source.stop(world);
                self.source = None;
            }
        }
    }

    fn call(&mut self, moment: Moment, tick: bool) {
        if tick {
            self.tick = None;
            self.refresh();
        }
        let mut signals = self.world.take_signals();
        if tick {
            signals.push(Signal::Tick);
        }
        self.calls += 1;
        let waiting = self.world.orders_waiting();
        match self.policy.on(moment, &signals, &mut self.world) {
            NextTick::Unchanged => {}
            NextTick::At(at) => self.tick = Some(at),
            NextTick::Never => self.tick = None,
        }
        let ordered = self.world.orders_waiting().saturating_sub(waiting);
        if ordered > 0 {
            let why = if tick { "its period is over" } else { "signals" };
            tracing::info!(ordered, why, at = moment.0 as f64 / 1e9, "the policy ordered moves");
        }
    }

    /// Looks at all pages, unless that was done just now: a tenth of the time is the most that looking may take.
    fn refresh(&mut self) {
        let started = self.world.kernel().now();
        if started < self.next_refresh {
            return;
        }
        self.world.refresh();
        let took = self.world.kernel().now().saturating_sub(started);
        self.next_refresh = started + (took * 10).max(REFRESH_LEAST);
    }

    /// Carries out orders for a slice of time, as far as bandwidth and pressure allow.
    fn carry_out(&mut self, now: Duration) {
        if self.world.orders_waiting() == 0 {
            return;
        }
        if let Some(guard) = &mut self.guard {
            if now >= self.next_guard {
                self.next_guard = now + GUARD;
                let kernel = self.world.kernel().clone();
                self.held += u64::from(guard.holds(&*kernel, now));
            }
            if guard.is_holding() {
                return;
            }
        }
        let failed = self.world.counters().failed;
        let mut moved = 0;
        while self.bandwidth.wait().is_zero() && self.world.kernel().now() - now < SLICE {
            match self.world.step() {
                Some(bytes) => {
                    self.bandwidth.spend(bytes as f64);
                    moved += bytes;
                }
                None => break,
            }
        }
        let failed = self.world.counters().failed - failed;
        tracing::debug!(
            moved_bytes = moved,
            failed,
            waiting = self.world.orders_waiting(),
            "orders carried out"
        );
    }

    fn is_holding(&self) -> bool {
        self.guard.as_ref().is_some_and(Guard::is_holding)
    }

    fn rest(&self, moment: Moment) -> Duration {
        if self.world.has_signals() {
            return Duration::ZERO;
        }
        let mut rest = REST;
        if self.world.orders_waiting() > 0 && !self.is_holding() {
            rest = rest.min(self.bandwidth.wait());
        }
        if let Some(tick) = self.tick {
            rest = rest.min(Duration::from_nanos(tick.0.saturating_sub(moment.0)));
        }
        rest
    }

    /// Follows a command that this process has started, and what the command leaves behind to it.
    pub fn add_command(&mut self, pid: u32) {
        self.targets.add_command(pid);
        self.look_for_changes();
    }

    /// A process has ended: look who is left with the next turn.
    pub fn look_for_changes(&mut self) {
        self.next_membership = Duration::ZERO;
    }

    /// Decides and moves nothing until it is resumed; the targets run on. Where pages lie is counted on. Accesses are not
    /// looked for: some ways of looking cost the targets time.
    pub fn pause(&mut self, paused: bool) {
        if self.paused != paused {
            tracing::info!("{}", if paused { "paused" } else { "resumed" });
            if let Some(source) = &mut self.source
                && let Err(error) = source.pause(paused)
            {
                tracing::warn!(source = source.name(), %error, "it cannot be paused or resumed");
            }
        }
        self.paused = paused;
    }

    /// Whether it is paused.
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// What it is doing.
    pub fn state(&self) -> State {
        match () {
            () if self.finished => State::Stopped,
            () if self.paused => State::Paused,
            () if self.is_holding() && self.world.orders_waiting() > 0 => State::HeldBack,
            () if !self.cpu.wait().is_zero() => State::Resting,
            () => State::Working,
        }
    }

    /// Whether accesses are seen at all.
    pub fn sees_accesses(&self) -> bool {
        self.source.is_some()
    }

    /// Whether an access to any page would be seen, so that those that were not accessed are known, too.
    pub fn sees_all_pages(&self) -> bool {
        self.source.as_ref().is_some_and(|source| source.sees_all_pages())
    }

    /// Whether it is known which of a space's pages are accessed: until the first look, a source that would see all of them
    /// would call all of them cold.
    pub fn knows_accesses_of(&self, space: &Space) -> bool {
        self.sees_accesses() && (!self.sees_all_pages() || space.is_looked_at())
    }

    /// What it may use.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The world, to look at.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// The targets at the last look at them.
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// Where accesses are seen.
    pub fn source_name(&self) -> String {
        self.source.as_ref().map_or_else(|| "none".to_owned(), |source| source.name())
    }

    /// The statistics so far, and the policy's remarks.
    pub fn statistics(&self) -> (Stats, Vec<String>) {
        let mut stats = Stats::new();
        self.world.counters().collect(&mut stats);
        let spent = self.world.spent();
        stats.count("policy.calls", self.calls, Unit::Count);
        stats.count("policy.migration_time", spent.time.0 / 1_000_000, Unit::Nanoseconds);
        stats.count("live.cpu_time", self.last_cpu.as_nanos() as u64, Unit::Nanoseconds);
        stats.count("live.run_time", (self.last_turn - self.started).as_nanos() as u64, Unit::Nanoseconds);
        stats.count("live.held_back", self.held, Unit::Count);
        let counted = self.counted.as_secs_f64();
        for (tier, occupied) in self.world.topology().tiers.iter().zip(&self.occupied) {
            let mean = if counted > 0.0 { occupied / counted } else { (tier.used.0 >> 12) as f64 };
            stats.real(format!("tier.{}.mean_pages", tier.name), mean, Unit::Pages);
            stats.count(format!("tier.{}.pages", tier.name), tier.used.0 >> 12, Unit::Pages);
            stats.count(format!("tier.{}.capacity", tier.name), tier.capacity.0, Unit::Bytes);
        }
        self.vmstat.collect(&**self.world.kernel(), &mut stats);
        let mut report = Report::default();
        self.policy.report(&mut report);
        for (name, stat) in report.stats.iter() {
            stats.insert(format!("policy.own.{name}"), stat.clone());
        }
        let dry = self.world.is_dry_run().then(|| {
            format!(
                "dry run: {} pieces of orders were not carried out, those that were ordered again among them; policy.own.* is \
                 what the policy counts where it takes its orders for carried out",
                stats.integer("live.planned")
            )
        });
        (stats, report.notes.into_iter().chain(dry).collect())
    }

    /// Ends the work: what was set up is taken down.
    pub fn finish(&mut self) {
        self.finished = true;
        if let Some(source) = &mut self.source {
            source.stop(&mut self.world);
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.finish();
    }
}
