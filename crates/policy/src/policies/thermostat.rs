//! As much cold memory in the slow tier as a stated slowdown allows.
//!
//! **Idea.** A slowdown of x with a slow access time t allows R = x/t accesses per second to slow memory: 3 % at 1 us
//! are 30,000. Each round a small sample of huge pages is split; accessed bits tell which of their base pages are used
//! at all; of these at most K are poisoned, so that each TLB miss on one faults and is counted. The mean count times the
//! number of used base pages is the huge page's rate. The coldest of the sample move to the slow tier as long as their
//! rates add up to no more than the sample's share of R. Pages in the slow tier stay poisoned as a whole and are counted
//! all the time, which is cheap because they are cold; when together they exceed R, the hottest come back.
//!
//! **Source.** N. Agarwal, thesis (University of Michigan 2017), ch. 6: §6.3.2 sampling, §6.3.3 counting, §6.3.4
//! classification, §6.3.5 correction, Fig. 6.4; Agarwal and Wenisch, "Thermostat", ASPLOS 2017.
//!
//! **Left open by the source.** *Whether rounds overlap*: "every 30 s" and "first, second scan period" can both be
//! read; `rounds` has both, `pipelined` (a new sample every interval) is the default. *Re-collapsing*: never
//! described; here a sampled page is collapsed when its round ends, three attempts, and a page that cannot be
//! collapsed moves nowhere. *Ties*: by address. *When a page that should come back finds no room*: it stays, is
//! tried again next round, and is reported. *Too few counts*: an estimate from a handful of faults says nothing;
//! below `least_counts` per poisoned page on average, the run reports that instead of a rate. *A budget that is exceeded all
//! the same*, for more intervals in a row than a correction takes: the run says so. *Counts that a world
//! cannot count to the end*: a slow page with one comes back, whatever the budget; a sampled page of which the world knows
//! nothing tells nothing, and a huge page without any other stays where it is.
//!
//! *Memory that is slow by itself*, where the source has faults alone: several lines may be read for an access that
//! is counted, or none is counted while the TLB holds the page. Where the world reports traffic and latency, the time
//! t of an access is what the program's reads of the slow tier took more than those of the fast one, by accesses
//! counted, if that is more than `slow_latency`; and while that alone is above the slowdown, translations of slow
//! pages are dropped once an interval, so that each page in use is counted.
//!
//! *What sampling costs*: the source's kernel pays little; where a world knows what it may use and what a split, the
//! counting and a collapse cost it, no more pages are sampled than that affords, which the run reports. Fewer samples find
//! what is cold later; the budget of accesses is shared out by the share that was sampled, so the bound on the slowdown is
//! the same.
//!
//! **Otherwise than the source.** It samples huge pages hot and cold alike (§6.5); here only those of the fast tier are
//! split, as those of the slow tier are counted as a whole anyway, so that no cold data lies in base pages.
//!
//! **When to use it.** Services that may lose a stated small share of speed in exchange for cheaper memory, with much
//! cold data on huge pages. It keeps to the bound first and saves what it leaves; it does not try to be fast with a
//! small fast tier.

#[path = "thermostat/estimate.rs"]
mod estimate;
#[path = "thermostat/round.rs"]
mod round;
#[path = "thermostat/slow_time.rs"]
mod slow_time;

use crate::support::Pending;
use crate::{
    Capability, CapabilitySet, Choice, HugeSample, MemorySystem, Moment, Move, MoveOptions, Needs, NextTick,
    Outcome, PageId, Parameters, Policy, Published, Random, Refusal, Report, Resize, Setup, Signal,
    SignalKind, Subject, Ticket, Watch,
};
use std::collections::{BTreeMap, BTreeSet};
use terrace_model::text::grouped;
use terrace_model::{PageSize, TierId, Time, Unit};

pub use estimate::{budget, coldest_within, estimated_rate, hottest_beyond};
use round::Round;
use slow_time::SlowTime;

/// How rounds follow each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Choice)]
pub enum Rounds {
    /// Every scan interval a new sample begins, while the one before is counted.
    #[default]
    Pipelined,
    /// A sample begins when the one before was classified.
    Serial,
}

/// Parameters of Thermostat.
#[derive(Clone, Debug, PartialEq, Parameters)]
pub struct Parameters {
    /// Slowdown that is tolerated, as a share of run time.
    #[parameter(default = 0.03, range = 0.0..=1.0, source = "§6.3.4, beside 0.06 and 0.10", goal)]
    pub slowdown: f64,
    /// Time of one access to the slow tier, at least.
    #[parameter(default = "1 us", range = "1 ns"..="5 h", source = "§6.3.4")]
    pub slow_latency: Time,
    /// Share of the huge pages that is sampled per round; less where the world affords less.
    #[parameter(default = 0.05, range = 0.0..=1.0, source = "§6.3.2")]
    pub sample: f64,
    /// Most base pages poisoned per sampled huge page, K.
    #[parameter(default = 50, range = 1..=512, source = "§6.3.2")]
    pub poisoned: u32,
    /// Scan interval: the length of each stage of a round.
    #[parameter(default = "30 s", range = "1 ns"..="5 h", source = "§6.4.4", scaled)]
    pub interval: Time,
    /// Whether rounds overlap. The source can be read either way.
    #[parameter(default = Rounds::Pipelined)]
    pub rounds: Rounds,
    /// Poison only base pages whose accessed bit was set (§6.3.2); off: any of them.
    #[parameter(default = true)]
    pub prefilter: bool,
    /// Bring the hottest slow pages back when all together exceed the budget.
    #[parameter(default = true, source = "§6.3.5")]
    pub correction: bool,
    /// Mean counts per poisoned page below which no rate is reported.
    #[parameter(default = 5.0, range = 0.0..=1e6, source = "ours, a handful")]
    pub least_counts: f64,
}

/// A page on its way between the tiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Journey {
    /// Into base pages.
    Split,
    /// Back to a huge page; cold ones then move.
    Collapse { cold: bool, attempts: u8 },
    /// To the slow tier.
    Down,
    /// To the fast tier.
    Up,
}

/// The policy.
#[derive(Clone, Debug)]
pub struct Thermostat {
    parameters: Parameters,
    fast: TierId,
    slow: TierId,
    random: Random,
    slow_time: SlowTime,
    rounds: Vec<Round>,
    /// Huge pages in the slow tier with their counts of the last interval.
    cold: BTreeMap<PageId, u64>,
    /// Huge pages in the slow tier with more accesses than the world could count.
    saturated: BTreeSet<PageId>,
    journeys: BTreeMap<PageId, Journey>,
    pending: Pending,
    /// Huge pages that the world affords to sample by now; none where it sets no bound.
    affordable: Option<f64>,
    last_tick: Moment,
    figures: Figures,
}

/// What the report shows.
#[derive(Clone, Debug, Default)]
struct Figures {
    rounds: u64,
    sampled: u64,
    /// Rounds for which the world affords fewer pages than the share; the pages that those were to have, and had.
    curbed_rounds: u64,
    curbed_wanted: u64,
    curbed_sampled: u64,
    poisoned: u64,
    counted: u64,
    demoted: u64,
    returned: u64,
    stuck: u64,
    uncollapsed: u64,
    slow_rate: Option<f64>,
    /// Accesses counted on slow pages, in all intervals.
    slow_accesses: u64,
    highest_slow_rate: f64,
    /// Intervals in which slow pages had more than the budget: all, in a row up to now, most in a row.
    above_budget: u64,
    above_now: u64,
    longest_above: u64,
}

/// Intervals that a correction may take: one counts what is too much, in the next it is gone.
const CORRECTED_WITHIN: u64 = 2;

impl Figures {
    fn slow_pages_had(&mut self, rate: f64, above: bool) {
        self.slow_rate = Some(rate);
        self.highest_slow_rate = self.highest_slow_rate.max(rate);
        self.above_budget += u64::from(above);
        self.above_now = if above { self.above_now + 1 } else { 0 };
        self.longest_above = self.longest_above.max(self.above_now);
    }
}

impl Published for Thermostat {
    type Parameters = Parameters;

    fn new(parameters: Parameters, setup: Setup<'_>) -> Result<Thermostat, Refusal> {
        let (fast, slow) = setup.topology.fast_and_slow()?;
        Ok(Thermostat {
            slow_time: SlowTime::new(parameters.slow_latency),
            parameters,
            fast,
            slow,
            random: setup.random(),
            rounds: Vec::new(),
            cold: BTreeMap::new(),
            saturated: BTreeSet::new(),
            journeys: BTreeMap::new(),
            pending: Pending::default(),
            affordable: None,
            last_tick: Moment::START,
            figures: Figures::default(),
        })
    }
}

impl Policy for Thermostat {
    fn needs(&self) -> Needs {
        let capabilities = CapabilitySet::of(&[
            Capability::CountedFaults,
            Capability::Split,
            Capability::Collapse,
            Capability::Migration,
            Capability::WholeHugePages,
        ]);
        let capabilities = capabilities.with_if(self.parameters.prefilter, Capability::AccessedBits);
        Needs { capabilities, ..Needs::default() }.and_signals(&[SignalKind::Unmapped])
    }

    fn on(&mut self, now: Moment, signals: &[Signal], memory: &mut dyn MemorySystem) -> NextTick {
        let mut tick = false;
        for signal in signals {
            match signal {
                Signal::Tick => tick = true,
                Signal::Unmapped { range } => {
                    self.cold.retain(|page, _| !range.contains(*page));
                }
                _ => {
                    if let Some((_, Subject::Page(page), outcome)) = self.pending.handle(signal) {
                        self.arrived(page, outcome, memory);
                    }
                }
            }
        }
        if !tick {
            return NextTick::Unchanged;
        }
        self.tick(now, memory);
        NextTick::At(now.plus(self.parameters.interval))
    }

    fn report(&self, report: &mut Report) {
        let f = &self.figures;
        report.count("rounds", f.rounds);
        report.count("sampled", f.sampled);
        report.count("curbed_rounds", f.curbed_rounds);
        report.count("poisoned", f.poisoned);
        report.count("counted", f.counted);
        report.count("demoted", f.demoted);
        report.count("returned", f.returned);
        report.level("cold", self.cold.len() as u64);
        report.count("slow_accesses", f.slow_accesses);
        report.stats.real_level("highest_slow_accesses_per_second", f.highest_slow_rate, Unit::Count);
        report.count("intervals_above_budget", f.above_budget);
        report.level("most_intervals_above_budget_in_a_row", f.longest_above);
        report.count("failed", self.pending.failed);
        let per_page = f.counted as f64 / f.poisoned.max(1) as f64;
        if f.poisoned == 0 || per_page < self.parameters.least_counts {
            report.note(format!(
                "{} accesses were counted on {} sampled pages, fewer than {} each: too few to tell hot from cold; \
                 run longer, raise interval, or lower least_counts",
                grouped(f.counted),
                grouped(f.poisoned),
                self.parameters.least_counts
            ));
        } else if let Some(rate) = f.slow_rate {
            report.stats.real_level("slow_accesses_per_second", rate, Unit::Count);
        }
        if f.longest_above > CORRECTED_WITHIN {
            report.note(format!(
                "slow pages had more accesses than the budget in {} of the intervals, up to {} in a row: a slowdown of \
                 {} % was not kept then",
                grouped(f.above_budget),
                grouped(f.longest_above),
                100.0 * self.parameters.slowdown
            ));
        }
        if f.curbed_rounds > 0 {
            report.note(format!(
                "{} times fewer huge pages were sampled than sample = {} asks for, {} instead of {}: what splitting, counting \
                 and collapsing them costs here is as much as may be used",
                grouped(f.curbed_rounds),
                self.parameters.sample,
                grouped(f.curbed_sampled),
                grouped(f.curbed_wanted)
            ));
        }
        if f.stuck > 0 {
            report.note(format!(
                "{} times a page that had become hot found no room in the fast tier",
                grouped(f.stuck)
            ));
        }
        if f.uncollapsed > 0 {
            report.note(format!("{} sampled pages could not be collapsed again", grouped(f.uncollapsed)));
        }
    }
}

impl Thermostat {
    /// One scan interval is over.
    fn tick(&mut self, now: Moment, memory: &mut dyn MemorySystem) {
        let seconds = now.seconds_since(self.last_tick);
        self.last_tick = now;
        self.read_counts(memory);
        self.correct(now, seconds, memory);
        self.afford(seconds, memory);
        let mut finished = Vec::new();
        let parameters = &self.parameters;
        for round in &mut self.rounds {
            round.advance(parameters, &mut self.random, memory);
            if round.is_over() {
                finished.push(round.clone());
            }
        }
        self.rounds.retain(|round| !round.is_over());
        for round in finished {
            self.classify(&round, seconds, memory);
        }
        if self.parameters.rounds == Rounds::Pipelined || self.rounds.is_empty() {
            self.begin_round(memory);
        }
    }

    fn read_counts(&mut self, memory: &mut dyn MemorySystem) {
        self.cold.values_mut().for_each(|count| *count = 0);
        self.saturated.clear();
        let (cold, rounds, saturated) = (&mut self.cold, &mut self.rounds, &mut self.saturated);
        memory.counts(&mut |count| {
            if let Some(cold) = cold.get_mut(&count.page) {
                *cold = count.accesses;
                if count.saturated {
                    saturated.insert(count.page);
                }
            } else {
                rounds.iter_mut().for_each(|round| round.count(&count));
            }
        });
    }

    /// Brings the hottest slow pages back while all together are above the budget.
    fn correct(&mut self, now: Moment, seconds: f64, memory: &mut dyn MemorySystem) {
        if seconds <= 0.0 {
            return;
        }
        let counted = self.cold.values().sum();
        let slower = self.slow_time.interval(now, counted, (self.fast, self.slow), memory);
        let too_slow = slower > self.parameters.slowdown;
        let mut rates: Vec<(PageId, f64)> =
            self.cold.iter().map(|(page, count)| (*page, *count as f64 / seconds)).collect();
        let budget = self.budget();
        self.figures.slow_accesses += counted;
        let rate = rates.iter().map(|(_, rate)| rate).sum();
        self.figures.slow_pages_had(rate, rate > budget || too_slow);
        if !self.parameters.correction {
            return;
        }
        // A page that was busy whenever the world looked has a rate that nobody knows; it is not cold.
        rates.retain(|(page, _)| !self.saturated.contains(page));
        let beyond = hottest_beyond(&mut rates, budget);
        let hot = self.saturated.iter().copied().chain(beyond);
        let moves: Vec<Move> = hot
            .filter(|page| !self.journeys.contains_key(page))
            .map(|page| Move { page, to: self.fast })
            .collect();
        let ticket = memory.migrate(&moves, MoveOptions::default());
        self.pending.ordered(ticket, moves.len());
        self.journeys.extend(moves.iter().map(|one| (one.page, Journey::Up)));
        if too_slow {
            let stay = self.cold.keys().filter(|page| !self.journeys.contains_key(page));
            memory.watch(&stay.copied().collect::<Vec<_>>(), Watch::Count);
        }
    }

    /// Accesses per second that slow pages may have.
    fn budget(&self) -> f64 {
        budget(self.parameters.slowdown, self.slow_time.per_access())
    }

    /// Adds what the world affords to sample in the seconds that have passed. What it does in an interval is there at the
    /// start.
    fn afford(&mut self, seconds: f64, memory: &dyn MemorySystem) {
        let interval = self.parameters.interval;
        let sample = HugeSample { counted: self.parameters.poisoned.into(), span: interval };
        self.affordable = memory.affordable_samples(sample).map(|per_second| match self.affordable {
            Some(left) => left + per_second * seconds,
            None => per_second * interval.as_secs(),
        });
    }

    fn travel(&mut self, ticket: Ticket, page: PageId, journey: Journey) {
        self.pending.ordered(ticket, 1);
        self.journeys.insert(page, journey);
    }

    fn begin_round(&mut self, memory: &mut dyn MemorySystem) {
        let busy: BTreeSet<PageId> =
            self.rounds.iter().flat_map(Round::pages).chain(self.journeys.keys().copied()).collect();
        let most = self.affordable.map_or(usize::MAX, |pages| pages as usize);
        let (round, wanted) =
            Round::choose(self.fast, self.parameters.sample, most, &busy, &mut self.random, memory);
        let chosen = round.as_ref().map_or(0, |round| round.pages().count());
        if chosen < wanted {
            self.figures.curbed_rounds += 1;
            self.figures.curbed_wanted += wanted as u64;
            self.figures.curbed_sampled += chosen as u64;
        }
        if let Some(left) = &mut self.affordable {
            // What one round cannot use is not saved up for many.
            *left = (*left - chosen as f64).min(wanted.max(1) as f64);
        }
        let Some(round) = round else { return };
        let splits: Vec<Resize> = round.pages().map(|page| Resize { page, to: PageSize::Base }).collect();
        let ticket = memory.resize(&splits);
        self.pending.ordered(ticket, splits.len());
        self.journeys.extend(round.pages().map(|page| (page, Journey::Split)));
        self.figures.rounds += 1;
        self.figures.sampled += splits.len() as u64;
        self.rounds.push(round);
    }

    /// Ends a round: the coldest pages of the sample that fit into its share of the budget go down, all are collapsed.
    fn classify(&mut self, round: &Round, seconds: f64, memory: &mut dyn MemorySystem) {
        let (poisoned, counted) = round.totals();
        self.figures.poisoned += poisoned;
        self.figures.counted += counted;
        let mut rates = round.rates(seconds);
        let cold = coldest_within(&mut rates, self.budget() * round.share());
        let pages: Vec<PageId> = round.pages().collect();
        let resizes: Vec<Resize> =
            pages.iter().map(|page| Resize { page: *page, to: PageSize::Huge }).collect();
        let ticket = memory.resize(&resizes);
        self.pending.ordered(ticket, resizes.len());
        for page in pages {
            let cold = cold.contains(&page);
            self.journeys.insert(page, Journey::Collapse { cold, attempts: 1 });
        }
    }

    /// A step of a page's journey is done, or failed.
    fn arrived(&mut self, page: PageId, outcome: Outcome, memory: &mut dyn MemorySystem) {
        let Some(journey) = self.journeys.remove(&page) else { return };
        let done = outcome == Outcome::Done;
        match journey {
            Journey::Split if done => round::clear_accessed(page, memory),
            Journey::Split => self.rounds.iter_mut().for_each(|round| round.leave_out(page)),
            Journey::Collapse { cold: true, .. } if done => {
                let ticket = memory.migrate(&[Move { page, to: self.slow }], MoveOptions::default());
                self.travel(ticket, page, Journey::Down);
            }
            Journey::Collapse { cold, attempts } if !done => {
                if attempts < 3 && outcome.is_worth_a_retry() {
                    let ticket = memory.resize(&[Resize { page, to: PageSize::Huge }]);
                    let journey = Journey::Collapse { cold, attempts: attempts + 1 };
                    self.travel(ticket, page, journey);
                } else if outcome != Outcome::Gone {
                    self.figures.uncollapsed += 1;
                }
            }
            Journey::Down if done => {
                memory.watch(&[page], Watch::Count);
                self.cold.insert(page, 0);
                self.figures.demoted += 1;
            }
            Journey::Up if done => {
                memory.watch(&[page], Watch::Off);
                self.cold.remove(&page);
                self.figures.returned += 1;
            }
            Journey::Up if outcome == Outcome::NoSpace => self.figures.stuck += 1,
            Journey::Up if outcome == Outcome::Gone => {
                self.cold.remove(&page);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
#[path = "thermostat/tests.rs"]
mod tests;
