//! The rounds of a page, with a kernel that reports and refuses as the test says.

use super::*;
use std::sync::{Arc, Mutex};

const PID: u32 = 7;

#[derive(Default)]
struct Kernel {
    /// Registered ranges, by their first pages.
    registered: BTreeMap<u64, (u64, Answer)>,
    refusal: Option<i32>,
    faults: Vec<Sample>,
    lost: u64,
    taken: u64,
    reported: u64,
}

struct Fake(Arc<Mutex<Kernel>>);

impl Faults for Fake {
    fn begin(&mut self, start: u64, bytes: u64, answer: Answer) -> io::Result<()> {
        let mut kernel = self.0.lock().unwrap();
        if let Some(refusal) = kernel.refusal {
            return Err(io::Error::from_raw_os_error(refusal));
        }
        assert!(kernel.registered.insert(start >> 12, ((start + bytes) >> 12, answer)).is_none());
        Ok(())
    }

    fn end(&mut self, start: u64, _: u64) -> io::Result<()> {
        let mut kernel = self.0.lock().unwrap();
        kernel.registered.remove(&(start >> 12));
        kernel.refusal.map_or(Ok(()), |refusal| Err(io::Error::from_raw_os_error(refusal)))
    }

    fn read(&mut self, found: &mut dyn FnMut(Sample)) -> u64 {
        let mut kernel = self.0.lock().unwrap();
        kernel.faults.drain(..).for_each(found);
        std::mem::take(&mut kernel.lost)
    }

    fn taken(&self) -> u64 {
        self.0.lock().unwrap().taken
    }

    fn reported(&self) -> u64 {
        self.0.lock().unwrap().reported
    }
}

/// A process whose pages of the given areas are watched.
struct Process {
    sampling: Sampling,
    kernel: Arc<Mutex<Kernel>>,
    covered: Vec<Range<u64>>,
    watched: Vec<(u64, PageSize)>,
}

impl Process {
    fn new(covered: &[Range<u64>], watched: &[(u64, PageSize)]) -> Process {
        let kernel = Arc::new(Mutex::new(Kernel::default()));
        let sampling = Sampling::new(Box::new(Fake(kernel.clone())));
        let mut process = Process { sampling, kernel, covered: covered.to_vec(), watched: watched.to_vec() };
        process.watch();
        process
    }

    fn watch(&mut self) {
        self.sampling.watch(&self.watched, &self.covered);
    }

    /// Asks for all that are in to be taken out; returns which.
    fn ask(&mut self) -> Vec<u64> {
        let mut asked = Vec::new();
        for (vpn, size) in self.sampling.next() {
            if self.sampling.enter(vpn, size, &self.covered).is_ok() {
                self.sampling.asked.push_back(vpn);
                self.sampling.pages.insert(vpn, (size, State::Asked(None)));
                asked.push(vpn);
            }
        }
        asked
    }

    fn fault(&mut self, pid: u32, vpn: u64, at: u64) {
        let sample = Sample { pid, time: at, address: vpn << 12 | 8, store: false };
        self.kernel.lock().unwrap().faults.push(sample);
    }

    /// What is reported, as page, nanoseconds, and whether an access ended it.
    fn reported(&mut self, drops: &[Option<u64>]) -> Vec<(u64, u64, bool)> {
        let mut reported = Vec::new();
        let drops = drops.iter().map(|began| began.map(Duration::from_nanos)).collect();
        self.sampling.take_over(PID, drops, &mut reported);
        reported.iter().map(|one| (one.vpn, one.span.as_nanos() as u64, one.access.is_some())).collect()
    }

    fn pieces(&self) -> Vec<(u64, u64)> {
        let kernel = self.kernel.lock().unwrap();
        kernel.registered.iter().map(|(first, (end, _))| (*first, *end)).collect()
    }
}

const BASE: PageSize = PageSize::Base;
const AREA: Range<u64> = 1000..3000;

#[test]
fn a_page_goes_out_and_comes_in_with_its_access() {
    let mut process = Process::new(&[AREA], &[(1030, BASE), (1031, BASE)]);
    assert_eq!(process.ask(), [1030, 1031]);
    assert_eq!(process.pieces(), [(1024, 1536)], "what is around, and no more");
    assert_eq!(process.reported(&[Some(10), None]), [], "the second was busy");
    assert_eq!(process.ask(), [1031], "and is asked for again");
    process.fault(PID, 1030, 25);
    process.fault(PID, 1040, 26);
    assert_eq!(process.reported(&[Some(20)]), [(1030, 15, true)], "nobody watches the other page");
    let mut reported = Vec::new();
    process.sampling.credit(Duration::from_nanos(50), &mut reported);
    assert_eq!(reported, [Exposure { vpn: 1031, span: Duration::from_nanos(30), access: None }]);
    process.fault(PID, 1031, 60);
    assert_eq!(process.reported(&[]), [(1031, 10, true)], "only the rest");
    assert_eq!(process.ask(), [1030, 1031]);
}

#[test]
fn a_fault_that_is_reported_before_the_drop_is_put_in_order() {
    let mut process = Process::new(&[AREA], &[(1030, BASE), (1031, BASE), (1032, BASE)]);
    process.ask();
    process.fault(PID, 1030, 12);
    process.fault(PID, 1031, 9);
    process.fault(PID + 1, 1032, 12);
    assert_eq!(process.reported(&[]), []);
    assert_eq!(process.reported(&[Some(10), Some(10), Some(10)]), [(1030, 2, true), (1032, 2, false)]);
    // The second had been accessed before; the third was put back by Terrace itself.
    process.fault(PID, 1031, 30);
    assert_eq!(process.reported(&[]), [(1031, 20, true)]);
}

#[test]
fn a_huge_page_is_registered_anew_after_each_access() {
    let mut process = Process::new(&[AREA], &[(1024, PageSize::Huge)]);
    process.ask();
    assert_eq!(process.kernel.lock().unwrap().registered[&1024], (1536, Answer::Whole));
    process.fault(PID, 1300, 25);
    process.kernel.lock().unwrap().registered.clear();
    assert_eq!(process.reported(&[Some(10)]), [(1024, 15, true)]);
    assert_eq!(process.ask(), [1024]);
    assert_eq!(process.pieces(), [(1024, 1536)]);
    // Between the registration and the drop: the next access would not be reported.
    process.fault(PID, 1300, 30);
    process.kernel.lock().unwrap().registered.clear();
    assert_eq!(process.reported(&[Some(40)]), []);
    assert_eq!(process.ask(), [1024]);
    // A huge page that is not wholly in the area is none.
    process.watched = vec![(2560, PageSize::Huge)];
    process.watch();
    assert_eq!((process.ask(), process.pieces()), (vec![], vec![]));
}

#[test]
fn pieces_end_with_their_area_and_with_the_watch() {
    let mut process = Process::new(&[1000..1100, 1100..3000], &[(1090, BASE), (1110, BASE), (2000, BASE)]);
    assert_eq!(process.ask(), [1090, 1110, 2000]);
    assert_eq!(process.pieces(), [(1024, 1100), (1100, 1536), (1536, 2048)], "neighbours in 2 MiB");
    process.reported(&[Some(1), Some(1), Some(1)]);
    assert!(process.ask().is_empty());
    process.watched.pop();
    process.covered[0] = 1000..1050;
    process.watch();
    assert_eq!(process.pieces(), [(1100, 1536)]);
    process.sampling.begin_anew();
    assert_eq!((process.pieces(), process.reported(&[Some(5)])), (vec![], vec![]));
}

#[test]
fn what_the_kernel_refuses_is_left_and_what_fails_is_tried_again() {
    let mut process = Process::new(&[AREA], &[(1030, BASE)]);
    process.kernel.lock().unwrap().refusal = Some(libc::ENOMEM);
    assert!(process.ask().is_empty());
    process.kernel.lock().unwrap().refusal = None;
    assert_eq!(process.ask(), [1030]);
    // Memory that has gone cannot be left either; it is forgotten all the same.
    process.kernel.lock().unwrap().refusal = Some(libc::EINVAL);
    process.sampling.leave(1024);
    process.reported(&[None]);
    assert!(process.ask().is_empty());
    process.kernel.lock().unwrap().refusal = None;
    assert_eq!((process.ask(), &process.sampling.refused), (vec![], &vec![AREA]));
}

#[test]
fn after_a_loss_all_pages_are_taken_out_again_and_those_with_an_entry_are_in() {
    let watched: Vec<(u64, PageSize)> = (1030..1046).map(|vpn| (vpn, BASE)).collect();
    let mut process = Process::new(&[AREA], &watched);
    process.ask();
    process.reported(&[Some(1); 16]);
    for _ in 0..CHECKED {
        process.sampling.check(|vpn| vpn == 1031);
    }
    assert!(process.ask().is_empty(), "its fault may be about to be reported");
    for _ in 0..CHECKED {
        process.sampling.check(|vpn| vpn == 1031);
    }
    assert_eq!(process.ask(), [1031]);
    process.kernel.lock().unwrap().lost = 3;
    process.reported(&[Some(2)]);
    assert_eq!(process.ask().len(), 16);
}

#[test]
fn a_fault_whose_report_is_late_is_no_access_less() {
    let mut process = Process::new(&[AREA], &[(1031, BASE)]);
    process.ask();
    process.reported(&[Some(10)]);
    // Answered, so that the page has an entry; the thread that answers is then kept from reporting.
    process.kernel.lock().unwrap().taken = 1;
    for _ in 0..5 * CHECKED {
        process.reported(&[]);
        process.sampling.check(|_| true);
    }
    assert!(process.ask().is_empty());
    process.fault(PID, 1031, 25);
    process.kernel.lock().unwrap().reported = 1;
    assert_eq!(process.reported(&[]), [(1031, 15, true)]);
    assert_eq!(process.ask(), [1031]);
}

/// A page is dropped with a look, and faults with the first of its accesses after that.
#[test]
fn accesses_at_random_are_as_many_as_exposures_tell() {
    const MS: u64 = 1_000_000;
    let (looks, pages) = (4000, 16);
    let within = looks * 50 * MS;
    for per_second in [1, 10, 60, 200] {
        let vpns: Vec<u64> = (0..pages).map(|page| 1024 + page).collect();
        let watched: Vec<(u64, PageSize)> = vpns.iter().map(|vpn| (*vpn, BASE)).collect();
        let mut process = Process::new(&[AREA], &watched);
        let mut random = terrace_policy::Random::new(per_second);
        let mut wait = || {
            let uniform = (random.below(1 << 53) as f64 + 1.0) / (1u64 << 53) as f64;
            (-uniform.ln() * 1e9 / per_second as f64) as u64
        };
        let mut next: BTreeMap<u64, u64> = vpns.iter().map(|vpn| (*vpn, wait())).collect();
        let (mut made, mut exposed, mut ended) = (0u64, 0u64, 0u64);
        for look in 0..looks {
            let (now, until) = (look * 50 * MS, (look + 1) * 50 * MS);
            let asked = process.ask();
            let mut exposures = Vec::new();
            let began = vec![Some(Duration::from_nanos(now)); asked.len()];
            process.sampling.take_over(PID, began, &mut exposures);
            for vpn in &vpns {
                let first = next[vpn];
                let is_out = matches!(process.sampling.pages[vpn].1, State::Out(_));
                if is_out && first < until {
                    process.fault(PID, *vpn, first);
                }
                let at = next.get_mut(vpn).unwrap();
                while *at < until {
                    made += 1;
                    *at += wait();
                }
            }
            process.sampling.take_over(PID, Vec::new(), &mut exposures);
            process.sampling.credit(Duration::from_nanos(until), &mut exposures);
            exposed += exposures.iter().map(|one| one.span.as_nanos() as u64).sum::<u64>();
            ended += exposures.iter().filter(|one| one.access.is_some()).count() as u64;
        }
        // All pages are as busy, so that their exposures can be taken together.
        let estimated = ended as f64 / exposed as f64 * (within * pages) as f64;
        let error = estimated / made as f64 - 1.0;
        assert!(ended > 1000, "{per_second} per second: {ended} seen");
        assert!(
            error.abs() < 4.0 / (ended as f64).sqrt(),
            "{per_second} per second: {made} made, {error:+.4}"
        );
    }
}
