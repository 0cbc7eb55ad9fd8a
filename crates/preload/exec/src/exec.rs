//! The `exec` family.

use crate::arguments::{Arena, Strings, plain_environment, relaunch};
use std::arch::naked_asm;
use std::ffi::{CStr, c_char, c_int};

/// Longest path that is tried.
const MAX_PATH: usize = 4096;
/// Most arguments of a variadic call; more fail with `E2BIG`.
const MAX_LISTED: usize = 1024;

unsafe extern "C" {
    static environ: Strings;
}

/// Executes `path`, under the recorder if possible. Returns only if that failed.
unsafe fn execute(path: *const c_char, argv: Strings, envp: Strings) -> c_int {
    let arena = if path.is_null() { None } else { Arena::for_lists(argv, envp) };
    if let Some(mut arena) = arena {
        // SAFETY: the caller passes a string.
        let name = unsafe { CStr::from_ptr(path) };
        if let Some(new) = relaunch(&mut arena, name, argv, envp) {
            // SAFETY: lists as `execve` wants them.
            return unsafe { libc::syscall(libc::SYS_execve, new.path, new.argv, new.envp) as c_int };
        }
        if let Some(plain) = plain_environment(&mut arena, envp) {
            // SAFETY: as above.
            return unsafe { libc::syscall(libc::SYS_execve, path, argv, plain) as c_int };
        }
    }
    // SAFETY: the caller's own arguments.
    unsafe { libc::syscall(libc::SYS_execve, path, argv, envp) as c_int }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execve(path: *const c_char, argv: Strings, envp: Strings) -> c_int {
    // SAFETY: the caller keeps `execve`'s contract.
    unsafe { execute(path, argv, envp) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execv(path: *const c_char, argv: Strings) -> c_int {
    // SAFETY: as above; the environment is the C library's.
    unsafe { execute(path, argv, environ) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvp(file: *const c_char, argv: Strings) -> c_int {
    // SAFETY: as above.
    unsafe { execvpe(file, argv, environ) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvpe(file: *const c_char, argv: Strings, envp: Strings) -> c_int {
    let mut path = [0; MAX_PATH];
    // SAFETY: the caller passes a string.
    let found = unsafe { search(CStr::from_ptr(file), &mut path) };
    // SAFETY: the caller's own lists.
    let result = unsafe { execute(if found { path.as_ptr().cast() } else { file }, argv, envp) };
    // SAFETY: errno is the thread's own.
    if unsafe { *libc::__errno_location() } == libc::ENOEXEC {
        // A file without interpreter line is a shell script, by tradition of this function.
        // SAFETY: lists as above, one argument more.
        return unsafe { execute_by_shell(if found { path.as_ptr().cast() } else { file }, argv, envp) };
    }
    result
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fexecve(fd: c_int, argv: Strings, envp: Strings) -> c_int {
    let mut path = [0u8; 32];
    let mut digits = [0u8; 12];
    let mut length = 0;
    let mut rest = fd.max(0);
    while length == 0 || rest > 0 {
        digits[length] = b'0' + (rest % 10) as u8;
        rest /= 10;
        length += 1;
    }
    let prefix = b"/proc/self/fd/";
    path[..prefix.len()].copy_from_slice(prefix);
    for i in 0..length {
        path[prefix.len() + i] = digits[length - 1 - i];
    }
    // SAFETY: a string and the caller's lists.
    unsafe { execute(path.as_ptr().cast(), argv, envp) }
}

/// Collects the arguments of a variadic call: the first six in `registers`, the others on the stack.
unsafe fn collect(
    registers: Strings,
    stack: Strings,
    list: &mut [*const c_char; MAX_LISTED + 1],
) -> Option<usize> {
    for (i, place) in list.iter_mut().enumerate() {
        // The path is the first argument of all, in the first register.
        let at = i + 1;
        // SAFETY: the caller ends the list with a null, and nothing beyond it is read.
        *place = unsafe { if at < 6 { *registers.add(at) } else { *stack.add(at - 6) } };
        if place.is_null() {
            return Some(at + 1);
        }
    }
    // SAFETY: errno is the thread's own.
    unsafe { *libc::__errno_location() = libc::E2BIG };
    None
}

unsafe extern "C" fn execl_list(registers: Strings, stack: Strings) -> c_int {
    let mut list = [std::ptr::null(); MAX_LISTED + 1];
    // SAFETY: called by the entry point below.
    unsafe {
        match collect(registers, stack, &mut list) {
            Some(_) => execute(*registers, list.as_ptr(), environ),
            None => -1,
        }
    }
}

unsafe extern "C" fn execlp_list(registers: Strings, stack: Strings) -> c_int {
    let mut list = [std::ptr::null(); MAX_LISTED + 1];
    // SAFETY: called by the entry point below.
    unsafe {
        match collect(registers, stack, &mut list) {
            Some(_) => execvpe(*registers, list.as_ptr(), environ),
            None => -1,
        }
    }
}

unsafe extern "C" fn execle_list(registers: Strings, stack: Strings) -> c_int {
    let mut list = [std::ptr::null(); MAX_LISTED + 1];
    // SAFETY: called by the entry point below; the environment follows the null.
    unsafe {
        match collect(registers, stack, &mut list) {
            Some(next) => {
                let envp = if next < 6 { *registers.add(next) } else { *stack.add(next - 6) };
                execute(*registers, list.as_ptr(), envp.cast())
            }
            None => -1,
        }
    }
}

/// An entry point for a variadic function, which Rust cannot define: stores the argument registers and passes their
/// address and that of the arguments on the stack (System V ABI for x86-64, section 3.2.3).
macro_rules! variadic {
    ($name:ident, $collector:ident) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() -> c_int {
            naked_asm!(
                "lea rax, [rsp + 8]",
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "push rdi",
                "mov rdi, rsp",
                "mov rsi, rax",
                "sub rsp, 8",
                "call {collector}",
                "add rsp, 56",
                "ret",
                collector = sym $collector,
            )
        }
    };
}

variadic!(execl, execl_list);
variadic!(execlp, execlp_list);
variadic!(execle, execle_list);

unsafe fn execute_by_shell(path: *const c_char, argv: Strings, envp: Strings) -> c_int {
    let mut list = [std::ptr::null(); MAX_LISTED + 1];
    list[0] = c"/bin/sh".as_ptr();
    list[1] = path;
    let mut i = 1;
    while i + 1 < MAX_LISTED {
        match crate::arguments::item(argv, i) {
            Some(argument) => list[i + 1] = argument,
            None => break,
        }
        i += 1;
    }
    // SAFETY: a null ends the list.
    unsafe { execute(c"/bin/sh".as_ptr(), list.as_ptr(), envp) }
}

/// Finds a program in the search path; `false` if it has a slash or is not there.
pub fn search(file: &CStr, path: &mut [u8; MAX_PATH]) -> bool {
    let file = file.to_bytes();
    if file.contains(&b'/') || file.is_empty() {
        return false;
    }
    // SAFETY: the name is a string; the value is one if it is not null.
    let directories = unsafe {
        let value = libc::getenv(c"PATH".as_ptr());
        if value.is_null() { c"/bin:/usr/bin" } else { CStr::from_ptr(value) }
    };
    for directory in directories.to_bytes().split(|&b| b == b':') {
        let directory = if directory.is_empty() { b"." } else { directory };
        let length = directory.len() + 1 + file.len();
        if length >= MAX_PATH {
            continue;
        }
        path[..directory.len()].copy_from_slice(directory);
        path[directory.len()] = b'/';
        path[directory.len() + 1..length].copy_from_slice(file);
        path[length] = 0;
        // SAFETY: valid pointers.
        let is_program = unsafe {
            let mut status: libc::stat = std::mem::zeroed();
            libc::access(path.as_ptr().cast(), libc::X_OK) == 0
                && libc::stat(path.as_ptr().cast(), &mut status) == 0
                && status.st_mode & libc::S_IFMT == libc::S_IFREG
        };
        if is_program {
            return true;
        }
    }
    false
}

/// Longest path that [`search`] finds.
pub const SEARCH_BYTES: usize = MAX_PATH;
/// The environment of the C library.
pub fn environment() -> Strings {
    // SAFETY: a pointer that the C library keeps valid.
    unsafe { environ }
}
