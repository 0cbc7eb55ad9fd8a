//! The unit that Terrace comes with, under a running systemd.

use super::harm::{quiet, restored};
use super::watch::status;
use crate::check::{Checks, eventually, move_to, nodes_of, pages, text, until};
use crate::process::range;
use anyhow::{Context, Result, ensure};
use std::process::Command;
use terrace_live::kernel::{Kernel, Linux};

const SERVICE: &str = "verify.service";
const UNIT: &str = "terrace@verify.service";
/// The units of services that have other names than their control groups: an instance of a template, and an alias of the
/// service above.
const INSTANCE: &str = "terrace@my-app@1.service";
const ALIAS: &str = "terrace@other.service";
/// A unit that asks for DAMON, which the one above has.
const REFUSED: &str = "terrace@my-app@2.service";
const UNIT_FILE: &str = "/etc/systemd/system/terrace@.service";
/// As `systemd-analyze security` rates units: 0 is safest, 10 has no sandbox.
const EXPOSURE: f64 = 2.5;
/// Where the service's output goes, and the unit's messages.
const SAID: &str = "/run/verify.said";
const LOG: &str = "/run/terrace.said";

pub fn run(checks: &mut Checks) -> Result<()> {
    let _ticker = quiet()?;
    systemctl(&["start", SERVICE])?;
    eventually(|| Ok(text(SAID).unwrap_or_default().contains("ready=1")))?;
    let process = Linux.open(reported("pid")?.parse()?).context("opening the service")?;
    let memory = range(&reported("memory")?)?;
    let up = || Ok(nodes_of(&process, &memory)?.get(&0).copied().unwrap_or(0));

    systemctl(&["enable", "--now", UNIT])?;
    // The command ends when Terrace has said that it manages.
    let said = property("StatusText")?;
    checks.that(said.starts_with("nimble: 1 process, "), "when it has started it manages", said);
    let came = until(up, |up| *up > 0)?;
    checks.that(came > 0, "the service's pages come to the fast tier", format!("{came} pages"));
    let first = property("MainPID")?;
    let sandbox = text(format!("/proc/{first}/status"))?;
    let line =
        |name: &str| sandbox.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
    // What the unit asks for was done by this systemd on this kernel: CAP_SYS_ADMIN (21), CAP_SYS_NICE (23), CAP_SYS_PTRACE
    // (19), CAP_DAC_READ_SEARCH (2) and CAP_DAC_OVERRIDE (1).
    let allowed = [21, 23, 19, 2, 1].iter().map(|bit| 1u64 << bit).sum::<u64>();
    checks.equal("capabilities that it may have", line("CapBnd"), format!("CapBnd:\t{allowed:016x}"));
    checks.equal("no new privileges", line("NoNewPrivs"), "NoNewPrivs:\t1".to_owned());
    checks.equal("system calls are filtered", line("Seccomp:"), "Seccomp:\t2".to_owned());
    checks.that(
        text(LOG)?.contains("denied: 9 system calls"),
        "what it has no use for is refused in its sandbox",
        LOG,
    );
    checks.equal("what it makes is for root alone", line("Umask:"), "Umask:\t0077".to_owned());
    let network = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net"));
    checks.that(network(&first)? != network("self")?, "it has no network", &first);
    let analysis = Command::new("systemd-analyze")
        .args(["security", "--offline=true", "--no-pager", UNIT_FILE])
        .output()
        .context("systemd-analyze")?;
    let said = String::from_utf8_lossy(&analysis.stdout).into_owned();
    let level = said.lines().find_map(|line| {
        line.split_once("exposure level for ")?.1.split_whitespace().nth(1)?.parse::<f64>().ok()
    });
    checks.that(
        level.is_some_and(|level| level <= EXPOSURE),
        format!("systemd-analyze security is at most {EXPOSURE}"),
        level.map_or(said, |level| level.to_string()),
    );
    let quota = text(format!("/sys/fs/cgroup{}/cpu.max", property("ControlGroup")?))?;
    checks.equal("a fifth of a processor", quota.as_str(), "20000 100000");
    let promoted = || Ok(status()?["moves"]["promoted"].as_u64().unwrap_or(0));
    let watched = until(promoted, |bytes| *bytes > 0)?;
    checks.that(watched > 0, "it can be watched from outside", format!("{watched} bytes promoted"));

    systemctl(&["kill", "--signal=KILL", "--kill-whom=main", UNIT])?;
    let ended = eventually(|| Ok(property("SubState")? == "auto-restart"))?;
    checks.that(ended, "a killed Terrace is to begin anew", property("SubState")?);
    // Before that, so that it is the unit that put everything back and not the next start.
    let threads = text("/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds")?;
    checks.equal("the unit has put back what was set", threads.as_str(), "0");
    let again = eventually(|| Ok(property("ActiveState")? == "active" && property("MainPID")? != first))?;
    checks.that(again, "it begins anew", format!("{} starts anew", property("NRestarts")?));
    move_to(&process, &pages(&memory), 1)?;
    // The service answers only when it has begun.
    let works = until(|| Ok(promoted().unwrap_or(0)), |bytes| *bytes > 0)?;
    checks.that(works > 0, "and works on", format!("{works} bytes promoted since"));

    named(checks, process.pid)?;

    systemctl(&["stop", SERVICE])?;
    let said = text(SAID)?;
    checks.that(
        said.contains("operations="),
        "every byte as written",
        said.lines().last().unwrap_or_default(),
    );
    let stopped = eventually(|| Ok(property("ActiveState")? == "inactive"))?;
    checks.that(stopped, "it ends with its service", property("ActiveState")?);
    checks.equal("orderly", property("Result")?.as_str(), "success");
    let stopped = eventually(|| Ok(property_of(ALIAS, "ActiveState")? == "inactive"))?;
    checks.that(stopped, "so does that of the alias", property_of(ALIAS, "ActiveState")?);
    checks.equal("left after it", restored()?, Vec::new());
    let log = text(LOG)?;
    let ends = log.lines().filter(|line| line.contains("of processor time")).count();
    checks.equal("summaries in its log", ends, 1);

    systemctl(&["disable", UNIT])?;
    systemctl(&["enable", ALIAS])?;
    systemctl(&["start", SERVICE])?;
    let begins = eventually(|| Ok(property_of(ALIAS, "ActiveState")? == "active"))?;
    checks.that(begins, "enabled by the alias it begins with the service", property_of(ALIAS, "StatusText")?);
    systemctl(&["stop", SERVICE])?;
    Ok(())
}

/// Services that are named otherwise than their control groups, what a start that fails says, and where the journal has it.
/// `pid` is the process that the alias stands for.
fn named(checks: &mut Checks, pid: u32) -> Result<()> {
    for unit in ["systemd-journald.service", "my-app@1.service", "my-app@2.service"] {
        systemctl(&["start", unit])?;
    }
    systemctl(&["start", INSTANCE])?;
    let said = property_of(INSTANCE, "StatusText")?;
    checks.that(said.starts_with("first-touch: 1 process, "), "an instance in a slice with a dash", said);
    let [lines, warnings] = [journal(INSTANCE, "info")?, journal(INSTANCE, "warning")?];
    let is_plain = !lines.contains("<6>");
    checks.that(lines.contains("process joined") && is_plain, "its log is in the journal", &lines);
    checks.equal("and nothing of it is a warning", warnings, String::new());

    systemctl(&["start", ALIAS])?;
    let lines = journal(ALIAS, "info")?;
    let joined = lines.lines().filter(|line| line.contains("process joined")).collect::<Vec<_>>();
    let is_it = joined.len() == 1 && joined[0].contains(&format!("pid={pid} "));
    checks.that(is_it, "an alias stands for the service's process", lines);

    let refused =
        systemctl(&["enable", "--now", REFUSED]).map_or_else(|error| error.to_string(), |_| String::new());
    let why = "DAMON is in use";
    checks.that(refused.contains("failed"), "a start that fails is said to fail", refused);
    let lines = journal(REFUSED, "err")?;
    checks.that(
        lines.contains(why) && !lines.contains("<3>"),
        "the reason is an error in the journal",
        lines,
    );
    let said = property_of(REFUSED, "StatusText")?;
    checks.that(said.contains(why), "and what the unit's status shows", said);
    systemctl(&["disable", "--now", REFUSED])?;

    for (service, code, what) in [
        ("absent", 2, "there is no service absent.service"),
        ("my-app@3", 1, "my-app@3.service does not run (inactive, dead)"),
        ("system-my\\x2dapp.slice", 0, "first-touch: 0.0 MiB promoted"),
    ] {
        let mut command = Command::new("terrace");
        command.args(["attach", "--policy", "first-touch", "--seconds", "1", "--service", service]);
        let output = command.output().context("terrace attach")?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        checks.that(
            output.status.code() == Some(code) && said.contains(what),
            format!("--service {service}"),
            said,
        );
    }
    systemctl(&["stop", "my-app@1.service", "my-app@2.service"])?;
    let stopped = eventually(|| Ok(property_of(INSTANCE, "ActiveState")? == "inactive"))?;
    checks.that(stopped, "the instance's ends with it", property_of(INSTANCE, "ActiveState")?);
    Ok(())
}

/// What the journal has of a unit, of this priority or a higher one.
fn journal(unit: &str, priority: &str) -> Result<String> {
    let ask = |arguments: &[&str]| Command::new("journalctl").args(arguments).output().context("journalctl");
    ask(&["--sync"])?;
    let unit = format!("_SYSTEMD_UNIT={unit}");
    let output = ask(&["--no-pager", "--quiet", "--output=cat", "--priority", priority, &unit])?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn systemctl(arguments: &[&str]) -> Result<String> {
    let output = Command::new("systemctl").args(arguments).output().context("systemctl")?;
    let log = || text(LOG).unwrap_or_default();
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "systemctl {}: {said}{}", arguments.join(" "), log());
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// A property of the unit.
fn property(name: &str) -> Result<String> {
    property_of(UNIT, name)
}

fn property_of(unit: &str, name: &str) -> Result<String> {
    systemctl(&["show", "--value", "--property", name, unit])
}

/// The value that the service has printed in a `key=value` pair.
fn reported(key: &str) -> Result<String> {
    let said = text(SAID)?;
    let mut pairs = said.split_whitespace().filter_map(|pair| pair.split_once('='));
    let value = pairs.find_map(|(found, value)| (found == key).then(|| value.to_owned()));
    value.with_context(|| format!("the service printed no \"{key}\": {said}"))
}
