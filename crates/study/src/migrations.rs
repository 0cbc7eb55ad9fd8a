//! What moving pages reaches by itself, without a program.

use crate::{Error, run};
use serde::Serialize;
use terrace_model::text;
use terrace_report::{MachineTier, machine_sentence};
use terrace_sim::design::Design;
use terrace_sim::migration_benchmark;

/// The throughput of each way of moving pages from the second tier to the first.
#[derive(Clone, Debug, Serialize)]
pub struct Migrations {
    /// The machine whose tiers these are.
    pub machine: String,
    /// The tiers, fastest first.
    pub machine_tiers: Vec<MachineTier>,
    /// The microbenchmark's name.
    pub microbenchmark: &'static str,
    /// The ways.
    pub rows: Vec<Row>,
}

/// One way.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Bandwidth of the move, of both directions where pages are exchanged.
    pub bytes_per_second: f64,
    /// Whether pages change places.
    pub exchange: bool,
    /// Pages that are between unmap and map at once; none for all.
    pub in_flight: Option<u32>,
    /// What moves.
    pub name: String,
    /// How many pages.
    pub pages: u64,
    /// Size of the pages.
    pub size: &'static str,
    /// Threads that copy.
    pub threads: u16,
}

/// Measures the machine of a design.
///
/// # Errors
/// A machine of one tier.
pub fn measure(design: &Design) -> Result<Migrations, Error> {
    let rows = migration_benchmark(design, None)
        .map_err(|problem| Error::failed(format!("{}: {problem}", design.machine)))?;
    let rows = rows.into_iter().flatten().map(|row| Row {
        bytes_per_second: row.throughput.0,
        exchange: row.exchange,
        in_flight: row.in_flight,
        name: row.name,
        pages: row.pages,
        size: row.size.name(),
        threads: row.threads,
    });
    Ok(Migrations {
        machine: design.machine.clone(),
        machine_tiers: run::tiers_of(design),
        microbenchmark: "migration",
        rows: rows.collect(),
    })
}

impl Migrations {
    /// The ways as a table of 80 columns.
    pub fn to_text(&self) -> String {
        let base = self.rows.iter().find(|row| row.name == "base pages");
        let base = base.map_or(0.0, |row| row.bytes_per_second);
        let machine = text::hanging("", &machine_sentence(&self.machine, &self.machine_tiers), 78);
        let mut text = format!(
            "Moving pages on {}, second tier to first\n{machine}\n{:<46}{:>6}{:>5}{:>8}{:>10}{:>8}\n",
            self.machine, "what moves", "pages", "size", "threads", "GB/s", "x base"
        );
        for row in &self.rows {
            text += &format!(
                "{:<46}{:>6}{:>5}{:>8}{:>10.3}{:>8.2}\n",
                row.name,
                row.pages,
                row.size,
                row.threads,
                row.bytes_per_second / 1e9,
                row.bytes_per_second / base
            );
        }
        text + "\nBytes both ways of an exchange count. Concurrent: 8 huge pages, or all base pages,\n\
                are between unmap and map at once; of lists by length, all pages. Copy alone: no\n\
                kernel, threads that run already. x base: against 512 base pages one by one.\n"
    }
}
