//! The book has a page per translation scheme: its file's own document, its design and keys, and where it turns contiguity
//! into shorter walks what it gains in the run of the overview. The overview and the table of contents list them all. The
//! tables of keys on the reference page come from their declarations.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use terrace_model::parameters::{Declared, ParameterInfo};
use terrace_sim::design::schemes::{ALL, Entry};
use terrace_sim::design::{Design, Library, SchemeParameters};

/// The schemes that turn contiguity into shorter walks: the overview has a run of each.
const OF_CONTIGUITY: [&str; 4] = ["colt", "rmm", "direct-segment", "spot"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The document of a scheme, without links that only the compiler knows: its title, and the text after it.
fn document(scheme: &Entry) -> (String, String) {
    let mut text = scheme.document();
    while let Some(at) = text.find("](") {
        let end = at + text[at..].find(')').unwrap();
        let begin = text[..at].rfind('[').unwrap();
        text = format!("{}{}{}", &text[..begin], &text[begin + 1..at], &text[end + 1..]);
    }
    let text = text.replace("[`", "`").replace("`]", "`");
    let (title, text) = text.split_once(": ").unwrap();
    let mut first = text.chars();
    (title.to_owned(), first.next().unwrap().to_uppercase().collect::<String>() + first.as_str())
}

/// The cells of a table's row.
fn cells(row: &str) -> Vec<&str> {
    row.trim_matches('|').split(" | ").map(|cell| cell.trim_matches(['|', ' '])).collect()
}

/// What a scheme gains in the run of the overview.
fn gain(name: &str, overview: &str) -> String {
    let (_, run) = overview.split_once("```console\n").unwrap();
    let (command, run) = run.split_once("\n```").unwrap();
    let others = OF_CONTIGUITY.iter().filter(|other| **other != name);
    let command =
        others.fold(command.to_owned(), |command, other| command.replace(&format!(" --tlb {other}"), ""));
    let mut rows = run.lines().filter(|line| line.starts_with('|'));
    let column = cells(rows.next().unwrap()).iter().position(|cell| *cell == format!("`{name}`")).unwrap();
    let mut text = format!(
        "\n## What it gains in one run\n\n```console\n{command}\n```\n\n\
         | pages | gain, TLB as it is | with `{name}` | waits, TLB as it is | with `{name}` |\n|---|---:|---:|---:|---:|\n"
    );
    for row in rows.skip(1) {
        let row = cells(row);
        let [before, after] = [1, column].map(|at| row[at].split_once(", ").unwrap());
        let _ = writeln!(text, "| {} | {} | {} | {} | {} |", row[0], before.0, after.0, before.1, after.1);
    }
    text
}

/// Smallest and largest value, as a cell.
fn range(key: &ParameterInfo) -> String {
    key.range.as_ref().map_or(String::new(), |range| format!("{} to {}", range.low, range.high))
}

fn page(scheme: &Entry, overview: &str) -> String {
    let (title, text) = document(scheme);
    let name = scheme.name;
    let mut page = format!("# {title} (`{name}`)\n\n{text}\n");
    let file = root().join(format!("designs/{name}.toml"));
    let design = std::fs::read_to_string(file).ok().or(scheme.design.map(str::to_owned));
    if let Some(design) = design {
        let _ = writeln!(page, "\n## The design\n\n```toml\n{}\n```", design.trim());
    }
    let keys = scheme.keys();
    if !keys.is_empty() {
        page +=
            "\n## Keys\n\n| key of `translation.scheme` | default | range | meaning |\n|---|---|---|---|\n";
        for key in keys {
            let default = key.written_default();
            let _ =
                writeln!(page, "| `{}` | `{default}` | {} | {} |", key.name, range(&key), key.explanation());
        }
    }
    if !scheme.statistics.is_empty() {
        page += "\n## Statistics\n\n| name | meaning |\n|---|---|\n";
        for (name, meaning) in scheme.statistics {
            let _ = writeln!(page, "| `{name}` | {meaning} |");
        }
    }
    if OF_CONTIGUITY.contains(&name) {
        page += &gain(name, overview);
    }
    page + "\n[The others beside it](../translation.md), and [one access under several](../one-access.md)\n"
}

/// Compares what is written with what is to be; writes it where asked to.
fn check(path: &Path, expected: &str) {
    if std::env::var_os("TERRACE_UPDATE").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, expected).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(written == expected, "{} is stale; run with TERRACE_UPDATE=1", path.display());
}

/// A text in which these lines stand for those that begin with `prefix` and link into `folder`.
fn with_lines(text: &str, prefix: &str, lines: &str, folder: &str) -> String {
    let is_one = |line: &&str| line.starts_with(prefix) && line.contains(&format!("]({folder}"));
    let mut before = true;
    let mut out = String::new();
    for line in text.split_inclusive('\n') {
        if !is_one(&line) {
            out += line;
        } else if std::mem::take(&mut before) {
            out += lines;
        }
    }
    out
}

#[test]
fn the_book_has_a_page_per_scheme() {
    let overview = read("docs/src/translation.md");
    let (mut listed, mut rows) = (String::new(), String::new());
    for scheme in ALL {
        let name = scheme.name;
        check(&root().join(format!("docs/src/translation/{name}.md")), &page(scheme, &overview));
        let _ = writeln!(listed, "  - [{name}](translation/{name}.md)");
        let (title, _) = document(scheme);
        let _ = writeln!(rows, "| [`{name}`](translation/{name}.md) | {title} |");
    }
    let contents = read("docs/src/SUMMARY.md");
    check(&root().join("docs/src/SUMMARY.md"), &with_lines(&contents, "  - [", &listed, "translation/"));
    check(&root().join("docs/src/translation.md"), &with_lines(&overview, "| [`", &rows, "translation/"));
}

/// The keys of the reference page that begin with `above`, less those that stand elsewhere.
fn keys_below<'a>(declared: &'a [ParameterInfo], above: &str, elsewhere: &[&str]) -> Vec<&'a ParameterInfo> {
    let is_here = |key: &&ParameterInfo| {
        key.name.starts_with(above) && !elsewhere.iter().any(|other| key.name.starts_with(other))
    };
    declared.iter().filter(is_here).collect()
}

/// A table of keys. What says the same of several keys is one row.
fn table_of_keys(keys: &[&ParameterInfo], shown: &dyn Fn(&str) -> String) -> String {
    let mut rows: Vec<(Vec<String>, String)> = Vec::new();
    for key in keys {
        let meaning = match key.only_with.as_str() {
            // What the kinds are stands in a table of their own.
            "" if key.name.ends_with(".kind") => key.help.clone(),
            "" => key.explanation(),
            kind => format!("With `{kind}`: {}", key.explanation()),
        };
        let default = match key.default.as_str() {
            "" => String::new(),
            "none" => "none".to_owned(),
            _ => format!("`{}`", key.written_default()),
        };
        let cells = format!("{} | {default} | {} | {meaning} |", key.unit, range(key));
        let name = format!("`{}`", shown(&key.name));
        match rows.iter_mut().find(|(_, other)| *other == cells) {
            Some((names, _)) => names.push(name),
            None => rows.push((vec![name], cells)),
        }
    }
    let mut table = "| key | unit | default | range | meaning |\n|---|---|---|---|---|\n".to_owned();
    for (names, cells) in rows {
        let _ = writeln!(table, "| {} | {cells}", names.join(", "));
    }
    table
}

/// A table of the kinds that a table of a file can be of.
fn table_of_kinds(declared: &[ParameterInfo], above: &str) -> String {
    let kind = declared.iter().find(|key| key.name == format!("{above}kind")).unwrap();
    let mut table = "| kind | its keys | meaning |\n|---|---|---|\n".to_owned();
    for choice in &kind.choices {
        let own = |key: &&ParameterInfo| key.name.starts_with(above) && key.only_with == choice.name;
        let names = declared.iter().filter(own).map(|key| format!("`{}`", &key.name[above.len()..]));
        let names = names.collect::<Vec<_>>().join(", ");
        let _ = writeln!(table, "| `{}` | {names} | {} |", choice.name, choice.help);
    }
    table
}

/// `text` with `table` behind the comment `begin`, in place of the table there.
fn with_table(text: &str, begin: &str, table: &str) -> String {
    let begin = format!("<!-- {begin} -->\n");
    let (before, rest) = text.split_once(&begin).unwrap_or_else(|| panic!("the page has no {begin}"));
    let after: String = rest.split_inclusive('\n').skip_while(|line| line.starts_with('|')).collect();
    format!("{before}{begin}{table}{after}")
}

#[test]
fn the_reference_page_has_every_key_as_it_was_declared() {
    let declared = Design::declared();
    let mut page = read("docs/src/reference/designs.md");
    let as_it_is = |name: &str| name.to_owned();
    let of_groups = |name: &str| name.replace(".*.", ".G.");
    let of_arrays = |name: &str| match name.strip_prefix("translation.l1d.*.") {
        Some(rest) => format!("translation.l1d.SIZE.{rest}"),
        None => name.replace(".*.", ".N."),
    };
    let of_tiers = |name: &str| name.replace(".*.", ".T.");
    let of_devices = |name: &str| name.trim_start_matches("device.*.").replace(".*.", ".N.");
    type Shown<'a> = &'a dyn Fn(&str) -> String;
    let tables: [(&str, &[&str], Shown<'_>); 14] = [
        ("core.", &["core.groups."], &as_it_is),
        ("core.groups.", &[], &of_groups),
        // A scheme's own keys stand on its page.
        ("translation.", &["translation.scheme.", "translation.nested."], &of_arrays),
        ("translation.nested.", &[], &as_it_is),
        ("cache.", &[], &as_it_is),
        ("tier.", &[], &of_tiers),
        ("device.", &[], &of_devices),
        ("gpu.", &[], &as_it_is),
        ("coherence.", &[], &as_it_is),
        ("os.", &["os.costs."], &as_it_is),
        ("os.costs.", &[], &as_it_is),
        ("vm.", &[], &as_it_is),
        ("host.", &["host.placement.", "host.memory."], &as_it_is),
        ("hypervisor.", &[], &as_it_is),
    ];
    for (above, elsewhere, shown) in tables {
        let table = table_of_keys(&keys_below(&declared, above, elsewhere), shown);
        page = with_table(&page, &format!("keys of {}", above.trim_end_matches('.')), &table);
    }
    for above in ["os.placement.", "os.memory.aging."] {
        let table = table_of_kinds(&declared, above);
        page = with_table(&page, &format!("kinds of {}", above.trim_end_matches('.')), &table);
    }
    check(&root().join("docs/src/reference/designs.md"), &page);
    // Beside the tables: the head of the file, the ledger, the name of a scheme, what a machine says in short.
    let tops = ["name", "summary", "machine", "ledger", "translation.scheme"];
    let is_top = |name: &str| tops.iter().any(|top| name == *top || name.starts_with(&format!("{top}.")));
    for key in declared.iter().filter(|key| !tables.iter().any(|(above, ..)| key.name.starts_with(above))) {
        assert!(is_top(&key.name), "no table has {}", key.name);
    }
    for key in ["extends", "kind", "summary", "preset", "translation.scheme"] {
        assert!(page.contains(&format!("`{key}`")), "docs/src/reference/designs.md lacks {key}");
    }
}

#[test]
fn every_scheme_has_a_document_a_design_and_keys_that_are_explained() {
    let library = Library::embedded();
    let designs: Vec<_> = library
        .design_names()
        .iter()
        .map(|listed| library.design(&listed.name, None, &[]).unwrap().design.translation.scheme.kind)
        .collect();
    for scheme in ALL {
        let text = scheme.document();
        for part in ["**What it does.**", "**Source.**", "**Left open, and chosen here.**"] {
            assert!(text.contains(part), "{}.rs has no {part}", scheme.file);
        }
        assert!(designs.iter().any(|kind| kind == scheme.name), "no design shows {}", scheme.name);
        let defaults = scheme.effective(&SchemeParameters::named(scheme.name).own).unwrap();
        let program = "kv,keys=2e3,requests=4e3";
        let base = library.design("native-4k", Some("vbi-table1"), &[]).unwrap().design;
        let run = |kind: &str| {
            let mut design = base.clone();
            design.translation.scheme = SchemeParameters::named(kind);
            let mut source = terrace_workload::open(program).unwrap().source();
            terrace_sim::simulate(&design, &mut *source, terrace_sim::Options::default()).unwrap().stats
        };
        let (own, plain) = (run(scheme.name), run("radix"));
        let beyond: Vec<&str> =
            own.iter().map(|(name, _)| name).filter(|name| plain.get(name).is_none()).collect();
        let mut documented: Vec<&str> = scheme.statistics.iter().map(|(name, _)| *name).collect();
        documented.sort_unstable();
        assert_eq!(beyond, documented, "{}: statistics", scheme.name);
        let keys = scheme.keys();
        assert_eq!(keys.len(), defaults.len(), "{}: {keys:?}", scheme.name);
        assert!(keys.iter().all(|key| key.help.len() > 10), "{}: {keys:?}", scheme.name);
    }
}
