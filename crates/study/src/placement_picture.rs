//! From the record of where memory lay to a picture of it.

use crate::figures;
use terrace_model::PageSize;
use terrace_report::{PlacementBand, PlacementPicture};
use terrace_sim::PlacementMap;

/// The picture of a run.
pub fn of_run(title: &str, machine: &str, map: &PlacementMap) -> PlacementPicture {
    let names: Vec<&str> = map.tiers.iter().map(String::as_str).collect();
    let (first, others) = match names.as_slice() {
        [] => ("memory", "none"),
        [only] => (*only, "none"),
        [first, second] => (*first, *second),
        [first, ..] => (*first, "other tiers"),
    };
    let columns = map.columns.iter().map(|column| PlacementBand {
        resident: column.resident.clone(),
        accesses: column.accesses.clone(),
        served: column.served,
        moved: column.moved.map(|pages| pages * PageSize::Base.bytes()),
    });
    let capacity = figures::readable(map.first_capacity);
    PlacementPicture {
        title: title.to_owned(),
        subtitle: format!("{machine}, {capacity} of {first}"),
        tiers: [first, others].map(str::to_owned),
        row_bytes: map.piece_bytes,
        column_seconds: map.column_seconds,
        columns: columns.collect(),
    }
}
