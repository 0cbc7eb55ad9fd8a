//! Facts put into words.

use super::{Finding, Measurement, State};
use crate::facts::{AS_ROOT, Fact, Facts, GroupedBy, Missing, Node, Privilege, Speed, ZRAM_SWAP, tracking};
use crate::kernel::USER_MODE_ONLY;
use std::collections::BTreeMap;
use terrace_model::{Bytes, BytesPerSec, Time};

const MACHINE: &str = "kernel and privileges";
const MEMORY: &str = "nodes and tiers";
const PAGES: &str = "page sizes";
const WATCHING: &str = "seeing accesses";
const MOVING: &str = "moving pages";
const COMPRESSION: &str = "compressed memory";
const GROUPS: &str = "control groups";

pub(super) fn of(facts: &Facts, measured: &[Measurement]) -> Vec<Finding> {
    let mut findings = machine(facts);
    findings.extend(memory(facts, measured));
    findings.extend(pages(facts));
    findings.extend(watching(facts));
    findings.extend(moving(facts));
    findings.extend(compression(facts));
    findings.push(control_groups(facts));
    findings
}

impl Finding {
    fn new(area: &'static str, item: impl Into<String>, state: State, value: impl Into<String>) -> Finding {
        Finding { area, item: item.into(), state, value: value.into(), enable: None }
    }

    fn enable(self, what: impl Into<String>) -> Finding {
        Finding { enable: Some(what.into()), ..self }
    }

    /// With this remedy unless all is well.
    fn otherwise(self, what: &str) -> Finding {
        if self.state == State::Ok { self } else { self.enable(what) }
    }

    /// A fact: its value in words where it is known, or else why it is not.
    fn fact<T>(
        area: &'static str,
        item: &str,
        fact: &Fact<T>,
        words: impl FnOnce(&T) -> (State, String),
    ) -> Finding {
        let (state, value) = match fact {
            Fact::Known(value) => words(value),
            Fact::Absent(reason) => (State::Missing, reason.clone()),
            Fact::Unknown(reason) => (State::Unknown, reason.clone()),
        };
        Finding::new(area, item, state, value)
    }

    /// A thing that is there or not.
    fn presence(area: &'static str, item: &str, fact: &Fact<()>, words: &str) -> Finding {
        Finding::fact(area, item, fact, |()| (State::Ok, words.to_owned()))
    }
}

/// An amount of memory for people: one decimal.
fn amount(bytes: Bytes) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.iter().find(|(_, shift)| bytes.0 >> shift > 0) {
        Some((unit, shift)) => {
            let text = format!("{:.1}", bytes.0 as f64 / (1u64 << shift) as f64);
            format!("{} {unit}", text.strip_suffix(".0").unwrap_or(&text))
        }
        None => format!("{} B", bytes.0),
    }
}

fn nanos(time: Time) -> String {
    format!("{:.0} ns", time.as_nanos())
}

fn rate(bandwidth: BytesPerSec) -> String {
    format!("{:.1} GB/s", bandwidth.0 / 1e9)
}

fn count(number: usize, one: &str, several: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { several })
}

/// Numbers in the kernel's notation: `0-3,8`.
fn list(numbers: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*number) => *last = *number,
            _ => runs.push((*number, *number)),
        }
    }
    let run = |(first, last): &(u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    runs.iter().map(run).collect::<Vec<_>>().join(",")
}

fn nodes(ids: &[u32]) -> String {
    format!("node{} {}", if ids.len() == 1 { "" } else { "s" }, list(ids))
}

fn machine(facts: &Facts) -> Vec<Finding> {
    let options = match &facts.options.source {
        Some(source) => Finding::new(MACHINE, "kernel options", State::Ok, source.clone()),
        None => Finding::new(
            MACHINE,
            "kernel options",
            State::Unknown,
            "neither /proc/config.gz nor /boot/config-$(uname -r) can be read",
        ),
    };
    let has = |one: &&Privilege| facts.privileges.has(**one);
    let missing: Vec<&str> =
        Privilege::ALL.iter().filter(|one| !has(one)).map(|privilege| privilege.name()).collect();
    let user = if facts.privileges.root { "root" } else { "an ordinary user" };
    let privileges = if missing.is_empty() {
        Finding::new(MACHINE, "privileges", State::Ok, format!("{user}, with all that Terrace has use for"))
    } else {
        let value = format!("{user}, without {}", missing.join(", "));
        Finding::new(MACHINE, "privileges", State::Missing, value).enable(AS_ROOT)
    };
    vec![
        Finding::fact(MACHINE, "kernel", &facts.release, |release| (State::Ok, release.to_string())),
        options,
        privileges,
    ]
}

fn memory(facts: &Facts, measured: &[Measurement]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for node in &facts.nodes {
        findings.push(Finding::new(MEMORY, format!("node {}", node.id), State::Ok, node_in_words(node)));
        if let Some((_, figures)) = measured.iter().find(|(id, _)| *id == node.id) {
            let item = format!("node {} measured", node.id);
            findings.push(match figures {
                Ok(figures) => {
                    let (latency, bandwidth) = (nanos(figures.latency), rate(figures.bandwidth));
                    let threads = count(figures.threads, "thread", "threads");
                    let value = format!("{latency} a read, {bandwidth} read by {threads}");
                    Finding::new(MEMORY, item, State::Ok, value)
                }
                Err(reason) => Finding::new(MEMORY, item, State::Unknown, reason.clone()),
            });
        }
    }
    let map = &facts.tiers;
    for (at, tier) in map.topology.tiers.iter().enumerate() {
        let of = match map.nodes[at].as_slice() {
            [] => "compressed swap".to_owned(),
            some => nodes(some),
        };
        let value = format!("{of}, {}, {} used", amount(tier.capacity), amount(tier.used));
        findings.push(Finding::new(MEMORY, format!("tier {}", tier.name), State::Ok, value));
    }
    findings.push(grouping(facts));
    if measured.is_empty()
        && facts.nodes.iter().any(|node| node.has_memory() && node.speed == Speed::default())
    {
        let value =
            "the firmware does not tell every node's speed (HMAT); policies are given assumed figures";
        let speed = Finding::new(MEMORY, "speed", State::Unknown, value);
        findings.push(speed.enable("terrace doctor --measure (shows them)"));
    }
    findings
}

fn node_in_words(node: &Node) -> String {
    let processors = match node.cpus.as_slice() {
        [] => "no CPUs".to_owned(),
        [one] => format!("CPU {one}"),
        several => format!("CPUs {}", list(several)),
    };
    let mut words = vec![processors];
    if node.has_memory() {
        words.push(amount(node.total));
        words.push(format!("{} free", amount(node.free)));
    } else {
        words.push("no memory".to_owned());
    }
    let mut by_distance: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (id, distance) in node.distances.iter().filter(|(id, _)| **id != node.id) {
        by_distance.entry(*distance).or_default().push(*id);
    }
    let far: Vec<String> =
        by_distance.iter().map(|(distance, ids)| format!("{distance} from {}", nodes(ids))).collect();
    if !far.is_empty() {
        words.push(format!("distance {}", far.join(", ")));
    }
    let speed = &node.speed;
    if let Some(read) = speed.read_latency {
        words.push(format!("read {}", nanos(read)));
    }
    if let Some(write) = speed.write_latency.filter(|write| Some(*write) != speed.read_latency) {
        words.push(format!("write {}", nanos(write)));
    }
    if let Some(bandwidth) = speed.read_bandwidth {
        words.push(rate(bandwidth));
    }
    words.join(", ")
}

fn grouping(facts: &Facts) -> Finding {
    let by = facts.tiers.grouped_by;
    let value = format!("told apart by {by}");
    match by {
        GroupedBy::Kernel => Finding::new(MEMORY, "tiers", State::Ok, value),
        GroupedBy::Nothing if facts.tiers.compressed().is_some() => {
            Finding::new(MEMORY, "tiers", State::Ok, "one kind of memory, and compressed memory beside it")
        }
        GroupedBy::Nothing => {
            let value = "one, for all memory is of one kind; policies that move pages need two";
            Finding::new(MEMORY, "tiers", State::Missing, value).enable(ZRAM_SWAP)
        }
        GroupedBy::Latency | GroupedBy::Distance => {
            let value = format!("{value}; the kernel holds them for one, and promotes and demotes nothing");
            Finding::new(MEMORY, "tiers", State::Ok, value)
                .enable("for the kernel's own tiering: a kernel from 6.7 on with CONFIG_ACPI_HMAT=y")
        }
    }
}

/// Most pages of a pool that are suggested.
const POOLED: u64 = 16;

/// How many pages of a size may be suggested for a pool: at most a quarter of the memory.
fn pooled(size: Bytes, memory: Bytes) -> u64 {
    POOLED.min(memory.0 / 4 / size.0.max(1))
}

fn pages(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Err(missing) = facts.knows_base_page() {
        findings.push(Finding::new(PAGES, "base pages", State::Missing, missing.to_string()));
    }
    let memory = Bytes(facts.nodes.iter().map(|node| node.total.0).sum());
    match &facts.huge_pages.pools {
        Fact::Known(pools) => findings.extend(pools.iter().map(|pool| {
            let item = format!("pool of {}", amount(pool.size));
            if pool.pages > 0 {
                let value = format!("{} pages, {} free", pool.pages, pool.free);
                return Finding::new(PAGES, item, State::Ok, value);
            }
            let file = format!("/sys/kernel/mm/hugepages/hugepages-{}kB/nr_hugepages", pool.size.0 >> 10);
            match pooled(pool.size, memory) {
                0 => {
                    let value = "empty; one page is over a quarter of the memory";
                    Finding::new(PAGES, item, State::Off, value)
                }
                count => {
                    Finding::new(PAGES, item, State::Off, "empty").enable(format!("echo {count} > {file}"))
                }
            }
        })),
        other => findings.push(
            Finding::fact(PAGES, "pools", other, |_| (State::Ok, String::new()))
                .enable("a kernel with CONFIG_HUGETLBFS=y"),
        ),
    }
    let transparent = Finding::fact(PAGES, "transparent", &facts.huge_pages.transparent, |pages| {
        let part = |name: &str, mode: &Option<String>| {
            mode.as_ref().map_or_else(String::new, |mode| format!(", {name} {mode}"))
        };
        let state = if pages.mode == "never" { State::Off } else { State::Ok };
        let (defrag, shared) = (part("defrag", &pages.defrag), part("shared memory", &pages.shared));
        (state, format!("{}{defrag}{shared}", pages.mode))
    });
    let remedy = match transparent.state {
        State::Missing => "a kernel with CONFIG_TRANSPARENT_HUGEPAGE=y",
        _ => "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
    };
    findings.push(transparent.otherwise(remedy));
    if let Fact::Known(pages) = &facts.huge_pages.transparent {
        let on = pages.sizes.iter().filter(|(_, mode)| mode != "never");
        let on: Vec<String> = on.map(|(size, mode)| format!("{} {mode}", amount(*size))).collect();
        let sizes = match (pages.sizes.is_empty(), on.is_empty()) {
            (true, _) => {
                Finding::new(PAGES, "other sizes", State::Missing, "only the largest, as before 6.8")
            }
            (false, true) => Finding::new(PAGES, "other sizes", State::Off, "all are set to never"),
            (false, false) => Finding::new(PAGES, "other sizes", State::Ok, on.join(", ")),
        };
        findings.push(sizes);
    }
    findings.push(
        Finding::presence(PAGES, "MADV_COLLAPSE", &facts.huge_pages.collapse, "joins base pages on request")
            .otherwise("a kernel from 6.1 on"),
    );
    findings
}

fn watching(facts: &Facts) -> Vec<Finding> {
    let tracking = &facts.tracking;
    let damon = &tracking.damon;
    let threads = Finding::fact(WATCHING, "DAMON", &damon.threads, |threads| match threads {
        0 => (State::Ok, "free to use".to_owned()),
        threads => {
            (State::InUse, format!("someone else has it (nr_kdamonds is {threads}); Terrace leaves it alone"))
        }
    });
    let remedy = match threads.state {
        State::InUse => "end its user, such as damo",
        State::Unknown => AS_ROOT,
        _ => "a kernel with CONFIG_DAMON_SYSFS=y",
    };
    let mut findings = vec![threads.otherwise(remedy)];
    if !matches!(damon.threads, Fact::Absent(_)) {
        let readable = "make /proc/config.gz or /boot/config-$(uname -r) readable";
        for (item, fact, words, option) in [
            (
                "DAMON vaddr",
                &damon.virtual_addresses,
                "watches processes",
                "a kernel with CONFIG_DAMON_VADDR=y",
            ),
            (
                "DAMON paddr",
                &damon.physical_addresses,
                "watches all memory",
                "a kernel with CONFIG_DAMON_PADDR=y",
            ),
            (
                "DAMON migration",
                &damon.migration,
                "schemes migrate_hot and migrate_cold",
                "a kernel from 6.11 on",
            ),
        ] {
            let finding = Finding::presence(WATCHING, item, fact, words);
            let unknown = finding.state == State::Unknown;
            findings.push(finding.otherwise(if unknown { readable } else { option }));
        }
    }
    findings.push(
        Finding::presence(WATCHING, "idle pages", &tracking.page_idle, "page_idle/bitmap")
            .otherwise("a kernel with CONFIG_IDLE_PAGE_TRACKING=y"),
    );
    findings.push(
        Finding::presence(WATCHING, "soft-dirty bits", &tracking.soft_dirty, "tell which pages were written")
            .otherwise("a kernel with CONFIG_MEM_SOFT_DIRTY=y"),
    );
    findings.push(
        Finding::presence(
            WATCHING,
            "PAGEMAP_SCAN",
            &tracking.pagemap_scan,
            "finds pages by state; reports writes of a program that asks for it",
        )
        .otherwise("a kernel from 6.7 on"),
    );
    findings.push(userfaultfd(facts));
    findings.push(helped(
        "entry dropping",
        facts.drops_entries(),
        "accesses to shared memory of a program that is launched: run --track-accesses",
    ));
    findings.push(helped(
        "sampled faults",
        facts.sampled_faults(),
        "timed accesses to watched pages of such memory: run --sample-faults",
    ));
    findings.push(sampling(facts));
    findings
}

/// What a program that is launched can help with.
fn helped(name: &'static str, offered: Result<(), Missing>, what: &str) -> Finding {
    match offered {
        Ok(()) => Finding::new(WATCHING, name, State::Ok, what),
        Err(missing) => {
            let finding = Finding::new(WATCHING, name, State::Missing, missing.reason);
            Finding { enable: missing.remedy, ..finding }
        }
    }
}

fn userfaultfd(facts: &Facts) -> Finding {
    let finding = Finding::fact(WATCHING, "userfaultfd", &facts.tracking.userfaultfd, |features| {
        let modes = tracking::userfaultfd_modes(features & !USER_MODE_ONLY).join(", ");
        let only = if features & USER_MODE_ONLY == 0 { "" } else { "; of user code only" };
        (State::Ok, format!("{modes}{only}"))
    });
    let unprivileged = facts.tracking.unprivileged_userfaultfd == Fact::Known(false);
    match finding.state {
        State::Missing => finding.enable("a kernel with CONFIG_USERFAULTFD=y"),
        State::Unknown if unprivileged => finding.enable("sysctl vm.unprivileged_userfaultfd=1"),
        _ => finding,
    }
}

fn sampling(facts: &Facts) -> Finding {
    let finding = Finding::fact(WATCHING, "PEBS or IBS", &facts.tracking.sampler, |sampler| {
        (State::Ok, format!("{} samples accesses with their addresses", sampler.name))
    });
    match (finding.state, &facts.tracking.perf_event_paranoid) {
        (State::Unknown, Fact::Known(level)) => {
            finding.enable(format!("{AS_ROOT}, or: sysctl kernel.perf_event_paranoid=1 (it is {level})"))
        }
        (State::Missing, _) => finding.enable("a machine whose processors' counters can be seen"),
        _ => finding,
    }
}

fn moving(facts: &Facts) -> Vec<Finding> {
    let placement = &facts.placement;
    let tiers = facts.kernel_tiers.len();
    let balancing = Finding::fact(MOVING, "NUMA balancing", &placement.numa_balancing, |mode| match mode {
        mode if mode & 2 != 0 => (State::Ok, "promotes hot pages between tiers".to_owned()),
        1 => (State::Ok, "moves pages to the CPUs that use them; no promotion".to_owned()),
        _ => (State::Off, "promotes nothing".to_owned()),
    });
    let tiering = facts.placement.numa_balancing.known().is_some_and(|mode| mode & 2 != 0);
    let balancing = match (balancing.state, tiering) {
        (State::Missing, _) => balancing.enable("a kernel with CONFIG_NUMA_BALANCING=y, from 5.18 on"),
        (_, true) => balancing,
        _ => balancing.enable("sysctl kernel.numa_balancing=2"),
    };
    let demotion = Finding::fact(MOVING, "demotion", &placement.demotion, |on| match on {
        true if tiers > 1 => (State::Ok, "reclaim moves cold pages to the next tier".to_owned()),
        true => (State::Ok, "on, but the kernel knows one tier".to_owned()),
        false => (State::Off, "reclaim moves nothing to slower nodes".to_owned()),
    });
    let demotion = match demotion.state {
        State::Missing => demotion.enable("a kernel from 5.15 on with CONFIG_MIGRATION=y"),
        State::Off => demotion.enable("echo 1 > /sys/kernel/mm/numa/demotion_enabled"),
        _ => demotion,
    };
    let weights = Finding::fact(MOVING, "weighted interleave", &placement.weights, |weights| {
        let each: Vec<String> =
            weights.iter().map(|(node, weight)| format!("node {node} weighs {weight}")).collect();
        (State::Ok, each.join(", "))
    });
    let advice = Finding::fact(MOVING, "process_madvise", &placement.process_madvise, |()| {
        match facts.privileges.has(Privilege::Nice) {
            true => (State::Ok, "pages out, splits and joins pages of other processes".to_owned()),
            false => (State::Missing, "for other processes it takes CAP_SYS_NICE".to_owned()),
        }
    });
    let remedy = if placement.process_madvise.is_known() { AS_ROOT } else { "a kernel from 5.10 on" };
    vec![balancing, demotion, weights.otherwise("a kernel from 6.9 on"), advice.otherwise(remedy)]
}

fn compression(facts: &Facts) -> Vec<Finding> {
    let swap = &facts.swap;
    let zram: Vec<String> = swap
        .areas
        .iter()
        .filter(|area| area.is_zram())
        .map(|area| format!("{} of {}, {} used", area.path, amount(area.size), amount(area.used)))
        .collect();
    let zram = match (zram.is_empty(), swap.zram) {
        (false, _) => Finding::new(COMPRESSION, "zram", State::Ok, format!("swap on {}", zram.join(", "))),
        (true, true) => Finding::new(COMPRESSION, "zram", State::Off, "no swap lies on it").enable(ZRAM_SWAP),
        (true, false) if facts.options.has("ZRAM") == Some(false) => {
            Finding::new(COMPRESSION, "zram", State::Missing, "this kernel has none")
                .enable("a kernel with CONFIG_ZRAM=m")
        }
        (true, false) => Finding::new(COMPRESSION, "zram", State::Off, "not loaded").enable(ZRAM_SWAP),
    };
    let disks = count(swap.areas.len(), "area", "areas");
    let zswap = match (swap.zswap, swap.areas.is_empty()) {
        (Some(true), false) => {
            Finding::new(COMPRESSION, "zswap", State::Ok, format!("compresses what goes to {disks} of swap"))
        }
        (Some(true), true) => Finding::new(COMPRESSION, "zswap", State::Off, "on, but there is no swap")
            .enable("swapon a disk or a file"),
        (Some(false), _) => Finding::new(COMPRESSION, "zswap", State::Off, "switched off")
            .enable("echo 1 > /sys/module/zswap/parameters/enabled (needs swap)"),
        (None, _) => Finding::new(COMPRESSION, "zswap", State::Missing, "this kernel has none")
            .enable("a kernel with CONFIG_ZSWAP=y"),
    };
    vec![zram, zswap]
}

fn control_groups(facts: &Facts) -> Finding {
    let remedy = "boot with cgroup_no_v1=memory, or systemd.unified_cgroup_hierarchy=1";
    let finding = Finding::fact(GROUPS, "memory controller", &facts.control_groups, |groups| {
        match (groups.has_memory(), groups.delegated.iter().any(|name| name == "memory")) {
            (true, true) => (State::Ok, format!("version 2 at {}", groups.mount)),
            (true, false) => (State::Off, format!("version 2 at {}, not given to groups", groups.mount)),
            (false, _) => (State::Missing, format!("{} has none; version 1 may hold it", groups.mount)),
        }
    });
    match (finding.state, &facts.control_groups) {
        (State::Off, Fact::Known(groups)) => {
            let file = format!("{}/cgroup.subtree_control", groups.mount);
            finding.enable(format!("echo +memory > {file}"))
        }
        _ => finding.otherwise(remedy),
    }
}
