//! Scaled-down machines: a run of a sixteenth of the footprint on a machine of a sixteenth of the reach.

use super::{Associativity, Design, read, schemes};
use crate::gpu::GPU_LINE;
use terrace_model::{Bytes, LINE_BYTES, Time};

/// Largest divisor: below a sixteenth, TLBs and caches have too few sets to stand for the real ones.
pub const LARGEST_SCALE: u32 = 16;

impl Design {
    /// This design with tier capacities, reserved memory, TLB and page-walk cache entries, the last-level cache, a GPU's
    /// TLBs, the slices of its second level, its client cache and its remote directory, the policy's periods and amounts
    /// and the period of samples divided by `scale`. Latencies, bandwidths, private caches, which those of SMs are too, and cores stay. What does not divide is
    /// rounded up to whole sets.
    ///
    /// Errors: a scale outside 1 to [`LARGEST_SCALE`].
    pub fn scaled(&self, scale: u32) -> Result<Design, String> {
        if !(1..=LARGEST_SCALE).contains(&scale) {
            return Err(format!("scale {scale} is not 1 to {LARGEST_SCALE}"));
        }
        let mut design = self.clone();
        if scale == 1 {
            return Ok(design);
        }
        let pages = |bytes: Bytes| Bytes((bytes.0 / u64::from(scale)).next_multiple_of(4096));
        for tier in &mut design.tiers {
            tier.capacity = pages(tier.capacity);
        }
        design.os.reserved = pages(design.os.reserved);
        if let Some(vm) = &mut design.vm {
            vm.memory = vm.memory.map(pages);
            vm.tiers.iter_mut().for_each(|tier| tier.capacity = pages(tier.capacity));
        }
        if let Some(period) = &mut design.os.sample_contiguity {
            *period = Time((period.0 / u64::from(scale)).max(1));
        }
        let translation = &mut design.translation;
        for tlb in translation.l1d.values_mut() {
            shrink(&mut tlb.entries, tlb.ways, scale);
        }
        for array in &mut translation.l2.array {
            shrink(&mut array.entries, array.ways, scale);
        }
        let cache = &mut translation.page_walk_cache;
        shrink(&mut cache.entries, cache.ways, scale);
        if let Some(scheme) = schemes::find(&translation.scheme.kind) {
            scheme.scale(&mut translation.scheme, scale);
        }
        if let Some(nested) = &mut translation.nested {
            nested.scale(scale);
        }
        let of_host = design.host.as_mut().and_then(|host| host.policy.as_mut());
        for policy in design.os.policy.iter_mut().chain(of_host) {
            let entry = terrace_policy::find(&policy.name).map_err(|problem| problem.to_string())?;
            policy.parameters =
                entry.scaled(&policy.parameters, scale).map_err(|problem| problem.to_string())?;
        }
        let llc = &mut design.cache.llc;
        let set = u64::from(llc.ways) * LINE_BYTES;
        llc.capacity = Bytes((llc.capacity.0 / u64::from(scale)).next_multiple_of(set));
        if let Some(gpu) = &mut design.gpu {
            gpu.tlb.entries = gpu.tlb.entries.div_ceil(scale);
            let set = u64::from(gpu.l2.ways) * GPU_LINE;
            gpu.l2.capacity = Bytes((gpu.l2.capacity.0 / u64::from(scale)).next_multiple_of(set));
        }
        if let Some(coherence) = &mut design.coherence {
            coherence.scale(scale);
        }
        Ok(design)
    }

    /// The parameters that [`Design::scaled`] changes, with what they are then: dotted keys, and values as text with unit.
    ///
    /// Errors: as of [`Design::scaled`].
    pub fn scaled_parameters(&self, scale: u32) -> Result<Vec<(String, String)>, String> {
        let leaves = |design: &Design| {
            let value = toml::Value::try_from(design);
            value.map(|value| read::leaves(&value)).map_err(|problem| problem.to_string())
        };
        let before = leaves(self)?;
        let mut after = leaves(&self.scaled(scale)?)?;
        after.retain(|parameter| !before.contains(parameter));
        Ok(after)
    }
}

fn shrink(entries: &mut u32, ways: Associativity, scale: u32) {
    *entries = ways.scaled(*entries, scale);
}

#[cfg(test)]
mod tests {
    use crate::design::{Library, validate};
    use terrace_model::{Bytes, PageSize};

    #[test]
    fn a_sixteenth_by_hand() {
        let design = Library::embedded().design("skylake-6140", None, &[]).unwrap().design;
        let small = design.scaled(16).unwrap();
        assert_eq!(small.tiers[0].capacity, Bytes::gib(12));
        assert_eq!(small.translation.l2.array[0].entries, 96, "1536 / 16, eight sets of twelve");
        assert_eq!(small.translation.l1d[&PageSize::Base].entries, 4, "one set");
        assert_eq!(small.translation.l1d[&PageSize::Giant].entries, 1);
        assert_eq!(small.cache.llc.capacity, Bytes(1_622_016), "24.75 MiB / 16 in whole sets of 11 lines");
        assert_eq!(small.cache.l2, design.cache.l2);
        assert_eq!(small.core, design.core);
        let scaled = design.scaled_parameters(16).unwrap();
        let of = |key: &str| scaled.iter().find(|(own, _)| own == key).map(|(_, value)| value.as_str());
        assert_eq!(of("tier.dram.capacity"), Some("12 GiB"));
        assert_eq!((of("translation.l2.array.0.entries"), of("cache.l2.capacity")), (Some("96"), None));
        assert_eq!(design.scaled_parameters(1).unwrap(), []);
    }

    #[test]
    fn what_holds_lines_for_a_gpu_s_coherence_is_scaled_by_hand() {
        let design = Library::embedded().design("selective-cc", None, &[]).unwrap().design;
        let small = design.scaled(16).unwrap().coherence.unwrap();
        assert_eq!(small.client_cache.capacity, Bytes(512 * 1024 / 16));
        assert_eq!(small.remote_directory.entries, 65536 / 16);
        let mut odd = design.coherence.unwrap();
        odd.client_cache.capacity = Bytes(3 * 8 * 128);
        (odd.remote_directory.entries, odd.remote_directory.bucket) = (24, 3);
        odd.scale(5);
        assert_eq!(odd.client_cache.capacity, Bytes(8 * 128), "one set");
        assert_eq!(odd.remote_directory.entries, 6, "two buckets of three hold the least number of entries");
        odd.validate().unwrap();
    }

    #[test]
    fn every_machine_is_valid_at_every_scale() {
        let library = Library::embedded();
        for machine in library.machine_names() {
            let design = library.design(&machine.name, None, &[]).unwrap().design;
            assert_eq!(design.scaled(1).unwrap(), design);
            for scale in 2..=16 {
                let small = design.scaled(scale).unwrap();
                validate::validate(&small)
                    .unwrap_or_else(|fault| panic!("{} / {scale}: {fault:?}", machine.name));
                assert!(small.tiers[0].capacity < design.tiers[0].capacity);
            }
            assert!(design.scaled(0).is_err() && design.scaled(17).is_err());
        }
    }
}
