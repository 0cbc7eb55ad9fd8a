//! What compressed memory takes: a page of 4 KiB compressed and brought back, by Zstandard at the level of Linux's zram and
//! zswap (3).
//!
//! The contents are those of a program: pages of this program's file, which are code and tables, and pages that look like a
//! heap: records of pointers, small numbers and text, with zeros between. A page of zeros alone is none of them, as kernels
//! store those without compressing.

use crate::clock::OwnTime;
use crate::region::BASE;
use crate::spread::Spread;
use std::io;
use std::os::unix::fs::FileExt;
use terrace_model::Random;

/// The algorithm, as the preset names it.
pub const ALGORITHM: &str = "zstd, level 3";
const LEVEL: i32 = 3;

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compression {
    /// Nanoseconds to compress a page.
    pub compress: Spread,
    /// Nanoseconds to bring it back.
    pub decompress: Spread,
    /// Bytes of a page over those that it takes compressed, over the pages.
    pub ratio: Spread,
}

/// Measures the compression of `pages` pages of each kind.
pub fn measure(pages: usize, rounds: usize) -> io::Result<Compression> {
    let pages = contents(pages)?;
    let mut compressor = zstd::bulk::Compressor::new(LEVEL)?;
    let mut decompressor = zstd::bulk::Decompressor::new()?;
    let (mut compress, mut decompress) = (Vec::new(), Vec::new());
    // A clone would have no room.
    let room = |_: &Vec<u8>| Vec::with_capacity(zstd::zstd_safe::compress_bound(BASE));
    let mut packed: Vec<Vec<u8>> = pages.iter().map(room).collect();
    let mut unpacked = Vec::with_capacity(BASE);
    for round in 0..=rounds {
        let begin = OwnTime::now();
        for (page, packed) in pages.iter().zip(&mut packed) {
            compressor.compress_to_buffer(page, packed)?;
        }
        let packing = begin.nanos();
        let begin = OwnTime::now();
        for packed in &packed {
            decompressor.decompress_to_buffer(packed, &mut unpacked)?;
        }
        // The first round warms the caches.
        if round > 0 {
            compress.push(packing / pages.len() as f64);
            decompress.push(begin.nanos() / pages.len() as f64);
        }
    }
    let ratios = packed.iter().map(|packed| BASE as f64 / packed.len().max(1) as f64).collect();
    Ok(Compression {
        compress: Spread::of(compress),
        decompress: Spread::of(decompress),
        ratio: Spread::of(ratios),
    })
}

fn contents(count: usize) -> io::Result<Vec<Vec<u8>>> {
    let mut pages = Vec::new();
    // From all over the file: code lies behind tables.
    let file = std::fs::File::open("/proc/self/exe")?;
    let step = file.metadata()?.len() / count as u64;
    for at in 0..count as u64 {
        let mut page = vec![0; BASE];
        if file.read_exact_at(&mut page, at * step / BASE as u64 * BASE as u64).is_ok() {
            pages.push(page);
        }
    }
    pages.extend((0..count).map(|at| heap_page(at as u64)));
    pages.retain(|page| page.iter().any(|byte| *byte != 0));
    Ok(pages)
}

/// Records of 64 bytes: two pointers into one heap, a count, a flag, a short text, and zeros.
fn heap_page(seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut page = Vec::with_capacity(BASE);
    while page.len() < BASE {
        let mut record = [0u8; 64];
        for at in [0, 8] {
            let pointer = 0x5555_5600_0000 + random.below(1 << 22) * 16;
            record[at..at + 8].copy_from_slice(&pointer.to_le_bytes());
        }
        record[16..24].copy_from_slice(&random.below(1000).to_le_bytes());
        record[24] = random.below(2) as u8;
        let text = format!("item {:05}", random.below(100_000));
        record[32..32 + text.len()].copy_from_slice(text.as_bytes());
        page.extend_from_slice(&record);
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_become_smaller_and_come_back() {
        let found = measure(8, 2).unwrap();
        assert!(found.ratio.median > 1.0, "{found:?}");
        assert!(found.compress.median > 0.0 && found.decompress.median > 0.0);
        let page = heap_page(5);
        assert_eq!(page.len(), BASE);
        let packed = zstd::bulk::compress(&page, LEVEL).unwrap();
        assert_eq!(zstd::bulk::decompress(&packed, BASE).unwrap(), page);
        assert!(contents(4).unwrap().len() >= 4);
    }
}
