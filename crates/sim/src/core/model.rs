//! The seam of core models: what a model has to say of a stream of instructions and accesses, and the list of models.
//!
//! A new model is its file and its line in the list `core_models` in `mod.rs`. The value of `core.model`, its keys and their
//! checks follow from that.

use super::Pipeline;
use super::clock::{Clock, Timeline};
use super::parameters::CoreParameters;
use std::fmt::Debug;
use std::ops::Deref;
use terrace_model::Time;
use terrace_model::parameters::Parameters;

/// An access that is done as soon as it starts.
#[derive(Clone, Copy, Debug)]
pub struct Hit {
    /// Instructions before and including it.
    pub instructions: u64,
    /// See [`CoreModel::operands_ready`].
    pub depends_on: u8,
    /// The access is a store.
    pub write: bool,
}

/// The coming accesses of a core.
pub trait Hits {
    /// Access number `at`, if it is there and a hit.
    fn get(&mut self, at: usize) -> Option<Hit>;

    /// Counts the access that [`Hits::get`] returned last as made.
    fn count(&mut self);
}

/// How the time of a core passes.
///
/// For each access the machine calls [`dispatch`](CoreModel::dispatch) with the instructions before and including it, then
/// [`operands_ready`](CoreModel::operands_ready), and when the access was made [`load`](CoreModel::load) or
/// [`store`](CoreModel::store). A model moves the clock and says what its waits are blamed on.
pub trait CoreModel: Clone + Debug + Sized {
    /// The model's own keys, each with a default.
    type Keys: Parameters;

    /// An idle core.
    fn new(parameters: &CoreParameters, keys: &Self::Keys) -> Self;

    /// Dispatches `count` instructions; waits where the core cannot take them.
    fn dispatch(&mut self, clock: &mut Clock, count: u64);

    /// Dispatches many instructions without an access, as [`CoreModel::dispatch`] does one after the other.
    fn compute(&mut self, clock: &mut Clock, count: u64) {
        self.dispatch(clock, count);
    }

    /// Takes back the dispatch of the last `count` instructions: the access that they led to is made again later.
    fn take_back(&mut self, clock: &mut Clock, count: u64);

    /// When an access may start that depends on the load `depends_on` loads back; on none where that is 0.
    fn operands_ready(&mut self, clock: &mut Clock, depends_on: u8) -> Time;

    /// An access issued at `start` that was looked up in L1 until `hit` and whose data is there at `done`. As
    /// [`CoreModel::load`] and [`CoreModel::store`] do, only faster.
    #[inline(always)]
    fn hit(&mut self, clock: &mut Clock, write: bool, start: Time, hit: Time, done: Time) {
        let timeline = Timeline { start, translated: start, cache_start: start, cache_end: hit, done };
        if write { self.store(clock, timeline) } else { self.load(clock, timeline) }
    }

    /// Makes the accesses that `hits` has from number `from` on, one after the other, as [`CoreModel::dispatch`],
    /// [`CoreModel::operands_ready`] and [`CoreModel::hit`] do. Ends before the first one that is not there or that somebody
    /// may have to wait for, and after the first one with which the clock passes `horizon`. Returns how far it came: a model
    /// that has no faster way makes none.
    #[inline(always)]
    fn run_hits(&mut self, _clock: &mut Clock, _hits: &mut impl Hits, from: usize, _horizon: Time) -> usize {
        from
    }

    /// A load was issued and will take its course.
    fn load(&mut self, clock: &mut Clock, timeline: Timeline);

    /// A store was issued. It needs its translation to retire and a place to wait in until it is in the cache.
    fn store(&mut self, clock: &mut Clock, timeline: Timeline);

    /// Loads that may not be done yet, the oldest first. Those that nobody can wait for may be missing.
    fn in_flight(&self) -> impl Iterator<Item = &Timeline>;

    /// What holds a miss register that is free at `free`; see [`holder`].
    fn holder(&mut self, clock: &Clock, free: Time) -> Option<Timeline> {
        holder(self.in_flight(), clock.now, free)
    }

    /// When all loads issued so far are done: what a program that answers with what it has read waits for.
    fn loads_done(&self, clock: &Clock) -> Time;

    /// Waits for everything in flight: the stream ends, or another takes the core.
    fn drain(&mut self, clock: &mut Clock);
}

/// Loads in flight that are looked at for the one that holds a register.
const LOOKED_AT: usize = 32;

/// What holds a miss register that is free at `free`, as far as loads in flight tell: the load that is done then, or the
/// walk of the oldest. Waiting for the register is blamed on the parts of that: after a long walk a load takes it later.
#[inline]
pub(super) fn holder<'a>(
    in_flight: impl Iterator<Item = &'a Timeline>,
    now: Time,
    free: Time,
) -> Option<Timeline> {
    let mut walking = None;
    for (at, load) in in_flight.filter(|load| load.done > now).take(LOOKED_AT).enumerate() {
        if load.done == free {
            return Some(*load);
        }
        if at == 0 && load.start < free && free <= load.translated {
            walking = Some(load.translation());
        }
    }
    walking
}

macro_rules! core_models {
    ($($name:literal => $file:ident :: $model:ident),* $(,)?) => {
        $(mod $file;)*

        /// A core model and its keys. In a file `model = "interval"` or a table with a `kind` and the model's keys.
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(tag = "kind")]
        pub enum ModelParameters {
            $(
                #[doc = concat!("`", $name, "`.")]
                #[serde(rename = $name)]
                $model($file::Keys),
            )*
        }

        impl ModelParameters {
            /// The names of all models.
            pub const NAMES: &[&str] = &[$($name),*];

        }

        impl terrace_model::parameters::Declared for ModelParameters {
            fn declare(
                values: Option<&ModelParameters>,
                prefix: &str,
                declared: &mut Vec<terrace_model::parameters::ParameterInfo>,
            ) {
                use terrace_model::parameters::ParameterInfo;
                let kind = values.map_or("", |values| match values {
                    $(ModelParameters::$model(_) => $name,)*
                });
                let help = "How the time of a core passes. A name alone, or a table with the name as its kind.";
                let kinds = [$(($name, "")),*];
                declared.push(ParameterInfo::kinds(format!("{prefix}kind"), help, kind, &kinds));
                $(
                    let own = <$file::Keys as terrace_model::parameters::Parameters>::parameters().into_iter().map(|own| ParameterInfo {
                        name: format!("{prefix}{}", own.name),
                        only_with: $name.to_owned(),
                        ..own
                    });
                    declared.extend(own);
                )*
            }

            fn check(&self) -> Result<(), terrace_model::parameters::ParameterError> {
                match self {
                    $(ModelParameters::$model(keys) => terrace_model::parameters::Declared::check(keys),)*
                }
            }
        }

        #[derive(Clone, Debug)]
        enum Model {
            $($model($file::$model),)*
        }

        /// One core's pipeline: a clock, and the model that moves it. What all models share is the [`Clock`]'s.
        #[derive(Clone, Debug)]
        pub struct Pipeline {
            clock: Clock,
            model: Model,
            instruction_time: Time,
        }

        impl Pipeline {
            /// An idle core at time zero.
            pub fn new(parameters: &CoreParameters) -> Pipeline {
                let model = match &parameters.model {
                    $(ModelParameters::$model(keys) => Model::$model($file::$model::new(parameters, keys)),)*
                };
                Pipeline { clock: Clock::default(), model, instruction_time: parameters.instruction_time() }
            }

            /// [`CoreModel::dispatch`].
            #[inline(always)]
            pub fn dispatch(&mut self, count: u64) {
                match &mut self.model { $(Model::$model(model) => model.dispatch(&mut self.clock, count),)* }
            }

            /// [`CoreModel::dispatch`] of instructions of the kernel, which are no part of the program.
            pub fn dispatch_kernel(&mut self, count: u64) {
                self.dispatch(count);
                self.clock.of_kernel(count, self.instruction_time.times(count));
            }

            /// [`CoreModel::compute`]. What takes longer than simulated time lasts leaves the clock beyond [`END_OF_TIME`].
            pub fn compute(&mut self, count: u64) {
                let room = END_OF_TIME.saturating_sub(self.clock.now);
                if self.instruction_time.0.checked_mul(count).is_none_or(|span| span > room.0) {
                    self.clock.now = END_OF_TIME + Time(1);
                    return;
                }
                match &mut self.model { $(Model::$model(model) => model.compute(&mut self.clock, count),)* }
            }

            /// [`CoreModel::take_back`].
            pub fn take_back(&mut self, count: u64) {
                match &mut self.model { $(Model::$model(model) => model.take_back(&mut self.clock, count),)* }
            }

            /// [`CoreModel::operands_ready`].
            #[inline(always)]
            pub fn operands_ready(&mut self, depends_on: u8) -> Time {
                match &mut self.model {
                    $(Model::$model(model) => model.operands_ready(&mut self.clock, depends_on),)*
                }
            }

            /// [`CoreModel::hit`].
            #[inline(always)]
            pub fn hit(&mut self, write: bool, start: Time, hit: Time, done: Time) {
                match &mut self.model {
                    $(Model::$model(model) => model.hit(&mut self.clock, write, start, hit, done),)*
                }
            }

            /// [`CoreModel::run_hits`].
            #[inline(always)]
            pub fn run_hits(&mut self, hits: &mut impl Hits, from: usize, horizon: Time) -> usize {
                match &mut self.model {
                    $(Model::$model(model) => model.run_hits(&mut self.clock, hits, from, horizon),)*
                }
            }

            /// [`CoreModel::load`].
            #[inline(always)]
            pub fn load(&mut self, timeline: Timeline) {
                match &mut self.model { $(Model::$model(model) => model.load(&mut self.clock, timeline),)* }
            }

            /// [`CoreModel::store`].
            #[inline(always)]
            pub fn store(&mut self, timeline: Timeline) {
                match &mut self.model { $(Model::$model(model) => model.store(&mut self.clock, timeline),)* }
            }

            /// [`CoreModel::loads_done`].
            pub fn loads_done(&self) -> Time {
                match &self.model { $(Model::$model(model) => model.loads_done(&self.clock),)* }
            }

            /// Dispatch stands still for `span` until a miss register is free, which is so at `free`.
            pub fn wait_for_register(&mut self, span: Time, free: Time) {
                let holder = match &mut self.model { $(Model::$model(model) => model.holder(&self.clock, free),)* };
                match holder {
                    Some(timeline) => self.clock.wait_as(span, &timeline),
                    None => self.clock.wait_for_memory(span),
                }
            }

            /// [`CoreModel::drain`].
            pub fn drain(&mut self) {
                match &mut self.model { $(Model::$model(model) => model.drain(&mut self.clock),)* }
            }
        }
    };
}

impl Deref for Pipeline {
    type Target = Clock;

    #[inline(always)]
    fn deref(&self) -> &Clock {
        &self.clock
    }
}

impl Pipeline {
    /// A load or a store was issued.
    #[inline(always)]
    pub fn access(&mut self, write: bool, timeline: Timeline) {
        if write { self.store(timeline) } else { self.load(timeline) }
    }

    /// The kernel runs on this core for `span`.
    pub fn kernel(&mut self, span: Time) {
        self.clock.kernel(span);
    }

    /// Dispatch stands still for `span` until memory has taken something, as a written page.
    pub fn wait_for_memory(&mut self, span: Time) {
        self.clock.wait_for_memory(span);
    }

    /// The core idles until `time`; no component is blamed.
    pub fn idle_until(&mut self, time: Time) {
        self.clock.idle_until(time);
    }
}
