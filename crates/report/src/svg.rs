//! What drawings share.

/// Text as it stands between tags.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Bytes as people say them.
pub(crate) fn bytes(bytes: u64) -> String {
    let units = [(1u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.into_iter().find(|(unit, _)| bytes >= *unit) {
        None => bytes.to_string(),
        Some((unit, name)) => {
            let value = bytes as f64 / unit as f64;
            if value.fract() == 0.0 || value >= 100.0 {
                format!("{value:.0} {name}")
            } else {
                format!("{value:.1} {name}")
            }
        }
    }
}
