//! How much fast memory, at which prices: what studies of tiering policies share.

use crate::Error;
use crate::designs::{Changes, Job, Setting};
use crate::figures::{self, percent};
use crate::input::Input;
use crate::progress::Watched;
use crate::simulation::Settings;
use terrace_model::{Bytes, PageSize, Stats};
use terrace_sim::design::{Design, Library, Placement};
use terrace_sim::{Fidelity, Options};

/// The design with everything in the fastest tier.
pub const ALL_FAST: &str = "all-fast";

/// Prices of tiers by name, where the fastest tier's is 1.
pub type Prices = Vec<(String, f64)>;

/// A price for each tier of `design` but the first, in the machine's order; nothing where none was given. Prices are
/// relative to the first tier's; the tier `slow` stands for every other one.
///
/// # Errors
/// A tier that the machine does not have, or one without a price.
pub fn prices_of(given: &[(String, f64)], design: &Design) -> Result<Prices, Error> {
    let names: Vec<&str> = design.tiers.iter().map(|tier| tier.name.as_str()).collect();
    if given.is_empty() {
        return Ok(Vec::new());
    }
    let (fastest, slower) = (names[0], &names[1..]);
    for (tier, _) in given {
        if tier == fastest {
            return Err(Error::request(format!(
                "--price {tier}: prices are relative to {tier}'s, which is 1"
            )));
        }
        if tier != "slow" && !slower.contains(&tier.as_str()) {
            return Err(Error::request(format!(
                "--price {tier}: {} has no such tier; give slow, or one of {}",
                design.machine,
                slower.join(", ")
            )));
        }
    }
    let price = |name: &str| {
        let named = given.iter().rev().find(|(tier, _)| tier == name);
        named.or_else(|| given.iter().rev().find(|(tier, _)| tier == "slow")).map(|(_, price)| *price)
    };
    slower
        .iter()
        .map(|name| {
            let missing = || Error::request(format!("--price has none for {name}; add --price {name}=PRICE"));
            Ok(((*name).to_owned(), price(name).ok_or_else(missing)?))
        })
        .collect()
}

/// The machine that all of these designs stand on, by its name: what they are measured against stands there too.
///
/// # Errors
/// Designs of several machines, or of one that only their own file names.
pub fn machine_of(designs: &[String], changes: &Changes) -> Result<String, Error> {
    let machine = |word: &String| Ok::<_, Error>(changes.resolve(word, None)?.design.design.machine);
    let (first, others) = designs.split_first().expect("the caller has designs");
    let found = machine(first)?;
    for other in others {
        let own = machine(other)?;
        if own != found {
            return Err(Error::request(format!(
                "everything in fast memory, which designs are measured against here, is a run on one machine; {first} \
                 stands on {found}, {other} on {own}: --machine puts all on one"
            )));
        }
    }
    if Library::embedded().machine_names().iter().any(|listed| listed.name == found) {
        return Ok(found);
    }
    Err(Error::request(format!(
        "{first} stands on {found}, which is no machine of the library; name its file with --machine, so that what it is \
         measured against stands there too"
    )))
}

/// Refuses machines on which there is nothing to decide.
pub fn check_tiers(design: &Design) -> Result<(), Error> {
    if design.tiers.len() < 2 {
        let machine = &design.machine;
        return Err(Error::request(format!(
            "{machine} has one tier of memory; choose a machine with two, such as --machine zen4-cxl"
        )));
    }
    Ok(())
}

fn capacity_key(design: &Design) -> String {
    format!("tier.{}.capacity", design.tiers[0].name)
}

/// Everything in the fastest tier, which is made as large as all tiers together: the run that slowdowns refer to. In a
/// virtual machine it is the hypervisor that puts everything there, and the guest sees one tier.
///
/// # Errors
/// A machine with one tier; changes that cannot be.
pub fn all_fast(options: &Changes, machine: Option<&str>) -> Result<Job, Error> {
    let asked = options.resolve(ALL_FAST, machine)?.design.design;
    check_tiers(&asked)?;
    let key = capacity_key(&asked);
    let mut options = options.clone();
    options.sets.retain(|set| set.key != key);
    if asked.vm.is_some() {
        options.sets.retain(|set| !places_guest(&set.key));
        options.sets.push(Setting::of_all("host.placement.kind", "bind"));
        options.sets.push(Setting::of_all("host.placement.tier", "fastest"));
    }
    // The machine's own capacity, where the command line had shrunk it.
    let own = options.resolve(ALL_FAST, machine)?.design.design;
    let all: u64 = own.tiers.iter().map(|tier| tier.capacity.0).sum();
    options.sets.push(Setting::of_all(key, Bytes(all).to_string()));
    options.resolve(ALL_FAST, machine)
}

/// Whether a key says where the hypervisor puts a guest's memory.
fn places_guest(key: &str) -> bool {
    ["vm.tier", "host.placement", "host.policy"].iter().any(|table| key.starts_with(table))
}

/// The bounds of these designs: native ones are measured against a native machine with everything fast, those in a
/// virtual machine against the first one's virtual machine with everything fast.
///
/// # Errors
/// As [`all_fast`].
pub fn bounds(designs: &[Job], options: &Changes, machine: Option<&str>) -> Result<Vec<Job>, Error> {
    let guest = designs.iter().find(|job| job.design.design.vm.is_some());
    let mut bounds = Vec::new();
    if designs.iter().any(|job| job.design.design.vm.is_none()) {
        bounds.push(all_fast(options, machine)?);
    }
    if let Some(guest) = guest {
        let mut bound = all_fast(&in_its_vm(guest, options), machine)?;
        if !bounds.is_empty() {
            bound.design.design.name = format!("virtual-{ALL_FAST}");
        }
        bounds.push(bound);
    }
    Ok(bounds)
}

/// The changes that put any design into the virtual machine of `guest`.
fn in_its_vm(guest: &Job, options: &Changes) -> Changes {
    let of_vm = |key: &str| {
        ["vm.", "host.", "translation.nested."].iter().any(|table| key.starts_with(table))
            && !places_guest(key)
    };
    let own = guest.design.parameters.iter().filter(|parameter| of_vm(&parameter.key));
    // The table has to be there, also where none of its keys is.
    let mut sets = vec![Setting::of_all("vm.count", "1")];
    sets.extend(own.map(|parameter| Setting::of_all(&parameter.key, &parameter.value)));
    sets.extend(options.sets.iter().cloned());
    Changes { sets, ..options.clone() }
}

/// `word` with this share of `resident` as its fastest tier, nothing of it reserved.
pub fn with_share(
    word: &str,
    share: f64,
    resident: Bytes,
    options: &Changes,
    machine: Option<&str>,
    scale: u32,
) -> Result<Job, Error> {
    let mut options = options.clone();
    let key = capacity_key(&options.resolve(word, machine)?.design.design);
    // Whole pages, after the division by the scale too.
    let page = PageSize::Base.bytes();
    let pages = (resident.0 as f64 * share / page as f64).ceil().max(1.0) as u64;
    let capacity = Bytes(pages * page * u64::from(scale));
    options.sets.insert(0, Setting::of_all("os.reserved", "0 B"));
    options.sets.push(Setting::of_all(key, capacity.to_string()));
    options.resolve(word, machine)
}

/// Refuses a `--set` of what the command sizes itself; `refusal` says so of the key.
pub fn check_capacity_is_free(
    all_fast: &Job,
    options: &Changes,
    refusal: impl Fn(&str) -> String,
) -> Result<(), Error> {
    let key = capacity_key(&all_fast.design.design);
    if options.sets.iter().any(|set| set.key == key) { Err(Error::request(refusal(&key))) } else { Ok(()) }
}

/// Refuses a machine with a GPU, whose memory in use over time is not counted; `command` needs that.
pub fn check_no_gpu(command: &str, design: &Design) -> Result<(), Error> {
    match design.gpu {
        None => Ok(()),
        Some(_) => Err(Error::request(format!(
            "{command} weighs the memory of processors, and the machine {machine} has a GPU; terrace compare --machine {machine} \
             --policies … --fast 25%,50% shows how much of a GPU's memory is enough",
            machine = design.machine
        ))),
    }
}

/// The name of a design at a share.
pub fn name_at(design: &str, share: f64) -> String {
    format!("{design}@{}", percent(share))
}

/// Behind what says that an input touches no memory: what follows, and the next step.
pub(crate) const NO_ACCESSES: &str =
    ": an input without accesses has no answer; terrace trace info shows what a trace holds";

/// Most memory that `input` ever has resident. Reads the input once, without timing where the machine has no GPU.
///
/// # Errors
/// An input that cannot be read twice, or does not fit the machine.
pub fn resident(all_fast: &Job, input: &Input, why: &str, settings: &Settings<'_>) -> Result<Bytes, Error> {
    let name = format!("{}, footprint", input.name);
    tracing::info!(input = input.name, "footprint begins");
    let (mut source, _) = input.again(why)?.open(settings)?;
    let mut watched = Watched::new(&name, source.as_mut(), settings.progress);
    // What a program touches is the same without a virtual machine, whose walks this fidelity does not have.
    let mut design = settings.scaled(&all_fast.design.design)?;
    // A GPU is simulated in full only.
    let fidelity = if design.gpu.is_some() { Fidelity::Full } else { Fidelity::Pages };
    let options = Options { fidelity, ..settings.options() };
    if design.vm.is_some() {
        // Tiers of the guest are none of the machine's.
        design.os.placement = Placement::Bind { tier: design.tiers[0].name.clone() };
        design.os.page_table_tier = None;
    }
    (design.vm, design.host, design.translation.nested) = (None, None, None);
    let outcome = terrace_sim::simulate(&design, &mut watched, options)?;
    if outcome.stopped {
        return Err(Error::Stopped("stopped while the input's footprint was measured".to_owned()));
    }
    match peak_resident(&outcome.stats) {
        0 => Err(Error::failed(format!("{} touches no memory{NO_ACCESSES}", input.name))),
        bytes => Ok(Bytes(bytes)),
    }
}

/// What to know where the last-level cache holds so much of what is resident that places matter little, for a run of
/// `design` with `stats` on the machine that `settings` scale down. Nothing where more memory is resident, and nothing of a
/// GPU, whose caches are its own.
pub(crate) fn small_in_caches(design: &Design, stats: &Stats, settings: &Settings<'_>) -> Option<String> {
    /// Caches that hold one in so many of the resident bytes hold much.
    const HELD: u64 = 2;
    // As it was simulated: what is resident is of the smaller machine, too.
    let design = settings.scaled(design).ok()?;
    let (llc, resident) = (design.cache.llc.capacity.0, peak_resident(stats));
    (resident <= HELD * llc && stats.integer("gpu.kernels") == 0).then(|| {
        format!(
            "the last-level cache holds {} and the program {}, so it matters little where the memory lies. That says nothing of \
             the program with more data",
            figures::readable(llc),
            figures::readable(resident),
        )
    })
}

/// Most bytes that a run had resident, by its statistics.
pub(crate) fn peak_resident(stats: &Stats) -> u64 {
    ["4k", "2m", "1g"].iter().map(|size| stats.integer(&format!("os.peak_resident_bytes.{size}"))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_fits_the_fast_run_and_a_share_is_exact() {
        let shrunk = [("tier.dram.capacity", "4 MiB"), ("os.reserved", "0 B")];
        let sets = shrunk.map(|(key, value)| Setting::of_all(key, value)).into();
        let options = Changes { machine: Some("zen4-cxl".to_owned()), sets, time_scale: 1 };
        let fast = all_fast(&options, None).unwrap().design.design;
        assert_eq!(fast.tiers[0].capacity, Bytes::gib(128));
        let job = with_share("ambix", 0.25, Bytes::mib(64), &options, None, 4).unwrap();
        assert_eq!(job.design.design.tiers[0].capacity, Bytes::mib(64));
        assert_eq!(job.design.design.scaled(4).unwrap().tiers[0].capacity, Bytes::mib(16));
        assert_eq!(name_at("ambix", 0.125), "ambix@12.5%");
    }

    #[test]
    fn caches_and_memory_are_compared_on_the_same_machine() {
        let small = |scale, resident: Bytes| {
            let changes = Changes { machine: Some("zen4-cxl".to_owned()), ..Changes::default() };
            let design = changes.resolve("native-4k", None).unwrap().design.design;
            let simulation = crate::Simulation { scale, ..crate::Simulation::default() };
            let mut stats = Stats::new();
            stats.level("os.peak_resident_bytes.4k", resident.0, terrace_model::Unit::Bytes);
            (
                design.cache.llc.capacity,
                small_in_caches(&design, &stats, &Settings::new(simulation, &crate::progress::Silent)),
            )
        };
        let (llc, _) = small(1, Bytes(1));
        assert!(small(1, Bytes(2 * llc.0)).1.is_some());
        assert!(small(1, Bytes(3 * llc.0)).1.is_none());
        // A quarter of the machine has a quarter of the cache, so that much memory is not small there.
        assert!(small(4, llc).1.is_none());
        assert!(small(4, Bytes(llc.0 / 2)).1.is_some());
    }

    #[test]
    fn the_bound_stands_where_the_designs_do() {
        let of = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            machine_of(&words, &Changes::default()).map_err(|error| error.to_string())
        };
        assert_eq!(of(&["gpu-local", "gpu-memcpy"]).as_deref(), Ok("gpu-gtx480"));
        assert_eq!(of(&["native-4k", "ambix"]).as_deref(), Ok("zen4-cxl"));
        let said = of(&["native-4k", "gpu-local"]).unwrap_err();
        assert!(
            said.ends_with(
                "native-4k stands on zen4-cxl, gpu-local on gpu-gtx480: --machine puts all on one"
            ),
            "{said}"
        );
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("own.toml"), "kind = \"machine\"\nextends = \"zen4-cxl\"\n")
            .unwrap();
        let design = folder.path().join("mine.toml");
        std::fs::write(&design, "extends = [\"native-4k\", \"./own.toml\"]\n").unwrap();
        let said = of(&[&design.display().to_string()]).unwrap_err();
        assert!(said.contains("stands on own, which is no machine of the library"), "{said}");
    }
}
