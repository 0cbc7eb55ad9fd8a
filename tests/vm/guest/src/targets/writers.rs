//! Three regions of equal size: one that is written, one that is read and one that is left alone. The first two change roles
//! with each SIGUSR1.

use crate::memory::Layout;
use crate::process::range_text;
use anyhow::Result;
use clap::Args;

#[derive(Args)]
pub struct Writers {
    /// Layout of each region
    #[command(flatten)]
    layout: Layout,
    /// End by itself
    #[arg(long)]
    seconds: Option<u64>,
}

impl Writers {
    pub fn run(&self) -> Result<()> {
        super::count_signals(libc::SIGUSR1);
        let mut regions = Vec::new();
        for _ in 0..3 {
            let start = self.layout.map()?;
            regions.push(start..start + self.layout.bytes());
        }
        let (roles, cold) = ((&regions[0], &regions[1]), &regions[2]);
        let (mut written, mut read) = roles;
        println!(
            "pid={} written={} read={} cold={} ready=1",
            std::process::id(),
            range_text(written),
            range_text(read),
            range_text(cold)
        );
        let deadline = super::deadline(self.seconds);
        let mut phase = 0;
        while !super::passed(deadline) {
            let asked = super::asked();
            if asked != phase {
                phase = asked;
                if phase % 2 == 0 {
                    (written, read) = roles
                } else {
                    (read, written) = roles
                }
                println!("phase={phase} written={} read={}", range_text(written), range_text(read));
            }
            super::round(&[(written, true), (read, false)]);
        }
        Ok(())
    }
}
