//! Which files and folders of the simulator use which: there is no circle between files of one folder, nor between folders.

use super::workspace;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// The folder that names the parameters of all others, and whose designs all others may use. The test of folders leaves it
/// out.
const NAMES_ALL: &str = "design";

/// The names that each name uses.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// A file's code: without its comments and its tests.
fn code(file: &Path) -> String {
    let text = read_to_string(file).unwrap();
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// The paths that `a::{b, c::{d, e}}` stands for.
fn expanded(tree: &str) -> Vec<String> {
    let Some((prefix, rest)) = tree.split_once('{') else {
        return vec![tree.split(" as ").next().unwrap_or_default().trim().to_owned()];
    };
    let body = rest.rsplit_once('}').map_or(rest, |(body, _)| body);
    let (mut depth, mut parts) = (0, vec![String::new()]);
    for character in body.chars() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        parts.last_mut().unwrap().push(character);
    }
    let named = parts.iter().filter(|part| !part.trim().is_empty());
    named.flat_map(|part| expanded(part)).map(|path| format!("{}{path}", prefix.trim())).collect()
}

/// The paths of the `use` declarations of some code, split at `::`.
fn used(code: &str) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    let mut rest = code;
    while let Some(at) = rest.find("use ") {
        let is_word = rest[..at].chars().next_back().is_none_or(char::is_whitespace);
        rest = &rest[at + 4..];
        if is_word {
            let declaration = rest.split(';').next().unwrap_or_default();
            paths.extend(expanded(declaration));
        }
    }
    paths.iter().map(|path| path.split("::").map(|part| part.trim().to_owned()).collect()).collect()
}

/// The paths from `crate` or `super` that stand in the middle of code.
fn in_line(code: &str) -> Vec<Vec<String>> {
    let is_path = |character: char| character.is_alphanumeric() || character == '_' || character == ':';
    let words = code.split(|character: char| !is_path(character));
    let paths = words.filter(|word| word.starts_with("crate::") || word.starts_with("super::"));
    paths.map(|path| path.split("::").map(str::to_owned).collect()).collect()
}

/// Which of a folder's modules use which others. `module` is the folder's path in its crate.
fn graph(folder: &Path, module: &[&str]) -> Graph {
    let entries: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    let stem = |path: &Path| path.file_stem().unwrap().to_str().unwrap().to_owned();
    let names: BTreeSet<String> = entries.iter().map(|path| stem(path)).collect();
    let parts: BTreeSet<String> =
        names.into_iter().filter(|name| !["mod", "lib", "tests"].contains(&name.as_str())).collect();
    // Names that the folder passes on are those of the module that has them.
    let roots = [folder.join("mod.rs"), folder.join("lib.rs"), folder.with_extension("rs")];
    let root = roots.iter().find(|root| root.exists()).map(|root| code(root)).unwrap_or_default();
    let passed_on: BTreeMap<String, String> = used(&root)
        .into_iter()
        .map(|path| path.into_iter().filter(|part| part != "self").collect::<Vec<_>>())
        .filter(|path| path.len() > 1 && parts.contains(&path[0]))
        .map(|path| (path[path.len() - 1].clone(), path[0].clone()))
        .collect();
    let mut files = Vec::new();
    super::sources(folder, &mut files);
    let mut graph = Graph::new();
    for file in files {
        let inside = file.strip_prefix(folder).unwrap().with_extension("");
        let mut place: Vec<&str> = inside.iter().map(|part| part.to_str().unwrap()).collect();
        if place.contains(&"tests") || !parts.contains(place[0]) {
            continue;
        }
        let owner = place[0].to_owned();
        if place.last() == Some(&"mod") {
            place.pop();
        }
        let code = code(&file);
        for path in used(&code).into_iter().chain(in_line(&code)) {
            let up = path.iter().take_while(|part| *part == "super").count();
            let of_crate: Vec<&str> = std::iter::once("crate").chain(module.iter().copied()).collect();
            let rest = match up {
                0 if path.len() > of_crate.len() && path.iter().zip(&of_crate).all(|(a, b)| a == b) => {
                    &path[of_crate.len()..]
                }
                0 => continue,
                _ if up == place.len() && path.len() > up => &path[up..],
                _ => continue,
            };
            let used = if parts.contains(&rest[0]) { Some(&rest[0]) } else { passed_on.get(&rest[0]) };
            if let Some(used) = used.filter(|used| **used != owner) {
                graph.entry(owner.clone()).or_default().insert(used.clone());
            }
        }
    }
    graph
}

/// The modules that lie on circles: each can reach itself.
fn on_circles(graph: &Graph) -> Vec<String> {
    let reaches_itself = |begin: &String| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![begin]);
        while let Some(at) = next.pop() {
            for to in graph.get(at).into_iter().flatten() {
                if to == begin {
                    return true;
                }
                if seen.insert(to) {
                    next.push(to);
                }
            }
        }
        false
    };
    graph.keys().filter(|name| reaches_itself(name)).cloned().collect()
}

/// The folders in a folder.
fn folders(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("tests") {
            found.push(path.clone());
            folders(&path, found);
        }
    }
}

/// The folder of the simulator's sources, and those in it.
fn rooms_of_the_simulator() -> (PathBuf, Vec<PathBuf>) {
    let source = workspace().0.join("crates/sim/src");
    let mut rooms = Vec::new();
    folders(&source, &mut rooms);
    assert!(rooms.len() > 15 && rooms.iter().any(|room| room.ends_with("machine")), "{rooms:?}");
    (source, rooms)
}

#[test]
fn files_of_a_room_use_each_other_in_no_circle() {
    let (source, rooms) = rooms_of_the_simulator();
    let (mut wrong, mut edges) = (Vec::new(), 0);
    for room in rooms {
        let name = room.strip_prefix(&source).unwrap();
        let module: Vec<&str> = name.iter().map(|part| part.to_str().unwrap()).collect();
        let graph = graph(&room, &module);
        edges += graph.values().map(BTreeSet::len).sum::<usize>();
        let circles = on_circles(&graph);
        if !circles.is_empty() {
            wrong.push(format!("{}: {}", name.display(), circles.join(", ")));
        }
    }
    assert!(edges > 200, "{edges}");
    assert!(wrong.is_empty(), "move what both sides need to a file that uses neither:\n{}", wrong.join("\n"));
}

#[test]
fn rooms_use_each_other_in_no_circle() {
    let mut graph = graph(&rooms_of_the_simulator().0, &[]);
    let edges = graph.values().map(BTreeSet::len).sum::<usize>();
    assert!(edges > 50, "{edges}");
    assert!(graph.remove(NAMES_ALL).is_some(), "{graph:?}");
    let circles = on_circles(&graph);
    assert!(
        circles.is_empty(),
        "move what both sides need to a folder that uses neither: {}",
        circles.join(", ")
    );
}

/// Rooms that know their own parameters alone, and no design.
const PARTS: [&str; 10] =
    ["array", "cache", "coherence", "core", "host", "memory", "observe", "os", "translate", "vbi"];

#[test]
fn parts_of_a_machine_know_no_design() {
    let graph = graph(&rooms_of_the_simulator().0, &[]);
    let uses_design = |part: &&&str| graph.get(**part).is_some_and(|used| used.contains(NAMES_ALL));
    let wrong: Vec<&&str> = PARTS.iter().filter(uses_design).collect();
    assert!(wrong.is_empty(), "give them their parameters in place of a design: {wrong:?}");
    assert!(graph["machine"].contains(NAMES_ALL), "who builds machines does");
}

#[test]
fn circles_are_found() {
    let paths = |code: &str| used(code).iter().map(|path| path.join("::")).collect::<Vec<_>>();
    assert_eq!(paths("use super::{a::{B, C}, d};"), ["super::a::B", "super::a::C", "super::d"]);
    assert_eq!(paths("pub(crate) use crate::x::Y as Z;\nlet because = 1;"), ["crate::x::Y"]);
    assert_eq!(in_line("fn f() -> super::a::B { crate::c::d() }").len(), 2);
    let edge = |to: &[&str]| to.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    let mut graph = Graph::from([("a".to_owned(), edge(&["b"])), ("b".to_owned(), edge(&["c"]))]);
    assert!(on_circles(&graph).is_empty());
    graph.insert("c".to_owned(), edge(&["b"]));
    assert_eq!(on_circles(&graph), ["b", "c"]);
}
