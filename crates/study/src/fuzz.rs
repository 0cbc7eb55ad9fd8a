//! Entry functions of the fuzz targets: each takes any bytes and panics where a promise about bad input is broken.

use crate::sweep::SweepFile;

/// Larger sweeps only take longer.
const FEW: usize = 8;

/// The file of a sweep.
///
/// # Panics
/// When a promise is broken: an error says something, and says it on one line.
pub fn sweep(data: &[u8]) {
    let check = |error: crate::Error| {
        let message = error.to_string();
        assert!(!message.trim().is_empty() && !message.contains('\n'), "{message:?}");
    };
    match SweepFile::parse(&String::from_utf8_lossy(data), "fuzzed") {
        Err(error) => check(error),
        Ok(mut file) => {
            // A trace is any file of this computer, and machines and designs are files where their names have a slash.
            file.traces.clear();
            let is_name = |word: &String| !word.contains('/') && !word.contains('.');
            file.machines.retain(is_name);
            file.designs.retain(is_name);
            let lists = file.set.values().chain(file.workload.iter().flat_map(|table| table.set.values()));
            let product: usize =
                lists.map(|value| value.as_array().map_or(1, Vec::len)).fold(1, usize::saturating_mul);
            if product <= FEW && file.designs.len() * (file.machines.len() + 1) <= FEW {
                file.sweep().map_or_else(check, drop);
            }
        }
    }
}
