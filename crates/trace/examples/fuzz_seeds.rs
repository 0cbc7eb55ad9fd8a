//! Writes the fuzz targets' first inputs.
//!
//! ```text
//! cargo run --release -p terrace-trace --example fuzz_seeds -- fuzz/corpus
//! ```

#[path = "../tests/common/mod.rs"]
mod common;

use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let corpus =
        PathBuf::from(std::env::args().nth(1).ok_or("expected the corpus directory, such as fuzz/corpus")?);
    for (target, _) in common::seeds::TARGETS {
        let directory = corpus.join(target);
        std::fs::create_dir_all(&directory)?;
        for (number, seed) in common::seeds::seeds(target).iter().enumerate() {
            std::fs::write(directory.join(format!("seed-{number}")), seed)?;
        }
    }
    Ok(())
}
