//! Policies by their name, on the test double: for unit tests and for the tests beside this file.

use terrace_in_memory::{Driver, InMemory};
use terrace_policy::{PolicyError, Profile, find};

/// Opens policies of the registry on the test double.
#[allow(dead_code)] // Some tests need one of the two.
pub trait Open: Sized {
    /// Opens the policy called `name` with parameters in TOML and starts it.
    ///
    /// # Errors
    /// A wrong name or parameter, or a world that it refuses.
    fn open(name: &str, parameters: &str, world: InMemory) -> Result<Self, PolicyError> {
        Self::open_with(name, parameters, world, 1, None)
    }

    /// As [`Open::open`], with a seed and a first pass.
    ///
    /// # Errors
    /// As [`Open::open`].
    ///
    /// # Panics
    /// `parameters` is no TOML: a mistake of the test.
    fn open_with(
        name: &str,
        parameters: &str,
        world: InMemory,
        seed: u64,
        profile: Option<&Profile>,
    ) -> Result<Self, PolicyError>;
}

impl Open for Driver {
    fn open_with(
        name: &str,
        parameters: &str,
        world: InMemory,
        seed: u64,
        profile: Option<&Profile>,
    ) -> Result<Driver, PolicyError> {
        let given = toml::from_str(parameters).unwrap_or_else(|error| panic!("{parameters}: {error}"));
        Driver::opened(world, seed, profile, |setup| find(name)?.open(&given, setup))
    }
}
