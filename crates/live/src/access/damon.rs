//! Accessed bits of unmodified processes by DAMON (`fvaddr`): each resident page, or run of a few, is a region of its own.
//!
//! DAMON would merge neighbours and split what is large. It splits while there are at most half of the regions it may have,
//! so it may have as many as there are. It merges neighbours that touch up to a size that is the mean of all; so that base
//! pages beside huge ones stay apart, neighbours are given in turn to two targets, which are the same process. A region of
//! one page then names that page exactly. Results come through a trace instance of our own.
//!
//! Where there are more pages than regions, those with accesses are looked at more closely each time, and the others from
//! afar, until the regions in use are single pages or no smaller ones can be had.

use super::AccessSource;
use super::kdamond::{self, KDAMONDS, Kdamond};
use super::ring::{Format, Region};
use crate::access::TRACING;
use crate::journal::{Journal, Kdamonds};
use crate::kernel::{Kernel, read_text};
use crate::world::{Focus, Regions, Sampling, World};
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use terrace_model::Time;

/// Samples that are reported together.
const SAMPLES: u32 = 4;
/// The shortest time between two samples.
const SAMPLE_LEAST: Duration = Duration::from_millis(20);
/// The longest: policies look every second or two.
const SAMPLE_MOST: Duration = Duration::from_millis(250);
/// Processor time of DAMON per region and sample, until its thread was measured.
const REGION_COST: Duration = Duration::from_nanos(1_000);
/// Targets of DAMON's per process: neighbours go to them in turn.
const TURNS: usize = 2;
/// Aggregations after which regions are set up anew where accesses are, as long as those are of several pages.
const LOOKS: u64 = 8;
/// And no sooner than that this takes no more than so much of what DAMON's thread may have.
const AIMING: f64 = 0.25;
/// Regions are set up anew when so many of the pages have come, gone, or changed their size.
const CHANGE: f64 = 0.05;

/// How fine, and how much it may cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Most regions over all processes. With fewer pages than that each is a region of its own.
    pub regions: usize,
    /// Share of one core for DAMON's thread; sampling is as frequent as that allows.
    pub cpu: f64,
}

impl Default for Options {
    fn default() -> Options {
        Options { regions: 4096, cpu: 0.02 }
    }
}

/// DAMON at work for one world.
pub struct Damon {
    kernel: Arc<dyn Kernel>,
    journal: Arc<Mutex<Journal>>,
    options: Options,
    format: Format,
    instance: PathBuf,
    buffers: Vec<File>,
    /// Pages of any size that regions cover.
    covered: u64,
    /// The regions, with the processes in DAMON's order.
    aimed: Regions,
    /// Where accesses were since then, and in how many aggregations.
    focus: Focus,
    looks: u64,
    /// Places of accesses at the last time at which enough of the places were known.
    known: Focus,
    /// What the policy watched when the regions were set up.
    generation: u64,
    /// How many processes had joined when regions were last laid out: one that has executed a program keeps its number.
    joined: u64,
    interval: Duration,
    region_cost: Duration,
    began: Duration,
    /// Processor time of the last set-up.
    aiming: Duration,
    /// The time of the last record, by the buffer's clock.
    last_record: u64,
    running: bool,
}

impl Damon {
    /// Makes the trace instance; DAMON itself begins with the first [`AccessSource::collect`].
    ///
    /// # Errors
    /// Someone else uses DAMON, or the kernel or the user's rights do not suffice: in words, with the next step.
    pub fn new(
        kernel: Arc<dyn Kernel>,
        journal: Arc<Mutex<Journal>>,
        options: Options,
    ) -> Result<Damon, String> {
        kdamond::ensure_unused(&*kernel)?;
        let instance = PathBuf::from(format!("{TRACING}/instances/terrace-{}", std::process::id()));
        let event = instance.join("events/damon/damon_aggregated");
        let in_words =
            |error: io::Error| format!("DAMON's results cannot be read: {}: {error}", instance.display());
        {
            let mut journal = journal.lock().map_err(|_| "an earlier failure".to_owned())?;
            journal.make_folder(&instance).map_err(in_words)?;
        }
        let format = read_text(&*kernel, event.join("format")).map_err(in_words)?;
        let format =
            Format::parse(&format).ok_or("the kernel's damon_aggregated event has another format")?;
        // Room for two aggregations of every region, 60 bytes each, on whatever processor DAMON runs.
        let kib = (options.regions * 60 * 2 / 1024).max(64);
        for (file, value) in [
            (instance.join("buffer_size_kb"), kib.to_string()),
            (event.join("filter"), "nr_accesses > 0".to_owned()),
            (event.join("enable"), "1".to_owned()),
        ] {
            kernel.write(&file, &value).map_err(in_words)?;
        }
        let mut buffers = Vec::new();
        for cpu in kernel.list(&instance.join("per_cpu")).map_err(in_words)? {
            let path = instance.join("per_cpu").join(cpu).join("trace_pipe_raw");
            buffers.push(kernel.stream(&path).map_err(in_words)?);
        }
        Ok(Damon {
            kernel,
            journal,
            options,
            format,
            instance,
            buffers,
            covered: 0,
            aimed: Regions::default(),
            focus: Focus::default(),
            looks: 0,
            known: Focus::default(),
            generation: 0,
            joined: 0,
            interval: SAMPLE_LEAST,
            region_cost: REGION_COST,
            began: Duration::ZERO,
            aiming: Duration::ZERO,
            last_record: 0,
            running: false,
        })
    }

    /// Whether the processes or their memory have changed so much that regions no longer fit.
    fn fits(&self, world: &World) -> bool {
        let pids = world.spaces().map(|space| space.process.pid);
        let pages: u64 = world.spaces().map(|space| space.units).sum();
        self.running
            && world.counters().adopted == self.joined
            && pids.eq(self.aimed.of_process.iter().map(|(pid, _)| *pid))
            // Where every page has a region of its own, those that are watched have one, too.
            && (self.aimed.are_exact() || world.watch_generation() == self.generation)
            && pages.abs_diff(self.covered) as f64 <= CHANGE * self.covered as f64
    }

    /// Whether the last set-up is long enough ago.
    fn may_aim(&self) -> bool {
        let passed = self.kernel.now().saturating_sub(self.began).as_secs_f64();
        self.aiming.as_secs_f64() <= passed * self.options.cpu * AIMING
    }

    /// Smaller regions where accesses are, if that makes a difference.
    fn look_closer(&mut self, world: &mut World) -> io::Result<()> {
        self.looks = 0;
        self.known = std::mem::take(&mut self.focus);
        if !self.known.leaves_open() {
            return Ok(());
        }
        let before = self.kernel.cpu_time();
        let closer = world.regions(self.options.regions, &self.known);
        if closer == self.aimed {
            return Ok(());
        }
        self.watch(closer, before, world)
    }

    /// Begins anew with regions for what is resident now.
    fn aim(&mut self, world: &mut World) -> io::Result<()> {
        let before = self.kernel.cpu_time();
        let focus = std::mem::take(&mut self.focus);
        if std::mem::take(&mut self.looks) >= LOOKS || self.known.is_empty() {
            self.known = focus;
        }
        let regions = world.regions(self.options.regions, &self.known);
        self.watch(regions, before, world)
    }

    /// Has DAMON watch these regions and no others. Choosing them began at `before`, by Terrace's processor time.
    fn watch(&mut self, regions: Regions, before: Duration, world: &mut World) -> io::Result<()> {
        self.measure();
        self.aimed = regions;
        self.generation = world.watch_generation();
        self.joined = world.counters().adopted;
        self.covered = world.spaces().map(|space| space.units).sum();
        let count = self.aimed.count();
        self.off()?;
        if count == 0 {
            return Ok(());
        }
        let per_sample = self.region_cost * count as u32;
        self.interval = Duration::try_from_secs_f64(per_sample.as_secs_f64() / self.options.cpu)
            .unwrap_or(SAMPLE_MOST)
            .clamp(SAMPLE_LEAST, SAMPLE_MOST);
        let as_what = Kdamonds::watching();
        kdamond::claim(&*self.kernel, &self.journal, &as_what)?;
        if let Err(error) = self.set_up(&as_what) {
            // What does not run keeps nobody else from DAMON.
            let _ = kdamond::release(&*self.kernel, &as_what);
            return Err(error);
        }
        self.running = true;
        self.aiming = self.kernel.cpu_time().saturating_sub(before);
        let interval = Time::from_nanos(self.interval.as_nanos() as u64);
        self.began = self.kernel.now();
        world.set_sampling(Sampling { interval, together: SAMPLES });
        let Regions { close, wide, .. } = self.aimed;
        tracing::info!(count, close, wide, interval = ?self.interval, "DAMON watches");
        Ok(())
    }

    /// Gives the regions to DAMON and has it begin. Linux refuses the beginning (`EINVAL`) where a process has ended.
    fn set_up(&self, as_what: &Kdamonds) -> io::Result<()> {
        let count = self.aimed.count();
        let kdamond = Kdamond { kernel: &*self.kernel, thread: 0 };
        let micros = self.interval.as_micros();
        // Both bounds equal: nothing is merged or split.
        kdamond.watch(&as_what.operations, [micros, micros * u128::from(SAMPLES)], count..=count)?;
        kdamond.set("contexts/0/targets/nr_targets", self.aimed.of_process.len() * TURNS)?;
        for (number, (pid, regions)) in self.aimed.of_process.iter().enumerate() {
            for turn in 0..TURNS {
                let target = number * TURNS + turn;
                let mine = regions.iter().skip(turn).step_by(TURNS);
                kdamond.set(&format!("contexts/0/targets/{target}/pid_target"), pid)?;
                kdamond.regions(target, mine.map(|region| region.start << 12..region.end << 12))?;
            }
        }
        kdamond.set("state", "on")
    }

    /// How many aggregations ended since the last call, by the times of their records: those of one lie close together. One
    /// without any access leaves no record and is not counted.
    fn aggregations(&mut self, times: impl Iterator<Item = u64>) -> u64 {
        let apart = (self.interval * SAMPLES / 2).as_nanos() as u64;
        let mut count = 0;
        for time in times {
            count += u64::from(time.saturating_sub(self.last_record) > apart);
            self.last_record = time;
        }
        count
    }

    /// What a region's sample costs, from the processor time of DAMON's thread since it began.
    fn measure(&mut self) {
        let samples =
            self.kernel.now().saturating_sub(self.began).as_secs_f64() / self.interval.as_secs_f64();
        // A few samples tell little.
        if self.running
            && samples >= 8.0
            && let Some(used) = self.thread_time()
        {
            let cost = used.as_secs_f64() / samples / self.aimed.count().max(1) as f64;
            self.region_cost = Duration::try_from_secs_f64(cost).unwrap_or(self.region_cost);
        }
    }

    fn thread_time(&self) -> Option<Duration> {
        let pid = read_text(&*self.kernel, format!("{KDAMONDS}/0/pid")).ok()?;
        let times = read_text(&*self.kernel, format!("/proc/{}/schedstat", pid.trim())).ok()?;
        times.split_ascii_whitespace().next()?.parse().ok().map(Duration::from_nanos)
    }

    fn off(&mut self) -> io::Result<()> {
        if self.running {
            self.running = false;
            kdamond::release(&*self.kernel, &Kdamonds::watching())?;
        }
        Ok(())
    }

    fn read(&mut self) -> io::Result<Vec<Region>> {
        let mut regions = Vec::new();
        let mut page = [0; 4096];
        for buffer in &mut self.buffers {
            loop {
                match buffer.read(&mut page) {
                    Ok(0) => break,
                    Ok(bytes) => self.format.records(&page[..bytes], &mut regions),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(regions)
    }
}

impl AccessSource for Damon {
    fn name(&self) -> String {
        let Regions { close, wide, .. } = self.aimed;
        let elsewhere =
            if wide > close { format!(", of {} KiB elsewhere,", wide * 4) } else { String::new() };
        format!(
            "DAMON, regions of {} KiB{elsewhere} every {} ms",
            close.max(1) * 4,
            self.interval.as_millis()
        )
    }

    fn collect(&mut self, world: &mut World) -> io::Result<Duration> {
        let mut found = self.read()?;
        // On whatever processors DAMON's thread has run.
        found.sort_unstable_by_key(|region| region.time);
        let aggregations = self.aggregations(found.iter().map(|region| region.time));
        world.looked(aggregations * u64::from(SAMPLES));
        self.looks += aggregations;
        for region in found {
            if let Some((pid, _)) = self.aimed.of_process.get(region.target as usize / TURNS) {
                let pages = region.start >> 12..region.end >> 12;
                if !self.aimed.are_exact() {
                    self.focus.note(*pid, pages.clone());
                }
                world.accessed(*pid, pages, region.accesses);
            }
        }
        if !self.fits(world) {
            self.aim(world)?;
        } else if self.looks >= LOOKS && !self.aimed.are_exact() && self.may_aim() {
            self.look_closer(world)?;
        }
        Ok(self.interval * SAMPLES)
    }

    fn stop(&mut self, _: &mut World) {
        if let Err(error) = self.off() {
            tracing::error!(%error, "DAMON could not be switched off; `terrace restore` tries again");
        }
        // No reader is left, so the journal can remove it.
        self.buffers.clear();
        tracing::debug!(instance = %self.instance.display(), "no longer read");
    }
}
