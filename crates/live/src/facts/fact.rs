//! A thing that is known, or the reason why not.

use crate::kernel::{Kernel, Probe, read_text};
use std::io;

/// A value, or words why there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact<T> {
    /// The machine has it, and this is its value.
    Known(T),
    /// The machine or its kernel does not have it.
    Absent(String),
    /// The answer could not be found out.
    Unknown(String),
}

impl<T> Fact<T> {
    /// The value where it is known.
    pub fn known(&self) -> Option<&T> {
        match self {
            Fact::Known(value) => Some(value),
            Fact::Absent(_) | Fact::Unknown(_) => None,
        }
    }

    /// Whether it is known.
    pub fn is_known(&self) -> bool {
        self.known().is_some()
    }

    /// Why it is not known; nothing where it is.
    pub fn reason(&self) -> &str {
        match self {
            Fact::Known(_) => "",
            Fact::Absent(reason) | Fact::Unknown(reason) => reason,
        }
    }

    /// The fact that follows from the value.
    pub fn and_then<U>(self, then: impl FnOnce(T) -> Fact<U>) -> Fact<U> {
        match self {
            Fact::Known(value) => then(value),
            Fact::Absent(reason) => Fact::Absent(reason),
            Fact::Unknown(reason) => Fact::Unknown(reason),
        }
    }

    /// The value in another form.
    pub fn map<U>(self, form: impl FnOnce(T) -> U) -> Fact<U> {
        self.and_then(|value| Fact::Known(form(value)))
    }
}

/// A file as a fact.
pub fn file(kernel: &dyn Kernel, path: &str) -> Fact<String> {
    read_text(kernel, path).map_or_else(|error| not_read(path, &error), Fact::Known)
}

/// The names in a folder as a fact.
pub fn folder(kernel: &dyn Kernel, path: &str) -> Fact<Vec<String>> {
    kernel.list(path.as_ref()).map_or_else(|error| not_read(path, &error), Fact::Known)
}

/// A file of which `meaning` makes sense.
pub fn file_as<T>(kernel: &dyn Kernel, path: &str, meaning: impl FnOnce(&str) -> Option<T>) -> Fact<T> {
    file(kernel, path).and_then(|text| match meaning(&text) {
        Some(value) => Fact::Known(value),
        None => Fact::Unknown(format!("{path} says {:?}, which means nothing to Terrace", text.trim())),
    })
}

/// The answer of a probe, and where the kernel refuses, that it has no `what`.
pub fn tried(kernel: &dyn Kernel, probe: Probe, what: &str) -> Fact<u64> {
    match kernel.probe(probe) {
        Ok(answer) => Fact::Known(answer),
        Err(error) => match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => {
                Fact::Unknown(format!("{what} is not permitted to this user"))
            }
            Some(
                libc::ENOSYS | libc::ENOTTY | libc::EINVAL | libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP,
            ) => Fact::Absent(format!("this kernel has no {what}")),
            _ => Fact::Unknown(format!("{what}: {error}")),
        },
    }
}

fn not_read<T>(path: &str, error: &io::Error) -> Fact<T> {
    match error.kind() {
        io::ErrorKind::NotFound => Fact::Absent(format!("there is no {path}")),
        io::ErrorKind::PermissionDenied => Fact::Unknown(format!("only root may read {path}")),
        _ => Fact::Unknown(format!("{path}: {error}")),
    }
}
