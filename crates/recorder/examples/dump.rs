//! Records a program and prints its events, with how many accesses lie between them.
//!
//! `cargo run --release -p terrace-recorder --example dump -- COMMAND ARGS…`; with `ACCESSES=1` in the environment
//! each access is a line, with `ALLOCATIONS=1` allocations are recorded, with `REGION=1` only marked regions, with
//! `GPU=1` an OpenCL program.

use std::ffi::OsString;
use std::io::Write;
use terrace_recorder::{RecordOptions, record};
use terrace_trace::{EventSource, Item};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let command: Vec<OsString> = std::env::args_os().skip(1).collect();
    let set = |name| std::env::var_os(name).is_some();
    let options = RecordOptions {
        gpu: set("GPU"),
        allocations: set("ALLOCATIONS"),
        region: set("REGION"),
        ..RecordOptions::default()
    };
    let mut recording = record(&command, &options)?;
    let mut out = std::io::stderr().lock();
    let mut accesses = 0u64;
    let mut instructions = 0u64;
    while let Some(batch) = recording.next_batch()? {
        batch.validate()?;
        writeln!(out, "stream {} after {}: {} accesses", batch.stream.0, batch.after, batch.len())?;
        instructions += batch.instruction_count();
        for item in batch.items() {
            match item {
                Item::Event(event) => writeln!(out, "  @{accesses} #{} {:?}", event.sequence, event.event)?,
                Item::Access(access) => {
                    accesses += 1;
                    if set("ACCESSES") {
                        writeln!(out, "  {access:x?}")?;
                    }
                }
            }
        }
    }
    writeln!(out, "{accesses} accesses, {instructions} instructions")?;
    for warning in recording.warnings() {
        writeln!(out, "warning: {warning}")?;
    }
    writeln!(out, "{}", recording.wait()?)?;
    Ok(())
}
