//! Accesses pages at random moments, each at the rate of its group; with SIGUSR1, and at its end with SIGTERM, it prints how
//! often those of each group were.

use crate::memory::{Layout, PAGE, touch};
use crate::process::range_text;
use anyhow::Result;
use clap::Args;
use std::time::{Duration, Instant};
use terrace_policy::Random;

#[derive(Args)]
pub struct Beats {
    #[command(flatten)]
    layout: Layout,
    /// Accesses per second to each page of a group; the first pages are those of the first group, and so on
    #[arg(long, value_delimiter = ',', required = true)]
    rates: Vec<f64>,
    /// Pages in a group
    #[arg(long, default_value_t = 8)]
    group: usize,
}

/// The longest rest, so that the end is noticed.
const REST: Duration = Duration::from_millis(20);

impl Beats {
    pub fn run(&self) -> Result<()> {
        super::count_signals(libc::SIGUSR1);
        super::count_signals(libc::SIGTERM);
        let start = self.layout.map()?;
        println!(
            "pid={} memory={} ready=1",
            std::process::id(),
            range_text(&(start..start + self.layout.bytes()))
        );
        let mut random = Random::new(5);
        let mut wait = |page: usize| {
            let uniform = (random.below(1 << 53) as f64 + 1.0) / (1u64 << 53) as f64;
            Duration::from_secs_f64(-uniform.ln() / self.rates[page / self.group])
        };
        let pages = self.rates.len() * self.group;
        let mut due: Vec<Duration> = (0..pages).map(&mut wait).collect();
        let mut counts = vec![0u64; self.rates.len()];
        let (started, mut asked) = (Instant::now(), 0);
        while !super::ended() {
            if super::asked() > asked {
                asked = super::asked();
                print(&counts);
            }
            let Some(page) = (0..pages).min_by_key(|page| due[*page]) else { break };
            let left = due[page].saturating_sub(started.elapsed());
            std::thread::sleep(left.min(REST));
            if left > REST {
                continue;
            }
            touch(start + page as u64 * PAGE, true);
            counts[page / self.group] += 1;
            due[page] += wait(page);
        }
        print(&counts);
        Ok(())
    }
}

fn print(counts: &[u64]) {
    let counts: Vec<String> = counts.iter().map(u64::to_string).collect();
    println!("counts={}", counts.join(","));
}
