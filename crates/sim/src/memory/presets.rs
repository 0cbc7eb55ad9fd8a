//! Device parameters by name, from data sheets and publications. Each file states its sources and what is assumed.

const PRESETS: &[(&str, &str)] = &[
    ("cxl-ddr5-4800", include_str!("presets/cxl-ddr5-4800.toml")),
    ("dcpmm-128", include_str!("presets/dcpmm-128.toml")),
    ("dcpmm-dram", include_str!("presets/dcpmm-dram.toml")),
    ("ddr3-1600", include_str!("presets/ddr3-1600.toml")),
    ("ddr4-2133", include_str!("presets/ddr4-2133.toml")),
    ("ddr4-2400", include_str!("presets/ddr4-2400.toml")),
    ("ddr4-2666", include_str!("presets/ddr4-2666.toml")),
    ("ddr5-4800", include_str!("presets/ddr5-4800.toml")),
    ("gddr5", include_str!("presets/gddr5.toml")),
    ("hbm2", include_str!("presets/hbm2.toml")),
    ("pcm-800", include_str!("presets/pcm-800.toml")),
    ("tl-dram", include_str!("presets/tl-dram.toml")),
];

/// The TOML table of a preset, which reads as a [`super::DeviceParameters`]; a design's own keys go over it.
pub fn preset_table(name: &str) -> Option<&'static str> {
    PRESETS.iter().find(|(preset, _)| *preset == name).map(|(_, text)| *text)
}

/// The names of all presets, sorted.
pub fn preset_names() -> impl Iterator<Item = &'static str> {
    PRESETS.iter().map(|(name, _)| *name)
}
