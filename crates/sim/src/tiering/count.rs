//! What policies did, counted as the kernel counts it.

use super::{Tiering, moment};
use std::collections::HashMap;
use terrace_model::{PageSize, Stats, Time, Unit};
use terrace_policy::{PageId, Report};

/// Counters of everything that was done for a policy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters {
    /// Calls of the policy.
    pub calls: u64,
    /// Time of the policy's own processor: scans, and waiting for shootdowns.
    pub policy_time: Time,
    pub scanned_pages: u64,
    pub scanned_entries: u64,
    pub hint_faults: u64,
    pub count_faults: u64,
    pub samples: u64,
    pub shootdowns: u64,
    pub interrupts: u64,
    /// Base pages that came to a faster tier.
    pub promoted: u64,
    /// Base pages that came to a slower tier.
    pub demoted: u64,
    /// Base pages that moves gave up, whatever the reason.
    pub failed: u64,
    /// Large pages that moved whole.
    pub huge_moved: u64,
    /// Pairs that changed places.
    pub exchanged: u64,
    pub split: u64,
    pub collapsed: u64,
    pub copied_bytes: u64,
    /// Frames, or pages of the page cache, that came to another place in their tier.
    pub relocated: u64,
    /// Free blocks filled with zeros, in bytes.
    pub zeroed_bytes: u64,
    /// Pages of files that were evicted for a policy.
    pub evicted: u64,
    /// Base pages of zeros that were given back.
    pub zeros_dropped: u64,
    /// Time of order threads: steps and copies.
    pub migration_time: Time,
    /// How often a thread touched a page between unmap and map.
    pub waits: u64,
    pub wait_time: Time,
    /// Faults that waited for a block, and how long.
    pub stalls: u64,
    pub stall_time: Time,
    /// Base pages that moved back within one period of the policy.
    pub ping_pong: u64,
    /// The last move of each page: when, and whether up.
    last_move: HashMap<PageId, (Time, bool)>,
    /// The longest time between two ticks so far, and the last tick.
    period: Time,
    last_tick: Option<Time>,
}

impl Counters {
    /// The policy was called with a tick.
    pub fn ticked(&mut self, now: Time) {
        if let Some(last) = self.last_tick.replace(now) {
            self.period = self.period.max(now.saturating_sub(last));
        }
    }

    /// A page came to another tier at `now`.
    pub fn moved(&mut self, page: PageId, size: PageSize, up: bool, now: Time) {
        let pages = size.base_pages();
        if up {
            self.promoted += pages;
        } else {
            self.demoted += pages;
        }
        if size != PageSize::Base {
            self.huge_moved += 1;
        }
        if let Some((last, was_up)) = self.last_move.insert(page, (now, up))
            && was_up != up
            && now.saturating_sub(last) <= self.period
        {
            self.ping_pong += pages;
        }
    }

    /// A move was given up.
    pub fn gave_up(&mut self, size: PageSize) {
        self.failed += size.base_pages();
    }
}

impl Tiering {
    /// The policy's own figures and remarks.
    pub fn report(&self) -> Report {
        let mut report = Report::default();
        self.policy.report(&mut report);
        report
    }

    /// Adds everything to the statistics of the run.
    pub fn count_into(&self, stats: &mut Stats) {
        let counters = &self.state.counters;
        let nanos = |time: Time| moment(time).0;
        // The kernel's names, `/proc/vmstat`. It calls demotions by who ordered them; here that is always the policy.
        stats.count("vmstat.pgpromote_success", counters.promoted, Unit::Pages);
        stats.count("vmstat.pgdemote_policy", counters.demoted, Unit::Pages);
        stats.count("vmstat.pgmigrate_success", counters.promoted + counters.demoted, Unit::Pages);
        stats.count("vmstat.pgmigrate_fail", counters.failed, Unit::Pages);
        stats.count("vmstat.thp_migration_success", counters.huge_moved, Unit::Count);
        stats.count("vmstat.thp_split_page", counters.split, Unit::Count);
        stats.count("vmstat.thp_collapse_alloc", counters.collapsed, Unit::Count);
        stats.count("vmstat.numa_hint_faults", counters.hint_faults, Unit::Count);
        stats.count("policy.ping_pong", counters.ping_pong, Unit::Pages);
        stats.count("policy.exchanges", counters.exchanged, Unit::Count);
        stats.count("policy.relocated", counters.relocated, Unit::Pages);
        stats.count("policy.zeroed_bytes", counters.zeroed_bytes, Unit::Bytes);
        stats.count("policy.evicted", counters.evicted, Unit::Pages);
        stats.count("policy.zeros_dropped", counters.zeros_dropped, Unit::Pages);
        stats.count("policy.copied_bytes", counters.copied_bytes, Unit::Bytes);
        stats.count("policy.count_faults", counters.count_faults, Unit::Count);
        stats.count("policy.samples", counters.samples, Unit::Count);
        stats.count("policy.calls", counters.calls, Unit::Count);
        stats.count("policy.scanned_pages", counters.scanned_pages, Unit::Count);
        stats.count("policy.scanned_entries", counters.scanned_entries, Unit::Count);
        stats.count("policy.time", nanos(counters.policy_time), Unit::Nanoseconds);
        stats.count("policy.migration_time", nanos(counters.migration_time), Unit::Nanoseconds);
        stats.count("policy.preempted", nanos(self.state.processors.preempted), Unit::Nanoseconds);
        stats.count("policy.shootdowns", counters.shootdowns, Unit::Count);
        stats.count("policy.interrupts", counters.interrupts, Unit::Count);
        stats.count("policy.waits", counters.waits, Unit::Count);
        stats.count("policy.wait_time", nanos(counters.wait_time), Unit::Nanoseconds);
        stats.count("policy.stalls", counters.stalls, Unit::Count);
        stats.count("policy.stall_time", nanos(counters.stall_time), Unit::Nanoseconds);
        let Report { stats: own, .. } = self.report();
        for (name, stat) in own.iter() {
            stats.insert(format!("policy.own.{name}"), stat.clone());
        }
    }
}
