//! The kernel in memory as files: what `/proc` and `/sys` say, and what writing to them does.

use super::{Area, Machine, Place, Program};
use std::io;
use std::path::Path;

impl Machine {
    /// What a file says now.
    pub fn text(&self, path: &Path) -> Option<String> {
        let text = path.to_str()?;
        if let Some(rest) = text.strip_prefix("/proc/")
            && let Some((pid, name)) = rest.split_once('/')
            && let Ok(pid) = pid.parse::<u32>()
        {
            let program = self.processes.get(&pid)?;
            return match name {
                "comm" => Some(format!("program {pid}\n")),
                "stat" => Some(stat(pid, program)),
                "maps" => Some(maps(program)),
                _ => None,
            };
        }
        if let Some(node) = text.strip_prefix("/sys/devices/system/node/node")
            && let Some(node) = node.strip_suffix("/meminfo")
        {
            let node: usize = node.parse().ok()?;
            let (total, free) = (*self.capacity.get(node)? * 4, self.free(node) * 4);
            return Some(format!("Node {node} MemTotal: {total} kB\nNode {node} MemFree: {free} kB\n"));
        }
        if text == "/proc/swaps" {
            let (size, used) = (self.swap * 4, self.used(Place::Swap) * 4);
            let area = format!("/dev/zram0 partition {size} {used} 100\n");
            return Some(format!("Filename Type Size Used Priority\n{}", if size > 0 { &area } else { "" }));
        }
        self.files.get(path)
    }

    /// # Errors
    /// The kernel's.
    pub fn write(&mut self, path: &Path, value: &str) -> io::Result<()> {
        if let Some(pid) =
            path.to_str().and_then(|path| path.strip_prefix("/proc/")?.strip_suffix("/clear_refs"))
        {
            let program = pid.parse().ok().and_then(|pid: u32| self.processes.get_mut(&pid));
            let program = program.ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?;
            program.pages.values_mut().for_each(|page| page.dirty = false);
            return Ok(());
        }
        if path.ends_with("state")
            && value == "on"
            && self.files.targets().any(|pid| !self.processes.contains_key(&pid))
        {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        self.files.write(path, value)
    }
}

fn maps(program: &Program) -> String {
    let line = |(first, area): (&u64, &Area)| {
        let write = if area.writable { 'w' } else { '-' };
        format!("{:x}-{:x} r{write}-p 00000000 00:00 0 \n", first << 12, area.end << 12)
    };
    // A program has other memory, too, which is none of Terrace's business.
    let text = "400000-500000 r-xp 00000000 fe:00 77 /bin/program\n".to_owned();
    text + &program.areas.iter().map(line).collect::<String>()
}

/// The line of `/proc/PID/stat`: one that has executed nothing has `PF_FORKNOEXEC`, and each program its own addresses.
pub(super) fn stat(pid: u32, program: &Program) -> String {
    let flags = if program.executed == 0 { 0x40 } else { 0 };
    let places = (10..=51).map(|field| match field {
        26 => (program.executed << 12).to_string(),
        22 => pid.to_string(),
        _ => "0".to_owned(),
    });
    let places: Vec<String> = places.collect();
    format!("{pid} (program) S {} 1 1 0 -1 {flags} {}", program.parent, places.join(" "))
}
