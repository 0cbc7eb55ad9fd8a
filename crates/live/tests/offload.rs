//! A policy that the kernel carries out: what DAMON is set to do, and that it is stopped.

mod simulated;

use simulated::Simulated;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use terrace_live::facts::Facts;
use terrace_live::kernel::Kernel;
use terrace_live::session::{Config, Problem, Session};
use terrace_live::targets::Selection;
use terrace_model::{Bytes, PageSize};
use terrace_policy::registry;
use toml::Table;

const KDAMONDS: &str = "/sys/kernel/mm/damon/admin/kdamonds";
const CGROUP: &str = "/sys/fs/cgroup/jobs";
const ZONES: &str = "\
Node 0, zone      DMA
  per-node stats
      nr_inactive_anon 0
  pages free     3840
        spanned  4095
        present  3998
  node_unreclaimable:  0
  start_pfn:           1
Node 0, zone   Normal
  pages free     3840
        spanned  8192
  start_pfn:           4096
Node 1, zone      DMA
  pages free     0
        spanned  0
Node 1, zone   Normal
  pages free     3840
        spanned  4096
  start_pfn:           12288
Node 10, zone   Normal
        spanned  4096
  start_pfn:           99999
";

/// A process has one journal, so its sessions come one after the other.
static ALONE: Mutex<()> = Mutex::new(());

/// Two nodes of 4,096 pages, of which so many of the fast one are in use by a process of the cgroup.
fn machine(used: u64) -> Simulated {
    let kernel = Simulated::new("two-nodes-6.12", &[4096, 4096], 0, 1);
    let mut machine = kernel.machine();
    let pid = machine.start(1);
    let first = machine.map(pid, 4096);
    machine.fill(pid, first..first + used, PageSize::Base, 0);
    machine.files.set("/proc/zoneinfo", ZONES);
    machine.files.set(format!("{CGROUP}/memory.current"), "0\n");
    machine.files.set(format!("{CGROUP}/cgroup.procs"), format!("{pid}\n"));
    drop(machine);
    kernel
}

fn config(settings: &[(&str, &str)]) -> Config {
    let mut parameters = Table::new();
    settings.iter().for_each(|(key, value)| registry::set(&mut parameters, key, value));
    Config { policy: Some("damon".to_owned()), parameters, offload: true, ..Config::default() }
}

fn prepare(kernel: &Simulated, selection: Selection, config: &Config) -> Result<Session, Problem> {
    let shared: Arc<dyn Kernel> = Arc::new(kernel.clone());
    Session::prepare(&shared, &Facts::discover(&*shared), selection, config)
}

fn cgroup() -> Selection {
    Selection::Cgroup(PathBuf::from(CGROUP))
}

fn read(kernel: &Simulated, path: &str) -> String {
    let text =
        kernel.read(Path::new(&format!("{KDAMONDS}/{path}"))).unwrap_or_else(|e| panic!("{path}: {e}"));
    String::from_utf8(text).unwrap().trim().to_owned()
}

fn turn(kernel: &Simulated, session: &mut Session) {
    kernel.pass(Duration::from_millis(1100));
    session.engine.turn();
}

#[test]
fn damon_is_given_what_the_policy_does() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let kernel = machine(100);
    let config = Config {
        limits: terrace_live::engine::Limits { bandwidth: Some(Bytes::mib(100)), ..Default::default() },
        ..config(&[("hot", "0.5"), ("cold_age", "3 s"), ("quota", "64 MiB")])
    };
    let mut session = prepare(&kernel, cgroup(), &config).unwrap();
    assert_eq!(read(&kernel, "nr_kdamonds"), "0", "nothing is set before it begins");
    turn(&kernel, &mut session);
    let scheme = |thread: usize, file: &str| read(&kernel, &format!("{thread}/contexts/0/schemes/0/{file}"));
    for thread in 0..2 {
        let context = |file: &str| read(&kernel, &format!("{thread}/contexts/0/{file}"));
        assert_eq!(context("operations"), "paddr");
        assert_eq!(context("monitoring_attrs/intervals/aggr_us"), "100000");
        assert_eq!(scheme(thread, "filters/0/memcg_path"), "/jobs");
        assert_eq!(scheme(thread, "filters/0/matching"), "N");
        // 100 MiB per second are 10 MiB in 100 ms, less than the policy's own quota; 3 % of a core are 3 ms.
        assert_eq!(scheme(thread, "quotas/bytes"), (10 << 20).to_string());
        assert_eq!(scheme(thread, "quotas/ms"), "3");
    }
    // Half of 20 looks; 30 aggregations of 100 ms.
    assert_eq!((scheme(0, "action"), scheme(1, "action")), ("migrate_hot".into(), "migrate_cold".into()));
    assert_eq!((scheme(0, "target_nid"), scheme(1, "target_nid")), ("0".into(), "1".into()));
    assert_eq!(scheme(0, "access_pattern/nr_accesses/min"), "10");
    assert_eq!(scheme(1, "access_pattern/nr_accesses/max"), "0");
    assert_eq!(scheme(1, "access_pattern/age/min"), "30");
    // Hot regions are looked for on the slow node, cold ones on the fast node.
    let regions = "contexts/0/targets/0/regions";
    assert_eq!(read(&kernel, &format!("0/{regions}/nr_regions")), "1");
    assert_eq!(read(&kernel, &format!("0/{regions}/0/start")), (12288 << 12).to_string());
    assert_eq!(read(&kernel, &format!("1/{regions}/nr_regions")), "2");
    assert_eq!(read(&kernel, &format!("1/{regions}/1/end")), (12288 << 12).to_string());

    kernel.machine().files.set(format!("{KDAMONDS}/0/contexts/0/schemes/0/stats/sz_applied"), "40960\n");
    turn(&kernel, &mut session);
    assert_eq!(session.engine.world().counters().promoted, 10);
    turn(&kernel, &mut session);
    assert_eq!(session.engine.world().counters().promoted, 10, "counted once");
    session.engine.finish();
    assert_eq!(read(&kernel, "nr_kdamonds"), "0");
}

#[test]
fn cold_memory_goes_down_only_while_the_fast_tier_is_full() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for (used, smallest) in [(100, u64::MAX), (4000, 4096)] {
        let kernel = machine(used);
        let mut session = prepare(&kernel, cgroup(), &config(&[])).unwrap();
        turn(&kernel, &mut session);
        let size = |thread: usize| {
            read(&kernel, &format!("{thread}/contexts/0/schemes/0/access_pattern/sz/min"))
                .parse::<u64>()
                .unwrap()
        };
        assert_eq!((size(0), size(1)), (4096, smallest), "{used} pages in use");
        session.engine.pause(true);
        assert_eq!((size(0), size(1)), (u64::MAX, u64::MAX), "paused");
        assert_eq!(read(&kernel, "0/last_command"), "commit");
        session.engine.pause(false);
        assert_eq!((size(0), size(1)), (4096, smallest), "resumed");
    }
}

#[test]
fn a_thread_that_someone_stops_stays_stopped() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let kernel = machine(100);
    let mut session = prepare(&kernel, cgroup(), &config(&[])).unwrap();
    turn(&kernel, &mut session);
    assert!(session.engine.sees_accesses());
    kernel.machine().files.set(format!("{KDAMONDS}/1/state"), "off\n");
    turn(&kernel, &mut session);
    assert!(!session.engine.sees_accesses(), "it is given up");
    drop(session);
    assert_eq!(read(&kernel, "nr_kdamonds"), "0", "and nothing is left behind");
}

#[test]
fn what_cannot_be_offloaded_is_refused_in_words() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let kernel = machine(100);
    let refusal = |selection: Selection, config: &Config| {
        prepare(&kernel, selection, config).err().expect("refused").to_string()
    };
    let ambix = Config { policy: Some("nimble".to_owned()), ..config(&[]) };
    assert!(refusal(cgroup(), &ambix).contains("`damon` is one"));
    assert!(refusal(Selection::Trees(vec![1001]), &config(&[])).contains("--cgroup"));
    let elsewhere = Selection::Cgroup(PathBuf::from("/sys/fs/cgroup/other"));
    let message = refusal(elsewhere, &config(&[]));
    assert!(message.contains("echo +memory > /sys/fs/cgroup/cgroup.subtree_control"), "{message}");
    kernel.machine().files.set("/proc/zoneinfo", "");
    let mut session = prepare(&kernel, cgroup(), &config(&[])).unwrap();
    turn(&kernel, &mut session);
    assert!(!session.engine.sees_accesses());
    drop(session);
    assert_eq!(read(&kernel, "nr_kdamonds"), "0");
    kernel.machine().files.set(format!("{KDAMONDS}/nr_kdamonds"), "1\n");
    assert!(refusal(cgroup(), &config(&[])).contains("DAMON is in use"));
}
