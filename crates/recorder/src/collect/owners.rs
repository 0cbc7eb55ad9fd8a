//! The threads and processes that write records: when they are seen first, what they inherit, and when they have ended.

use super::Collector;
use crate::process::{Object, Process};
use crate::stream::Stream;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use terrace_protocol::layout::{BLOCK_ENTRIES, BLOCKS, CHUNKS, PROCESSES, SLOTS};
use terrace_trace::{Agent, Event, StreamId};

/// A slot's owner and how far its records have been taken.
pub(super) struct Source {
    pub serial: u64,
    pub process: usize,
    pub stream: Stream,
    /// The chunk being filled, by tag, and how many of its records are taken.
    pub partial: (u32, usize),
    /// The last event of another thread that came before its records, and the stream's own last.
    pub sequence: u64,
    /// Records wait until this is the next sequence number; 0 when they do not.
    pub needs: u64,
    /// Whether accesses are kept at the moment.
    pub keeps: bool,
    /// Whether records wait until a process has ended here too, for which the thread waited.
    pub child: Child,
    /// An allocation being resized.
    pub resized: Option<Object>,
}

/// What is known of the process whose end a thread's next record tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Child {
    /// Nothing, or there is no such record.
    Unknown,
    /// The process has records that are still to be taken.
    Awaited,
    /// Nobody waits for it any more.
    GivenUp,
}

/// A registration: its number, the process's own id, and its place in the shared table.
pub(super) type Registration = (u64, u64, usize);

impl Collector {
    /// Looks for processes and threads that have registered.
    pub(super) fn discover(&mut self) {
        let shared = self.shared();
        let used = self.places_used();
        // Several of one process can be new, when it replaced its program before we looked. Places are given again, so that
        // their numbers do not tell which was first.
        let mut new = std::mem::take(&mut self.new);
        new.extend((0..used).filter(|&place| self.places[place].is_none()).filter_map(|place| {
            let entry = shared.process(place);
            let state = entry.state.load(Acquire);
            (state & 0xff == 2).then(|| (entry.registration.load(Relaxed), state >> 8, place))
        }));
        new.sort_unstable();
        for (at, &(_, own_pid, place)) in new.iter().enumerate() {
            let entry = shared.process(place);
            let pid = entry.seen_pid.load(Acquire);
            // The keeper is about to write it, here or of the program that this one replaced.
            let is_known = |&(_, _, place): &Registration| shared.process(place).seen_pid.load(Acquire) != 0;
            if pid == 0 || new[..at].iter().any(|other| other.1 == own_pid && !is_known(other)) {
                continue;
            }
            // A program that replaced another comes after all that the other did.
            if self.processes.iter().flatten().any(|p| p.pid == pid) {
                continue;
            }
            let process = Process::new(
                place,
                pid,
                entry.base.load(Relaxed),
                entry.forked_from.load(Relaxed),
                entry.family.load(Relaxed),
            );
            let index = self.processes.iter().position(Option::is_none).unwrap_or(self.processes.len());
            if index == self.processes.len() {
                self.processes.push(None);
            }
            self.processes[index] = Some(process);
            self.places[place] = Some(index);
        }
        new.clear();
        self.new = new;
        let used = self.slots_used();
        for number in 0..used {
            let slot = shared.slot(number);
            let state = slot.state.load(Acquire);
            if state & 0xff < 2 || self.sources[number].is_some() {
                continue;
            }
            let Some(process) = self.places[(state >> 8) as usize - 1] else {
                continue;
            };
            self.sources[number] = Some(Box::new(Source {
                serial: slot.serial.load(Relaxed),
                process,
                // Numbered when its first record, the spawn, is taken.
                stream: Stream::new(StreamId(u32::MAX)),
                partial: (0, 0),
                sequence: 0,
                needs: 0,
                keeps: true,
                child: Child::Unknown,
                resized: None,
            }));
        }
    }

    /// A thread begins: its first record.
    pub(super) fn spawn(&mut self, number: usize, source: &mut Source) {
        let index = source.process;
        let thread = self.shared().slot(number).thread.load(Relaxed);
        let Some(process) = self.processes[index].as_mut() else { return };
        source.keeps = true;
        if let Some((stream, process_number, next_thread)) = process.inherited.take() {
            // The program was replaced: the stream goes on.
            process.number = Some(process_number);
            process.next_thread = next_thread;
            let name = process.name.clone();
            source.stream = Stream::new(stream);
            source.stream.set_after(self.order.emitted());
            self.serials.insert(source.serial, stream);
            self.emit_global(number, &mut source.stream, Event::Exec { name });
            return;
        }
        let stream = StreamId(self.streams);
        self.streams += 1;
        self.serials.insert(source.serial, stream);
        let thread_number = process.next_thread;
        process.next_thread += 1;
        let is_new = process.number.is_none();
        let process_number = *process.number.get_or_insert_with(|| {
            self.next_process += 1;
            self.next_process - 1
        });
        let forked_from = self.serials.get(&process.forked_from).copied().filter(|_| is_new);
        let mut name = String::new();
        if is_new && forked_from.is_none() {
            name.clone_from(&self.program);
            process.name.clone_from(&name);
        }
        if let Some(parent) = forked_from {
            let parent = self
                .sources
                .iter()
                .flatten()
                .find(|s| s.stream.id == parent)
                .map(|s| (s.process, s.sequence));
            if let Some((parent, sequence)) = parent.filter(|&(parent, _)| parent != index) {
                let mut child = self.processes[index].take().expect("present above");
                if let Some(parent) = &self.processes[parent] {
                    child.inherit(parent, sequence);
                }
                self.processes[index] = Some(child);
            }
        }
        source.stream = Stream::new(stream);
        source.stream.set_after(self.order.emitted());
        let event = Event::Spawn {
            process: process_number,
            thread: thread_number,
            agent: Agent::Cpu,
            forked_from,
            os_id: thread,
            name,
        };
        self.emit_global(number, &mut source.stream, event);
    }

    /// Ends threads and processes that have ended. `false` when there was none.
    pub(super) fn reap(&mut self) -> bool {
        let mut progress = false;
        for number in 0..self.slots_used() {
            let ended = self.shared().slot(number).state.load(Acquire) & 0xff == 3;
            if ended && self.sources[number].is_some() && self.is_drained(number) {
                self.end_thread(number, Some(false));
                progress = true;
            }
        }
        for index in 0..self.processes.len() {
            let Some(process) = self.processes[index].as_mut() else { continue };
            let (ended, pid, place) = (process.has_ended(), process.pid, process.place);
            let follows = process.exec.as_ref().is_some_and(|e| e.1);
            let is_over = ended || follows && self.is_replaced(pid, place);
            if !is_over {
                continue;
            }
            // The process writes no more; take what is left, then see whether anything had to wait.
            let slots: Vec<usize> = (0..SLOTS)
                .filter(|&n| self.sources[n].as_ref().is_some_and(|s| s.process == index))
                .collect();
            for &number in &slots {
                progress |= self.harvest(number);
            }
            let is_taken =
                slots.iter().all(|&number| self.is_drained(number)) && !self.has_unknown_slots(index);
            if !is_taken {
                continue;
            }
            // The record that says so may be among those just taken, and the program that came instead may have ended.
            let follows = self.processes[index].as_ref().and_then(|p| p.exec.as_ref()).is_some_and(|e| e.1);
            if follows && self.has_unseen_successor(place) {
                continue;
            }
            self.end_process(index, follows && self.is_replaced(pid, place), &slots);
            progress = true;
        }
        progress
    }

    /// Whether a process that ended, as one that waited for it says, has still to be ended here. The number is the one that
    /// the process has for itself, or that the recorder knows.
    pub(super) fn is_still_to_end(&mut self, waiter: usize, child: u64) -> bool {
        let shared = self.shared();
        (0..self.places_used()).any(|place| {
            let entry = shared.process(place);
            let state = entry.state.load(Acquire);
            let is_child = state >> 8 == child || u64::from(entry.seen_pid.load(Acquire)) == child;
            if state & 0xff != 2 || !is_child {
                return false;
            }
            // One that is not known yet soon is.
            let Some(index) = self.places[place] else { return true };
            index != waiter && self.processes[index].as_mut().is_some_and(Process::has_ended)
        })
    }

    /// Whether a thread's records wait until a process has ended here.
    pub(super) fn awaits_children(&self) -> bool {
        self.sources.iter().flatten().any(|source| source.child == Child::Awaited)
    }

    /// Lets threads go on whose children are nowhere to be found.
    pub(super) fn give_up_children(&mut self) {
        for source in self.sources.iter_mut().flatten().filter(|source| source.child == Child::Awaited) {
            source.child = Child::GivenUp;
        }
    }

    /// How many places of the table of processes have been taken so far.
    fn places_used(&self) -> usize {
        (self.shared().header().processes_used.load(Acquire) as usize).min(PROCESSES)
    }

    /// Whether another program registered under the same process id.
    pub(super) fn is_replaced(&self, pid: u32, place: usize) -> bool {
        (0..self.places_used()).any(|other| {
            let entry = self.shared().process(other);
            other != place && entry.state.load(Acquire) & 0xff == 2 && entry.seen_pid.load(Acquire) == pid
        })
    }

    /// Whether another program registered under the id that the process at this place has for itself, of which the keeper is
    /// yet to say who it is.
    fn has_unseen_successor(&self, place: usize) -> bool {
        let own_pid = self.shared().process(place).state.load(Acquire) >> 8;
        (0..self.places_used()).any(|other| {
            let entry = self.shared().process(other);
            other != place
                && entry.state.load(Acquire) == own_pid << 8 | 2
                && entry.seen_pid.load(Acquire) == 0
        })
    }

    /// Whether a slot of the process is valid but not yet in our list.
    pub(super) fn has_unknown_slots(&self, index: usize) -> bool {
        let Some(process) = &self.processes[index] else { return false };
        let used = self.slots_used();
        (0..used).any(|number| {
            let state = self.shared().slot(number).state.load(Acquire);
            self.sources[number].is_none() && state & 0xff >= 2 && (state >> 8) as usize == process.place + 1
        })
    }

    /// Ends a stream: `Some(whether the process ends)`, or `None` if another program goes on with it.
    pub(super) fn end_thread(&mut self, number: usize, exit: Option<bool>) {
        let Some(mut source) = self.sources[number].take() else { return };
        let known = source.stream.id != StreamId(u32::MAX);
        if known {
            source.stream.note_left_out();
        }
        if let Some(process_ends) = exit.filter(|_| known) {
            if source.keeps {
                source.stream.flush_instructions();
            }
            self.emit_global(number, &mut source.stream, Event::Exit { process_ends });
        }
        if known {
            self.deliver(number, &mut source.stream);
        }
        let shared = self.shared();
        for chunk in 0..CHUNKS {
            let owner = &shared.chunk(chunk).owner;
            if owner.load(Relaxed) == number as u32 + 1 {
                owner.store(0, Release);
            }
        }
        shared.slot(number).state.store(0, Release);
        self.session.wake_producers();
    }

    pub(super) fn end_process(&mut self, index: usize, replaced: bool, slots: &[usize]) {
        let Some(mut process) = self.processes[index].take() else { return };
        let exec = process.exec.take();
        let heir = exec.as_ref().filter(|_| replaced).map(|e| e.0);
        let stream_of = |this: &Collector, n: usize| this.sources[n].as_ref().map(|s| s.stream.id);
        // The process ends with the last of its streams; the one that replaced the program goes on.
        let mut others: Vec<usize> = slots.iter().copied().filter(|&n| stream_of(self, n) != heir).collect();
        others.sort_by_key(|&n| std::cmp::Reverse(stream_of(self, n)));
        for (i, &number) in others.iter().enumerate() {
            let last = heir.is_none() && i + 1 == others.len();
            self.processes[index] = Some(process);
            self.end_thread(number, Some(last));
            process = self.processes[index].take().expect("put there above");
        }
        if let Some(&number) = slots.iter().find(|&&n| self.sources[n].is_some()) {
            self.processes[index] = Some(process);
            self.end_thread(number, None);
            process = self.processes[index].take().expect("put there above");
        }
        if self.options.allocations && !process.reports_allocations && !replaced {
            self.warn(format!(
                "{}: allocations are not recorded, because the program is statically linked or does not load \
                 preload libraries",
                process.name
            ));
        }
        let family = process.family;
        let (pid, number, threads) = (process.pid, process.number, process.next_thread);
        self.places[process.place] = None;
        let shared = self.shared();
        for number in 0..SLOTS {
            // A slot claimed by a thread that was killed before it said so.
            let state = &shared.slot(number).state;
            let claimed = state.load(Relaxed);
            if claimed != 0 && (claimed >> 8) as usize == process.place + 1 && self.sources[number].is_none()
            {
                state.store(0, Release);
            }
        }
        shared.process(process.place).seen_pid.store(0, Relaxed);
        shared.process(process.place).state.store(0, Release);
        match exec {
            Some((_, false, name)) => self.warn(format!(
                "{name}: not recorded, because the program that started it is statically linked, or started it \
                 by a direct system call, or can no longer see the recorder's files, or exec-following is off, \
                 or it is no x86-64 program or one that gains privileges"
            )),
            Some((stream, true, name)) if replaced => {
                self.discover();
                let successor = self.processes.iter_mut().flatten().find(|p| p.pid == pid);
                if let Some(successor) = successor {
                    successor.inherited = number.map(|number| (stream, number, threads));
                    successor.name = name;
                }
            }
            _ => {}
        }
        if !self.processes.iter().flatten().any(|p| p.family == family) {
            for block in 0..BLOCKS {
                let owner = shared.block_owner(block);
                if owner.load(Relaxed) == family {
                    self.blocks.forget(block * BLOCK_ENTRIES..(block + 1) * BLOCK_ENTRIES);
                    owner.store(0, Release);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RecordOptions;
    use crate::session::Session;

    /// What a program writes when it registers; `seen` is what the keeper adds.
    fn register(collector: &Collector, place: usize, registration: u64, own_pid: u64, seen: u32) {
        let entry = collector.shared().process(place);
        entry.registration.store(registration, Relaxed);
        entry.seen_pid.store(seen, Relaxed);
        entry.state.store(own_pid << 8 | 2, Release);
        collector.shared().header().processes_used.store(8, Release);
    }

    #[test]
    fn of_programs_that_replaced_each_other_the_first_is_taken_first() {
        let folder = tempfile::tempdir().unwrap();
        let session = Session::new(folder.path()).unwrap();
        let mut collector = Collector::new(session, RecordOptions::default(), "p".to_owned());
        let pid = std::process::id();
        // A fork in place 3, and the program that it became in a place that was given back meanwhile.
        register(&collector, 2, 8, 70, pid);
        register(&collector, 3, 7, 70, 0);
        collector.discover();
        assert_eq!(
            (collector.places[2], collector.places[3]),
            (None, None),
            "the keeper is yet to say who it is"
        );
        register(&collector, 3, 7, 70, pid);
        collector.discover();
        assert_eq!((collector.places[2], collector.places[3]), (None, Some(0)));
        collector.end_process(0, true, &[]);
        collector.discover();
        assert_eq!((collector.places[2], collector.places[3]), (Some(0), None));
    }

    #[test]
    fn a_program_that_ended_before_its_predecessor_was_looked_at_replaced_it_all_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let session = Session::new(folder.path()).unwrap();
        let mut collector = Collector::new(session, RecordOptions::default(), "p".to_owned());
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let pid = child.id();
        register(&collector, 0, 1, 70, pid);
        collector.discover();
        let process = collector.processes[0].as_mut().unwrap();
        process.number = Some(4);
        process.next_thread = 1;
        process.exec = Some((StreamId(9), true, "successor".to_owned()));
        register(&collector, 1, 2, 70, 0);
        assert!(!collector.reap(), "the keeper is yet to say who it is");
        register(&collector, 1, 2, 70, pid);
        assert!(collector.reap());
        let successor = collector.processes[0].as_ref().unwrap();
        assert_eq!((successor.place, successor.inherited), (1, Some((StreamId(9), 4, 1))));
        assert_eq!(successor.name, "successor");
    }
}
