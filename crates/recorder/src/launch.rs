//! Finding the program and QEMU, and starting the one under the other.

use crate::{RecordError, RecordOptions};
use std::ffi::{CString, OsStr, OsString};
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use terrace_protocol::program::{Image, PROCESSOR, inspect};
use terrace_protocol::session::{ALLOCATIONS, PLUGIN, PRELOAD};
use terrace_trace::{Header, TraceEnding};

/// Name of the emulator's executable.
pub const QEMU: &str = "qemu-x86_64";

/// Whether this Terrace has libraries that recorded programs load: x86-64 ones, which other machines do not build.
pub const HAS_PRELOADS: bool = cfg!(target_arch = "x86_64");

/// Interpreters of interpreters of scripts that are followed, as in Linux.
const MAX_SCRIPTS: usize = 5;

/// Variables that change a program's memory behaviour and so belong into the trace's header.
const TELLING_VARIABLES: &[&str] = &[
    "MALLOC_ARENA_MAX",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TOP_PAD_",
    "MALLOC_CONF",
    "GLIBC_TUNABLES",
    "LD_PRELOAD",
    "OMP_NUM_THREADS",
    "PYTHONMALLOC",
    "PYTHONHASHSEED",
];

/// A program that can run under the recorder.
#[derive(Debug)]
pub struct Program {
    /// The ELF executable.
    pub executable: PathBuf,
    /// What the program sees as its arguments, the first included.
    pub arguments: Vec<OsString>,
    /// Whether the dynamic linker starts it.
    pub is_dynamic: bool,
}

/// Finds `command` as a shell would, and the interpreter if it is a script.
pub fn resolve(command: &[OsString]) -> Result<Program, RecordError> {
    let name = command.first().ok_or(RecordError::NoProgram)?;
    let mut path = find(name)?;
    let mut arguments = command.to_vec();
    for _ in 0..MAX_SCRIPTS {
        let unreadable = |error| RecordError::Io { what: format!("cannot read {}", path.display()), error };
        let mut head = Vec::new();
        std::fs::File::open(&path)
            .map_err(unreadable)?
            .take(4096)
            .read_to_end(&mut head)
            .map_err(unreadable)?;
        match inspect(&head) {
            Image::X86_64 { dynamic } => {
                return Ok(Program { executable: path, arguments, is_dynamic: dynamic });
            }
            Image::Script { interpreter, argument } => {
                let mut outer = vec![OsString::from_vec(interpreter.to_vec())];
                outer.extend(argument.map(|a| OsString::from_vec(a.to_vec())));
                outer.push(path.into_os_string());
                outer.extend(arguments.into_iter().skip(1));
                arguments = outer;
                path = find(&arguments[0])?;
            }
            Image::OtherMachine(machine) => {
                return Err(RecordError::OtherMachine { program: path, machine });
            }
            Image::Unknown => return Err(RecordError::NotAProgram { program: path }),
        }
    }
    Err(RecordError::NotAProgram { program: path })
}

/// Whether Linux finds `command` and lets this user execute it. What its file holds is not judged: Linux may know (by
/// `binfmt_misc`) what the recorder does not.
///
/// # Errors
/// There is no such program, or it may not be executed.
pub fn may_start(command: &[OsString]) -> Result<(), RecordError> {
    match resolve(command) {
        Err(
            error @ (RecordError::NoProgram
            | RecordError::NotFound { .. }
            | RecordError::IsDirectory { .. }
            | RecordError::NotExecutable { .. }),
        ) => Err(error),
        _ => Ok(()),
    }
}

/// Why Linux has refused to start `command`.
pub fn not_started(command: &[OsString], error: std::io::Error) -> RecordError {
    let name = command.first().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let what = match (error.raw_os_error(), resolve(command)) {
        (_, Err(RecordError::Io { .. })) => format!("cannot start {name}"),
        (Some(libc::ENOENT | libc::EACCES | libc::ENOEXEC), Err(reason)) => return reason,
        (Some(libc::ENOENT), Ok(_)) => {
            format!(
                "cannot start {name}: the interpreter or dynamic linker that it names is missing (see: file FILE)"
            )
        }
        _ => format!("cannot start {name}"),
    };
    RecordError::Io { what, error }
}

/// Finds QEMU.
pub fn find_qemu(options: &RecordOptions) -> Result<PathBuf, RecordError> {
    let name = options.qemu.as_deref().unwrap_or(Path::new(QEMU));
    find(name.as_os_str()).map_err(|_| RecordError::QemuMissing)
}

/// Starts the program under QEMU. Standard input, output and error are the caller's own.
pub fn start(
    program: &Program,
    qemu: &Path,
    folder: &Path,
    options: &RecordOptions,
) -> Result<Child, RecordError> {
    let on = |value: bool| if value { "on" } else { "off" };
    let mut plugin = folder.join(PLUGIN).into_os_string();
    plugin.push(",folder=");
    plugin.push(folder);
    let (dependences, derive) = (on(options.dependences), on(options.derive_addresses));
    plugin.push(format!(",dependences={dependences},derive={derive},count={}", on(options.count_only)));
    let mut command = Command::new(qemu);
    command.arg("-cpu").arg(OsStr::from_bytes(PROCESSOR.to_bytes())).arg("-plugin").arg(&plugin);
    if HAS_PRELOADS && (options.follow_exec || options.allocations) && !options.count_only {
        // The first runs other programs without them where those are not followed.
        let mut preload = folder.join(PRELOAD).into_os_string();
        if options.allocations {
            preload.push(":");
            preload.push(folder.join(ALLOCATIONS));
        }
        command.env("TERRACE_PRELOAD", &preload);
        if let Some(own) = std::env::var_os("LD_PRELOAD").filter(|own| !own.is_empty()) {
            // QEMU itself must not load what is meant for the program.
            preload.push(":");
            preload.push(own);
        }
        command.env_remove("LD_PRELOAD");
        let mut variable = OsString::from("LD_PRELOAD=");
        variable.push(&preload);
        command.arg("-E").arg(variable);
        command.env("TERRACE_QEMU", std::fs::canonicalize(qemu).unwrap_or_else(|_| qemu.into()));
        command.env("TERRACE_PLUGIN", &plugin);
        command.env("TERRACE_FOLLOW_EXEC", on(options.follow_exec));
    }
    command.envs(options.environment.iter().cloned());
    command.arg("-0").arg(&program.arguments[0]);
    command.arg("--").arg(&program.executable).args(&program.arguments[1..]);
    command.arg0(QEMU);
    if options.empty_input {
        command.stdin(Stdio::null());
    }
    command
        .spawn()
        .map_err(|error| RecordError::Io { what: format!("cannot start {}", qemu.display()), error })
}

/// What the trace says about itself.
pub fn header(command: &[OsString], options: &RecordOptions) -> Header {
    let text = |s: &OsStr| s.to_string_lossy().into_owned();
    let environment = TELLING_VARIABLES
        .iter()
        .filter_map(|name| {
            let given = options.environment.iter().find(|(variable, _)| variable == name);
            let value = given.map(|(_, value)| value.clone()).or_else(|| std::env::var_os(name))?;
            Some(format!("{name}={}", value.to_string_lossy()))
        })
        .collect();
    Header {
        program: Path::new(&command[0]).file_name().map(text).unwrap_or_default(),
        arguments: command[1..].iter().map(|a| text(a)).collect(),
        origin: "recorded".to_owned(),
        environment,
        machine: machine(),
        date: today(),
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        seed: None,
        has_pc: options.program_counters,
        independent_loads: !options.dependences,
        expected_accesses: options.limit,
        ending: TraceEnding::Whole,
    }
}

/// A file by its path, or in the search path if the name has no slash.
fn find(name: &OsStr) -> Result<PathBuf, RecordError> {
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return check_program(&path).map(|()| path);
    }
    // As the C library does where there is none.
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let here = Path::new(name);
    let mut refusal = match here.is_dir() {
        true => RecordError::IsDirectory { path: here.to_owned() },
        false => RecordError::NotFound { program: name.to_owned() },
    };
    for candidate in std::env::split_paths(&path).map(|directory| directory.join(name)) {
        match check_program(&candidate) {
            Ok(()) => return Ok(candidate),
            // As shells do: what is there and cannot be executed is named if nothing else is there.
            Err(found @ RecordError::NotExecutable { .. }) => refusal = found,
            Err(_) => {}
        }
    }
    Err(refusal)
}

/// A path as a word of a shell's command.
pub(crate) fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+,:@%=".contains(letter);
    match text.chars().all(is_plain) {
        true => text.into_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// Whether this user may execute the file.
pub(crate) fn check_program(path: &Path) -> Result<(), RecordError> {
    let metadata = std::fs::metadata(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => {
            RecordError::NotFound { program: path.as_os_str().to_owned() }
        }
        _ => RecordError::Io { what: format!("cannot look at {}", path.display()), error },
    })?;
    if metadata.is_dir() {
        return Err(RecordError::IsDirectory { path: path.to_owned() });
    }
    let name = CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
    // SAFETY: the name is a string.
    let may_execute = unsafe { libc::access(name.as_ptr(), libc::X_OK) == 0 };
    if !may_execute || !metadata.is_file() {
        return Err(RecordError::NotExecutable { program: path.to_owned() });
    }
    Ok(())
}

/// What the recorded program will lack besides: privileges that Linux gives to those who execute its file.
pub fn lost_privileges(program: &Path) -> Option<String> {
    let metadata = std::fs::metadata(program).ok()?;
    let mode = metadata.permissions().mode();
    // SAFETY: these calls cannot fail.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    let gains = if mode & libc::S_ISUID != 0 && metadata.uid() != user {
        "set-user-ID: by itself it runs with its owner's privileges"
    } else if mode & libc::S_ISGID != 0 && metadata.gid() != group {
        "set-group-ID: by itself it runs with its group's privileges"
    } else if user != 0 && has_capabilities(program) {
        "has file capabilities: by itself it runs with more privileges than yours"
    } else {
        return None;
    };
    Some(format!("{}: {gains}, recorded with yours only, and may fail for that", program.display()))
}

fn has_capabilities(program: &Path) -> bool {
    let name = CString::new(program.as_os_str().as_bytes()).unwrap_or_default();
    // SAFETY: both names are strings; a size of 0 only asks how long the value is.
    unsafe { libc::getxattr(name.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

fn machine() -> String {
    let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let processor = processor
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or(std::env::consts::ARCH, |(_, name)| name);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{processor}, Linux {}", kernel.trim())
}

/// The date in UTC, from days since 1970 by the civil calendar's rules.
fn today() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let (year, month, day) = civil(now.as_secs() / 86_400);
    format!("{year:04}-{month:02}-{day:02}")
}

fn civil(mut days: u64) -> (u64, u64, u64) {
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    (year, month as u64 + 1, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_by_hand() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(59), (1970, 3, 1));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(civil(20_089), (2025, 1, 1));
    }

    #[test]
    fn scripts_lead_to_their_interpreter() {
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("script");
        std::fs::write(&script, "#!/bin/sh -e\nexit 0\n").unwrap();
        std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
        let program = resolve(&[script.clone().into(), "x".into()]).unwrap();
        assert_eq!(program.arguments, ["/bin/sh".as_ref(), "-e".as_ref(), script.as_os_str(), "x".as_ref()]);
        assert!(program.is_dynamic);
    }

    #[test]
    fn what_cannot_run_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let make = |name: &str, content: &[u8]| {
            let path = directory.path().join(name);
            std::fs::write(&path, content).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
            resolve(&[path.into()]).unwrap_err()
        };
        assert!(matches!(make("text", b"hello"), RecordError::NotAProgram { .. }));
        assert!(matches!(make("loop", b"#!/no/such/interpreter\n"), RecordError::NotFound { .. }));
        let mut arm = std::fs::read("/proc/self/exe").unwrap()[..4096].to_vec();
        arm[18] = 40;
        assert!(matches!(make("arm", &arm), RecordError::OtherMachine { machine: 40, .. }));
        assert!(matches!(resolve(&[directory.path().into()]), Err(RecordError::IsDirectory { .. })));
        let plain = directory.path().join("plain");
        std::fs::write(&plain, "#!/bin/sh\n").unwrap();
        assert!(matches!(resolve(&[plain.into()]), Err(RecordError::NotExecutable { .. })));
        assert!(matches!(resolve(&["/no/such/program".into()]), Err(RecordError::NotFound { .. })));
        assert!(matches!(resolve(&["no-such-program".into()]), Err(RecordError::NotFound { .. })));
        assert!(matches!(resolve(&[]), Err(RecordError::NoProgram)));
    }

    #[test]
    fn what_linux_may_know_is_left_to_it_and_its_refusal_explained() {
        let directory = tempfile::tempdir().unwrap();
        let make = |name: &str, content: &[u8], mode: u32| {
            let path = directory.path().join(name);
            std::fs::write(&path, content).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            [path.into_os_string()]
        };
        let refused = |errno| std::io::Error::from_raw_os_error(errno);
        let mut arm = std::fs::read("/proc/self/exe").unwrap()[..4096].to_vec();
        arm[18] = 183;
        let (arm, text) = (make("arm", &arm, 0o755), make("text", b"hello", 0o755));
        assert!(may_start(&arm).is_ok() && may_start(&text).is_ok() && may_start(&["true".into()]).is_ok());
        let why = not_started(&arm, refused(libc::ENOEXEC));
        assert!(matches!(why, RecordError::OtherMachine { machine: 183, .. }), "{why}");
        let why = not_started(&text, refused(libc::ENOEXEC));
        assert!(matches!(why, RecordError::NotAProgram { .. }), "{why}");
        let why = not_started(&arm, refused(libc::EAGAIN));
        assert!(why.to_string().starts_with("cannot start "), "the file has no part in it: {why}");
        let why = not_started(&["true".into()], refused(libc::ENOENT)).to_string();
        assert!(why.contains("cannot start true") && why.contains("dynamic linker"), "{why}");

        assert!(matches!(may_start(&[directory.path().into()]), Err(RecordError::IsDirectory { .. })));
        let plain = make("plain", b"#!/bin/sh\n", 0o644);
        assert!(matches!(may_start(&plain), Err(RecordError::NotExecutable { .. })));
        assert!(matches!(may_start(&["/no/such/program".into()]), Err(RecordError::NotFound { .. })));
        let orphan = make("orphan", b"#!/no/such/interpreter\n", 0o755);
        assert!(matches!(may_start(&orphan), Err(RecordError::NotFound { .. })));
    }

    #[test]
    fn gained_privileges_are_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("program");
        std::fs::write(&path, "").unwrap();
        let with_mode = |mode| {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            lost_privileges(&path)
        };
        assert_eq!(with_mode(0o4755), None, "it is ours");
        // SAFETY: this call cannot fail.
        if unsafe { libc::geteuid() } == 0 {
            std::os::unix::fs::chown(&path, Some(65_534), Some(65_534)).unwrap();
            assert!(with_mode(0o4755).unwrap().contains("set-user-ID"));
            assert!(with_mode(0o2755).unwrap().contains("set-group-ID"));
            assert_eq!(with_mode(0o755), None);
        }
    }
}
