//! The translation schemes, one file each. A new scheme is its file and its line in [`schemes`] below; everything else
//! follows from that: the value of `translation.scheme`, its keys, the checks, the statistics, its page in the book.
//!
//! Each says what the page table says and nothing else: a page that is watched, on the move or shared since a fork is
//! never covered together with others, and every change of an entry drops what overlaps it.

mod plain;
#[cfg(test)]
mod tests;

use super::scheme::{AnyScheme, Scheme, SchemeKeys, Setup, Translation};
use super::{SchemeParameters, TranslationParameters};
use crate::coherence::HatricParameters;
use crate::typed::{self, Misfit};
use terrace_model::parameters::{Declared, ParameterError, ParameterInfo, Parameters};
use terrace_model::{PhysAddr, Time};
use terrace_policy::CapabilitySet;

/// What is done with the type of a scheme.
pub trait Visitor {
    /// What comes of it.
    type Output;
    /// Works with the scheme.
    fn visit<T: Translation>(self) -> Self::Output;
}

macro_rules! schemes {
    ($($file:ident :: $scheme:ident),* $(,)?) => {
        $(pub mod $file;)*

        /// All schemes, in the order of the book.
        pub const ALL: &[Entry] = &[$(Entry::of::<$file::$scheme>(
            stringify!($file),
            include_str!(concat!(stringify!($file), ".rs")),
        )),*];

        /// Lets `visitor` work with the scheme of this name; gives it back where there is none.
        ///
        /// # Errors
        /// No scheme has the name.
        pub fn visit<V: Visitor>(name: &str, visitor: V) -> Result<V::Output, V> {
            $(if name == $file::$scheme::NAME {
                return Ok(visitor.visit::<$file::$scheme>());
            })*
            Err(visitor)
        }
    };
}

schemes! {
    radix::Radix,
    perfect_tlb::PerfectTlb,
    vivt::Vivt,
    colt::Colt,
    rmm::Rmm,
    direct_segment::DirectSegment,
    spot::Spot,
    pom_tlb::PomTlb,
    vbi::Vbi,
    enigma::Enigma,
}

impl Declared for SchemeParameters {
    fn declare(values: Option<&SchemeParameters>, prefix: &str, declared: &mut Vec<ParameterInfo>) {
        let kind = values.map_or("", |values| &values.kind);
        let kinds: Vec<(&str, &str)> = ALL.iter().map(|scheme| (scheme.name, "")).collect();
        let help = "The translation scheme. A name alone, or a table with the name as its kind.";
        declared.push(ParameterInfo::kinds(format!("{prefix}kind"), help, kind, &kinds));
        for scheme in ALL {
            declared.extend(scheme.keys().into_iter().map(|own| ParameterInfo {
                name: format!("{prefix}{}", own.name),
                only_with: scheme.name.to_owned(),
                ..own
            }));
        }
    }

    /// The registry checks a scheme's own keys where it reads them.
    fn check(&self) -> Result<(), ParameterError> {
        Ok(())
    }
}

/// Makes a scheme for a number of cores with a cycle, whose own memory begins at an address.
type Build = fn(&TranslationParameters, usize, Time, PhysAddr) -> Result<Box<dyn AnyScheme>, String>;

/// What must hold of a scheme's own keys where cache coherence keeps it coherent.
type CheckCoTags = fn(&toml::Table, &HatricParameters) -> Result<(), (&'static str, String)>;

/// A scheme as the registry knows it.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The scheme's name in designs.
    pub name: &'static str,
    /// The scheme's file, without the ending.
    pub file: &'static str,
    /// The file's text: its head is the scheme's page.
    pub source: &'static str,
    /// Whether misses of its TLBs walk the page table.
    pub walks: bool,
    /// Whether lines carry virtual names down to the last level.
    pub virtual_caches: bool,
    /// Whether the kernel's page tables are what hardware reads.
    pub kernel_tables: bool,
    /// What it offers to policies; none where that is all that the machine has.
    pub offers: Option<CapabilitySet>,
    /// Whether it runs in a virtual machine with a page table of the hypervisor's.
    pub runs_in_vm: bool,
    /// Whether cache coherence can keep it coherent.
    pub co_tags: bool,
    /// What a design sets instead of a virtual machine, and why.
    pub instead_of_vm: Option<&'static str>,
    /// A design that shows it, as the text of a file.
    pub design: Option<&'static str>,
    /// The names of its own statistics, and what they mean.
    pub statistics: &'static [(&'static str, &'static str)],
    keys: fn() -> Vec<ParameterInfo>,
    read: fn(&toml::Table) -> Result<toml::Table, KeyProblem>,
    scale: fn(&mut toml::Table, u32),
    memory_bytes: fn(&toml::Table) -> u64,
    build: Build,
    check_co_tags: CheckCoTags,
}

/// What is wrong with a scheme's own keys.
#[derive(Debug)]
pub enum KeyProblem {
    /// The keys cannot be read.
    Unreadable(Misfit),
    /// A value outside its range.
    OutOfRange(ParameterError),
    /// A key, and what is wrong with its value.
    Senseless(&'static str, String),
}

impl Entry {
    const fn of<T: Translation>(file: &'static str, source: &'static str) -> Entry {
        Entry {
            name: T::NAME,
            file,
            source,
            walks: T::WALKS,
            virtual_caches: T::VIRTUAL_CACHES,
            kernel_tables: T::KERNEL_TABLES,
            offers: T::OFFERS,
            runs_in_vm: T::RUNS_IN_VM,
            co_tags: T::CO_TAGS,
            instead_of_vm: T::INSTEAD_OF_VM,
            design: T::DESIGN,
            statistics: T::STATISTICS,
            keys: T::Keys::parameters,
            read: read::<T>,
            scale: scale::<T>,
            memory_bytes: |own| T::memory_bytes(&keys::<T>(own)),
            build: build::<T>,
            check_co_tags: |own, hatric| T::check_co_tags(&keys::<T>(own), hatric),
        }
    }

    /// All of its own keys, those that are left out with their defaults.
    ///
    /// # Errors
    /// A key that it does not have, or a value that makes no sense.
    pub fn effective(&self, own: &toml::Table) -> Result<toml::Table, KeyProblem> {
        (self.read)(own)
    }

    /// Bytes of memory beyond all tiers that its structures take.
    pub fn memory_bytes(&self, parameters: &SchemeParameters) -> u64 {
        (self.memory_bytes)(&parameters.own)
    }

    /// Divides its reach.
    pub fn scale(&self, parameters: &mut SchemeParameters, scale: u32) {
        (self.scale)(&mut parameters.own, scale);
    }

    /// The scheme on `cores` cores, empty. `memory` is the first physical address beyond all tiers.
    ///
    /// # Errors
    /// A geometry that cannot be built.
    pub fn build(
        &self,
        translation: &TranslationParameters,
        cores: usize,
        cycle: Time,
        memory: PhysAddr,
    ) -> Result<Box<dyn AnyScheme>, String> {
        (self.build)(translation, cores, cycle, memory)
    }

    /// What must hold where cache coherence keeps it coherent: the key that breaks a rule, and what is wrong with it.
    ///
    /// # Errors
    /// That value.
    pub fn check_co_tags(
        &self,
        parameters: &SchemeParameters,
        hatric: &HatricParameters,
    ) -> Result<(), (&'static str, String)> {
        (self.check_co_tags)(&parameters.own, hatric)
    }

    /// The scheme's own keys as they were declared.
    pub fn keys(&self) -> Vec<ParameterInfo> {
        (self.keys)()
    }

    /// What its file says of it, without the marks of a comment.
    pub fn document(&self) -> String {
        let lines = self.source.lines().map_while(|line| line.strip_prefix("//!"));
        let text: Vec<&str> = lines.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
        text.join("\n")
    }
}

/// The scheme of a name.
pub fn find(name: &str) -> Option<&'static Entry> {
    ALL.iter().find(|entry| entry.name == name)
}

/// Checks that the scheme of a design whose translations hardware keeps coherent knows for each translation which page-table
/// entry it was made from.
///
/// # Errors
/// The key that breaks the rule, and what is wrong with it.
pub fn check_co_tags_of(translation: &TranslationParameters) -> Result<(), (&'static str, String)> {
    let Some(scheme) = find(&translation.scheme.kind) else { return Ok(()) };
    if !scheme.co_tags {
        let (coherence, kind) = (&translation.coherence, scheme.name);
        return Err((
            "translation.coherence",
            format!(
                "\"{coherence}\" needs TLBs that page walks alone fill; the scheme \"{kind}\" fills some otherwise"
            ),
        ));
    }
    scheme.check_co_tags(&translation.scheme, &translation.hatric.clone().unwrap_or_default())
}

/// The keys of a table that was read before.
fn keys<T: Translation>(own: &toml::Table) -> T::Keys {
    typed::read(&toml::Value::Table(own.clone())).unwrap_or_default()
}

fn read<T: Translation>(own: &toml::Table) -> Result<toml::Table, KeyProblem> {
    let keys: T::Keys = typed::read(&toml::Value::Table(own.clone())).map_err(KeyProblem::Unreadable)?;
    keys.check().map_err(KeyProblem::OutOfRange)?;
    keys.validate().map_err(|(key, problem)| KeyProblem::Senseless(key, problem))?;
    Ok(toml::Table::try_from(&keys).unwrap_or_default())
}

fn scale<T: Translation>(own: &mut toml::Table, scale: u32) {
    let mut keys = keys::<T>(own);
    keys.scale(scale);
    *own = toml::Table::try_from(&keys).unwrap_or_default();
}

fn build<T: Translation>(
    translation: &TranslationParameters,
    cores: usize,
    cycle: Time,
    memory: PhysAddr,
) -> Result<Box<dyn AnyScheme>, String> {
    let own = &keys::<T>(&translation.scheme.own);
    let setup = Setup { translation, own, cycle, memory };
    let cores = (0..cores).map(|_| T::new(&setup)).collect::<Result<Vec<T>, String>>()?;
    Ok(Box::new(Scheme { cores, kernel: T::kernel(&setup)? }))
}
