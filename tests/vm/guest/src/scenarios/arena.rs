//! `libterrace.so` where there are nodes of memory: data structures are placed by hints for their allocation sites. And
//! where there are 1 GiB pages.

use super::hints::{FILE, Run, write};
use crate::check::{Checks, eventually, set, text};
use crate::process::Target;
use anyhow::{Context, Result};
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

const LIBRARY: &str = "/lib/libterrace.so";
const WEIGHTS: &str = "/sys/kernel/mm/mempolicy/weighted_interleave";

fn run(more: &[(&str, &str)]) -> Result<Run> {
    let mut command = Command::new("/bin/guest");
    command
        .arg("structures")
        .env("LD_PRELOAD", LIBRARY)
        .env("TERRACE_ARENA", "log")
        .env("TERRACE_HINTS", FILE);
    Run::by(command.envs(more.iter().copied()))
}

/// The library alone, without `terrace run`: by hand, and by counts and room.
pub fn hints(checks: &mut Checks) -> Result<()> {
    set("/proc/sys/kernel/numa_balancing", 0)?;
    for (node, weight) in [(0, 5), (1, 2)] {
        set(format!("{WEIGHTS}/node{node}"), weight)?;
    }
    write(&[("main+0x10", "0x10", 8, 1, "")], "")?;
    let foreign = run(&[])?;
    checks.that(
        foreign.said.contains("hints: 0 of 1 sites met"),
        "hints of another program",
        foreign.said.trim(),
    );
    checks.equal("the data is right", foreign.values.get("same").map(String::as_str), Some("1"));
    let offset = |bytes: u64| {
        let (before, _) = foreign
            .said
            .split_once(&format!(" allocated {bytes} bytes"))
            .with_context(|| foreign.said.clone())?;
        let (_, offset) = before.rsplit_once("guest+").with_context(|| before.to_owned())?;
        anyhow::Ok(offset.to_owned())
    };
    let (first, second, third) = (offset(8 << 20)?, offset(4 << 20)?, offset(7 << 20)?);

    let by_hand = [("a", &first, 8, "CO"), ("b", &second, 4, "BO"), ("c", &third, 7, "BW")];
    write(&by_hand.map(|(name, offset, mib, hint)| (name, offset.as_str(), mib, 1, hint)), "")?;
    let by_hand = run(&[])?;
    checks.equal("CO: pages on the slow node", by_hand.shares("first")?, [0.0, 1.0]);
    checks.equal("BO: pages on the fast node", by_hand.shares("second")?, [1.0, 0.0]);
    for (key, what) in [("third", "BW: five pages to two"), ("others", "no hint: five pages to two")] {
        let shares = by_hand.shares(key)?;
        checks.that((shares[0] - 5.0 / 7.0).abs() < 0.02, what, format!("{shares:.4?}"));
    }
    checks.equal("an object that grows stays on the slow node", by_hand.shares("grown")?, [0.0, 1.0]);
    checks.equal("the data is right", by_hand.values.get("same").map(String::as_str), Some("1"));
    checks.that(
        by_hand.said.contains("hints: 3 of 3 sites met, 3 objects placed"),
        "reported",
        by_hand.said.trim(),
    );

    let own = by_hand.values.get("own-interleaved").map(String::as_str);
    checks.that(own.is_some_and(|count| count != "0"), "other memory is interleaved", format!("{own:?}"));
    checks.equal(
        "programs that it starts, in five ways, are not",
        by_hand.values.get("started-interleaved").map(String::as_str),
        Some("0:0:0:0:0"),
    );

    // The hottest by the byte has room, and of the second a part.
    let counted = [("a", &first, 8, 800), ("b", &second, 4, 4), ("c", &third, 7, 1)];
    write(&counted.map(|(name, offset, mib, accesses)| (name, offset.as_str(), mib, accesses, "")), "")?;
    let counted = run(&[("TERRACE_HINTS_FAST", "10 MiB")])?;
    checks.equal("the hottest is on the fast node", counted.shares("first")?, [1.0, 0.0]);
    let second = counted.shares("second")?;
    checks.that(
        (second[0] - 0.5).abs() < 0.01,
        "of the next, what there is room for",
        format!("{second:.4?}"),
    );
    checks.equal("the coldest is on the slow node", counted.shares("third")?, [0.0, 1.0]);

    let off = run(&[("TERRACE_ARENA", "off")])?;
    checks.that(off.said.is_empty(), "off: nothing is said", off.said.trim());
    checks.equal("off: the kernel places", off.shares("first")?, [1.0, 0.0]);
    for node in [0, 1] {
        set(format!("{WEIGHTS}/node{node}"), 0)?;
    }
    Ok(std::fs::remove_file(FILE)?)
}

const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-1048576kB";

/// The values that the target prints of a size that it has changed to: the call's result, the pages, and MiB of its own and
/// of the pool.
fn values(target: &Target, key: &str) -> Result<[i64; 4]> {
    let value = target.value(key)?;
    let numbers: Vec<i64> =
        value.split(':').map(str::parse).collect::<Result<_, _>>().context(key.to_owned())?;
    numbers.try_into().ok().with_context(|| value.to_owned())
}

/// The pool of 1 GiB pages grows where it was asked for and shrinks again, at an end and after a kill; pages become smaller
/// ones and 1 GiB again.
pub fn giant(checks: &mut Checks) -> Result<()> {
    let count = |name: &str| -> Result<u64> { Ok(text(format!("{POOL}/{name}"))?.parse()?) };
    let start = |grow: Option<&str>| {
        let preload = [("LD_PRELOAD", LIBRARY), ("TERRACE_ARENA", "log")];
        let more = grow.map(|pages| ("TERRACE_GROW_1G", pages));
        let environment: Vec<(OsString, OsString)> =
            preload.into_iter().chain(more).map(|(key, value)| (key.into(), value.into())).collect();
        Target::started_with("/bin/guest", &["giant"], &environment)
    };
    set(format!("{POOL}/nr_hugepages"), 0)?;
    for grow in [None, Some("0")] {
        let mut target = start(grow)?;
        checks.equal("a store of smaller pages gives back, too", target.value("trimmed")?, "1024:0:0");
        checks.equal(format!("{grow:?}: 2 MiB pages instead"), target.value("pages")?, "1");
        checks.equal("it stays so", values(&target, "up")?[..2].to_vec(), vec![-i64::from(libc::ENOMEM), 0]);
        checks.equal("nothing is added", count("nr_hugepages")?, 0);
        target.kill()?;
    }

    let target = start(Some("1"))?;
    checks.equal("a 1 GiB page, of a pool that was empty", target.value("pages")?, "2");
    checks.equal("a store's page goes back to the pool", target.value("trimmed")?, "1024:1:0");
    let journal = format!("/run/terrace/{}.json", target.pid());
    checks.that(Path::new(&journal).exists(), "the change is in the journal", &journal);
    let (down, base, up) = (values(&target, "down")?, values(&target, "base")?, values(&target, "up")?);
    checks.equal("to 2 MiB pages, and the pool has its page again", [down[0], down[1], down[3]], [0, 1, 0]);
    checks.that(
        (128..200).contains(&down[2]),
        "64 of 512 parts are used, 2 MiB each",
        format!("{} MiB", down[2]),
    );
    checks.equal("to base pages", [base[0], base[1], base[3]], [0, 0, 0]);
    checks.that(base[2] < 60, "64 base pages are used", format!("{} MiB", base[2]));
    checks.equal("to a 1 GiB page", [up[0], up[1], up[3]], [0, 2, 1024]);
    let restored = Command::new("terrace").arg("restore").output()?;
    checks.equal("a journal of a running process is left alone", count("nr_hugepages")?, 1);
    checks.that(Path::new(&journal).exists(), "and stays", String::from_utf8_lossy(&restored.stdout).trim());
    // Killed: the page is free, and the setting is put back by `terrace restore`.
    let mut target = target;
    target.kill()?;
    eventually(|| Ok(count("free_hugepages")? == 1))?;
    let restored = Command::new("terrace").arg("restore").output()?;
    let said = String::from_utf8_lossy(&restored.stdout).into_owned();
    checks.that(
        restored.status.success() && said.contains("is 0 again"),
        "restore puts it back",
        said.trim(),
    );
    checks.equal("the pool is empty", (count("nr_hugepages")?, Path::new(&journal).exists()), (0, false));

    // Two programs grow it, one after the other, and both are killed.
    let mut two = [start(Some("1"))?, start(Some("1"))?];
    let have = [two[0].value("pages")?.to_owned(), two[1].value("pages")?.to_owned()];
    checks.equal("both have a 1 GiB page", have, ["2", "2"].map(str::to_owned));
    checks.equal("the pool has both", count("nr_hugepages")?, 2);
    for target in &mut two {
        target.kill()?;
    }
    eventually(|| Ok(count("free_hugepages")? == 2))?;
    let restored = Command::new("terrace").arg("restore").output()?;
    let said = String::from_utf8_lossy(&restored.stdout).into_owned();
    let left = std::fs::read_dir("/run/terrace")?.count();
    checks.equal("restore gives both back", (count("nr_hugepages")?, left), (0, 0));
    checks.that(restored.status.success(), "and says so", said.trim());

    // At its end the program gives back what it has added, of what it still uses too.
    let runs_to_its_end = || {
        let mut program = Command::new("/bin/guest");
        program.arg("giant").env("LD_PRELOAD", LIBRARY).env("TERRACE_GROW_1G", "2");
        program.stdin(Stdio::null()).stdout(Stdio::null()).status()
    };
    set(format!("{POOL}/nr_hugepages"), 1)?;
    checks.that(runs_to_its_end()?.success(), "the program ends well", "");
    checks.equal("a page of the administrator's suffices and stays", count("nr_hugepages")?, 1);
    set(format!("{POOL}/nr_hugepages"), 0)?;
    checks.that(runs_to_its_end()?.success(), "the program ends well", "");
    eventually(|| Ok(count("nr_hugepages")? == 0 && count("surplus_hugepages")? == 0))?;
    let left = std::fs::read_dir("/run/terrace")?.count();
    checks.equal("nothing is left in the pool or the journal", (count("nr_hugepages")?, left), (0, 0));
    Ok(())
}
