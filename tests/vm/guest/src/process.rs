//! Target programs, as the scenarios start and end them.

use crate::refusing::{self, Refusals, Refused};
use anyhow::{Context, Result, anyhow, bail, ensure};
use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;

/// A running target. It is killed when dropped.
pub struct Target {
    child: Child,
    output: BufReader<ChildStdout>,
    values: HashMap<String, String>,
}

impl Target {
    /// Starts a subcommand of this program and waits until it says that it is `ready`.
    pub fn start(arguments: &[&str]) -> Result<Target> {
        Target::started_by("/proc/self/exe", arguments)
    }

    /// As [`Target::start`], by another program, such as a Terrace that runs it.
    pub fn started_by(program: &str, arguments: &[&str]) -> Result<Target> {
        Target::started_with(program, arguments, &[])
    }

    /// As [`Target::started_by`], with more in its environment.
    pub fn started_with(
        program: &str,
        arguments: &[&str],
        environment: &[(OsString, OsString)],
    ) -> Result<Target> {
        let mut child = Command::new(program)
            .args(arguments)
            .envs(environment.iter().cloned())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {arguments:?}"))?;
        let output = BufReader::new(child.stdout.take().context("no output")?);
        let mut target = Target { child, output, values: HashMap::new() };
        target.wait_for("ready").with_context(|| format!("{arguments:?}"))?;
        Ok(target)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends what is behind this and waits for whoever started it; returns whether that went well.
    pub fn end(mut self, pid: u32) -> Result<()> {
        // SAFETY: its parent, which has not ended, has not waited for it, so the number is still its own.
        unsafe { libc::kill(pid as i32, libc::SIGKILL) };
        self.child.wait().context("waiting")?;
        Ok(())
    }

    /// Reads on until the target has printed `key`; later values replace earlier ones.
    pub fn wait_for(&mut self, key: &str) -> Result<()> {
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line)? == 0 {
                bail!("ended without printing \"{key}\"");
            }
            let pairs = line.split_whitespace().filter_map(|pair| pair.split_once('='));
            self.values.extend(pairs.map(|(key, value)| (key.to_owned(), value.to_owned())));
            if line.split_whitespace().any(|pair| pair.split_once('=').is_some_and(|(found, _)| found == key))
            {
                return Ok(());
            }
        }
    }

    pub fn value(&self, key: &str) -> Result<&str> {
        self.values.get(key).map(String::as_str).with_context(|| format!("the target printed no \"{key}\""))
    }

    /// Kills what was started, at once; what that has started itself goes on.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Asks a verifier to end whose starter has been killed; returns its own measurements, or an error where it has none,
    /// because it found a difference or ended before.
    pub fn finish_orphan(mut self) -> Result<String> {
        let pid: i32 = self.value("pid")?.parse()?;
        // SAFETY: it is a child of the first process now, which never waits, so the number is still its own.
        ensure!(unsafe { libc::kill(pid, libc::SIGTERM) } == 0, "kill: {}", std::io::Error::last_os_error());
        let mut said = String::new();
        while self.output.read_line(&mut said)? != 0 {}
        let said = said.trim().replace('\n', "; ");
        ensure!(said.contains("operations="), "it ended with \"{said}\"");
        Ok(said)
    }

    /// A range of addresses that the target printed.
    pub fn range(&self, key: &str) -> Result<Range<u64>> {
        range(self.value(key)?).with_context(|| key.to_owned())
    }

    /// The next phase of a hotset.
    pub fn next_phase(&mut self) -> Result<()> {
        self.signal(libc::SIGUSR1)?;
        self.wait_for("phase")
    }

    /// How often the pages of each group of a beats were accessed by now.
    pub fn counts(&mut self) -> Result<Vec<u64>> {
        self.signal(libc::SIGUSR1)?;
        self.wait_for("counts")?;
        self.value("counts")?.split(',').map(|count| count.parse().context("counts")).collect()
    }

    fn signal(&self, signal: i32) -> Result<()> {
        // SAFETY: the child has not been waited for, so the number is still its own.
        match unsafe { libc::kill(self.child.id() as i32, signal) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()).context("kill"),
        }
    }

    /// Asks a verifier to end; returns its own measurements, or an error where it found a difference.
    pub fn finish(self) -> Result<String> {
        let pid = self.pid();
        self.finish_by(pid)
    }

    /// As [`Target::finish`], where what was started has started the verifier, and waits for it.
    pub fn finish_by(mut self, pid: u32) -> Result<String> {
        // SAFETY: neither the child nor one that it waits for has been waited for, so the number is still its own.
        let asked = unsafe { libc::kill(pid as i32, libc::SIGTERM) } == 0;
        ensure!(asked, "kill: {}", std::io::Error::last_os_error());
        let mut said = String::new();
        while self.output.read_line(&mut said)? != 0 {}
        let status = self.child.wait()?;
        let said = said.trim().replace('\n', "; ");
        if status.success() { Ok(said) } else { Err(anyhow!("{status}: {said}")) }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // The process may have ended already; either way nothing is left.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads a range as [`range_text`] writes it.
pub fn range(value: &str) -> Result<Range<u64>> {
    let number = |text: &str| u64::from_str_radix(text, 16);
    let (start, end) = value.split_once("..").with_context(|| format!("{value} is no range"))?;
    Ok(number(start)?..number(end)?)
}

/// Prints a range as [`range`] reads it.
pub fn range_text(range: &Range<u64>) -> String {
    format!("{:x}..{:x}", range.start, range.end)
}

fn attach(targets: &[&str], arguments: &[&str]) -> Command {
    let mut command = Command::new("terrace");
    command.arg("attach").args(targets).args(arguments).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

/// A Terrace at work. It is killed when dropped.
pub struct Terrace {
    child: Child,
    /// Which of its calls have been refused.
    refused: Arc<Refused>,
}

impl Terrace {
    /// Attaches to a process and those it starts.
    pub fn attach(pid: u32, arguments: &[&str]) -> Result<Terrace> {
        Terrace::attach_to(&["--tree", &pid.to_string()], arguments)
    }

    /// Attaches to other targets.
    pub fn attach_to(targets: &[&str], arguments: &[&str]) -> Result<Terrace> {
        let child = attach(targets, arguments).spawn().context("starting terrace")?;
        Ok(Terrace { child, refused: Arc::default() })
    }

    /// As [`Terrace::attach`], with some of its calls refused.
    pub fn attach_refused(pid: u32, arguments: &[&str], refusals: Option<Refusals>) -> Result<Terrace> {
        let Some(refusals) = refusals else { return Terrace::attach(pid, arguments) };
        let (child, refused) =
            refusing::start(&mut attach(&["--tree", &pid.to_string()], arguments), refusals)?;
        Ok(Terrace { child, refused })
    }

    /// Which of its calls have been refused by now.
    pub fn refused(&self) -> &Refused {
        &self.refused
    }

    /// Whether it has ended, waited for or not.
    pub fn has_ended(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        stat.rsplit_once(')').is_none_or(|(_, fields)| fields.trim_start().starts_with('Z'))
    }

    /// Kills it, wherever it is.
    pub fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Asks it to stop; returns what it said, or an error where it failed.
    pub fn finish(mut self) -> Result<String> {
        // SAFETY: the child has not been waited for, so the number is still its own.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGINT) };
        let mut said = String::new();
        if let Some(mut errors) = self.child.stderr.take() {
            std::io::Read::read_to_string(&mut errors, &mut said)?;
        }
        let status = self.child.wait()?;
        let said = said.trim().replace('\n', "; ");
        if status.success() { Ok(said) } else { Err(anyhow!("{status}: {said}")) }
    }
}

impl Drop for Terrace {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
