//! Three regions of equal size: one that is written, one that is read and one that is left alone.

use crate::memory::Layout;
use crate::process::told;
use anyhow::Result;
use clap::Args;

#[derive(Args)]
pub struct Writers {
    /// Of each region
    #[command(flatten)]
    layout: Layout,
    /// End by itself
    #[arg(long)]
    seconds: Option<u64>,
}

impl Writers {
    pub fn run(&self) -> Result<()> {
        let mut regions = Vec::new();
        for _ in 0..3 {
            let start = self.layout.map()?;
            regions.push(start..start + self.layout.bytes());
        }
        let [written, read, cold] = [&regions[0], &regions[1], &regions[2]];
        println!(
            "pid={} written={} read={} cold={} ready=1",
            std::process::id(),
            told(written),
            told(read),
            told(cold)
        );
        let deadline = super::deadline(self.seconds);
        while !super::passed(deadline) {
            super::round(&[(written, true), (read, false)]);
        }
        Ok(())
    }
}
