//! Placing a command's data structures by hints for their allocation sites: a library that is preloaded into it asks the
//! kernel for the nodes of each large object (`crates/preload/placer`), as a table says that is made here.

use crate::facts::TierMap;
use crate::help::{self, Library};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use tempfile::TempDir;
use terrace_hints::{Hints, Place};
use terrace_model::{Bytes, TierId};
use terrace_placement::{Module, Row, Table, Text, VARIABLE, Wanted};
use terrace_policy::{HintedPages, Refusal, site_number};

/// The library that is preloaded.
pub(crate) const LIBRARY: Library = ("libterrace_placer.so", include_bytes!(env!("TERRACE_PLACER_LIBRARY")));
/// A folder with the library.
///
/// # Errors
/// Terrace is built for a processor whose programs the library is not for, or the folder for temporary files takes none.
pub(crate) fn folder() -> io::Result<TempDir> {
    if !cfg!(target_arch = "x86_64") {
        let here = std::env::consts::ARCH;
        return Err(io::Error::other(format!(
            "it is for x86-64 programs, and this machine's are for {here}"
        )));
    }
    help::folder_with(&[LIBRARY])
}

/// The table's file.
const TABLE: &str = "placement";

/// Sites that a message names.
const FEW: usize = 6;

/// The library in a folder of its own, beside the table. Both are gone when this is dropped.
#[derive(Debug)]
pub struct Placement {
    folder: TempDir,
    table: Table,
    /// Name of each row's site, and its hint.
    sites: Vec<(String, HintedPages)>,
    /// Sites with hints that cannot be found in a program.
    without_place: usize,
}

/// How the hints were carried out, in sentences.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// What was placed.
    pub notes: Vec<String>,
    /// Says that nothing was placed, and what to do.
    pub warning: Option<String>,
}

impl Placement {
    /// Prepares the table of these hints: `pages` is what the policy has made of them.
    ///
    /// # Errors
    /// No site says where its call is, in words, or the table has no place in the folder for temporary files.
    pub fn new(hints: &Hints, pages: &BTreeMap<u64, HintedPages>, tiers: &TierMap) -> io::Result<Placement> {
        let (fast, slow) = tiers
            .topology
            .fast_and_slow()
            .map_err(|refusal: Refusal| io::Error::other(refusal.to_string()))?;
        let nodes = |tier: TierId| tiers.nodes[tier.index()].as_slice();
        if nodes(fast).is_empty() || nodes(slow).is_empty() {
            return Err(io::Error::other("data structures are placed on nodes, and a tier here has none"));
        }
        let (mut rows, mut sites, mut without_place) = (Vec::new(), Vec::new(), 0);
        for site in &hints.sites {
            let Some(wanted) = pages.get(&site_number(&site.name)) else { continue };
            match &site.place {
                Some(place) => {
                    rows.push(row(place, *wanted, nodes(fast), nodes(slow)));
                    sites.push((site.name.clone(), *wanted));
                }
                None => without_place += 1,
            }
        }
        if rows.is_empty() {
            return Err(io::Error::other(
                "no site says where its call is (module and offset), so nothing can be placed; `terrace profile -- COMMAND` \
                 finds that of programs in whose files it can look them up",
            ));
        }
        let folder = folder()?;
        let file = help::shared_file(&folder.path().join(TABLE))?;
        let table = Table::create(&file, &rows)?;
        Ok(Placement { folder, table, sites, without_place })
    }

    /// What the command's environment has to say: names and values.
    pub fn environment(&self) -> Vec<(OsString, OsString)> {
        help::environment_with(self.folder.path(), LIBRARY, (VARIABLE, TABLE))
    }

    /// Leaves library and table for programs that are started later.
    pub fn stay(mut self) {
        self.folder.disable_cleanup(true);
    }

    /// What came of it. `file` is that of the hints, `program` what was started.
    pub fn outcome(&self, file: &str, program: &str) -> Placed {
        let head = self.table.head();
        let mut placed = Placed::default();
        if self.without_place > 0 {
            placed.notes.push(format!(
                "{file}: {} sites say no place (module and offset), so their structures were not placed",
                self.without_place
            ));
        }
        if head.processes.load(Relaxed) == 0 {
            placed.warning = Some(format!(
                "{program} has not loaded the library that places by {file}, so nothing was placed: programs that are linked \
                 statically, or run with other privileges, load none"
            ));
            return placed;
        }
        let count = |number: &AtomicU64| number.load(Relaxed);
        let (mut met, mut objects, mut pages) = (0, 0, [0, 0]);
        for ((name, wanted), row) in self.sites.iter().zip(self.table.rows()) {
            let (of_row, refused) = (count(&row.objects), count(&row.refused));
            met += u64::from(of_row + refused > 0);
            objects += of_row;
            let [first, others] = [0, 1].map(|at| count(&row.pages[at]));
            pages = [pages[0] + first, pages[1] + others];
            if of_row > 0 {
                placed.notes.push(format!(
                    "hint {} {name}: {}",
                    hint(*wanted),
                    shares(*wanted, [first, others])
                ));
            }
            if refused > 0 {
                let error = match row.error.load(Relaxed) {
                    0 => "there are too many".to_owned(),
                    error => io::Error::from_raw_os_error(error).to_string(),
                };
                placed.notes.push(format!("{name}: {refused} objects were not placed: {error}"));
            }
        }
        if met == 0 {
            placed.warning = Some(self.met_none(file, program));
        } else {
            let all = self.sites.len();
            let size = size(pages[0] + pages[1]);
            placed
                .notes
                .insert(0, format!("{file}: {met} of {all} sites met, {objects} objects placed, {size}"));
        }
        placed
    }

    fn met_none(&self, file: &str, program: &str) -> String {
        let sites = self.sites.len();
        let others = self.table.head().others();
        let named: Vec<String> = others
            .iter()
            .take(FEW)
            .map(|other| format!("{}+{:#x} ({})", other.module, other.offset, Bytes(other.bytes)))
            .collect();
        let seen = match &named[..] {
            [] => "it allocated nothing of 64 KiB or more".to_owned(),
            _ => format!("what it allocated came from {}", named.join(", ")),
        };
        format!(
            "{file}: {program} has met none of its {sites} allocation sites, so nothing was placed: {seen}. The hints are of \
             another program or another build; `terrace profile -o {file} -- {program}` makes new ones"
        )
    }
}

fn row(place: &Place, wanted: HintedPages, fast: &[u32], slow: &[u32]) -> Row {
    let module = Module { name: Text::of(place.module.as_bytes()), build_id: Text::of(&place.build_id) };
    let wanted = match wanted {
        HintedPages::Fast(pages) => Wanted::Fast(pages),
        HintedPages::Slow => Wanted::Slow,
        HintedPages::Both => Wanted::Both,
    };
    Row::wanting(module, place.offset, wanted, fast, slow)
}

fn hint(wanted: HintedPages) -> &'static str {
    match wanted {
        HintedPages::Fast(_) => "BO",
        HintedPages::Slow => "CO",
        HintedPages::Both => "BW",
    }
}

fn size(pages: u64) -> Bytes {
    Bytes(pages * 4096)
}

fn shares(wanted: HintedPages, [first, others]: [u64; 2]) -> String {
    match wanted {
        HintedPages::Fast(_) if others > 0 => {
            format!("{} asked for in the fast tier, {} in the slow one", size(first), size(others))
        }
        HintedPages::Fast(_) => format!("{} asked for in the fast tier", size(first)),
        HintedPages::Slow => format!("{} asked for in the slow tier", size(others)),
        HintedPages::Both => format!("{} asked for in both, by their weights", size(others)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::GroupedBy;
    use terrace_hints::Site;
    use terrace_model::{BytesPerSec, Time};
    use terrace_policy::{Tier, Topology};

    fn site(name: &str, offset: u64) -> Site {
        let place = Place { module: "app".to_owned(), build_id: vec![1, 2], offset };
        Site { name: name.to_owned(), place: Some(place), bytes: 1 << 20, ..Site::default() }
    }

    /// Nodes 0 and 1 are fast, node 2 is slow.
    fn tiers() -> TierMap {
        let tier = |name: &str| Tier {
            name: name.to_owned(),
            capacity: Bytes::mib(64),
            used: Bytes(0),
            read_latency: Time::from_nanos(100),
            write_latency: Time::from_nanos(100),
            read_bandwidth: BytesPerSec(1e10),
            write_bandwidth: BytesPerSec(1e10),
        };
        TierMap {
            topology: Topology { tiers: vec![tier("dram"), tier("cxl")] },
            nodes: vec![vec![0, 1], vec![2]],
            tier_of_node: [0, 0, 1].map(|tier| Some(TierId(tier))).into(),
            stated_speed: vec![true; 2],
            grouped_by: GroupedBy::Nothing,
        }
    }

    fn placement() -> Placement {
        let unknown = Site { place: None, ..site("marked", 0) };
        let hints = Hints { sites: vec![site("hot", 0x10), site("cold", 0x20), unknown], ..Hints::default() };
        let wanted =
            [("hot", HintedPages::Fast(100)), ("cold", HintedPages::Slow), ("marked", HintedPages::Both)];
        let pages = wanted.map(|(name, pages)| (site_number(name), pages)).into();
        Placement::new(&hints, &pages, &tiers()).unwrap()
    }

    #[test]
    fn rows_say_what_hints_mean_on_nodes() {
        let placement = placement();
        let [hot, cold] = placement.table.rows() else { panic!("two rows") };
        assert_eq!((hot.first.nodes[0], hot.others.nodes[0], hot.left.load(Relaxed)), (0b11, 0b100, 100));
        assert!(hot.is_hot() && cold.is_cold());
        assert_eq!((cold.offset, cold.others.nodes[0], cold.left.load(Relaxed)), (0x20, 0b100, 0));
        let both = row(&Place::default(), HintedPages::Both, &[0, 1], &[2]);
        assert_eq!((both.others.modes, both.others.nodes[0]), (terrace_placement::INTERLEAVED, 0b111));
    }

    #[test]
    fn the_outcome_is_reported_once_in_words() {
        let placement = placement();
        let (head, rows) = (placement.table.head(), placement.table.rows());
        let reported = || placement.outcome("h.toml", "app");
        assert!(
            reported().warning.unwrap().starts_with("app has not loaded the library that places by h.toml")
        );
        head.processes.fetch_add(1, Relaxed);
        assert!(reported().warning.unwrap().contains(
            "h.toml: app has met none of its 2 allocation sites, so nothing was placed: it allocated nothing of 64 KiB"
        ));
        let other = head.other(b"libc.so.6", 0x99).unwrap();
        head.count(other, 1 << 20);
        let warning = reported().warning.unwrap();
        assert!(
            warning.contains("what it allocated came from libc.so.6+0x99 (1 MiB). The hints are of"),
            "{warning}"
        );
        rows[0].objects.fetch_add(2, Relaxed);
        rows[0].pages[0].fetch_add(100, Relaxed);
        rows[0].pages[1].fetch_add(28, Relaxed);
        rows[1].refused.fetch_add(1, Relaxed);
        rows[1].error.store(libc::ENOMEM, Relaxed);
        let Placed { notes, warning } = reported();
        assert_eq!(warning, None);
        assert_eq!(
            notes,
            [
                "h.toml: 2 of 2 sites met, 2 objects placed, 512 KiB",
                "h.toml: 1 sites say no place (module and offset), so their structures were not placed",
                "hint BO hot: 400 KiB asked for in the fast tier, 112 KiB in the slow one",
                "cold: 1 objects were not placed: Cannot allocate memory (os error 12)",
            ]
        );
    }

    #[test]
    fn hints_without_places_are_refused() {
        let hints = Hints { sites: vec![Site { place: None, ..site("grid", 0) }], ..Hints::default() };
        let pages = BTreeMap::from([(site_number("grid"), HintedPages::Slow)]);
        let error = Placement::new(&hints, &pages, &tiers()).unwrap_err().to_string();
        assert!(error.starts_with("no site says where its call is"), "{error}");
    }
}
