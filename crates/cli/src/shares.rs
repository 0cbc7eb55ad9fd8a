//! Prices as an option.

use clap::Args;
use terrace_study::shares::parse_price;

/// What the tiers cost.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Design")]
pub struct PriceOption {
    /// Price of a tier's memory, where the fastest tier's is 1; `slow` stands
    /// for every other tier. Repeatable
    #[arg(long, value_name = "TIER=PRICE", value_parser = parse_price)]
    pub price: Vec<(String, f64)>,
}
