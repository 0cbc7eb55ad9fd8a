//! The kernel's release and options, the privileges of this process, control groups.

use super::fact::{self, Fact};
use super::text;
use crate::kernel::{Kernel, read_text};
use flate2::read::GzDecoder;
use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use terrace_model::Bytes;

/// A kernel's release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// As `uname -r` prints it.
    pub text: String,
    /// The first two numbers of the release.
    pub version: (u32, u32),
}

impl Release {
    /// Reads `6.12.117+deb12-cloud-amd64`.
    pub fn parse(text: &str) -> Option<Release> {
        let text = text.trim();
        let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(str::parse);
        let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else { return None };
        Some(Release { text: text.to_owned(), version: (major, minor) })
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The options that the kernel was built with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    set: BTreeMap<String, String>,
    /// Where they were found; none where neither place has them.
    pub source: Option<String>,
}

/// Most bytes of options that are read: kernels have about 300 kB, so more is damage.
const LONGEST_OPTIONS: u64 = 16 << 20;

impl Options {
    /// The options in `/proc/config.gz`, or else in `/boot`.
    pub fn discover(kernel: &dyn Kernel, release: Option<&Release>) -> Options {
        let packed = || {
            let mut text = String::new();
            let bytes = kernel.read("/proc/config.gz".as_ref()).ok()?;
            GzDecoder::new(bytes.as_slice()).take(LONGEST_OPTIONS).read_to_string(&mut text).ok()?;
            Some(("/proc/config.gz".to_owned(), text))
        };
        let boot = || {
            let path = format!("/boot/config-{}", release?.text);
            Some((path.clone(), read_text(kernel, path).ok()?))
        };
        match packed().or_else(boot) {
            Some((source, text)) => Options { source: Some(source), ..Options::parse(&text) },
            None => Options::default(),
        }
    }

    /// Reads lines such as `CONFIG_NUMA=y`.
    pub fn parse(text: &str) -> Options {
        let set = text.lines().filter_map(|line| line.strip_prefix("CONFIG_")?.split_once('='));
        Options {
            set: set.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect(),
            source: None,
        }
    }

    /// Whether `name`, without `CONFIG_`, is built in or a module; none where the options are not to be found.
    pub fn has(&self, name: &str) -> Option<bool> {
        self.source.as_ref()?;
        Some(self.set.get(name).is_some_and(|value| value == "y" || value == "m"))
    }
}

/// Bytes of the kernel's base page.
pub fn base_page(kernel: &dyn Kernel) -> Fact<Bytes> {
    /// `AT_PAGESZ`: the key in the vector that each program is started with.
    const PAGE_SIZE: u64 = 6;
    let words = |bytes: Vec<u8>| -> Vec<u64> {
        bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect()
    };
    let words = kernel.read("/proc/self/auxv".as_ref()).map(words).unwrap_or_default();
    match words.as_chunks().0.iter().find(|[key, _]| *key == PAGE_SIZE) {
        Some([_, bytes]) => Fact::Known(Bytes(*bytes)),
        None => Fact::Unknown("/proc/self/auxv does not tell the size of a base page".to_owned()),
    }
}

/// Why Terrace cannot work with the pages of a kernel that has base pages of this size; none where it can.
pub fn other_base_page(base_page: &Fact<Bytes>) -> Option<String> {
    terrace_model::other_base_page(base_page.known()?.0)
}

/// What this process may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Privileges {
    /// Whether it runs as root.
    pub root: bool,
    capabilities: u64,
}

/// A privilege of Linux that Terrace has use for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// Look into processes of others.
    Ptrace = 19,
    /// Frame numbers, DAMON, the kernel's switches.
    Admin = 21,
    /// Move and advise the pages of processes of others.
    Nice = 23,
    /// Sample accesses.
    Perfmon = 38,
}

impl Privilege {
    /// All of them.
    pub const ALL: [Privilege; 4] =
        [Privilege::Ptrace, Privilege::Admin, Privilege::Nice, Privilege::Perfmon];

    /// The kernel's name for it.
    pub const fn name(self) -> &'static str {
        match self {
            Privilege::Ptrace => "CAP_SYS_PTRACE",
            Privilege::Admin => "CAP_SYS_ADMIN",
            Privilege::Nice => "CAP_SYS_NICE",
            Privilege::Perfmon => "CAP_PERFMON",
        }
    }
}

impl Privileges {
    /// The privileges of this process.
    pub fn discover(kernel: &dyn Kernel) -> Privileges {
        Privileges::parse(&read_text(kernel, "/proc/self/status").unwrap_or_default())
    }

    /// The privileges in the text of `/proc/PID/status`.
    pub fn parse(status: &str) -> Privileges {
        let effective_user = text::field(status, "Uid").and_then(|ids| ids.split_whitespace().nth(1));
        let capabilities =
            text::field(status, "CapEff").and_then(|bits| u64::from_str_radix(bits, 16).ok()).unwrap_or(0);
        Privileges { root: effective_user == Some("0"), capabilities }
    }

    /// Whether it has this one.
    pub const fn has(self, privilege: Privilege) -> bool {
        self.capabilities >> privilege as u32 & 1 == 1
    }
}

/// The second version of control groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlGroups {
    /// Where it is mounted.
    pub mount: String,
    /// Controllers of the root group.
    pub controllers: Vec<String>,
    /// Controllers that the group's children have too.
    pub delegated: Vec<String>,
}

impl ControlGroups {
    /// Whether memory is under its control.
    pub fn has_memory(&self) -> bool {
        self.controllers.iter().any(|name| name == "memory")
    }

    /// Looks for it.
    pub fn discover(kernel: &dyn Kernel) -> Fact<ControlGroups> {
        fact::file(kernel, "/proc/self/mounts").and_then(|mounts| match mount(&mounts, "cgroup2") {
            None => Fact::Absent("control groups of version 2 are not mounted".to_owned()),
            Some(mount) => {
                let words = |file: &str| {
                    let text = read_text(kernel, format!("{mount}/{file}")).unwrap_or_default();
                    text.split_whitespace().map(str::to_owned).collect()
                };
                Fact::Known(ControlGroups {
                    controllers: words("cgroup.controllers"),
                    delegated: words("cgroup.subtree_control"),
                    mount,
                })
            }
        })
    }
}

/// Where the first file system of this kind is mounted.
pub fn mount(mounts: &str, kind: &str) -> Option<String> {
    let mounted = |line: &str| {
        let mut columns = line.split_whitespace().skip(1);
        let at = columns.next()?.to_owned();
        (columns.next()? == kind).then_some(at)
    };
    mounts.lines().find_map(mounted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn releases() {
        let version = |text: &str| Release::parse(text).map(|release| release.version);
        assert_eq!(version("6.12.117+deb12-cloud-amd64\n"), Some((6, 12)));
        assert_eq!(version("6.18-rc1"), Some((6, 18)));
        assert_eq!(version("linux"), None);
    }

    #[test]
    fn options_are_on_off_or_not_to_be_found() {
        let found = |text: &str| Options { source: Some("here".to_owned()), ..Options::parse(text) };
        let options = found("CONFIG_NUMA=y\nCONFIG_ZRAM=m\n# CONFIG_DAMON is not set\nCONFIG_NR_CPUS=64\n");
        let has = ["NUMA", "ZRAM", "DAMON", "NR_CPUS"].map(|name| options.has(name));
        assert_eq!(has, [Some(true), Some(true), Some(false), Some(false)]);
        assert_eq!(Options::parse("CONFIG_NUMA=y").has("NUMA"), None, "nowhere found, nothing known");
    }

    #[test]
    fn privileges_of_root_and_of_a_user() {
        let root = Privileges::parse("Uid:\t0\t0\t0\t0\nCapEff:\t000001fffeffffff\n");
        assert!(root.root && Privilege::ALL.iter().all(|one| root.has(*one)));
        let user = Privileges::parse("Uid:\t1000\t1000\t1000\t1000\nCapEff:\t0000004000000000\n");
        assert!(!user.root && user.has(Privilege::Perfmon) && !user.has(Privilege::Nice));
    }

    proptest! {
        #[test]
        fn no_text_is_too_strange(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let text = String::from_utf8_lossy(&bytes);
            Release::parse(&text);
            Options::parse(&text);
            Privileges::parse(&text);
            mount(&text, "cgroup2");
        }
    }
}
