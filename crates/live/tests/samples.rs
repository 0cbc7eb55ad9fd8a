//! Accesses as a processor samples them, from the kernel in memory to the policy.

mod simulated;

use simulated::{Place, Simulated};
use std::sync::Arc;
use std::time::Duration;
use terrace_live::facts::Facts;
use terrace_live::kernel::{Event, Kernel, Sample, SamplingEvent};
use terrace_live::session::{Config, Session};
use terrace_live::targets::Selection;
use terrace_model::PageSize;

const DEVICES: &str = "/sys/bus/event_source/devices";
const ONE_IN: u64 = 5003;

/// Two nodes and a sampler, as these files describe it.
fn machine(files: &[(&str, &str)]) -> Simulated {
    let kernel = Simulated::new("two-nodes-6.12", &[4096, 4096], 0, 1);
    let mut machine = kernel.machine();
    for (path, content) in files {
        machine.files.set(format!("{DEVICES}/{path}"), *content);
    }
    let probes = machine.files.get("/probes".as_ref()).unwrap_or_default();
    machine.files.set("/probes", format!("access-sampling 0\n{probes}"));
    drop(machine);
    kernel
}

fn sampler(counters: u32, config: u64, config1: u64, precise: u8) -> Event {
    let event = SamplingEvent { counters, config, config1, precise };
    Event::Accesses { event, one_in: ONE_IN }
}

/// HeMem on a process of 64 pages on the slow node, of which some are sampled; which lie on the fast node in the end.
fn promoted(kernel: &Simulated, hot: &[u64], sampled: &[(Event, bool)]) -> (Session, Vec<u64>) {
    let (pid, first) = {
        let mut machine = kernel.machine();
        let pid = machine.start(1);
        let first = machine.map(pid, 64);
        machine.fill(pid, first..first + 64, PageSize::Base, 1);
        (pid, first)
    };
    let shared: Arc<dyn Kernel> = Arc::new(kernel.clone());
    let facts = Facts::discover(&*shared);
    let config = Config { policy: Some("hemem".to_owned()), ..Config::default() };
    let mut session = Session::prepare(&shared, &facts, Selection::Trees(vec![pid]), &config)
        .unwrap_or_else(|e| panic!("{e:?}"));
    for round in 0..40 {
        session.engine.turn();
        kernel.pass(Duration::from_millis(20));
        let mut machine = kernel.machine();
        for (event, store) in sampled {
            for page in hot {
                let sample = |pid| Sample {
                    pid,
                    time: 0,
                    address: ((first + page) << 12) | (round * 8),
                    store: *store,
                };
                // Another process at the same address, and the kernel itself, are none of the policy's business.
                machine.noted.entry(*event).or_default().extend([sample(pid), sample(pid + 1), sample(0)]);
            }
        }
    }
    let machine = kernel.machine();
    let fast = |page: &u64| machine.page(pid, first + page).unwrap().1.place == Place::Node(0);
    let found = (0..64).filter(fast).collect();
    drop(machine);
    (session, found)
}

#[test]
fn what_ibs_samples_is_promoted() {
    let kernel = machine(&[("ibs_op/type", "11\n")]);
    let event = sampler(11, 0, 0, 0);
    let (session, fast) = promoted(&kernel, &[3, 17, 40], &[(event, false)]);
    assert_eq!(fast, [3, 17, 40]);
    assert_eq!(session.engine.source_name(), "IBS samples, one access in 5003");
    assert!(session.choices.iter().any(|choice| choice.contains("IBS")), "{:?}", session.choices);
    let opened = kernel.machine().sampled.clone();
    assert!(opened.contains(&(event, 0)) && opened.iter().all(|(one, _)| *one == event), "{opened:?}");
    let samples = session.engine.statistics().0;
    let samples = samples.get("policy.samples").unwrap().clone();
    assert!(format!("{samples:?}").contains("117"), "3 pages in 39 rounds that were read: {samples:?}");
}

#[test]
fn pebs_has_an_event_for_stores() {
    let kernel = machine(&[
        ("cpu/type", "4\n"),
        ("cpu/events/mem-loads", "event=0xcd,umask=0x1,ldlat=3\n"),
        ("cpu/events/mem-stores", "event=0xd0,umask=0x82\n"),
    ]);
    let (loads, stores) = (sampler(4, 0x1cd, 3, 2), sampler(4, 0x82d0, 0, 2));
    let (session, fast) = promoted(&kernel, &[5], &[(stores, true)]);
    assert_eq!(fast, [5]);
    assert_eq!(session.engine.source_name(), "PEBS samples, one access in 5003");
    let opened = kernel.machine().sampled.clone();
    assert!([loads, stores].iter().all(|event| opened.contains(&(*event, 0))), "{opened:?}");
}

#[test]
fn without_a_sampler_the_policy_is_refused() {
    let kernel: Arc<dyn Kernel> = Arc::new(Simulated::new("two-nodes-6.12", &[4096, 4096], 0, 1));
    let config = Config { policy: Some("hemem".to_owned()), ..Config::default() };
    let facts = Facts::discover(&*kernel);
    let refusal = Session::prepare(&kernel, &facts, Selection::Trees(Vec::new()), &config).err().unwrap();
    assert!(format!("{refusal:?}").contains("PEBS"), "{refusal:?}");
}
