//! Accesses as the processor samples them (PEBS, IBS): which page, and whether it was stored to. Of all processes; those
//! that are not managed are left out.

use super::AccessSource;
use crate::facts::Sampler;
use crate::kernel::{Event, Kernel, Samples};
use crate::world::World;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Between two looks. A processor's ring holds 3,000 samples: one in 5,000 of a billion accesses per second fills a
/// fifteenth of it.
const PERIOD: Duration = Duration::from_millis(10);

/// The sampler at work.
pub struct ProcessorSamples {
    kernel: Arc<dyn Kernel>,
    sampler: Sampler,
    cpus: Vec<u32>,
    /// One access in so many, once the policy has said it.
    one_in: Option<u64>,
    rings: Vec<Box<dyn Samples>>,
    lost: u64,
}

impl ProcessorSamples {
    /// On these processors; it begins when the policy has said how often.
    pub fn new(kernel: Arc<dyn Kernel>, sampler: Sampler, cpus: Vec<u32>) -> ProcessorSamples {
        ProcessorSamples { kernel, sampler, cpus, one_in: None, rings: Vec::new(), lost: 0 }
    }

    fn begin(&mut self, one_in: u64) -> io::Result<()> {
        self.rings.clear();
        for event in std::iter::once(self.sampler.event).chain(self.sampler.stores) {
            let event = Event::Accesses { event, one_in };
            self.rings.append(&mut super::on_all(&*self.kernel, event, &self.cpus)?);
        }
        self.one_in = Some(one_in);
        tracing::info!(one_in, processors = self.cpus.len(), "{} samples accesses", self.sampler.name);
        Ok(())
    }
}

impl AccessSource for ProcessorSamples {
    fn name(&self) -> String {
        match self.one_in {
            Some(one_in) => format!("{} samples, one access in {one_in}", self.sampler.name),
            None => format!("{} samples", self.sampler.name),
        }
    }

    fn sees_all_pages(&self) -> bool {
        false
    }

    fn collect(&mut self, world: &mut World) -> io::Result<Duration> {
        if world.samples_one_in() != self.one_in
            && let Some(one_in) = world.samples_one_in()
        {
            self.begin(one_in)?;
        }
        let mut found: BTreeMap<(u32, u64, bool), u32> = BTreeMap::new();
        let mut lost = 0;
        for ring in &mut self.rings {
            lost += ring.read(&mut |sample| {
                *found.entry((sample.pid, sample.address >> 12, sample.store)).or_default() += 1;
            });
        }
        if lost > 0 && self.lost == 0 {
            tracing::warn!(
                lost,
                "the processor samples more than is read; a larger sample_period loses nothing"
            );
        }
        self.lost += lost;
        for ((pid, page, store), count) in found {
            world.sampled(pid, page, store, count);
        }
        Ok(PERIOD)
    }

    fn stop(&mut self, _: &mut World) {
        self.rings.clear();
    }
}
