//! The keys of coherence between the CPU's caches and the GPU's: the table `coherence`.

use super::super::parameters::GPU_LINE;
use serde::{Deserialize, Serialize};
use terrace_model::parameters::{Choice, Parameters};
use terrace_model::{Bytes, BytesPerSec, Cycles, Time};

/// How the caches of the CPU and of the GPU are kept coherent. The first tier is the GPU's memory, all others are the CPU's;
/// the link between both takes the place of tiers' links.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Parameters)]
#[serde(default, deny_unknown_fields)]
pub struct GpuCoherenceParameters {
    /// What the GPU may cache.
    #[parameter(default = CoherenceKind::Hardware)]
    pub kind: CoherenceKind,
    /// Where loads that the GPU may not cache join others of their line that are under way. With `selective`.
    #[parameter(default = Coalescing::None, source = "Agarwal 2017, section 5.2.2.1")]
    pub coalescing: Coalescing,
    /// What such a load asks for where none are joined. With `selective`; the source says only that the coalescer of lanes
    /// is all that is left.
    #[parameter(default = Uncoalesced::Transaction)]
    pub uncoalesced: Uncoalesced,
    /// Whether only those sectors of a line cross the link that were asked for; else whole lines do.
    #[parameter(default = false, source = "Agarwal 2017, section 5.2.2.3")]
    pub variable_transfers: bool,
    /// The link between the GPU and the CPU.
    #[parameter(section)]
    pub link: GpuLinkParameters,
    /// The cache at the CPU's memory for what the GPU asks for.
    #[parameter(section)]
    pub client_cache: ClientCacheParameters,
    /// What the GPU knows of its memory's lines in the CPU's caches. With `selective`.
    #[parameter(section)]
    pub remote_directory: RemoteDirectoryParameters,
    /// Whether the GPU caches pages of the CPU's memory until one is written. With `selective`.
    #[parameter(section)]
    pub read_only: ReadOnlyParameters,
}

/// What the GPU may cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Choice)]
#[serde(rename_all = "kebab-case")]
pub enum CoherenceKind {
    /// Everything: hardware keeps both sides coherent, and its messages take nothing but the link. The bound.
    Hardware,
    /// Lines of its own memory that the CPU does not hold.
    Selective,
}

/// Where loads of one line join each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Choice)]
#[serde(rename_all = "kebab-case")]
pub enum Coalescing {
    /// Nowhere.
    None,
    /// Loads of one SM join.
    L1,
    /// Loads of one SM join, and loads of all SMs at the slices.
    L1L2,
}

/// What a load asks for that neither is cached nor joins others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Choice)]
#[serde(rename_all = "kebab-case")]
pub enum Uncoalesced {
    /// The sectors of its transaction, in one request.
    Transaction,
    /// The sectors of its transaction, in a request each.
    Sector,
    /// The whole line.
    Line,
}

/// A full-duplex link in flits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Parameters)]
#[serde(default, deny_unknown_fields)]
pub struct GpuLinkParameters {
    /// There and back together: half is paid each way.
    #[parameter(default = "100 cycles", range = "0 cycles"..="1000000 cycles", source = "Agarwal 2017, table 5.3")]
    pub latency: Cycles,
    /// Bandwidth of each direction.
    #[parameter(default = "90 GB/s", range = "1 kB/s"..="1000 TB/s", source = "Agarwal 2017, table 5.3")]
    pub bandwidth: BytesPerSec,
    /// A packet is a header of one flit, and as many flits of data as it takes.
    #[parameter(default = "16 B", range = "1 B"..="128 B", source = "Agarwal 2017, section 5.3")]
    pub flit: Bytes,
}

/// The client cache: lines of 128 bytes, write-through, without allocation by stores, least recently used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Parameters)]
#[serde(default, deny_unknown_fields)]
pub struct ClientCacheParameters {
    /// Size; zero for none.
    #[parameter(default = "0 B", range = "0 B"..="4 GiB", source = "Agarwal 2017, table 5.3: 512 KiB")]
    pub capacity: Bytes,
    /// Ways of a set.
    #[parameter(default = 8, range = 1..=256, source = "Agarwal 2017, section 5.3")]
    pub ways: u32,
    /// Latency of a hit, without that of the link.
    #[parameter(default = "100 cycles", range = "0 cycles"..="1000000 cycles", source = "Agarwal 2017, section 5.3")]
    pub latency: Cycles,
    /// What a miss adds before memory is read. The cache lies at the memory's controller, and the source gives nothing.
    #[parameter(default = "0 cycles", range = "0 cycles"..="1000000 cycles")]
    pub miss_latency: Cycles,
}

/// The remote directory: a cuckoo filter of lines of 128 bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Parameters)]
#[serde(default, deny_unknown_fields)]
pub struct RemoteDirectoryParameters {
    /// Lines that it has room for: 8 MiB of the GPU's memory.
    #[parameter(default = 65536, range = 4..=16777216, source = "Agarwal 2017, section 5.2.1")]
    pub entries: u32,
    /// Entries of a bucket. With fingerprints of 8 bits, 4 give the source's 64 KiB and 3 % of false positives.
    #[parameter(default = 4, range = 1..=16)]
    pub bucket: u32,
    /// Bits of a fingerprint.
    #[parameter(default = 8, range = 2..=16)]
    pub fingerprint: u32,
    /// Share of the entries from which on the CPU gives up the GPU's lines and the directory begins anew.
    #[parameter(default = 0.95, range = 0.0..=1.0, unit = "share")]
    pub high_water: f64,
    /// Time of the trap that makes the CPU give them up, without their way to memory. Assumed.
    #[parameter(default = "4 us", range = "0 ns"..="1 s")]
    pub flush_cost: Time,
}

/// Promiscuous read-only caching: pages of the CPU's memory are read-only when a kernel begins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Parameters)]
#[serde(default, deny_unknown_fields)]
pub struct ReadOnlyParameters {
    /// Whether it is done.
    #[parameter(default = false, source = "Agarwal 2017, section 5.2.3")]
    pub enabled: bool,
    /// Time of the fault that a store of the GPU to such a page takes, without the walk that follows.
    #[parameter(default = "20 us", range = "0 ns"..="1 s", source = "Agarwal 2017, section 5.2.3")]
    pub gpu_fault: Time,
    /// Time of the fault that a store of the CPU takes: 3 to 5 us.
    #[parameter(default = "4 us", range = "0 ns"..="1 s", source = "Agarwal 2017, section 5.2.3")]
    pub cpu_fault: Time,
    /// Faults that an SM may have pending; with one more it issues nothing.
    #[parameter(default = 16, range = 1..=1024, source = "Agarwal 2017, table 5.3")]
    pub pending: u32,
    /// Faults of a kernel, in a millisecond of its time, from which on the rest of its pages are given up for reading at
    /// once; asked from the sixteenth fault of a kernel on. The source advises such a limit and gives no number; none when
    /// zero.
    #[parameter(default = 0.0, range = 0.0..=1e9, unit = "faults/ms")]
    pub limit: f64,
}

impl GpuCoherenceParameters {
    /// Divides what holds lines, the client cache and the remote directory, by `scale`, rounded up to what can be built.
    pub fn scale(&mut self, scale: u32) {
        let (cache, directory) = (&mut self.client_cache, &mut self.remote_directory);
        let set = u64::from(cache.ways) * GPU_LINE;
        cache.capacity = Bytes((cache.capacity.0 / u64::from(scale)).next_multiple_of(set));
        let buckets = (directory.entries / directory.bucket).div_ceil(scale).next_power_of_two();
        // The least number of entries is the range's.
        directory.entries =
            directory.bucket * buckets.max(4_u32.div_ceil(directory.bucket).next_power_of_two());
    }

    /// What types do not say, by key.
    ///
    /// # Errors
    /// The key and what is wrong with it.
    pub fn validate(&self) -> Result<(), (&'static str, String)> {
        let (cache, directory) = (&self.client_cache, &self.remote_directory);
        let way = u64::from(cache.ways) * GPU_LINE;
        if !cache.capacity.0.is_multiple_of(way) {
            let problem =
                format!("{} is not a number of sets of {} lines of 128 B", cache.capacity, cache.ways);
            return Err(("coherence.client_cache.capacity", problem));
        }
        let buckets = directory.entries / directory.bucket;
        if !directory.entries.is_multiple_of(directory.bucket) || !buckets.is_power_of_two() {
            let problem = format!(
                "{} entries are not a power of two of buckets of {}",
                directory.entries, directory.bucket
            );
            return Err(("coherence.remote_directory.entries", problem));
        }
        if self.kind == CoherenceKind::Hardware {
            let idle = [
                ("coherence.coalescing", self.coalescing != Coalescing::None),
                ("coherence.uncoalesced", self.uncoalesced != Uncoalesced::Transaction),
                ("coherence.read_only.enabled", self.read_only.enabled),
            ];
            if let Some((key, _)) = idle.into_iter().find(|(_, set)| *set) {
                return Err((key, "needs coherence.kind = \"selective\"".to_owned()));
            }
        }
        Ok(())
    }
}
