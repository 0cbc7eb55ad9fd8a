//! Building argument lists and environments without an allocator.

use crate::settings;
use std::ffi::{CStr, c_char};
use terrace_protocol::program::{Image, PROCESSOR, inspect};

/// Scripts that interpret scripts are followed this far, as in Linux.
const MAX_SCRIPTS: usize = 5;

/// A null-terminated list of strings, as `execve` takes it.
pub type Strings = *const *const c_char;

/// Memory for the lists of one `exec`: a mapping that disappears with the program, or with the value.
pub struct Arena {
    start: *mut u8,
    used: usize,
    bytes: usize,
}

impl Arena {
    /// Room for what `argv` and `envp` need, and for what is added to them.
    pub fn for_lists(argv: Strings, envp: Strings) -> Option<Arena> {
        const ADDED: usize = 64 * 1024;
        let bytes = (count(argv) + count(envp)) * size_of::<usize>() + ADDED;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping disturbs no other.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
        (start != libc::MAP_FAILED).then_some(Arena { start: start.cast(), used: 0, bytes })
    }

    fn take(&mut self, bytes: usize) -> Option<*mut u8> {
        let at = self.used.next_multiple_of(align_of::<usize>());
        self.used = at.checked_add(bytes).filter(|&end| end <= self.bytes)?;
        // SAFETY: inside the mapping.
        Some(unsafe { self.start.add(at) })
    }

    /// The parts, one after the other, as a string.
    fn string(&mut self, parts: &[&[u8]]) -> Option<*const c_char> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let start = self.take(bytes + 1)?;
        let mut at = start;
        for part in parts {
            // SAFETY: `bytes` is the sum of the lengths; the final zero is there, the mapping was empty.
            unsafe {
                std::ptr::copy_nonoverlapping(part.as_ptr(), at, part.len());
                at = at.add(part.len());
            }
        }
        Some(start.cast())
    }

    fn list(&mut self, capacity: usize) -> Option<List> {
        let start = self.take((capacity + 1) * size_of::<usize>())?;
        Some(List { start: start.cast(), length: 0, capacity })
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: our own mapping.
        unsafe { libc::munmap(self.start.cast(), self.bytes) };
    }
}

struct List {
    start: *mut *const c_char,
    length: usize,
    capacity: usize,
}

impl List {
    fn push(&mut self, string: *const c_char) {
        assert!(self.length < self.capacity);
        // SAFETY: in range; the terminating null is there, the mapping was empty.
        unsafe { self.start.add(self.length).write(string) };
        self.length += 1;
    }
}

/// What to execute instead.
pub struct Relaunch {
    pub path: *const c_char,
    pub argv: Strings,
    pub envp: Strings,
}

/// What to execute so that the program at `path` is recorded; `None` to execute it as it is.
pub fn relaunch(arena: &mut Arena, path: &CStr, argv: Strings, envp: Strings) -> Option<Relaunch> {
    if !settings::follows() {
        return None;
    }
    let mut head = [0; 4096];
    let mut program = path.as_ptr();
    // Arguments that scripts put before the program's own, innermost first.
    let mut inserted: [*const c_char; 2 * MAX_SCRIPTS] = [std::ptr::null(); 2 * MAX_SCRIPTS];
    let mut insertions = 0;
    let mut name = item(argv, 0).filter(|name| !name.is_null()).unwrap_or(program);
    loop {
        // SAFETY: `program` is `path` or a string of the arena.
        let length = read_head(unsafe { CStr::from_ptr(program) }, &mut head)?;
        match inspect(&head[..length]) {
            Image::X86_64 { .. } => break,
            Image::Script { interpreter, argument } => {
                if insertions + 2 > inserted.len() {
                    return None;
                }
                inserted[insertions] = program;
                insertions += 1;
                if let Some(argument) = argument {
                    inserted[insertions] = arena.string(&[argument])?;
                    insertions += 1;
                }
                program = arena.string(&[interpreter])?;
                name = program;
            }
            _ => return None,
        }
    }
    let preload = settings::PRELOAD.get().to_bytes();
    let mut arguments = arena.list(count(argv) + insertions + 16)?;
    arguments.push(settings::QEMU.get().as_ptr());
    arguments.push(c"-cpu".as_ptr());
    arguments.push(PROCESSOR.as_ptr());
    arguments.push(c"-plugin".as_ptr());
    arguments.push(settings::PLUGIN.get().as_ptr());
    if !preload.is_empty() {
        arguments.push(c"-E".as_ptr());
        arguments.push(preload_variable(arena, preload, envp)?);
    }
    arguments.push(c"-0".as_ptr());
    arguments.push(name);
    arguments.push(c"--".as_ptr());
    arguments.push(program);
    (0..insertions).rev().for_each(|i| arguments.push(inserted[i]));
    (1..count(argv)).filter_map(|i| item(argv, i)).for_each(|argument| arguments.push(argument));
    let mut environment = arena.list(count(envp) + 8)?;
    for i in 0..count(envp) {
        let Some(variable) = item(envp, i) else { break };
        // SAFETY: the list holds strings.
        let text = unsafe { CStr::from_ptr(variable) }.to_bytes();
        if !text.starts_with(b"LD_PRELOAD=") && !settings::VARIABLES.iter().any(|own| text.starts_with(own)) {
            environment.push(variable);
        }
    }
    let values = [settings::QEMU.get(), settings::PLUGIN.get(), settings::PRELOAD.get(), c"on"];
    for (name, value) in settings::VARIABLES.into_iter().zip(values) {
        environment.push(arena.string(&[name, value.to_bytes()])?);
    }
    Some(Relaunch {
        path: settings::QEMU.get().as_ptr(),
        argv: arguments.start.cast_const(),
        envp: environment.start.cast_const(),
    })
}

/// `envp` without our libraries and variables, for a program that runs outside the recorder.
pub fn plain_environment(arena: &mut Arena, envp: Strings) -> Option<Strings> {
    let mut environment = arena.list(count(envp))?;
    for i in 0..count(envp) {
        let Some(variable) = item(envp, i) else { break };
        // SAFETY: the list holds strings.
        let text = unsafe { CStr::from_ptr(variable) }.to_bytes();
        match text.strip_prefix(b"LD_PRELOAD=") {
            None if settings::VARIABLES.iter().any(|own| text.starts_with(own)) => {}
            None => environment.push(variable),
            Some(value) => {
                let rest = own_libraries_removed(value);
                if !rest.is_empty() {
                    environment.push(arena.string(&[b"LD_PRELOAD=", rest])?);
                }
            }
        }
    }
    Some(environment.start.cast_const())
}

/// `LD_PRELOAD` with our libraries first and the program's own choice after them.
fn preload_variable(arena: &mut Arena, preload: &[u8], envp: Strings) -> Option<*const c_char> {
    let own = (0..count(envp)).filter_map(|i| item(envp, i)).find_map(|variable| {
        // SAFETY: the list holds strings, which live as long as it.
        unsafe { CStr::from_ptr(variable) }.to_bytes().strip_prefix(b"LD_PRELOAD=")
    });
    let rest = own.map_or(&b""[..], own_libraries_removed);
    let separator: &[u8] = if rest.is_empty() { b"" } else { b":" };
    arena.string(&[b"LD_PRELOAD=", preload, separator, rest])
}

fn own_libraries_removed(value: &[u8]) -> &[u8] {
    let rest = value.strip_prefix(settings::PRELOAD.get().to_bytes()).unwrap_or(value);
    rest.strip_prefix(b":").unwrap_or(rest)
}

/// The first bytes of a file that we may execute; `None` for others, and for files that change the user.
fn read_head(path: &CStr, head: &mut [u8]) -> Option<usize> {
    // SAFETY: valid pointers; the descriptor is closed on every way out.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        let executable = libc::access(path.as_ptr(), libc::X_OK) == 0
            && libc::stat(path.as_ptr(), &mut status) == 0
            && status.st_mode & libc::S_IFMT == libc::S_IFREG
            && status.st_mode & (libc::S_ISUID | libc::S_ISGID) == 0;
        if !executable {
            return None;
        }
        let fd = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if fd < 0 {
            return None;
        }
        let length = libc::read(fd, head.as_mut_ptr().cast(), head.len());
        libc::close(fd);
        usize::try_from(length).ok()
    }
}

/// Strings in a list.
pub fn count(list: Strings) -> usize {
    (0..).find(|&i| item(list, i).is_none()).unwrap_or(0)
}

/// A string of a list; `None` at its end.
pub fn item(list: Strings, index: usize) -> Option<*const c_char> {
    if list.is_null() {
        return None;
    }
    // SAFETY: callers do not go beyond the terminating null.
    let string = unsafe { *list.add(index) };
    (!string.is_null()).then_some(string)
}
