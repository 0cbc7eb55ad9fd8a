//! Notes about keys of a design that changed nothing in a run, or not what their names promise.

use crate::designs::policies_of;
use terrace_model::{Bytes, Stats, TierId};
use terrace_sim::design::{Design, Ranges};

/// What to say of them.
pub(crate) fn notes(design: &Design, stats: &Stats) -> Vec<String> {
    let all = [
        hatric(design),
        ranges(design),
        idle_machines(stats),
        free_pool(design),
        shared_cores(design, stats),
    ];
    all.into_iter().flatten().collect()
}

fn hatric(design: &Design) -> Option<String> {
    let translation = &design.translation;
    let by_hardware = matches!(translation.coherence.as_str(), "hatric" | "unitd");
    (translation.hatric.is_some() && !by_hardware).then(|| {
        format!(
            "translation.hatric has no effect with translation.coherence = \"{}\": hatric and unitd have such hardware",
            translation.coherence
        )
    })
}

fn ranges(design: &Design) -> Option<String> {
    let translation = &design.translation;
    let ranges = translation.hatric.as_ref()?.ranges;
    let kind = translation.scheme.kind.as_str();
    (ranges != Ranges::RangeCover && kind != "rmm").then(|| {
        format!("translation.hatric.ranges has no effect: the scheme {kind} has no range TLB, rmm has one")
    })
}

fn idle_machines(stats: &Stats) -> Option<String> {
    let accesses =
        (0..).map_while(|vm| stats.get(&format!("vm.{vm}.accesses")).map(|stat| stat.value.as_f64()));
    let idle: Vec<String> =
        (0..).zip(accesses).filter(|(_, count)| *count == 0.0).map(|(vm, _)| format!("vm.{vm}")).collect();
    (!idle.is_empty()).then(|| {
        format!(
            "no program ran in {}: each virtual machine (vm.count) needs a program of its own, such as those of --mix",
            idle.join(", ")
        )
    })
}

/// Virtual machines whose first processors lie on one core, where a program of one thread runs in each.
fn shared_cores(design: &Design, stats: &Stats) -> Option<String> {
    let machines =
        u64::from(design.vm.as_ref()?.count?).min(stats.get("mix.programs")?.value.as_f64() as u64);
    let cores = design.core.each().len() as u64;
    let processors = design.vm.as_ref()?.vcpus.map_or(cores, u64::from);
    let apart = cores / machines.max(1);
    (machines > 1 && apart > 0 && processors > apart).then(|| {
        format!(
            "the {machines} virtual machines have {processors} virtual processors each and share the {cores} cores in order, so \
             that programs of a few threads meet on the same cores; vm.vcpus = {apart} gives each its own"
        )
    })
}

fn free_pool(design: &Design) -> Option<String> {
    let fast = design.tiers.get(TierId(0).index())?;
    // The fast tier is the host's: a guest's policy sees nodes of its own.
    let mut policies = policies_of(design).filter(|(system, _)| *system == "host" || design.vm.is_none());
    policies.find_map(|(system, policy)| {
        let pool: Bytes = policy.parameters.get("free_pool")?.as_str()?.parse().ok()?;
        (pool >= fast.capacity).then(|| {
            format!(
                "{system}.policy.free_pool is {pool}, and {} has {}: the policy never gets that much free",
                fast.name, fast.capacity
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_model::Unit;
    use terrace_sim::design::Library;

    fn of(name: &str, sets: &[(&str, &str)]) -> Vec<String> {
        let sets: Vec<(String, String)> =
            sets.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        let design = Library::embedded().design(name, None, &sets).unwrap().design;
        notes(&design, &Stats::new())
    }

    #[test]
    fn keys_that_change_nothing_are_named() {
        let bytes = ("translation.hatric.co_tag_bytes", "1");
        assert_eq!(of("virtual-hatric", &[bytes]), [""; 0]);
        assert!(of("virtual-4k", &[bytes])[0].starts_with("translation.hatric has no effect"));
        let said = of("virtual-hatric", &[("translation.hatric.ranges", "split")]);
        assert!(said[0].starts_with("translation.hatric.ranges has no effect"), "{said:?}");
        let fast = [("tier.0.capacity", "64 MiB"), ("os.reserved", "0 B")];
        let pool = |bytes| of("virtual-hatric", &[fast[0], fast[1], ("host.policy.free_pool", bytes)]);
        assert_eq!(pool("63 MiB"), [""; 0]);
        assert!(pool("64 MiB")[0].starts_with("host.policy.free_pool is 64 MiB"), "{:?}", pool("64 MiB"));
    }

    #[test]
    fn virtual_machines_that_meet_on_cores_are_named() {
        let said = |sets: &[(&str, &str)]| {
            let sets: Vec<(String, String)> =
                sets.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
            let design = Library::embedded().design("virtual-4k", None, &sets).unwrap().design;
            let mut stats = Stats::new();
            stats.count("mix.programs", 2, Unit::Count);
            notes(&design, &stats)
        };
        assert!(said(&[("vm.count", "2")])[0].contains("vm.vcpus = 4 gives each its own"));
        assert_eq!(said(&[("vm.count", "2"), ("vm.vcpus", "4")]), [""; 0]);
        assert_eq!(said(&[]), [""; 0]);
    }

    #[test]
    fn designs_of_terrace_have_no_such_keys() {
        for listed in Library::embedded().design_names() {
            let design = listed.name;
            let resolved = Library::embedded().design(&design, None, &[]).unwrap();
            assert_eq!(notes(&resolved.design, &Stats::new()), [""; 0], "{design}");
        }
    }

    #[test]
    fn a_virtual_machine_without_a_program_is_named() {
        let mut stats = Stats::new();
        stats.count("vm.0.accesses", 7, Unit::Count);
        stats.count("vm.1.accesses", 0, Unit::Count);
        let said = notes(&Library::embedded().design("virtual-4k", None, &[]).unwrap().design, &stats);
        assert!(said.len() == 1 && said[0].starts_with("no program ran in vm.1:"), "{said:?}");
    }
}
