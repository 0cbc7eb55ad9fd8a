// What a virtual machine took: walks in two dimensions, and how often processors left the guest.

import { type Report, type Run, type VirtualMachine, type VirtualMachines } from "./data";
import { h, section } from "./dom";
import { bytes, count, exact, percent, significant } from "./format";
import { type Column, WHICH_RUN, scroll, sortable } from "./tables";

type Hosted = Run & { virtual_machines: VirtualMachines };
/** One virtual machine of a run, as a row. */
type Row = Run & { number: number; vm: VirtualMachine };

export function virtualMachines(report: Report): HTMLElement | null {
  const runs = report.runs.filter((run): run is Hosted => run.virtual_machines !== undefined);
  if (runs.length === 0) return null;
  const rows = runs.flatMap((run): Row[] => (run.virtual_machines.each ?? []).map((vm, number) => ({ ...run, number, vm })));
  const several = rows.length === 0 ? [] : [h("h3", {}, "Each virtual machine"), scroll(sortable("vm-each-table", "Each virtual machine, one row", each(), rows), "Each virtual machine")];
  const intro = "A walk reads the guest's page table, and each address in it is translated by the hypervisor's. A processor leaves the guest for memory that the host does not map, for interrupts that drop translations, for another virtual CPU's turn, and for calls.";
  return section("vm", "Virtual machines", "Virtual machines", intro, scroll(sortable("vm-table", "Virtual machines, one row per run", columns(), runs), "Virtual machines"), ...several);
}

function columns(): Column[] {
  const of = (run: Run) => (run as Hosted).virtual_machines;
  const perWalk = (references: number, run: Run) => (of(run).walks > 0 ? references / of(run).walks : null);
  return [
    ...WHICH_RUN,
    { key: "walks", title: "Walks", help: "Page walks", value: (run) => of(run).walks, text: count },
    { key: "guest", title: "Guest refs", help: "References of a walk to the guest's page table", value: (run) => perWalk(of(run).guest_references, run), text: significant },
    { key: "host", title: "Host refs", help: "References of a walk to the hypervisor's page table", value: (run) => perWalk(of(run).host_references, run), text: significant },
    { key: "share", title: "Exits", help: "Share of the processors' time, with what the hypervisor did meanwhile", value: (run) => of(run).share, text: percent },
    { key: "ept", title: "EPT violations", help: "Exits for memory that the host does not map, or watches", value: (run) => of(run).ept_violations, text: exact },
    { key: "interrupts", title: "Interrupts", help: "Exits to drop translations", value: (run) => of(run).interrupts, text: exact },
    { key: "preemptions", title: "Preemptions", help: "Exits for another virtual CPU's turn", value: (run) => of(run).preemptions, text: exact },
    { key: "hypercalls", title: "Calls", help: "Exits for calls of the guest's", value: (run) => of(run).hypercalls, text: exact },
  ];
}

function each(): Column[] {
  const of = (run: Run) => (run as Row).vm;
  return [
    ...WHICH_RUN,
    { key: "number", title: "Number", help: "Of the virtual machine", value: (run) => (run as Row).number, text: exact },
    { key: "programs", title: "Programs", help: "That ran in it", value: (run) => of(run).programs, text: exact },
    { key: "accesses", title: "Accesses", help: "Of its programs", value: (run) => of(run).accesses, text: count },
    { key: "ept", title: "EPT violations", help: "Its exits for memory that the host does not map, or watches", value: (run) => of(run).ept_violations, text: exact },
    { key: "interrupts", title: "Interrupts", help: "Its exits to drop translations", value: (run) => of(run).interrupts, text: exact },
    { key: "in_guest", title: "In guest", help: "Memory in use in the guest", value: (run) => of(run).guest_bytes, text: bytes },
    { key: "in_host", title: "In host", help: "Memory that the host maps for it", value: (run) => of(run).host_bytes, text: bytes },
  ];
}
