//! The shape of translation hardware in a design file.

use crate::coherence::{HatricParameters, TranslationEnergy};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use terrace_model::parameters::{Bounded, Choice, Kind, ParameterValue, Parameters, Range};
use terrace_model::{Cycles, PageSize};

/// A translation scheme by its name, and the parameters that are its own.
///
/// In a file `scheme = "radix"` or a table with a `kind` and the scheme's keys. Keys that are left out have the scheme's
/// defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct SchemeParameters {
    /// A name of the registry, `translate/schemes`.
    pub kind: String,
    /// The scheme's own keys.
    pub own: toml::Table,
}

impl SchemeParameters {
    /// A scheme with its defaults.
    pub fn named(kind: &str) -> SchemeParameters {
        SchemeParameters { kind: kind.to_owned(), own: toml::Table::new() }
    }

    /// A scheme with these keys.
    ///
    /// # Panics
    /// Parameters that are no table.
    pub fn with(kind: &str, own: &impl Serialize) -> SchemeParameters {
        let own = toml::Table::try_from(own).expect("parameters are a table");
        SchemeParameters { kind: kind.to_owned(), own }
    }
}

impl Serialize for SchemeParameters {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.own.is_empty() {
            return serializer.serialize_str(&self.kind);
        }
        let mut table = self.own.clone();
        table.insert("kind".to_owned(), self.kind.clone().into());
        table.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for SchemeParameters {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<SchemeParameters, D::Error> {
        match toml::Value::deserialize(deserializer)? {
            toml::Value::String(kind) => Ok(SchemeParameters { kind, own: toml::Table::new() }),
            toml::Value::Table(mut own) => match own.remove("kind") {
                Some(toml::Value::String(kind)) => Ok(SchemeParameters { kind, own }),
                _ => Err(D::Error::custom("a table of a scheme needs its kind, such as kind = \"colt\"")),
            },
            other => Err(D::Error::custom(format!(
                "found {}, expected the name of a scheme or a table with its kind",
                other.type_str()
            ))),
        }
    }
}

/// How many ways a set has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a number of ways or \"full\"")]
pub enum Associativity {
    /// This many.
    Ways(u32),
    /// `"full"`: one set.
    Full(FullKeyword),
}

/// The word `full`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FullKeyword {
    /// Fully associative.
    #[serde(rename = "full")]
    Full,
}

/// Entries of one set that is searched by a table of hashes.
const LARGEST_SET: u32 = 32_767;

impl Associativity {
    /// What is wrong with a structure of so many entries, if anything is: `ways` is at fault then.
    pub(crate) fn problem_of(self, entries: u32) -> Option<String> {
        let one_set = match self {
            Associativity::Ways(ways) => ways,
            Associativity::Full(_) => entries,
        };
        if one_set > LARGEST_SET {
            return Some(format!("{one_set} entries in one set are more than {LARGEST_SET}"));
        }
        match self {
            Associativity::Ways(0) if entries > 0 => Some("must be at least 1, or \"full\"".to_owned()),
            Associativity::Ways(ways) if entries > 0 && !entries.is_multiple_of(ways) => {
                Some(format!("{ways} ways do not divide {entries} entries into whole sets"))
            }
            _ => None,
        }
    }

    /// The entries of a structure divided by `scale`, rounded up to whole sets.
    pub(crate) fn scaled(self, entries: u32, scale: u32) -> u32 {
        let set = match self {
            Associativity::Ways(ways) => ways,
            Associativity::Full(_) => 1,
        };
        if entries == 0 { 0 } else { entries.div_ceil(scale).next_multiple_of(set.max(1)) }
    }
}

impl ParameterValue for Associativity {
    const KIND: Kind = Kind::Count;

    fn read(text: &str) -> Result<Associativity, String> {
        if text == "full" {
            return Ok(Associativity::Full(FullKeyword::Full));
        }
        u32::read(text).map(Associativity::Ways).map_err(|_| "a number of ways or \"full\"".to_owned())
    }

    fn text(&self) -> String {
        match self {
            Associativity::Ways(ways) => ways.to_string(),
            Associativity::Full(_) => "full".to_owned(),
        }
    }
}

impl Bounded for Associativity {
    type Bound = u32;

    fn outside(&self, low: &u32, high: &u32) -> Option<(String, Range)> {
        match self {
            Associativity::Ways(ways) => ways.outside(low, high),
            Associativity::Full(_) => None,
        }
    }
}

/// One TLB array. True LRU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Parameters)]
#[parameter(table)]
#[serde(deny_unknown_fields)]
pub struct TlbParameters {
    /// Number of entries; 0 for none.
    #[parameter(range = 0..=262_144)]
    pub entries: u32,
    /// Ways; entries / ways sets, any number of them.
    #[parameter(range = 1..=262_144)]
    pub ways: Associativity,
}

/// The level-2 TLB: which arrays exist and which sizes share them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Parameters)]
#[parameter(table)]
#[serde(deny_unknown_fields)]
pub struct L2TlbParameters {
    /// Arrays; each page size may appear in at most one, a size in none has no level-2 entry.
    #[parameter(section)]
    pub array: Vec<L2TlbArrayParameters>,
    /// Added to an access that misses the level-1 TLB and hits here.
    #[parameter(range = "0 cycles"..="1000000 cycles")]
    pub latency: Cycles,
}

/// One array of the level-2 TLB.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Parameters)]
#[parameter(table)]
#[serde(deny_unknown_fields)]
pub struct L2TlbArrayParameters {
    /// Page sizes that share the array.
    pub sizes: Vec<PageSize>,
    /// Number of entries.
    #[parameter(range = 0..=262_144)]
    pub entries: u32,
    /// Ways.
    #[parameter(range = 1..=262_144)]
    pub ways: Associativity,
}

/// Translation hardware.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Parameters)]
#[parameter(table)]
#[serde(deny_unknown_fields)]
pub struct TranslationParameters {
    /// The scheme, with parameters of its own where it has some.
    #[parameter(section)]
    pub scheme: SchemeParameters,
    /// How cores lose translations whose entries changed: `software` (interrupts, as Linux sends them, at the costs of
    /// `os.costs.shootdown`, `.shootdown_per_core`, `.interrupt` and `.flush`), `software-virtual` (the same for a guest's
    /// changes; a hypervisor's take `.shootdown`, `.shootdown_per_core` and `host.vm_exit`, which the interrupt is a part
    /// of; `software` means this where there is a hypervisor), `hatric` or `unitd` (the cache directory drops them with
    /// the stores to the entries) or `ideal` (all cores at once, for nothing: the bound for hardware schemes).
    #[serde(default = "software")]
    pub coherence: String,
    /// How the hardware of `hatric` and `unitd` is built.
    #[parameter(section)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hatric: Option<HatricParameters>,
    /// What translation takes of energy; it is not counted when absent.
    #[parameter(section)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy: Option<TranslationEnergy>,
    /// Levels of the page table, 4 or 5.
    #[parameter(range = 4..=5)]
    pub levels: u32,
    /// Level-1 data TLBs by page size (`4k`, `2m`, `1g`).
    #[parameter(section)]
    #[serde(deserialize_with = "by_page_size")]
    pub l1d: BTreeMap<PageSize, TlbParameters>,
    /// Level-2 TLB.
    #[parameter(section)]
    pub l2: L2TlbParameters,
    /// Caches of intermediate page-table entries.
    #[parameter(section)]
    pub page_walk_cache: PageWalkCacheParameters,
    /// Walks in flight at once per core.
    #[parameter(range = 1..=1024)]
    pub walkers: u32,
    /// Nested paging, if the program runs in a virtual machine.
    #[parameter(section)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nested: Option<NestedParameters>,
}

/// Reads the keys as text first, so that an error below one of them can name it.
fn by_page_size<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<PageSize, TlbParameters>, D::Error> {
    const NAMES: &[&str] = &["4k", "2m", "1g"];
    let by_name = BTreeMap::<String, TlbParameters>::deserialize(deserializer)?;
    let by_size = by_name.into_iter().map(|(name, tlb)| {
        let size = PageSize::ALL.into_iter().find(|size| size.name() == name);
        size.map(|size| (size, tlb)).ok_or_else(|| D::Error::unknown_variant(&name, NAMES))
    });
    by_size.collect()
}

/// The page-walk cache: entries of all intermediate levels in one array, LRU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Parameters)]
#[parameter(table)]
#[serde(deny_unknown_fields)]
pub struct PageWalkCacheParameters {
    /// Number of entries; 0 for none.
    #[parameter(range = 0..=32_767)]
    pub entries: u32,
    /// Ways.
    #[parameter(range = 1..=32_767)]
    pub ways: Associativity,
    /// Time of a lookup.
    #[parameter(range = "0 cycles"..="1000000 cycles")]
    pub latency: Cycles,
}

/// How the page-walk cache knows entries of a guest's page table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Choice)]
#[serde(rename_all = "kebab-case")]
pub enum WalkCacheTags {
    /// The cache holds the guest-physical address of the next table, which still has to be translated (AMD: Bhargava et al.,
    /// ASPLOS 2008).
    #[default]
    #[choice("guest-physical")]
    GuestPhysical,
    /// The cache holds where the next table lies in the machine's memory, tagged by guest-virtual addresses (Intel, Software
    /// Developer's Manual, volume 3, section 29.4, "combined mappings").
    #[choice("guest-virtual")]
    GuestVirtual,
}

/// Which page table's intermediate entries the page-walk cache holds (the page walk caches of Bhargava et al., ASPLOS 2008,
/// section 4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Choice)]
#[serde(rename_all = "kebab-case")]
pub enum WalkCacheDimensions {
    /// The entries of both tables (their "2D_PWC").
    #[default]
    #[choice("both")]
    Both,
    /// The entries of the guest's table alone (their "1D_PWC"): what the nested TLB does not know is walked from the host's
    /// root.
    #[choice("guest")]
    Guest,
}

/// Nested paging: a host's page table under the program's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Parameters)]
#[parameter(table)]
#[serde(deny_unknown_fields)]
pub struct NestedParameters {
    /// Page size of a constant host table, which maps every address of the guest to the same address of the machine. Absent
    /// in a virtual machine with a hypervisor, whose page table it is then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<PageSize>,
    /// The nested TLB: guest-physical pages of the host's sizes.
    #[parameter(section)]
    #[serde(default = "nested_tlb")]
    pub tlb: PageWalkCacheParameters,
    /// What the page-walk cache holds of the guest's tables.
    #[serde(default)]
    pub walk_cache: WalkCacheTags,
    /// The tables whose entries the page-walk cache holds.
    #[serde(default, skip_serializing_if = "holds_both")]
    pub walk_cache_dimensions: WalkCacheDimensions,
}

fn holds_both(dimensions: &WalkCacheDimensions) -> bool {
    *dimensions == WalkCacheDimensions::Both
}

impl Default for NestedParameters {
    fn default() -> NestedParameters {
        NestedParameters {
            host: None,
            tlb: nested_tlb(),
            walk_cache: WalkCacheTags::default(),
            walk_cache_dimensions: WalkCacheDimensions::default(),
        }
    }
}

/// Assumed: Bhargava et al. (ASPLOS 2008) describe AMD's nested TLB as small; processors' manuals state no size.
fn nested_tlb() -> PageWalkCacheParameters {
    PageWalkCacheParameters {
        entries: 16,
        ways: Associativity::Full(FullKeyword::Full),
        latency: Cycles(1.0),
    }
}

fn software() -> String {
    "software".to_owned()
}
