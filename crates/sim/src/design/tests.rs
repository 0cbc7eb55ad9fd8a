//! The embedded files load on every machine, and wrong files get the message that puts them right.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;

fn sets(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
}

fn resolve(design: &str, machine: Option<&str>, pairs: &[(&str, &str)]) -> Result<Resolved, DesignError> {
    Library::embedded().design(design, machine, &sets(pairs))
}

fn values(resolved: &Resolved) -> BTreeMap<&str, (&str, &str)> {
    resolved
        .parameters
        .iter()
        .map(|parameter| (parameter.key.as_str(), (parameter.value.as_str(), parameter.origin.as_str())))
        .collect()
}

#[test]
fn every_design_stands_on_every_machine() {
    let library = Library::embedded();
    let machines = library.machine_names();
    let designs = library.design_names();
    let counted = (machines.len(), designs.len());
    assert_eq!(counted, (17, 70), "machines and designs: whoever adds one counts it here");
    for listed in machines.iter().chain(&designs) {
        assert!(!listed.summary.is_empty(), "{} has no summary", listed.name);
    }
    for machine in &machines {
        assert_eq!(library.design(&machine.name, None, &[]).unwrap().design.machine, machine.name);
        for design in &designs {
            let resolved = library
                .design(&design.name, Some(&machine.name), &[])
                .unwrap_or_else(|error| panic!("{} on {}: {error}", design.name, machine.name));
            assert_eq!(resolved.design.name, design.name);
            assert_eq!(resolved.design.machine, machine.name);
            assert!(resolved.parameters.len() > 50);
            assert!(resolved.design.tiers.len() >= 2, "{} has one tier", machine.name);
        }
    }
}

#[test]
fn the_embedded_list_is_the_directories_content() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = Vec::new();
    for directory in ["designs", "machines"] {
        for entry in std::fs::read_dir(root.join(directory)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.ends_with(".toml") {
                found.push(format!("{directory}/{name}"));
            }
        }
    }
    found.sort();
    let listed: Vec<_> = embedded::FILES.iter().map(|(path, _)| path.to_string()).collect();
    assert_eq!(found, listed, "add new files to crates/sim/src/design/embedded.rs");
}

#[test]
fn the_published_tables_arrive() {
    let design = resolve("skylake-6140", None, &[]).unwrap().design;
    assert_eq!(design.core.count, 18);
    assert_eq!(design.translation.l1d[&terrace_model::PageSize::Huge].entries, 32);
    assert_eq!(design.translation.l2.array[0].entries, 1536);
    assert_eq!(design.tiers[0].capacity, terrace_model::Bytes::gib(192));
    let design = resolve("vbi-table1", None, &[]).unwrap().design;
    assert_eq!(design.cache.llc.capacity, terrace_model::Bytes::mib(8));
    assert_eq!(design.translation.l2.array[0].ways, Associativity::Ways(4));
    let design = resolve("haswell-32", None, &[]).unwrap().design;
    assert_eq!((design.core.count, design.translation.page_walk_cache.entries), (32, 48));
    let peak = |tier: usize| {
        let parameters = &design.devices[&design.tiers[tier].device];
        crate::memory::Device::new(parameters).unwrap().peak_read_bandwidth().0
    };
    let ratio = peak(0) / peak(1);
    assert!((3.0..5.0).contains(&ratio), "stacked memory has {ratio} times the bandwidth; the source says 4");
}

#[test]
fn a_design_without_machine_stands_on_the_default() {
    assert_eq!(resolve("native-2m", None, &[]).unwrap().design.machine, DEFAULT_MACHINE);
    assert_eq!(resolve("native-2m", Some("zen4-cxl"), &[]).unwrap().design.core.count, 8);
}

#[test]
fn parameters_say_where_they_come_from() {
    let resolved = resolve(
        "native-2m",
        Some("xeon-5218-dcpmm"),
        &[("core.count", "4"), ("tier.dram.capacity", "8 GiB")],
    )
    .unwrap();
    let values = values(&resolved);
    assert_eq!(values["core.count"], ("4", "--set core.count=4"));
    assert_eq!(values["tier.dram.capacity"], ("8 GiB", "--set tier.dram.capacity=8 GiB"));
    assert_eq!(values["os.pages"], ("2m", "designs/native-2m.toml:5"));
    let (value, origin) = values["core.dispatch_width"];
    assert!(value == "4" && origin.starts_with("machines/skylake-core.toml:"), "{value} {origin}");
    let (value, origin) = values["device.dcpmm.channels"];
    assert!(value == "2" && origin.starts_with("machines/xeon-5218-dcpmm.toml:"), "{value} {origin}");
    let preset = values["device.dcpmm.channel_interleave"].1;
    assert!(preset.starts_with("preset dcpmm-128:"), "{preset}");
    assert_eq!(values["cache.llc.replacement"], ("lru", "default"));
    assert!(values.keys().all(|key| !key.starts_with("ledger")));
}

#[test]
fn every_parameter_can_be_set_to_its_own_value() {
    let library = Library::embedded();
    let resolved = library.design("weighted-interleave", Some("zen4-cxl"), &[]).unwrap();
    for parameter in &resolved.parameters {
        if parameter.key == "machine" {
            continue;
        }
        let set = [(parameter.key.clone(), parameter.value.clone())];
        let again = library.design("weighted-interleave", Some("zen4-cxl"), &set);
        assert_eq!(again.map(|again| again.design).as_ref(), Ok(&resolved.design), "{}", parameter.key);
    }
}

#[test]
fn fastest_slowest_and_bandwidth_are_the_machines() {
    let placement = |design, machine| resolve(design, Some(machine), &[]).unwrap().design.os.placement;
    assert_eq!(placement("all-fast", "zen4-cxl"), Placement::Bind { tier: "dram".into() });
    assert_eq!(placement("all-slow", "zen4-cxl"), Placement::Bind { tier: "cxl".into() });
    assert_eq!(placement("all-slow", "xeon-5218-dcpmm"), Placement::Bind { tier: "dcpmm".into() });
    let Placement::WeightedInterleave { weights } = placement("weighted-interleave", "xeon-5218-dcpmm")
    else {
        panic!("not weighted");
    };
    assert!(weights.len() == 2 && weights[0] > weights[1], "{weights:?}");
    let set = resolve("weighted-interleave", None, &[("os.placement.weights", "[3, 1]")]).unwrap();
    assert_eq!(set.design.os.placement, Placement::WeightedInterleave { weights: vec![3, 1] });
}

#[test]
fn fastest_and_slowest_are_the_guests_in_a_guest_and_the_machines_in_its_host() {
    let text = "extends = [\"virtual-4k\", \"zen4-cxl\"]\n[os]\npage_table_tier = \"slowest\"\n\
                placement = { kind = \"bind\", tier = \"fastest\" }\n\
                [host]\npage_table_tier = \"fastest\"\nplacement = { kind = \"bind\", tier = \"slowest\" }\n";
    let tiers = "[[vm.tier]]\nname = \"near\"\ncapacity = \"1 GiB\"\nhost_tier = \"slowest\"\n\
                 [[vm.tier]]\nname = \"far\"\ncapacity = \"1 GiB\"\nhost_tier = \"cxl\"\n";
    for (more, first, last) in [("", "ram", "ram"), (tiers, "near", "far")] {
        let design = resolve_files(&[("my.toml", &format!("{text}{more}"))]).unwrap().design;
        assert_eq!(design.os.placement, Placement::Bind { tier: first.into() });
        assert_eq!(design.os.page_table_tier.as_deref(), Some(last));
        let host = design.host.unwrap();
        assert_eq!(host.placement, Placement::Bind { tier: "cxl".into() });
        assert_eq!(host.page_table_tier.as_deref(), Some("dram"));
        let bound: Vec<_> = design.vm.unwrap().tiers.into_iter().filter_map(|tier| tier.host_tier).collect();
        assert!(bound.iter().all(|tier| tier == "cxl"), "{bound:?}");
    }
}

/// Writes files into a directory and resolves the first.
fn resolve_files(files: &[(&str, &str)]) -> Result<Resolved, String> {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    let path = directory.path().join(files[0].0);
    let prefix = format!("{}/", directory.path().display());
    Library::embedded()
        .design(&path.display().to_string(), None, &[])
        .map_err(|error| error.to_string().replace(&prefix, ""))
}

fn complaint(text: &str) -> String {
    match resolve_files(&[("my.toml", text)]) {
        Ok(_) => panic!("accepted: {text}"),
        Err(message) => message,
    }
}

#[test]
fn files_of_the_user_extend_each_other_and_the_embedded() {
    let resolved = resolve_files(&[
        ("my.toml", "extends = [\"zen4-cxl\", \"./base.toml\"]\nsummary = \"mine\"\n[core]\ncount = 2\n"),
        ("base.toml", "extends = \"native-thp\"\n[core]\nbase_cpi = 0.5\ncount = 3\n"),
    ])
    .unwrap();
    let design = &resolved.design;
    assert_eq!((design.name.as_str(), design.machine.as_str()), ("my", "zen4-cxl"));
    assert_eq!((design.core.count, design.core.base_cpi), (2, 0.5));
    assert_eq!(design.os.pages, PagePolicy::Thp);
    let machine =
        resolve_files(&[("big.toml", "kind = \"machine\"\nextends = \"zen4-cxl\"\n[core]\ncount = 16\n")]);
    assert_eq!(machine.unwrap().design.machine, "big");
}

#[test]
fn messages_name_file_line_key_and_the_nearest_valid_one() {
    let cases = [
        (
            "[translation]\n[translation.l2_tbl]\nentries = 4",
            "my.toml:2: unknown key \"l2_tbl\"; did you mean \"l2\"?",
        ),
        (
            "[translation]\n[translation.qq]\nentries = 4",
            "my.toml:2: unknown key \"qq\"; valid here: scheme, coherence, hatric, energy, levels, l1d, l2, page_walk_cache, walkers, nested",
        ),
        (
            "[cache]\nprefecher.enabled = true",
            "my.toml:2: unknown key \"prefecher\"; did you mean \"prefetcher\"?",
        ),
        (
            "\n[core]\nfrequency = 2.3",
            "my.toml:3: core.frequency: \"2.3\" is not a frequency with its unit, such as \"2.3 GHz\"",
        ),
        (
            "[core]\nfrequency = \"2.3 GB\"",
            "my.toml:2: core.frequency: \"2.3 GB\" is not a frequency with its unit, such as \"2.3 GHz\"",
        ),
        (
            "[core]\ncount = \"four\"",
            "my.toml:2: core.count: found string \"four\", expected a whole number, not negative",
        ),
        ("[core]\ncount = -1", "my.toml:2: core.count: -1 is not between 1 and 1024"),
        (
            "[os]\nfault_cost = 5",
            "my.toml:2: os.fault_cost: found integer 5, expected text in quotes (a quantity carries its unit, such as \"80 ns\")",
        ),
        (
            "[cache]\nl2 = { capacity = \"16 KiB\", ways = 8 }\n[translation]\nscheme = { kind = \"vivt\" }",
            "my.toml:2: cache.l2.capacity: 16 KiB with 8 ways is 32 sets, too few where lines have virtual names; 32 KiB are possible",
        ),
        ("[os]\npages = \"2mb\"", "my.toml:2: os.pages: \"2mb\" is not valid; did you mean \"2m\"?"),
        (
            "[translation.l1d]\n8k = { entries = 4, ways = 1 }",
            "my.toml:2: unknown key \"8k\"; valid here: 4k, 2m, 1g",
        ),
        (
            "[translation.l1d]\n4k = { entries = 64, ways = \"ful\" }",
            "my.toml:2: translation.l1d.4k.ways: expected a number of ways or \"full\"",
        ),
        (
            "[translation.l1d]\n4k = { entries = 64, ways = 7 }",
            "my.toml:2: translation.l1d.4k.ways: 7 ways do not divide 64 entries into whole sets",
        ),
        (
            "[os]\nplacement = \"interleaved\"",
            "my.toml:2: os.placement.kind: \"interleaved\" is not valid; did you mean \"interleave\"?",
        ),
        (
            "[os]\nplacement = { kind = \"bind\", teir = \"dram\" }",
            "my.toml:2: unknown key \"teir\"; did you mean \"tier\"?",
        ),
        ("[os]\nplacement = { kind = \"bind\" }", "my.toml:2: os.placement.tier is missing"),
        (
            "[os]\nplacement = { kind = \"first-touch\", tier = \"dram\" }",
            "my.toml:2: unknown key \"tier\"; the placement \"first-touch\" takes none",
        ),
        (
            "[os]\nplacement = { kind = \"bind\", tier = \"remote\" }",
            "my.toml:2: os.placement.tier: there is no tier \"remote\" on zen4-cxl; it has dram, cxl",
        ),
        (
            "[os]\npage_table_tier = \"hbm\"",
            "my.toml:2: os.page_table_tier: there is no tier \"hbm\" on zen4-cxl; it has dram, cxl",
        ),
        (
            "[os.placement]\nkind = \"weighted-interleave\"\nweights = [1, 2, 3]",
            "my.toml:3: os.placement.weights: 3 weights for 2 tiers",
        ),
        (
            "[os.placement]\nkind = \"weighted-interleave\"\nweights = \"speed\"",
            "my.toml:3: os.placement.weights: found \"speed\", expected a list with one weight per tier, or \"bandwidth\"",
        ),
        (
            "[core]\nbase_cpi = 0.1",
            "my.toml:2: core.base_cpi: 0.1 is below 0.16666666666666666, which is 1 / dispatch_width",
        ),
        ("[translation]\nlevels = 3", "my.toml:2: translation.levels: 3 is not between 4 and 5"),
        (
            "[cache.l1]\ncapacity = \"1000 B\"",
            "my.toml:2: cache.l1.capacity: 1000 B is not a whole number of sets of 8 lines of 64 bytes",
        ),
        (
            "[[tier]]\nname = \"far\"\ncapacity = \"1 GiB\"\ndevice = \"drma\"\npath_latency = \"1 ns\"",
            "my.toml:4: tier.far.device: there is no device \"drma\"; did you mean \"dram\"?",
        ),
        (
            "[[tier]]\nname = \"dram\"\n[[tier]]\nname = \"dram\"\n",
            "my.toml:3: there is another tier named \"dram\"",
        ),
        ("[[tier]]\nname = \"far\"\n", "my.toml:1: tier.far.capacity is missing"),
        (
            "[[tier]]\nname = \"drm\"\ncapacity = \"1 GiB\"\n",
            "my.toml:1: tier.drm.device is missing in a new element \"drm\"; did you mean \"dram\"?",
        ),
        ("[[vm]]\ncount = 2", "my.toml:1: vm: found a list of tables ([[vm]]), expected one table ([vm])"),
        (
            "[tier]\nname = \"dram\"",
            "my.toml:1: tier: found one table ([tier]), expected a list of tables ([[tier]])",
        ),
        (
            "[vm]\n[vm.policy]\nname = \"tpp\"",
            "my.toml:2: unknown key \"policy\"; valid here: count, memory, vcpus, preallocated, tier",
        ),
        (
            "[device.local]\npreset = \"ddr4-2667\"",
            "my.toml:2: there is no device preset \"ddr4-2667\"; did you mean \"ddr4-2666\"?",
        ),
        ("[device.local]\nchanels = 3", "my.toml:2: unknown key \"chanels\"; did you mean \"channels\"?"),
        (
            "extends = \"natve-4k\"",
            "my.toml:1: extends: there is no machine, design or policy \"natve-4k\"; did you mean \"native-4k\"?",
        ),
        ("extends = \"./gone.toml\"", "my.toml:1: extends: gone.toml: there is no such file"),
        ("extends = 4", "my.toml:1: extends: expected a name in quotes, or a list of names"),
        (
            "extends = [\"zen4-cxl\", \"skylake-6140\"]",
            "my.toml: extends two machines, zen4-cxl and skylake-6140; choose one",
        ),
        ("kind = \"desing\"", "my.toml:1: kind: \"desing\" is not valid; did you mean \"design\"?"),
        (
            "kind = \"machine\"\nextends = \"vivt\"",
            "designs/vivt.toml: is a design; the machine my.toml cannot extend it",
        ),
        ("kind = \"machine\"\n[core]\ncount = 1", "my.toml:2: core.frequency is missing"),
        (
            "machine = \"zen4-cxl\"",
            "my.toml:1: \"machine\" cannot be set here; a design names its machine by extends = \"...\" or --machine",
        ),
        ("[core]\ncount = = 1", "my.toml:2: "),
        ("os = 3", "my.toml:1: os: found integer 3, expected a table"),
        ("core.store_buffer = 56000000", "my.toml:1: core.store_buffer: 56000000 is not between 1 and 16384"),
        (
            "[translation.page_walk_cache]\nentries = 32000000",
            "my.toml:2: translation.page_walk_cache.entries: 32000000 is not between 0 and 32767",
        ),
        (
            "[[tier]]\nname = \"dram\"\ncapacity = \"192000 GiB\"\ndevice = \"local\"\npath_latency = \"1 ns\"",
            "my.toml:3: tier.dram.capacity: 187.5 TiB is not between 4 KiB and 8 TiB",
        ),
        (
            "[translation.l1d]\n4k = { entries = 40000, ways = \"full\" }",
            "my.toml:2: translation.l1d.4k.ways: 40000 entries in one set are more than 32767",
        ),
        (
            "os.reserved = \"300 GiB\"",
            "my.toml:1: os.reserved: 300 GiB leaves nothing of the 64 GiB of tier dram; reserve less of it, as with --set \
             os.reserved=\"0 B\"",
        ),
    ];
    for (text, expected) in cases {
        let found = complaint(text);
        if expected.ends_with(": ") {
            assert!(found.starts_with(expected), "{text}\n{found}");
        } else {
            assert_eq!(found, expected, "{text}");
        }
    }
}

#[test]
fn circles_are_found() {
    let error =
        resolve_files(&[("a.toml", "extends = \"./b.toml\""), ("b.toml", "\nextends = \"./a.toml\"")]);
    let error = error.unwrap_err();
    assert!(error.contains("b.toml:2: extends: ") && error.ends_with("goes in a circle"), "{error}");
}

#[test]
fn options_are_checked_like_files() {
    let message = |design: &str, machine: Option<&str>, pairs: &[(&str, &str)]| {
        resolve(design, machine, pairs).unwrap_err().to_string()
    };
    assert_eq!(
        message("vivt", None, &[("core.cuont", "4")]),
        "--set core.cuont=4: unknown key \"core.cuont\"; did you mean \"core.count\"?"
    );
    assert_eq!(
        message("vivt", None, &[("tier.dramm.capacity", "8 GiB")]),
        "--set tier.dramm.capacity=8 GiB: tier has no \"dramm\"; did you mean \"dram\"?"
    );
    assert_eq!(
        message("vivt", None, &[("tier.dram.capacity", "8")]),
        "--set tier.dram.capacity=8: tier.dram.capacity: \"8\" is not an amount of memory with its unit, such as \"64 KiB\" or \"16 GiB\""
    );
    assert_eq!(
        message("vvt", None, &[]),
        "there is no machine, design or policy \"vvt\"; did you mean \"vivt\"?"
    );
    assert_eq!(
        message("zen4-cxl", Some("skylake-6140"), &[]),
        "\"zen4-cxl\" is a machine, not a design, and cannot stand on machine \"skylake-6140\""
    );
    assert_eq!(
        message("vivt", Some("native-4k"), &[]),
        "designs/native-4k.toml: is a design, not a machine; a machine file says kind = \"machine\""
    );
    assert_eq!(
        message("linux", None, &[]),
        "machines/linux.toml: is a part of machines, neither a machine nor a design"
    );
    assert_eq!(message("none/such.toml", None, &[]), "none/such.toml: there is no such file");
}

#[test]
fn options_reach_into_lists_and_start_placements_anew() {
    let resolved = resolve(
        "all-slow",
        None,
        &[
            ("translation.l2.array.0.entries", "6144"),
            ("os.placement", "interleave"),
            ("device.dram.preset", "ddr4-2133"),
            ("device.dram.channels", "2"),
        ],
    )
    .unwrap();
    let design = &resolved.design;
    assert_eq!(design.translation.l2.array[0].entries, 6144);
    assert_eq!(design.translation.l2.array[0].ways, Associativity::Ways(24));
    assert_eq!(design.os.placement, Placement::Interleave);
    assert_eq!(design.devices["dram"].channels, 2);
    let ratio = resolve(
        "native-4k",
        Some("xeon-5218-dcpmm"),
        &[("os.placement", "{ kind = \"ratio\", first = 80, group = 100 }")],
    );
    assert_eq!(ratio.unwrap().design.os.placement, Placement::Ratio { first: 80, group: 100 });
}

#[test]
fn the_order_of_options_does_not_matter_where_one_starts_a_table_anew() {
    for first in ["preset", "channels"] {
        let mut sets = [("device.dram.preset", "ddr4-2133"), ("device.dram.channels", "2")];
        if first == "channels" {
            sets.reverse();
        }
        let resolved = resolve("all-slow", None, &sets).unwrap();
        assert_eq!(resolved.design.devices["dram"].channels, 2, "{first} first");
    }
    let sets = [("os.placement.first", "80"), ("os.placement.group", "100"), ("os.placement.kind", "ratio")];
    let ratio = resolve("native-4k", Some("xeon-5218-dcpmm"), &sets).unwrap();
    assert_eq!(ratio.design.os.placement, Placement::Ratio { first: 80, group: 100 });
    // Where two settings say the same, the later one counts.
    let sets = [("device.dram.preset", "hbm2"), ("device.dram.preset", "ddr4-2133")];
    let later = resolve("all-slow", None, &sets).unwrap();
    let alone = resolve("all-slow", None, &sets[1..]).unwrap();
    assert_eq!(later.design.devices["dram"].channels, alone.design.devices["dram"].channels);
}

#[test]
fn a_default_says_where_it_comes_from() {
    let resolved = resolve("pom-tlb", None, &[]).unwrap();
    let values = values(&resolved);
    assert_eq!(values["translation.scheme.predictor"], ("512", "default (Ryoo 2017)"));
}

#[test]
fn values_with_line_breaks_are_quoted_in_one_line() {
    let text = "extends = \"skylake-6140\"\n[core]\nfrequency = \"2\\n3\"\n";
    let error = resolve_files(&[("my.toml", text)]).unwrap_err();
    assert!(error.contains(r#""2\n3" is not a frequency"#) && !error.contains('\n'), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// However a file is damaged, the answer is a design or a message with a place, never a panic.
    #[test]
    fn damaged_files_never_panic(
        which in 0..embedded::FILES.len(),
        edits in proptest::collection::vec((any::<prop::sample::Index>(), 0..6u8, "[ -~\n]{0,4}"), 1..6),
    ) {
        let mut text: Vec<char> = embedded::FILES[which].1.chars().collect();
        for (at, what, insert) in edits {
            if text.is_empty() { break; }
            let at = at.index(text.len());
            match what {
                0 => { text.remove(at); }
                1 => { let end = (at + 40).min(text.len()); text.drain(at..end); }
                2 => { let other = text.len() - 1 - at; text.swap(at, other); }
                _ => { text.splice(at..at, insert.chars()); }
            }
        }
        let text: String = text.into_iter().collect();
        if let Err(error) = resolve_files(&[("damaged.toml", &text)]) {
            prop_assert!(error.contains(".toml"), "{}", error);
            prop_assert!(!error.contains('\n'), "{}", error);
        }
    }

    #[test]
    fn odd_options_never_panic(key in "[a-z0-9_.]{0,20}", value in "[ -~]{0,12}", deep in any::<bool>()) {
        let key = if deep { format!("tier.dram.{key}") } else { key };
        let _ = resolve("vivt", None, &[(&key, &value)]);
    }
}
