//! The machine and design files that come with Terrace, as text inside the binary.

macro_rules! files {
    ($($path:literal),* $(,)?) => {
        /// Path from the repository's root, and text, of each file.
        pub(crate) const FILES: &[(&str, &str)] =
            &[$(($path, include_str!(concat!("../../../../", $path)))),*];
    };
}

files![
    "designs/all-fast.toml",
    "designs/all-slow.toml",
    "designs/colt.toml",
    "designs/direct-segment.toml",
    "designs/enigma-2m.toml",
    "designs/first-touch.toml",
    "designs/gpu-annotated.toml",
    "designs/gpu-bw-aware-exact.toml",
    "designs/gpu-bw-aware.toml",
    "designs/gpu-interleave.toml",
    "designs/gpu-local.toml",
    "designs/gpu-oracle.toml",
    "designs/hatric-ideal.toml",
    "designs/hatric-sw.toml",
    "designs/hatric-unitd.toml",
    "designs/hatric.toml",
    "designs/ideal-coherence.toml",
    "designs/in-order.toml",
    "designs/interleave.toml",
    "designs/native-1g.toml",
    "designs/native-2m.toml",
    "designs/native-4k.toml",
    "designs/native-thp.toml",
    "designs/native-zero-line.toml",
    "designs/perfect-tlb.toml",
    "designs/rmm.toml",
    "designs/spot.toml",
    "designs/vbi-1.toml",
    "designs/vbi-2.toml",
    "designs/vbi-full.toml",
    "designs/virtual-1g.toml",
    "designs/virtual-2m.toml",
    "designs/virtual-4k.toml",
    "designs/virtual-thp.toml",
    "designs/vivt.toml",
    "designs/weighted-interleave.toml",
    "machines/broadwell-2650v4.toml",
    "machines/e5-2699v3.toml",
    "machines/gpu-gtx480.toml",
    "machines/haswell-2650v3-memhog.toml",
    "machines/haswell-2650v3.toml",
    "machines/haswell-32.toml",
    "machines/haswell-core.toml",
    "machines/jetson-tx1.toml",
    "machines/linux.toml",
    "machines/power8-s822lc.toml",
    "machines/skylake-6140.toml",
    "machines/skylake-core.toml",
    "machines/vbi-table1.toml",
    "machines/xeon-5218-dcpmm.toml",
    "machines/zen4-cxl.toml",
    "machines/zen5-turin.toml",
];
