//! How much fast memory, at which prices: what commands about tiering policies share.

use crate::error::{Blame, Failure};
use crate::input::{Input, Watched};
use crate::options::{DesignOptions, Job, Setting};
use crate::run::{self, Settings};
use clap::Args;
use terrace_model::{Bytes, PageSize};
use terrace_sim::design::Design;
use terrace_sim::{Fidelity, Options};

/// The design with everything in the fastest tier.
pub const ALL_FAST: &str = "all-fast";

/// What the tiers cost.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Design")]
pub struct PriceOption {
    /// Price of a tier's memory, where the fastest tier's is 1; `slow` stands
    /// for every other tier. Repeatable
    #[arg(long, value_name = "TIER=PRICE", value_parser = parse_price)]
    pub price: Vec<(String, f64)>,
}

impl PriceOption {
    /// A price for each tier but the first, in the machine's order; nothing where none was given.
    ///
    /// # Errors
    /// A tier that the machine does not have, or one without a price.
    pub fn of(&self, design: &Design) -> Result<Vec<(String, f64)>, Failure> {
        let names: Vec<&str> = design.tiers.iter().map(|tier| tier.name.as_str()).collect();
        if self.price.is_empty() {
            return Ok(Vec::new());
        }
        let (fastest, slower) = (names[0], &names[1..]);
        for (tier, _) in &self.price {
            if tier == fastest {
                return Err(Failure::usage(format!(
                    "--price {tier}: prices are relative to {tier}'s, which is 1"
                )));
            }
            if tier != "slow" && !slower.contains(&tier.as_str()) {
                return Err(Failure::usage(format!(
                    "--price {tier}: {} has no such tier; give slow, or one of {}",
                    design.machine,
                    slower.join(", ")
                )));
            }
        }
        let price = |name: &str| {
            let named = self.price.iter().rev().find(|(tier, _)| tier == name);
            named
                .or_else(|| self.price.iter().rev().find(|(tier, _)| tier == "slow"))
                .map(|(_, price)| *price)
        };
        slower
            .iter()
            .map(|name| {
                let missing =
                    || Failure::usage(format!("--price has none for {name}; add --price {name}=PRICE"));
                Ok(((*name).to_owned(), price(name).ok_or_else(missing)?))
            })
            .collect()
    }
}

/// `slow=0.33`.
fn parse_price(text: &str) -> Result<(String, f64), String> {
    let error = || format!("\"{text}\" is not TIER=PRICE, such as slow=0.33");
    let (tier, price) = text.split_once('=').ok_or_else(error)?;
    let price: f64 = price.trim().parse().map_err(|_| error())?;
    if tier.trim().is_empty() || !(price.is_finite() && price >= 0.0) {
        return Err(error());
    }
    Ok((tier.trim().to_owned(), price))
}

/// `3%`, `0.03`: a share of 0 to 1.
pub fn parse_share(text: &str) -> Result<f64, String> {
    let error = || format!("\"{text}\" is not a share, such as 3% or 0.03");
    let value = match text.trim().strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().map_err(|_| error())? / 100.0,
        None => text.trim().parse::<f64>().map_err(|_| error())?,
    };
    if (0.0..=1.0).contains(&value) { Ok(value) } else { Err(format!("{} and at most 100%", error())) }
}

/// A share of at least a little: no machine without fast memory has page tables.
pub fn parse_fast_share(text: &str) -> Result<f64, String> {
    match parse_share(text)? {
        share if share > 0.0 => Ok(share),
        _ => Err("some memory has to be fast, if only for page tables; 1% is little".to_owned()),
    }
}

/// Refuses machines on which there is nothing to decide.
pub fn check_tiers(design: &Design) -> Result<(), Failure> {
    if design.tiers.len() < 2 {
        let machine = &design.machine;
        return Err(Failure::usage(format!(
            "{machine} has one tier of memory; choose a machine with two, such as --machine zen4-cxl"
        )));
    }
    Ok(())
}

fn capacity_key(design: &Design) -> String {
    format!("tier.{}.capacity", design.tiers[0].name)
}

/// Everything in the fastest tier, which is made as large as all tiers together: the run that slowdowns refer to.
pub fn all_fast(options: &DesignOptions, machine: Option<&str>) -> Result<Job, Failure> {
    let asked = options.resolve(ALL_FAST, machine)?.design.design;
    check_tiers(&asked)?;
    let key = capacity_key(&asked);
    let mut options = options.clone();
    options.sets.retain(|set| set.key != key);
    // The machine's own capacity, where the command line had shrunk it.
    let own = options.resolve(ALL_FAST, machine)?.design.design;
    let all: u64 = own.tiers.iter().map(|tier| tier.capacity.0).sum();
    options.sets.push(Setting::of_all(key, Bytes(all).to_string()));
    options.resolve(ALL_FAST, machine)
}

/// `word` with this share of `resident` as its fastest tier, nothing of it reserved.
pub fn with_share(
    word: &str,
    share: f64,
    resident: Bytes,
    options: &DesignOptions,
    machine: Option<&str>,
    scale: u32,
) -> Result<Job, Failure> {
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
    options: &DesignOptions,
    refusal: impl Fn(&str) -> String,
) -> Result<(), Failure> {
    let key = capacity_key(&all_fast.design.design);
    if options.sets.iter().any(|set| set.key == key) { Err(Failure::usage(refusal(&key))) } else { Ok(()) }
}

/// `5%`, `12.5%`.
pub fn percent(share: f64) -> String {
    format!("{}%", (share * 1000.0).round() / 10.0)
}

/// The name of a design at a share.
pub fn name_at(design: &str, share: f64) -> String {
    format!("{design}@{}", percent(share))
}

/// Most memory that `input` ever has resident. Reads the input once, without timing.
///
/// # Errors
/// An input that cannot be read twice, or does not fit the machine.
pub fn resident(all_fast: &Job, input: &Input, why: &str, settings: &Settings<'_>) -> Result<Bytes, Failure> {
    let name = format!("{}, footprint", input.name);
    let (mut source, _) = input.again(why)?.open(&settings.interrupt)?;
    let mut watched = Watched::new(&name, source.as_mut());
    let options = Options { fidelity: Fidelity::Pages, ..run::options(settings) };
    let design = run::scaled(&all_fast.design.design, settings).or_run()?;
    let outcome = terrace_sim::simulate(&design, &mut watched, options).or_run()?;
    if outcome.stopped {
        return Err(Failure::run("stopped while the input's footprint was measured"));
    }
    let sizes =
        ["4k", "2m", "1g"].map(|size| outcome.stats.integer(&format!("os.peak_resident_bytes.{size}")));
    match sizes.iter().sum() {
        0 => Err(Failure::run(format!("{} touches no memory", input.name))),
        bytes => Ok(Bytes(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_prices_have_their_spellings() {
        assert_eq!(parse_share("3%"), Ok(0.03));
        assert_eq!(parse_share("0.5"), Ok(0.5));
        for text in ["", "x", "101%", "-1%", "nan"] {
            assert!(parse_share(text).unwrap_err().contains("such as 3%"), "{text}");
        }
        assert!(parse_fast_share("0%").unwrap_err().contains("page tables"));
        assert_eq!(parse_price("slow=0.33"), Ok(("slow".to_owned(), 0.33)));
        for text in ["slow", "=1", "slow=-1", "slow=inf", "slow=cheap"] {
            assert!(parse_price(text).unwrap_err().contains("TIER=PRICE"), "{text}");
        }
    }

    #[test]
    fn everything_fits_the_fast_run_and_a_share_is_exact() {
        let shrunk = [("tier.dram.capacity", "4 MiB"), ("os.reserved", "0 B")];
        let sets = shrunk.map(|(key, value)| Setting::of_all(key, value)).into();
        let options = DesignOptions { machine: Some("zen4-cxl".to_owned()), sets, hasten: 1 };
        let fast = all_fast(&options, None).unwrap().design.design;
        assert_eq!(fast.tiers[0].capacity, Bytes::gib(128));
        let job = with_share("ambix", 0.25, Bytes::mib(64), &options, None, 4).unwrap();
        assert_eq!(job.design.design.tiers[0].capacity, Bytes::mib(64));
        assert_eq!(job.design.design.scaled(4).unwrap().tiers[0].capacity, Bytes::mib(16));
        assert_eq!(name_at("ambix", 0.125), "ambix@12.5%");
    }
}
