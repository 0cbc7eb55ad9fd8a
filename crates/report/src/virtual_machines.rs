//! What a virtual machine took: walks in two dimensions, and how often processors left the guest for the hypervisor.

use crate::format::{Charset, bytes, count, percent, significant, wrap};
use crate::run::ratio;
use crate::table::rows_of_designs;
use crate::{Comparison, RunRecord};
use serde::Serialize;

/// The virtual machines of one run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VirtualMachines {
    /// Page walks.
    pub walks: u64,
    /// References of walks to the guests' page tables.
    pub guest_references: u64,
    /// References of walks to the hypervisor's page table.
    pub host_references: u64,
    /// Exits since the hypervisor's table mapped nothing there, or its policy watches the page.
    pub ept_violations: u64,
    /// Exits for interrupts of the hypervisor's, to drop translations.
    pub interrupts: u64,
    /// Exits at the end of a time slice, for another virtual CPU.
    pub preemptions: u64,
    /// Exits for calls of the guest's.
    pub hypercalls: u64,
    /// Share of the processors' time that exits took, with what the hypervisor did meanwhile, 0 to 1.
    pub share: f64,
    /// Each of several virtual machines.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub each: Vec<VirtualMachine>,
}

/// One of several virtual machines.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VirtualMachine {
    /// Programs that ran in it.
    pub programs: u64,
    /// Accesses of these programs.
    pub accesses: u64,
    /// Memory in use in the guest.
    pub guest_bytes: u64,
    /// Memory that the host maps for it.
    pub host_bytes: u64,
    /// Exits of the virtual machine for memory that the host does not map, or watches.
    pub ept_violations: u64,
    /// Exits of the virtual machine for interrupts.
    pub interrupts: u64,
}

impl VirtualMachines {
    /// References of a walk to the guest's table and to the host's; none where there was no walk.
    pub fn references_per_walk(&self) -> Option<[f64; 2]> {
        let of = |references: u64| ratio(references as f64, self.walks as f64);
        Some([of(self.guest_references)?, of(self.host_references)?])
    }
}

impl RunRecord {
    /// What its virtual machines took; `None` where it was native.
    pub fn virtual_machines(&self) -> Option<VirtualMachines> {
        self.stats.get("host.ept_violations")?;
        let stat = |name: &str| self.stats.integer(name);
        let exits = |cause: &str| stat(&format!("host.vm_exits.{cause}"));
        let cycles: f64 = self.cycle_components().iter().map(|component| component.cycles).sum();
        let host_references = stat("walk.host_refs");
        let each = (0..).take_while(|vm| self.stats.get(&format!("vm.{vm}.programs")).is_some());
        let one = |vm: usize| {
            let stat = |name: &str| self.stats.integer(&format!("vm.{vm}.{name}"));
            VirtualMachine {
                programs: stat("programs"),
                accesses: stat("accesses"),
                guest_bytes: stat("guest_pages") * 4096,
                host_bytes: stat("host_pages") * 4096,
                ept_violations: stat("ept_violations"),
                interrupts: stat("interrupts"),
            }
        };
        Some(VirtualMachines {
            walks: stat("walk.count"),
            guest_references: stat("walk.memory_refs").saturating_sub(host_references),
            host_references,
            ept_violations: exits("ept_violation"),
            interrupts: exits("interrupt"),
            preemptions: exits("preemption"),
            hypercalls: exits("hypercall"),
            share: ratio(stat("host.vm_exit_cycles") as f64, cycles)?,
            each: each.map(one).collect(),
        })
    }
}

impl Comparison {
    /// The table of them: a row per run, and where a run has several, a row for each.
    pub(crate) fn virtual_machines(&self, input: &str, width: usize, charset: Charset) -> String {
        let runs: Vec<(&RunRecord, VirtualMachines)> =
            self.runs_of(input).filter_map(|run| Some((run, run.virtual_machines()?))).collect();
        if runs.is_empty() {
            return String::new();
        }
        let row = |(run, one): &(&RunRecord, VirtualMachines)| {
            let [guest, host] = one
                .references_per_walk()
                .map_or_else(|| ["-".to_owned(), "-".to_owned()], |references| references.map(significant));
            let exits = [one.ept_violations, one.interrupts, one.preemptions, one.hypercalls].map(count);
            let cells = [guest, host, percent(one.share)].into_iter().chain(exits).collect();
            (run.design.clone(), cells)
        };
        let rows: Vec<(String, Vec<String>)> = runs.iter().map(row).collect();
        let columns = ["guest refs", "host refs", "exits", "EPT", "interr", "preempt", "calls"];
        let legend = "refs: references of a walk to the guest's and to the hypervisor's page table; exits: share of the \
                      processors' time; then the number of exits: for memory that the host does not map, for interrupts that \
                      drop translations, for another virtual CPU's turn, for calls of the guest's";
        let mut out = table(&columns, &rows, legend, width, charset);
        let each = |(run, one): &(&RunRecord, VirtualMachines)| -> Vec<(String, Vec<String>)> {
            let row = |(at, vm): (usize, &VirtualMachine)| {
                let counts = [vm.programs, vm.accesses, vm.ept_violations, vm.interrupts].map(count);
                let memory = [vm.guest_bytes, vm.host_bytes].map(bytes);
                (format!("{} {at}", run.design), counts.into_iter().chain(memory).collect())
            };
            one.each.iter().enumerate().map(row).collect()
        };
        let rows: Vec<(String, Vec<String>)> = runs.iter().flat_map(each).collect();
        if !rows.is_empty() {
            let columns = ["programs", "accesses", "EPT", "interr", "in guest", "in host"];
            let legend = "a row for each virtual machine; in guest, in host: memory in use there";
            out += &table(&columns, &rows, legend, width, charset);
        }
        out
    }
}

fn table(
    columns: &[&str],
    rows: &[(String, Vec<String>)],
    legend: &str,
    width: usize,
    charset: Charset,
) -> String {
    let rows: Vec<(&str, Vec<String>)> =
        rows.iter().map(|(name, row)| (name.as_str(), row.clone())).collect();
    format!("\n{}{}\n", rows_of_designs(columns, &rows, width, charset), wrap(legend, width, ""))
}

#[cfg(test)]
mod tests {
    use crate::test_data;

    #[test]
    fn walks_and_exits_by_hand() {
        let comparison = test_data::virtual_machines();
        assert!(comparison.runs[0].virtual_machines().is_none(), "native");
        let one = comparison.runs[1].virtual_machines().unwrap();
        assert_eq!((one.walks, one.guest_references, one.host_references), (50, 150, 400));
        assert_eq!(one.references_per_walk(), Some([3.0, 8.0]));
        assert_eq!((one.ept_violations, one.interrupts, one.preemptions, one.hypercalls), (9, 5, 2, 0));
        // 50 of 1000 cycles.
        assert!((one.share - 0.05).abs() < 1e-12);
        let interrupts: Vec<u64> = one.each.iter().map(|vm| vm.interrupts).collect();
        assert_eq!(interrupts, [5, 0]);
        assert_eq!(one.each[1].host_bytes, 30 * 4096);
    }
}
