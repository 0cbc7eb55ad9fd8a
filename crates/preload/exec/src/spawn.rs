//! Functions that make a process and execute a program in it: `posix_spawn` and what the C library builds on it.

use crate::arguments::{Arena, Strings, plain_environment, relaunch};
use crate::exec::{SEARCH_BYTES, environment, search};
use libc::{FILE, pid_t, posix_spawn_file_actions_t, posix_spawnattr_t};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

type Spawn = unsafe extern "C" fn(
    *mut pid_t,
    *const c_char,
    *const posix_spawn_file_actions_t,
    *const posix_spawnattr_t,
    Strings,
    Strings,
) -> c_int;

/// The C library's function that ours hides.
fn next(name: &CStr, cache: &AtomicUsize) -> *mut c_void {
    let known = cache.load(Relaxed);
    if known != 0 {
        return known as *mut c_void;
    }
    // SAFETY: the name is a string.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    cache.store(found as usize, Relaxed);
    found
}

unsafe fn spawn(
    pid: *mut pid_t,
    path: *const c_char,
    actions: *const posix_spawn_file_actions_t,
    attributes: *const posix_spawnattr_t,
    argv: Strings,
    envp: Strings,
) -> c_int {
    static CACHE: AtomicUsize = AtomicUsize::new(0);
    // SAFETY: the C library's function of that name has that type.
    let real: Spawn = unsafe { std::mem::transmute(next(c"posix_spawn", &CACHE)) };
    let Some(mut arena) = Arena::for_lists(argv, envp) else { return libc::ENOMEM };
    // SAFETY: the caller keeps `posix_spawn`'s contract; the arena outlives the call, by the end of which the child
    // has executed its program.
    unsafe {
        if let Some(new) = relaunch(&mut arena, CStr::from_ptr(path), argv, envp) {
            return real(pid, new.path, actions, attributes, new.argv, new.envp);
        }
        let plain = plain_environment(&mut arena, envp).unwrap_or(envp);
        real(pid, path, actions, attributes, argv, plain)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawn(
    pid: *mut pid_t,
    path: *const c_char,
    actions: *const posix_spawn_file_actions_t,
    attributes: *const posix_spawnattr_t,
    argv: Strings,
    envp: Strings,
) -> c_int {
    // SAFETY: the caller keeps the function's contract.
    unsafe { spawn(pid, path, actions, attributes, argv, envp) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawnp(
    pid: *mut pid_t,
    file: *const c_char,
    actions: *const posix_spawn_file_actions_t,
    attributes: *const posix_spawnattr_t,
    argv: Strings,
    envp: Strings,
) -> c_int {
    let mut path = [0; SEARCH_BYTES];
    // SAFETY: the caller keeps the function's contract. What is not found fails as the C library has it fail.
    unsafe {
        let found = search(CStr::from_ptr(file), &mut path);
        let program = if found { path.as_ptr().cast() } else { file };
        spawn(pid, program, actions, attributes, argv, envp)
    }
}

/// Starts a shell for a command.
unsafe fn shell(
    pid: &mut pid_t,
    command: *const c_char,
    actions: *const posix_spawn_file_actions_t,
) -> c_int {
    let argv = [c"sh".as_ptr(), c"-c".as_ptr(), command, std::ptr::null()];
    // SAFETY: a list that a null ends.
    unsafe { spawn(pid, c"/bin/sh".as_ptr(), actions, std::ptr::null(), argv.as_ptr(), environment()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn system(command: *const c_char) -> c_int {
    if command.is_null() {
        return 1;
    }
    // SAFETY: plain signal handling as POSIX prescribes for this function; all pointers are valid.
    unsafe {
        let mut ignore: libc::sigaction = std::mem::zeroed();
        ignore.sa_sigaction = libc::SIG_IGN;
        let mut interrupt: libc::sigaction = std::mem::zeroed();
        let mut quit: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGINT, &ignore, &mut interrupt);
        libc::sigaction(libc::SIGQUIT, &ignore, &mut quit);
        let mut pid = 0;
        let mut status = 127 << 8;
        if shell(&mut pid, command, std::ptr::null()) == 0 {
            while libc::waitpid(pid, &mut status, 0) < 0 {
                if *libc::__errno_location() != libc::EINTR {
                    status = -1;
                    break;
                }
            }
        }
        libc::sigaction(libc::SIGINT, &interrupt, std::ptr::null_mut());
        libc::sigaction(libc::SIGQUIT, &quit, std::ptr::null_mut());
        status
    }
}

/// Streams that `popen` opened, with the process behind each.
static OPENED: Mutex<Vec<(usize, pid_t)>> = Mutex::new(Vec::new());

#[unsafe(no_mangle)]
pub unsafe extern "C" fn popen(command: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the caller passes strings; all other pointers are ours.
    unsafe {
        let letters = CStr::from_ptr(mode).to_bytes();
        let reads = letters.contains(&b'r');
        if reads == letters.contains(&b'w') {
            *libc::__errno_location() = libc::EINVAL;
            return std::ptr::null_mut();
        }
        let mut ends = [0; 2];
        if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
            return std::ptr::null_mut();
        }
        let (ours, theirs, as_fd) = if reads { (ends[0], ends[1], 1) } else { (ends[1], ends[0], 0) };
        let mut actions: posix_spawn_file_actions_t = std::mem::zeroed();
        libc::posix_spawn_file_actions_init(&mut actions);
        libc::posix_spawn_file_actions_adddup2(&mut actions, theirs, as_fd);
        let mut pid = 0;
        let error = shell(&mut pid, command, &actions);
        libc::posix_spawn_file_actions_destroy(&mut actions);
        libc::close(theirs);
        if error != 0 {
            libc::close(ours);
            *libc::__errno_location() = error;
            return std::ptr::null_mut();
        }
        if !letters.contains(&b'e') {
            libc::fcntl(ours, libc::F_SETFD, 0);
        }
        let stream = libc::fdopen(ours, if reads { c"r" } else { c"w" }.as_ptr());
        OPENED.lock().unwrap_or_else(|e| e.into_inner()).push((stream as usize, pid));
        stream
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pclose(stream: *mut FILE) -> c_int {
    let pid = {
        let mut opened = OPENED.lock().unwrap_or_else(|e| e.into_inner());
        let Some(at) = opened.iter().position(|&(s, _)| s == stream as usize) else {
            // SAFETY: errno is the thread's own.
            unsafe { *libc::__errno_location() = libc::ECHILD };
            return -1;
        };
        opened.swap_remove(at).1
    };
    // SAFETY: the stream that `popen` returned.
    unsafe {
        libc::fclose(stream);
        let mut status = 0;
        while libc::waitpid(pid, &mut status, 0) < 0 {
            if *libc::__errno_location() != libc::EINTR {
                return -1;
            }
        }
        status
    }
}
