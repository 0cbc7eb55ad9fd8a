//! Data structures are placed by hints for their allocation sites, and no byte of them changes.

use crate::check::{Checks, set};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::process::Command;

pub const FILE: &str = "/tmp/hints.toml";

/// A run with hints: what the target said, and what Terrace or its library did.
pub struct Run {
    pub values: BTreeMap<String, String>,
    pub said: String,
}

impl Run {
    fn of(more: &[&str]) -> Result<Run> {
        let mut command = Command::new("terrace");
        command.args(["run", "--cpu", "none", "--hints", FILE]).args(more).args([
            "--",
            "/bin/guest",
            "structures",
        ]);
        Run::by(&mut command)
    }

    /// What became of a command that ends in the target.
    pub fn by(command: &mut Command) -> Result<Run> {
        let output = command.output().with_context(|| format!("starting {command:?}"))?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let text = String::from_utf8_lossy(&output.stdout);
        let pairs = text.split_whitespace().filter_map(|pair| pair.split_once('='));
        let values = pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        anyhow::ensure!(output.status.success(), "{}: {said}", output.status);
        Ok(Run { values, said })
    }

    /// The shares of a structure's pages on the first two nodes.
    pub fn shares(&self, key: &str) -> Result<[f64; 2]> {
        let text = self.values.get(key).with_context(|| format!("no {key}"))?;
        let numbers: Vec<f64> =
            text.split(':').map(str::parse).collect::<Result<_, _>>().context(text.clone())?;
        Ok([numbers[0] / numbers[2], numbers[1] / numbers[2]])
    }
}

/// Writes hints: name, offset in this program, bytes, accesses, and what a person says.
pub fn write(sites: &[(&str, &str, u64, u64, &str)], build: &str) -> Result<()> {
    let mut text = "version = 1\nprogram = \"guest\"\n".to_owned();
    for (name, offset, mib, accesses, hint) in sites {
        let bytes = mib << 20;
        text += &format!(
            "[[site]]\nname = \"{name}\"\nmodule = \"guest\"\noffset = \"{offset}\"\nbytes = {bytes}\nloads = {accesses}\nstores = 0\n"
        );
        if !build.is_empty() {
            text += &format!("build_id = \"{build}\"\n");
        }
        if !hint.is_empty() {
            text += &format!("hint = \"{hint}\"\n");
        }
    }
    Ok(std::fs::write(FILE, text)?)
}

pub fn run(checks: &mut Checks) -> Result<()> {
    set("/proc/sys/kernel/numa_balancing", 0)?;
    // Hints of another program: one message, which names what was met.
    write(&[("main+0x10", "0x10", 8, 1, "")], "")?;
    let foreign = Run::of(&[])?;
    let message = "has met none of its 1 allocation sites, so nothing was placed";
    checks.equal("one message for hints of another program", foreign.said.matches(message).count(), 1);
    checks.equal("the data is right", foreign.values.get("same").map(String::as_str), Some("1"));
    let offset = |size: &str| {
        let (before, _) =
            foreign.said.split_once(&format!(" ({size})")).with_context(|| foreign.said.clone())?;
        let (_, offset) = before.rsplit_once("guest+").with_context(|| before.to_owned())?;
        anyhow::Ok(offset.to_owned())
    };
    let (first, second, third) = (offset("8 MiB")?, offset("4 MiB")?, offset("7 MiB")?);

    // By hand: against what the kernel would do.
    let by_hand = [("a", &first, 8, "CO"), ("b", &second, 4, "BO"), ("c", &third, 7, "BW")];
    let sites = by_hand.map(|(name, offset, mib, hint)| (name, offset.as_str(), mib, 1, hint));
    write(&sites, "")?;
    let run = Run::of(&["--set", "fast_share=0.714"])?;
    checks.equal("CO: pages on the slow node", run.shares("first")?, [0.0, 1.0]);
    checks.equal("BO: pages on the fast node", run.shares("second")?, [1.0, 0.0]);
    let near = |shares: [f64; 2]| (shares[0] - 5.0 / 7.0).abs() < 0.02;
    for (key, what) in [("third", "BW: five pages to two"), ("others", "no hint: five pages to two")] {
        let shares = run.shares(key)?;
        checks.that(near(shares), what, format!("{shares:.4?}"));
    }
    checks.equal("an object that grows stays on the slow node", run.shares("grown")?, [0.0, 1.0]);
    checks.equal("the data is right", run.values.get("same").map(String::as_str), Some("1"));
    checks.that(
        run.said.contains("3 of 3 sites met, 3 objects placed"),
        "the placement is reported",
        run.said.trim(),
    );

    // By counts and room: the first is the hottest by the byte, and the second does not fit beside it.
    let counted = [("a", &first, 8, 800), ("b", &second, 4, 4), ("c", &third, 7, 7)];
    let sites = counted.map(|(name, offset, mib, accesses)| (name, offset.as_str(), mib, accesses, ""));
    write(&sites, "")?;
    let run = Run::of(&["--limit", "dram=9MiB", "--set", "straddling=skip"])?;
    checks.equal("the hottest is on the fast node", run.shares("first")?, [1.0, 0.0]);
    for key in ["second", "third"] {
        checks.equal(format!("the {key} is on the slow node"), run.shares(key)?, [0.0, 1.0]);
    }

    // These places, of another build.
    write(&sites, "00ff")?;
    let other = Run::of(&[])?;
    checks.that(
        other.said.contains("has met none of its 3"),
        "hints of another build are not taken",
        other.said.trim(),
    );
    let dry = Run::of(&["--dry-run"])?;
    checks.that(!dry.said.contains("sites"), "a dry run places nothing", dry.said.trim());
    checks.equal("and its data is right", dry.values.get("same").map(String::as_str), Some("1"));
    Ok(std::fs::remove_file(FILE)?)
}
