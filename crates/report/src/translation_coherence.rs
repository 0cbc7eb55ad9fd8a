//! What keeping translations coherent took of a run's time, and what hardware would give back.

use crate::run::ratio;
use crate::{Comparison, RunRecord};
use serde::Serialize;
use terrace_model::{Cycles, Time};

/// Causes of changes that kernel threads make: on processors beside the program's, or in place of its threads.
const BESIDE: [&str; 2] = ["watch", "migration"];
/// A share of the time that is worth a section.
const NOTICEABLE: f64 = 1e-6;

/// Translation coherence in one run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TranslationCoherence {
    /// `software`, `software-virtual`, `hatric`, `unitd` or `ideal`.
    pub scheme: String,
    /// Changes of page tables after which translations had to go, in a virtual machine the hypervisor's with the guest's.
    pub shootdowns: u64,
    /// Processors that were interrupted for them, those that left a guest among them.
    pub interrupts: u64,
    /// Messages of the cache directory about translations, and to range TLBs.
    pub messages: u64,
    /// Time that the program's threads waited after changes of their own, and that kernel threads waited in their place if
    /// they share the program's cores.
    pub waited_seconds: f64,
    /// Time that interrupts held the program's threads up.
    pub interrupted_seconds: f64,
    /// Time that kernel threads beside the program waited.
    pub beside_seconds: f64,
    /// Share of the program's processor time that this is, 0 to 1, without what runs beside it. A scheme in hardware gives
    /// back at most that, and what the translations that were dropped needlessly take to be made again.
    pub share: f64,
    /// Energy of translation with its coherence, where it was counted.
    pub joules: Option<f64>,
    /// Run time less than that of the same policy and input with coherence by software, where that is among the runs.
    pub net_seconds: Option<f64>,
}

impl RunRecord {
    /// Whether software keeps translations coherent: with a hypervisor `software` means `software-virtual`.
    fn is_coherent_by_software(&self) -> bool {
        matches!(self.scheme_of_coherence(), "software" | "software-virtual")
    }

    /// Nanoseconds of `system` that were waited after changes of the causes that `of` chooses.
    fn waited_after(&self, system: &str, of: impl Fn(&str) -> bool) -> u64 {
        let branch = format!("{system}.shootdowns");
        let times = self.stats.under(&branch);
        let of_cause = times.filter_map(|(name, stat)| Some((name.strip_suffix(".time")?, stat)));
        of_cause.filter(|(cause, _)| of(cause)).map(|(_, stat)| stat.value.as_f64() as u64).sum()
    }

    /// Nanoseconds that kernel threads waited, and the part of them that may have been on cores of the program: no more
    /// than they preempted it.
    fn waited_by_kernel_threads(&self) -> (u64, u64) {
        let of = |system: &str, policy: &str| {
            let waited = self.waited_after(system, |cause| BESIDE.contains(&cause));
            (waited, waited.min(self.stats.integer(&format!("{policy}.preempted"))))
        };
        let (programs, hypervisor) = (of("os", "policy"), of("host", "host.policy"));
        (programs.0 + hypervisor.0, programs.1 + hypervisor.1)
    }

    fn scheme_of_coherence(&self) -> &str {
        self.parameter("translation.coherence").unwrap_or("software")
    }

    /// What else a run with another scheme must agree in to be compared: the policies of the programs' operating system and
    /// of the hypervisor, and that hypervisor's pages.
    fn policy_names(&self) -> [Option<&str>; 3] {
        ["os.policy.name", "host.policy.name", "host.pages"].map(|key| self.parameter(key))
    }

    /// The run's translation scheme and page sizes: what another one saves is none of coherence's.
    fn pages_and_scheme(&self) -> [Option<&str>; 2] {
        [self.translation_scheme(), self.parameter("os.pages")]
    }

    /// Processors that the programs' operating system interrupted.
    fn interrupts_of_programs(&self) -> u64 {
        let is_virtual = self.stats.get("host.vm_exits.interrupt").is_some();
        // These drop translations at no cost; their targets are those who would have been interrupted.
        let is_free = match self.scheme_of_coherence() {
            "ideal" => true,
            "hatric" => is_virtual && self.parameter("translation.hatric.guest_changes") == Some("free"),
            _ => false,
        };
        if is_free { 0 } else { self.stats.integer("os.shootdowns.targets") }
    }

    fn translation_coherence(&self) -> Option<TranslationCoherence> {
        let stat = |name: &str| {
            let of = |system: &str| self.stats.integer(&format!("{system}.shootdowns.{name}"));
            of("os") + of("host")
        };
        let shootdowns = stat("count");
        if !self.is_timed() || shootdowns == 0 || self.translates_centrally() {
            return None;
        }
        let cycle = ratio(self.seconds_simulated, self.cycles as f64)?;
        let nanos = |nanos: u64| nanos as f64 * 1e-9;
        let (of_kernel_threads, preempting) = self.waited_by_kernel_threads();
        let by_programs: u64 = ["os", "host"]
            .iter()
            .map(|system| self.waited_after(system, |cause| !BESIDE.contains(&cause)))
            .sum();
        let waited = nanos(by_programs + preempting);
        let by_programs = self.interrupts_of_programs();
        let by_hypervisor = self.stats.integer("host.vm_exits.interrupt");
        let interrupt = self.parameter("os.costs.interrupt").and_then(|text| text.parse::<Time>().ok());
        let interrupt = nanos(interrupt.map_or(0, |time| time.as_nanos() as u64));
        let exit = self.parameter("host.vm_exit").and_then(|text| text.parse::<Cycles>().ok());
        let exit = exit.map_or(0.0, |cycles| cycles.0) * cycle;
        let interrupted = by_programs as f64 * interrupt + by_hypervisor as f64 * exit;
        let cycles: f64 = self.cycle_components().iter().map(|component| component.cycles).sum();
        let busy = cycles * cycle;
        let message = |name: &str| self.stats.integer(&format!("translation_coherence.messages.{name}"));
        Some(TranslationCoherence {
            shootdowns,
            interrupts: by_programs + by_hypervisor,
            messages: message("invalidations")
                + message("back_invalidations")
                + self.stats.integer("translation_coherence.ranges.messages"),
            waited_seconds: waited,
            interrupted_seconds: interrupted,
            beside_seconds: nanos(of_kernel_threads - preempting),
            share: ratio(waited + interrupted, busy)?,
            joules: self.stats.get("energy.translation.total").map(|stat| stat.value.as_f64()),
            net_seconds: None,
            scheme: self.scheme_of_coherence().to_owned(),
        })
    }
}

impl Comparison {
    /// Translation coherence in a run of this comparison; `None` where no time was simulated, no core holds translations or
    /// none had to go, and where every run of the input has software's and none notices it.
    pub fn translation_coherence_of(&self, run: &RunRecord) -> Option<TranslationCoherence> {
        let own = run.translation_coherence()?;
        let mut others = self
            .runs_of(&run.input)
            .filter_map(|run| Some((run.is_coherent_by_software(), run.translation_coherence()?)));
        if !others.any(|(by_software, other)| !by_software || other.share >= NOTICEABLE) {
            return None;
        }
        let software = self.runs_of(&run.input).find(|other| {
            other.is_timed()
                && other.is_coherent_by_software()
                && other.policy_names() == run.policy_names()
                && other.machine == run.machine
                && other.pages_and_scheme() == run.pages_and_scheme()
        });
        let net_seconds = software
            .filter(|_| !run.is_coherent_by_software())
            .map(|software| software.seconds_simulated - run.seconds_simulated);
        Some(TranslationCoherence { net_seconds, ..own })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_data;
    use terrace_model::Unit;

    #[test]
    fn shares_by_hand() {
        let comparison = test_data::coherence();
        let of = |at: usize| comparison.translation_coherence_of(&comparison.runs[at]);
        let software = of(0).unwrap();
        // 1000 cycles of 1 us on one core: 30 us of waits, 5 of which beside; 7 interrupts of 1 us.
        assert_eq!((software.shootdowns, software.interrupts, software.messages), (4, 7, 0));
        assert!((software.waited_seconds - 25e-6).abs() < 1e-12);
        assert!((software.interrupted_seconds - 7e-6).abs() < 1e-12);
        assert!((software.beside_seconds - 5e-6).abs() < 1e-12);
        assert!((software.share - 0.032).abs() < 1e-12);
        assert_eq!((software.net_seconds, software.joules), (None, None));
        let hatric = of(1).unwrap();
        assert_eq!((hatric.scheme.as_str(), hatric.interrupts, hatric.messages), ("hatric", 0, 11));
        assert!((hatric.net_seconds.unwrap() - 40e-6).abs() < 1e-12);
        assert_eq!(hatric.joules, Some(0.25));
    }

    #[test]
    fn the_hypervisors_changes_by_hand() {
        let comparison = test_data::coherence_in_vms();
        let of = |at: usize| comparison.translation_coherence_of(&comparison.runs[at]);
        let software = of(0).unwrap();
        // Guest: 2 changes, 3 interrupts of 1 us, 2 us of waits. Hypervisor: 5 changes, 9 us of waits, 8 beside the guest; 6
        // exits of 5 cycles of 1 us.
        assert_eq!((software.shootdowns, software.interrupts), (7, 9));
        assert!((software.waited_seconds - 3e-6).abs() < 1e-12);
        assert!((software.beside_seconds - 8e-6).abs() < 1e-12);
        assert!((software.interrupted_seconds - (3e-6 + 30e-6)).abs() < 1e-12);
        // The share is of 1000 cycles.
        assert!((software.share - 0.036).abs() < 1e-12);
        let hatric = of(1).unwrap();
        assert_eq!(
            (hatric.shootdowns, hatric.interrupts),
            (7, 3),
            "the guest's changes are left to software"
        );
        assert!((hatric.interrupted_seconds - 3e-6).abs() < 1e-12);
        assert!((hatric.net_seconds.unwrap() - 100e-6).abs() < 1e-12);
        let free = of(2).unwrap();
        assert_eq!((free.interrupts, free.interrupted_seconds), (0, 0.0), "the guest's changes cost nothing");
        // The hypervisor of this run has another policy, so that no run with software is its twin.
        assert_eq!(free.net_seconds, None);
    }

    #[test]
    fn kernel_threads_that_share_the_cores_wait_in_place_of_the_program() {
        let mut comparison = test_data::coherence_in_vms();
        comparison.runs[0].stats.count("host.policy.preempted", 3_000, Unit::Nanoseconds);
        comparison.runs[1].stats.count("host.policy.preempted", 50_000, Unit::Nanoseconds);
        let of = |at: usize| comparison.translation_coherence_of(&comparison.runs[at]).unwrap();
        // Kernel threads wait 8 us, of which 3 at most were on the program's cores; then all of them.
        let [some, all] = [of(0), of(1)];
        let waits =
            |one: &TranslationCoherence| [one.waited_seconds, one.beside_seconds].map(|s| (s * 1e6).round());
        assert_eq!((waits(&some), waits(&all)), ([6.0, 5.0], [11.0, 0.0]));
        assert!((some.share - 0.039).abs() < 1e-12);
    }

    #[test]
    fn software_by_either_name_is_the_baseline() {
        let mut comparison = test_data::coherence_in_vms();
        let name = comparison.runs[0].parameters.iter_mut().find(|(key, _)| key == "translation.coherence");
        name.unwrap().1 = "software-virtual".to_owned();
        let of = |at: usize| comparison.translation_coherence_of(&comparison.runs[at]).unwrap();
        assert!((of(1).net_seconds.unwrap() - 100e-6).abs() < 1e-12);
        assert_eq!(of(0).net_seconds, None, "it is no saving of its own");
    }

    #[test]
    fn runs_without_changes_say_nothing() {
        let comparison = test_data::comparison();
        assert!(comparison.runs.iter().all(|run| comparison.translation_coherence_of(run).is_none()));
    }
}
