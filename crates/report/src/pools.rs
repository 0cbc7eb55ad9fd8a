//! What the memories and the link beside a GPU carried, as documents have it.

use serde::Serialize;
use std::collections::BTreeMap;
use terrace_model::{PoolInterval, PoolTraffic};

/// A run's memories over time. A row of counts is one string of numbers: as an array, each would take a line of its own.
#[derive(Serialize)]
pub struct Pools<'a> {
    interval_seconds: f64,
    memories: Vec<Memory<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    link: Option<Link>,
    structures: Vec<Structure<'a>>,
}

#[derive(Serialize)]
struct Memory<'a> {
    name: &'a str,
    bytes_per_second: f64,
    demand_bytes: String,
    migration_bytes: String,
}

#[derive(Serialize)]
struct Link {
    to_cpu: Direction,
    to_gpu: Direction,
}

#[derive(Serialize)]
struct Direction {
    bytes_per_second: f64,
    bytes: String,
}

#[derive(Serialize)]
struct Structure<'a> {
    name: &'a str,
    /// Source file and line of the call that allocates it.
    #[serde(skip_serializing_if = "str::is_empty")]
    code_line: &'a str,
    bytes: u64,
    lines: BTreeMap<&'a str, u64>,
}

impl Pools<'_> {
    /// The document's part for a run.
    pub fn of(traffic: &PoolTraffic) -> Pools<'_> {
        let row = |of: &dyn Fn(&PoolInterval) -> u64| {
            let texts: Vec<String> = traffic.intervals.iter().map(|one| of(one).to_string()).collect();
            texts.join(" ")
        };
        let memories = traffic.pools.iter().enumerate().map(|(at, pool)| Memory {
            name: &pool.name,
            bytes_per_second: pool.bytes_per_second,
            demand_bytes: row(&|one| one.demand[at]),
            migration_bytes: row(&|one| one.migration[at]),
        });
        let structures = traffic.structures.iter().map(|one| Structure {
            name: &one.name,
            code_line: &one.code_line,
            bytes: one.bytes,
            lines: traffic
                .pools
                .iter()
                .map(|pool| pool.name.as_str())
                .zip(one.lines.iter().copied())
                .collect(),
        });
        Pools {
            interval_seconds: traffic.interval_seconds,
            memories: memories.collect(),
            link: traffic.link.map(|link| Link {
                to_cpu: Direction { bytes_per_second: link.to_cpu, bytes: row(&|one| one.to_cpu) },
                to_gpu: Direction { bytes_per_second: link.to_gpu, bytes: row(&|one| one.to_gpu) },
            }),
            structures: structures.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_model::{Pool, PoolLink, StructureTraffic};

    #[test]
    fn rows_are_texts_and_structures_name_their_memories() {
        let pool = |name: &str| Pool { name: name.to_owned(), bytes_per_second: 2e11 };
        let interval = |bytes| PoolInterval {
            demand: vec![bytes, 1],
            migration: vec![0, bytes],
            to_cpu: 2 * bytes,
            to_gpu: 3,
        };
        let traffic = PoolTraffic {
            pools: vec![pool("gddr"), pool("ddr")],
            link: Some(PoolLink { to_cpu: 1e9, to_gpu: 2e9 }),
            interval_seconds: 1e-6,
            intervals: vec![interval(64), interval(128)],
            structures: vec![StructureTraffic {
                name: "grid".to_owned(),
                code_line: "grid.c:7".to_owned(),
                bytes: 4096,
                lines: vec![5, 7],
            }],
        };
        let document = serde_json::to_value(Pools::of(&traffic)).unwrap();
        let text = |path: &str| document.pointer(path).unwrap().as_str().unwrap().to_owned();
        assert_eq!(text("/memories/0/demand_bytes"), "64 128");
        assert_eq!(text("/memories/1/migration_bytes"), "64 128");
        assert_eq!(text("/link/to_cpu/bytes"), "128 256");
        assert_eq!(document["structures"][0]["code_line"], "grid.c:7");
        assert_eq!(document["structures"][0]["lines"], serde_json::json!({"gddr": 5, "ddr": 7}));
    }
}
