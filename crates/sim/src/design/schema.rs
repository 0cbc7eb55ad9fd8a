//! The shape of a design file, with units in the types. One struct per TOML table.

use super::virtualization::{HostParameters, HypervisorParameters, VmParameters};
use crate::cache::CacheHierarchyParameters;
use crate::core::CoreParameters;
use crate::gpu::{GpuCoherenceParameters, GpuParameters};
use crate::memory::{DeviceParameters, LinkParameters};
use crate::os::OsParameters;
use crate::translate::TranslationParameters;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use terrace_model::parameters::Parameters;
use terrace_model::{Bytes, Time};

/// A complete design: a machine, its operating system's choices and its translation scheme.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Parameters)]
#[parameter(table)]
#[serde(deny_unknown_fields)]
pub struct Design {
    /// Short name, as the command line shows it.
    pub name: String,
    /// One line: what the design is and what it shows.
    pub summary: String,
    /// Name of the machine preset the design stands on.
    pub machine: String,
    /// The cores.
    #[parameter(section)]
    pub core: CoreParameters,
    /// Translation hardware.
    #[parameter(section)]
    pub translation: TranslationParameters,
    /// Caches.
    #[parameter(section)]
    pub cache: CacheHierarchyParameters,
    /// Memory tiers, fastest first.
    #[parameter(section)]
    #[serde(rename = "tier")]
    pub tiers: Vec<TierParameters>,
    /// Devices that back the tiers, by name.
    #[parameter(section)]
    #[serde(rename = "device")]
    pub devices: BTreeMap<String, DeviceParameters>,
    /// A GPU beside the cores.
    #[parameter(section)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuParameters>,
    /// Coherence between the caches of a GPU and those of the cores; none looks into the others' when absent.
    #[parameter(section)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coherence: Option<GpuCoherenceParameters>,
    /// The operating system.
    #[parameter(section)]
    pub os: OsParameters,
    /// The virtual machine that the programs run in, if any; `os` is the guest's operating system then.
    #[parameter(section)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vm: Option<VmParameters>,
    /// The hypervisor of that virtual machine.
    #[parameter(section)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostParameters>,
    /// The hypervisor that the machine itself is a guest of, as far as a measurement saw it. No simulation changes by that
    /// alone: studies on such a machine put their designs under it (`translation.nested.host`).
    #[parameter(section)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hypervisor: Option<HypervisorParameters>,
    /// What the machine's constants rest on.
    #[parameter(section)]
    #[serde(default)]
    pub ledger: Ledger,
}

impl Design {
    /// Misses that one hardware thread may have outstanding.
    pub fn thread_misses(&self) -> u32 {
        let core = self.cache.l1.outstanding;
        self.core.outstanding.map_or(core, |thread| thread.min(core))
    }
}

/// Which constants were fitted to published rows, and which were assumed. Only what is in neither list is a prediction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Parameters)]
#[parameter(table)]
#[serde(deny_unknown_fields)]
pub struct Ledger {
    /// Whether the ledger begins with this file: what the files below say of their values does not hold for it.
    #[serde(default)]
    pub anew: bool,
    /// `key: published rows it was fitted to`.
    #[serde(default)]
    pub calibrated: Vec<String>,
    /// `key: why this value, what a sweep of it shows`.
    #[serde(default)]
    pub assumed: Vec<String>,
    /// `key: data sheet, table or page`.
    #[serde(default)]
    pub cited: Vec<String>,
    /// `key = lowest .. highest`: between which values a measured constant lay.
    #[serde(default)]
    pub spread: Vec<String>,
}

/// A memory tier: a share of a device, as the operating system sees it (a NUMA node).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Parameters)]
#[parameter(table)]
#[serde(deny_unknown_fields)]
pub struct TierParameters {
    /// Name used in statistics (`dram`, `cxl`, `pcm`): small letters, digits, `-` and `_`. `fastest` and `slowest` stand for
    /// the first and the last tier where a key names one.
    #[parameter(element)]
    pub name: String,
    /// Usable capacity.
    #[parameter(range = "4 KiB"..="8 TiB")]
    pub capacity: Bytes,
    /// The device behind it; several tiers may share one.
    pub device: String,
    /// Time from the last-level cache's miss to the device's controller and back (mesh, fabric), without queueing.
    #[parameter(range = "0 ns"..="1 s")]
    pub path_latency: Time,
    /// A link in front of the device.
    #[parameter(section)]
    #[serde(default)]
    pub link: Option<LinkParameters>,
}
