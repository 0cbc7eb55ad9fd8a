//! Memory nodes and processors, as the kernel lists them, and on which of them this thread runs.

use std::fs;
use std::io;
use std::path::Path;

/// A node with memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// The kernel's number of it.
    pub id: i32,
    /// Processors of the node that this process may run on; none in memory that stands apart.
    pub processors: Vec<usize>,
    /// Bytes of memory.
    pub total: u64,
    /// Bytes of it that nobody has.
    pub free: u64,
}

const NODES: &str = "/sys/devices/system/node";

/// Nodes with memory. The first is the nearest to the processors that measure: it has some itself, where any has.
pub fn nodes(allowed: &[usize]) -> Vec<Node> {
    read_nodes(Path::new(NODES), allowed)
}

fn read_nodes(folder: &Path, allowed: &[usize]) -> Vec<Node> {
    let read = |file: String| fs::read_to_string(folder.join(file)).unwrap_or_default();
    let mut nodes = Vec::new();
    for id in memory_nodes_in(folder) {
        let meminfo = read(format!("node{id}/meminfo"));
        let bytes = |key: &str| {
            let mut words = meminfo.split_whitespace().skip_while(|word| *word != key).skip(1);
            words.next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) << 10
        };
        let processors = parse_list(&read(format!("node{id}/cpulist")));
        let processors = processors
            .into_iter()
            .filter_map(|one| usize::try_from(one).ok())
            .filter(|one| allowed.contains(one));
        let node =
            Node { id, processors: processors.collect(), total: bytes("MemTotal:"), free: bytes("MemFree:") };
        if node.total > 0 {
            nodes.push(node);
        }
    }
    // Stable, so that nodes stay in the kernel's order otherwise.
    if let Some(home) = nodes.iter().position(|node| !node.processors.is_empty()) {
        nodes[..=home].rotate_right(1);
    }
    nodes
}

/// Memory nodes, as the kernel lists them.
pub fn memory_nodes() -> Vec<i32> {
    memory_nodes_in(Path::new(NODES))
}

fn memory_nodes_in(folder: &Path) -> Vec<i32> {
    parse_list(&fs::read_to_string(folder.join("has_memory")).unwrap_or_default())
}

/// Numbers of a list such as `0-2,5`; what cannot be read is left out.
pub fn parse_list(list: &str) -> Vec<i32> {
    let mut numbers = Vec::new();
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse(), last.parse::<i32>()) {
            numbers.extend(first..=last);
        }
    }
    numbers
}

/// The processors that this thread may run on.
pub fn allowed_processors() -> io::Result<Vec<usize>> {
    // SAFETY: All bits zero is an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: A set of the size that the call states.
    if unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: Numbers within the set.
    Ok((0..libc::CPU_SETSIZE as usize)
        .filter(|&processor| unsafe { libc::CPU_ISSET(processor, &set) })
        .collect())
}

/// Binds the calling thread to these processors.
pub fn pin(processors: &[usize]) -> io::Result<()> {
    // SAFETY: All bits zero is an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for &processor in processors {
        // SAFETY: The number is one that such a set had.
        unsafe { libc::CPU_SET(processor, &mut set) };
    }
    // SAFETY: A set of the size that the call states.
    match unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Keeps the calling thread on some processors until dropped.
#[derive(Debug)]
pub struct Pinned(Vec<usize>);

impl Pinned {
    /// To these from now on; where that is refused, the thread runs where it did.
    pub fn to(processors: &[usize]) -> Pinned {
        let before = allowed_processors().unwrap_or_default();
        let _ = pin(processors);
        Pinned(before)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let _ = pin(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_the_kernel() {
        assert_eq!(parse_list("0\n"), [0]);
        assert_eq!(parse_list("0-2,5\n"), [0, 1, 2, 5]);
        assert_eq!(parse_list("\n"), [0i32; 0]);
    }

    #[test]
    fn nodes_without_memory_are_skipped_and_one_with_processors_is_first() {
        let folder = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("has_memory", "0,2-3\n");
        for (id, processors, kib) in [(0, "", 1024), (2, "0-3", 2048), (3, "4-5", 0)] {
            write(&format!("node{id}/cpulist"), &format!("{processors}\n"));
            write(
                &format!("node{id}/meminfo"),
                &format!("Node {id} MemTotal:  {kib} kB\nNode {id} MemFree:  {} kB\n", kib / 2),
            );
        }
        let found = read_nodes(folder.path(), &[0, 1, 2]);
        let home = Node { id: 2, processors: vec![0, 1, 2], total: 2 << 20, free: 1 << 20 };
        let apart = Node { id: 0, processors: vec![], total: 1 << 20, free: 512 << 10 };
        assert_eq!(found, [home, apart]);
        assert_eq!(read_nodes(&folder.path().join("none"), &[0]), []);
    }

    #[test]
    fn a_pinned_thread_is_let_go() {
        let before = allowed_processors().unwrap();
        let pinned = Pinned::to(&before[..1]);
        assert_eq!(allowed_processors().unwrap(), before[..1]);
        drop(pinned);
        assert_eq!(allowed_processors().unwrap(), before);
    }
}
