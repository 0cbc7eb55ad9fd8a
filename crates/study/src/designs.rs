//! Designs by name, with the machine under them and the parameters that are changed.

use crate::Error;
use crate::own_policy::OwnPolicy;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use terrace_sim::design::{Design, DesignError, Library, PolicyParameters, Resolved};

/// A parameter, its new value, and the design that it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The design as it is named in this study; none: all designs.
    pub design: Option<String>,
    /// Dotted key.
    pub key: String,
    /// Value as text, with its unit.
    pub value: String,
}

impl Setting {
    /// A setting for all designs.
    pub fn of_all(key: impl Into<String>, value: impl Into<String>) -> Setting {
        Setting { design: None, key: key.into(), value: value.into() }
    }

    /// Reads `KEY=VALUE` or `DESIGN:KEY=VALUE`.
    ///
    /// # Errors
    /// A text without a key.
    pub fn parse(text: &str) -> Result<Setting, String> {
        let (key, value) = parse_set(text)?;
        // The last colon, as a file's path may have one too; keys have none.
        match key.rsplit_once(':') {
            None => Ok(Setting { design: None, key, value }),
            Some((design, key)) if !design.is_empty() && !key.is_empty() => {
                Ok(Setting { design: Some(design.to_owned()), key: key.to_owned(), value })
            }
            Some(_) => Err(format!("\"{text}\" is not DESIGN:KEY=VALUE, such as ambix:os.policy.period=1s")),
        }
    }

    /// Whether it is for the design that `word` names: by that word, or for a file by its name without folder and
    /// ending.
    pub fn is_for(&self, word: &str) -> bool {
        let Some(design) = &self.design else { return true };
        let stem = || Path::new(word).file_stem().and_then(|stem| stem.to_str());
        design == word || (word.ends_with(".toml") && stem() == Some(design))
    }

    fn pair(&self) -> (String, String) {
        (self.key.clone(), self.value.clone())
    }
}

impl std::fmt::Display for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(design) = &self.design {
            write!(f, "{design}:")?;
        }
        write!(f, "{}={}", self.key, self.value)
    }
}

/// Reads `KEY=VALUE`.
///
/// # Errors
/// A text without a key.
pub fn parse_set(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.trim().to_owned())),
        _ => Err(format!("\"{text}\" is not KEY=VALUE, such as os.pages=2m")),
    }
}

/// The largest [`Changes::time_scale`] that the commands take.
pub const LARGEST_TIME_SCALE: u32 = 1_000_000;

/// What designs are put on, and what is changed in them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes {
    /// The machine under the designs: a name of the library, or a TOML file; none: what the study runs on by default.
    pub machine: Option<String>,
    /// Parameters that differ from the designs'. The last of several for one key counts.
    pub sets: Vec<Setting>,
    /// Policies' periods, and the amounts they move per period, are divided by this; 1 leaves them.
    pub time_scale: u32,
}

impl Default for Changes {
    fn default() -> Changes {
        Changes { machine: None, sets: Vec::new(), time_scale: 1 }
    }
}

impl Changes {
    /// The changes as words of a command that repeats the run.
    pub fn to_words(&self) -> Vec<String> {
        let mut words = Vec::new();
        if let Some(machine) = &self.machine {
            words.extend(["--machine".to_owned(), machine.clone()]);
        }
        for setting in &self.sets {
            words.extend(["--set".to_owned(), setting.to_string()]);
        }
        if self.time_scale != 1 {
            words.extend(["--time-scale".to_owned(), self.time_scale.to_string()]);
        }
        words
    }

    /// The settings for the design that `word` names, those for all designs included, as if they were for all.
    pub fn sets_of(&self, word: &str) -> Vec<Setting> {
        let here = self.sets.iter().filter(|setting| setting.is_for(word));
        here.map(|setting| Setting::of_all(&setting.key, &setting.value)).collect()
    }

    /// Refuses settings for designs that are not among `words`.
    ///
    /// # Errors
    /// The first of them, with the names that there are.
    pub fn check_names<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Result<(), Error> {
        let words: Vec<&str> = words.into_iter().collect();
        let astray = self.sets.iter().find(|setting| !words.iter().any(|word| setting.is_for(word)));
        match astray {
            None => Ok(()),
            Some(setting) => Err(Error::request(format!(
                "--set {setting}: no design of this run is called \"{}\"; there {} {}",
                setting.design.as_deref().unwrap_or_default(),
                if words.len() == 1 { "is" } else { "are" },
                words.join(", ")
            ))),
        }
    }

    /// Says so where the division of policies' periods changes nothing, as none of these designs has a policy.
    pub fn note_unused(&self, jobs: &[Job]) {
        self.unused(jobs).into_iter().for_each(warn_once);
    }

    fn unused(&self, jobs: &[Job]) -> Option<String> {
        let is_managed = |job: &Job| policies_of(&job.design.design).next().is_some();
        if self.time_scale <= 1 || jobs.iter().any(is_managed) {
            return None;
        }
        let names: Vec<&str> = jobs.iter().map(|job| job.word.as_str()).collect();
        let have = if names.len() == 1 { "has" } else { "have" };
        let names = names.join(", ");
        Some(format!("--time-scale changes nothing: {names} {have} no policy whose periods it could divide"))
    }

    /// The design that `word` names, on `machine` where the changes name none.
    ///
    /// # Errors
    /// Unknown names and keys, values that cannot be.
    pub fn resolve(&self, word: &str, machine: Option<&str>) -> Result<Job, Error> {
        let machine = self.machine.clone().or_else(|| machine.map(str::to_owned));
        let changes = Changes { machine, sets: self.sets_of(word), time_scale: self.time_scale };
        let library = Library::embedded();
        let sets: Vec<_> = changes.sets.iter().map(Setting::pair).collect();
        let design = library.design(word, changes.machine.as_deref(), &sets);
        let mut design = design.map_err(|error| without_policy(word, &changes, error))?;
        let mut scaled = Vec::new();
        for (system, policy) in policies_of(&design.design) {
            let info = terrace_policy::find(&policy.name)?;
            if let Some(renamed) = info.renamed(&policy.name) {
                warn_once(format!("{word}: {renamed}"));
            }
            if changes.time_scale > 1 {
                let values = info.scaled(&policy.parameters, changes.time_scale)?;
                let changed =
                    values.iter().filter(|(key, value)| policy.parameters.get(*key) != Some(*value));
                scaled.extend(
                    changed.map(|(key, value)| {
                        (format!("{system}.policy.{key}"), terrace_policy::text_of(value))
                    }),
                );
            }
        }
        if !scaled.is_empty() {
            let sets: Vec<_> = changes.sets.iter().map(Setting::pair).chain(scaled).collect();
            design = library.design(word, changes.machine.as_deref(), &sets)?;
        }
        design.design.check_aged_memory().map_err(Error::request)?;
        Ok(Job { word: word.to_owned(), words: changes.to_words(), design, own: None })
    }
}

/// The policies of a design, each with the key of the operating system that it stands in.
pub(crate) fn policies_of(design: &Design) -> impl Iterator<Item = (&'static str, &PolicyParameters)> {
    let of_host = design.host.as_ref().and_then(|host| host.policy.as_ref());
    [("os", design.os.policy.as_ref()), ("host", of_host)]
        .into_iter()
        .filter_map(|(system, policy)| Some((system, policy?)))
}

/// The error of a design for which a parameter of a policy is set, which the design does not have.
fn without_policy(word: &str, changes: &Changes, error: DesignError) -> Error {
    for policy in ["os.policy", "host.policy"] {
        let is_of_it = |set: &&Setting| set.key.starts_with(&format!("{policy}."));
        let Some(set) = changes.sets.iter().find(is_of_it) else { continue };
        let (own, others): (Vec<&Setting>, Vec<&Setting>) = changes.sets.iter().partition(is_of_it);
        let others: Vec<_> = others.into_iter().map(Setting::pair).collect();
        let resolved = Library::embedded().design(word, changes.machine.as_deref(), &others);
        let design = resolved.map(|resolved| resolved.design);
        let has_none = design.is_ok_and(|design| match policy {
            "os.policy" => design.os.policy.is_none(),
            _ => design.host.is_none_or(|host| host.policy.is_none()),
        });
        if has_none && !own.iter().any(|set| set.key == format!("{policy}.name")) {
            return Error::request(format!(
                "--set {set}: {word} has no policy in {policy}; name the design that has it, as in --set DESIGN:{set}, or \
                 give it one with --set {policy}.name=NAME"
            ));
        }
    }
    error.into()
}

/// The machine that a word names: `here` stands for the preset that `terrace calibrate` wrote, which has to be there.
///
/// # Errors
/// No such preset, or no place for one.
pub fn machine_word(word: &str) -> Result<String, Error> {
    if word != "here" {
        return Ok(word.to_owned());
    }
    let path = terrace_calibrate::preset::here().ok_or_else(|| {
        Error::request("this machine's preset has no place: set XDG_DATA_HOME or HOME to a directory")
    })?;
    if !path.is_file() {
        return Err(Error::request(format!(
            "{} does not exist: run `terrace calibrate` first, which measures this machine in about a minute",
            path.display()
        )));
    }
    Ok(path.display().to_string())
}

/// A design that is ready to run.
#[derive(Clone, Debug)]
pub struct Job {
    /// Name or file, as it was given.
    pub word: String,
    /// The changes that went into it, as words of a command that repeats the run.
    pub words: Vec<String>,
    /// What it resolved to.
    pub design: Resolved,
    /// The policy that manages the run in place of the design's.
    pub own: Option<OwnPolicy>,
}

/// A design is resolved for each of the ways in which it is run; what is to be said of it is said the first time.
fn warn_once(text: String) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if !said.contains(&text) {
        tracing::warn!("{text}");
        said.insert(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_for_all_designs_or_for_one() {
        let one = Setting::parse("ambix:os.policy.period = 1 s").unwrap();
        assert_eq!(one.to_string(), "ambix:os.policy.period=1 s");
        assert!(one.is_for("ambix") && !one.is_for("nimble"));
        let file = Setting::parse("C:/my.toml:os.pages=2m").unwrap();
        assert!(file.is_for("C:/my.toml") && !file.is_for("my"));
        let all = Setting::parse("os.note=a:b=c").unwrap();
        assert_eq!((all.design.as_deref(), all.key.as_str(), all.value.as_str()), (None, "os.note", "a:b=c"));
        assert!(all.is_for("ambix"));
        assert!(Setting::parse("my:os.pages=2m").unwrap().is_for("designs/my.toml"));
        for text in [":os.pages=2m", "ambix:=1", "ambix:os.pages"] {
            assert!(Setting::parse(text).is_err(), "{text}");
        }
        let changes = Changes { sets: vec![all, one], ..Changes::default() };
        assert_eq!(changes.sets_of("nimble").len(), 1);
        assert_eq!(changes.sets_of("ambix")[1], Setting::of_all("os.policy.period", "1 s"));
        assert!(changes.check_names(["nimble", "ambix"]).is_ok());
        assert!(changes.check_names(["nimble"]).is_err());
    }

    #[test]
    fn the_refusal_of_a_tier_smaller_than_what_is_reserved_says_what_to_set() {
        let small = |more: &[(&str, &str)]| {
            let sets = [("tier.dram.capacity", "256 MiB")].iter().chain(more);
            let sets = sets.map(|(key, value)| Setting::of_all(*key, *value)).collect();
            Changes { sets, ..Changes::default() }.resolve("native-4k", Some("zen4-cxl"))
        };
        let said = small(&[]).unwrap_err().to_string();
        assert!(said.contains("os.reserved: ") && said.ends_with("--set os.reserved=\"0 B\""), "{said}");
        assert!(small(&[("os.reserved", "0 B")]).is_ok());
    }

    #[test]
    fn a_parameter_of_a_policy_needs_a_design_that_has_one() {
        let said = |words: &str, set: &str| {
            let sets = vec![Setting::parse(set).unwrap()];
            Changes { sets, ..Changes::default() }.resolve(words, None).unwrap_err().to_string()
        };
        let refusal = said("native-4k", "os.policy.defrag=madvise");
        assert!(
            refusal.starts_with("--set os.policy.defrag=madvise: native-4k has no policy in os.policy;"),
            "{refusal}"
        );
        assert!(refusal.contains("--set DESIGN:os.policy.defrag=madvise"), "{refusal}");
        let refusal = said("virtual-4k", "host.policy.period=1 s");
        assert!(
            refusal.starts_with("--set host.policy.period=1 s: virtual-4k has no policy in host.policy;"),
            "{refusal}"
        );
        let refusal = said("nimble", "os.policy.no_such=1");
        assert!(!refusal.contains("has no policy"), "{refusal}");
    }

    #[test]
    fn the_periods_of_a_hypervisor_s_policy_are_divided_too() {
        let job = |word: &str, time_scale| {
            let job = Changes { time_scale, ..Changes::default() }.resolve(word, None).unwrap();
            (Changes { time_scale, ..Changes::default() }.unused(std::slice::from_ref(&job)), job)
        };
        let pool = |time_scale| {
            let job = job("virtual-hatric", time_scale).1;
            job.design.design.host.unwrap().policy.unwrap().parameters["free_pool"].to_string()
        };
        assert_eq!((pool(1).as_str(), pool(8).as_str()), ("\"8 MiB\"", "\"1 MiB\""));
        let said = job("native-4k", 8).0;
        assert!(said.is_some_and(|said| said.starts_with("--time-scale changes nothing: native-4k has no policy")));
        assert_eq!(
            [("native-4k", 1), ("ambix", 8), ("virtual-hatric", 8)].map(|(word, scale)| job(word, scale).0),
            [None, None, None]
        );
    }

    #[test]
    fn a_set_may_hold_further_equal_signs() {
        assert_eq!(parse_set("a.b = c=d"), Ok(("a.b".to_owned(), "c=d".to_owned())));
        assert!(parse_set("=x").is_err() && parse_set("x").is_err());
    }
}
