//! The directory's knowledge of translations, for machines whose hardware keeps them coherent (HATRIC).
//!
//! A line whose entries were made into translations is marked in its directory entry. Its sharers are the cores that may
//! hold the line *or* translations made from it, so a core stays a sharer when the line leaves its private caches. Who
//! stores to the line, and a directory entry that has to go, reach all of them: the caches drop the line here, and a
//! [`Message`] waits for the machine to look into the core's translation structures.

use super::super::directory::{AnyDirectory, InDirectory, Sharers};
use super::super::sharers::WideSet;
use super::{Below, Hierarchy};
use terrace_model::{CacheLine, CoreId, Time};

/// Why a core gets a message of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Somebody stores to it.
    Store,
    /// The line's directory entry had to go.
    BackInvalidation,
    /// The line left the core's private caches, and the directory wants to know whether translations are left.
    Departure,
}

/// A message to a core about a line of a page table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// To whom.
    pub core: CoreId,
    /// About which line.
    pub line: CacheLine,
    /// Why.
    pub reason: Reason,
    /// Whether the core's private caches held the line.
    pub cached: bool,
}

/// Requests to the directory that a walk may have made.
const REQUESTS: usize = 32;
const NO_REQUEST: (CoreId, CacheLine) = (CoreId(u32::MAX), CacheLine(0));

#[derive(Clone, Debug)]
pub(super) struct Translations {
    messages: Vec<Message>,
    /// Messages sent so far because of stores, and because of directory entries that had to go.
    sent: [u64; 2],
    /// The last requests to the directory: who, and for which line.
    requests: [(CoreId, CacheLine); REQUESTS],
    next: usize,
    /// Whether the directory asks what is left when a line leaves private caches.
    eager: bool,
}

impl Translations {
    /// A core's request reached the directory.
    pub fn requested(&mut self, core: CoreId, line: CacheLine) {
        self.requests[self.next % REQUESTS] = (core, line);
        self.next += 1;
    }
}

impl Hierarchy {
    /// From now on the directory knows of translations. It exists from the first core on, since a core's translations are
    /// known to nothing else. `eager`: it asks at once whether translations are left where a line leaves private caches.
    /// `boundless`: no entry has to go for another.
    pub fn know_translations(&mut self, eager: bool, boundless: bool) {
        let lines = self.private.iter().map(|p| p.l1.lines() + p.l2.lines()).sum();
        self.directory = AnyDirectory::new(self.private.len(), lines);
        match &mut self.directory {
            AnyDirectory::Narrow(directory) if boundless => directory.make_boundless(),
            AnyDirectory::Wide(directory) if boundless => directory.make_boundless(),
            _ => {}
        }
        self.translations = Some(Box::new(Translations {
            messages: Vec::new(),
            sent: [0; 2],
            requests: [NO_REQUEST; REQUESTS],
            next: 0,
            eager,
        }));
    }

    /// A walk begins: requests to the directory are its own from now on.
    pub fn forget_requests(&mut self) {
        if let Some(own) = &mut self.translations {
            own.requests = [NO_REQUEST; REQUESTS];
        }
    }

    /// The messages that cores have not handled yet, in the order in which they were sent.
    pub fn take_messages(&mut self) -> Vec<Message> {
        self.translations.as_mut().map(|own| std::mem::take(&mut own.messages)).unwrap_or_default()
    }

    /// Messages sent so far because of stores, and because of directory entries that had to go.
    pub fn messages_sent(&self) -> [u64; 2] {
        self.translations.as_ref().map_or([0; 2], |own| own.sent)
    }

    /// How many there are.
    pub fn messages(&self) -> usize {
        self.translations.as_ref().map_or(0, |own| own.messages.len())
    }

    /// Takes the messages of stores to a line back that were sent after the first `before`. Returns to whom.
    pub fn take_back(&mut self, line: CacheLine, before: usize) -> Vec<CoreId> {
        let Some(own) = &mut self.translations else { return Vec::new() };
        let later = own.messages.split_off(before.min(own.messages.len()));
        let (back, rest): (Vec<_>, Vec<_>) =
            later.into_iter().partition(|message| message.reason == Reason::Store && message.line == line);
        own.messages.extend(rest);
        own.sent[0] -= back.len() as u64;
        back.into_iter().map(|message| message.core).collect()
    }

    /// Whether there are any.
    #[inline]
    pub fn has_messages(&self) -> bool {
        self.translations.as_ref().is_some_and(|own| !own.messages.is_empty())
    }

    pub(super) fn notify(&mut self, core: CoreId, line: CacheLine, reason: Reason, cached: bool) {
        if let Some(own) = &mut self.translations {
            own.messages.push(Message { core, line, reason, cached });
            match reason {
                Reason::Store => own.sent[0] += 1,
                Reason::BackInvalidation => own.sent[1] += 1,
                Reason::Departure => {}
            }
        }
    }

    /// A core's private caches no longer hold a line.
    #[inline(always)]
    pub(super) fn depart(&mut self, core: CoreId, line: CacheLine) {
        if self.directory.remove(line, core) && self.translations.as_ref().is_some_and(|own| own.eager) {
            self.notify(core, line, Reason::Departure, false);
        }
    }

    /// A walker of `core` made a translation from an entry of `line`. Returns whether a request of that walk notified the
    /// directory, and whether the line was not marked before.
    pub fn mark<B: Below>(
        &mut self,
        core: CoreId,
        line: CacheLine,
        now: Time,
        below: &mut B,
    ) -> (bool, bool) {
        match self.directory {
            AnyDirectory::None => (false, false),
            AnyDirectory::Narrow(_) => self.mark_in::<u64, B>(core, line, now, below),
            AnyDirectory::Wide(_) => self.mark_in::<WideSet, B>(core, line, now, below),
        }
    }

    fn mark_in<S: InDirectory, B: Below>(
        &mut self,
        core: CoreId,
        line: CacheLine,
        now: Time,
        below: &mut B,
    ) -> (bool, bool) {
        let by_request = self.translations.as_ref().is_some_and(|own| own.requests.contains(&(core, line)));
        let is_sharer =
            S::of(&mut self.directory).is_some_and(|directory| directory.sharers(line).cores.contains(core));
        if !is_sharer {
            // The line was here, and has left already; or no caches are simulated.
            self.consult_directory(core, line, false, now, below);
        }
        let new = S::of(&mut self.directory).is_some_and(|directory| directory.mark(line));
        (by_request, new)
    }

    /// The sharers of a line of translations, except for one core, lose the line and get a message of the store to it. Other
    /// lines leave the private caches as ever. Returns how many cores held the line, and whether one had modified it.
    pub fn notify_sharers(&mut self, line: CacheLine, except: Option<CoreId>) -> (u64, bool) {
        match self.directory {
            AnyDirectory::None => (0, false),
            AnyDirectory::Narrow(_) => self.notify_sharers_in::<u64>(line, except),
            AnyDirectory::Wide(_) => self.notify_sharers_in::<WideSet>(line, except),
        }
    }

    fn notify_sharers_in<S: InDirectory>(&mut self, line: CacheLine, except: Option<CoreId>) -> (u64, bool) {
        let Some(directory) = S::of(&mut self.directory) else { return (0, false) };
        let mut sharers = directory.sharers(line);
        if !sharers.translates {
            return self.drop_everywhere(line);
        }
        let (mut holders, mut dirty) = (0, false);
        while let Some(core) = sharers.cores.pop() {
            if Some(core) == except {
                continue;
            }
            let dropped = self.drop_private(core, line);
            holders += u64::from(dropped.is_some());
            dirty |= dropped == Some(true);
            self.notify(core, line, Reason::Store, dropped.is_some());
            self.demote(core, line);
        }
        (holders, dirty)
    }

    /// `core` answered that it holds neither the line nor a translation made from it.
    pub fn demote(&mut self, core: CoreId, line: CacheLine) {
        match &mut self.directory {
            AnyDirectory::None => {}
            AnyDirectory::Narrow(directory) => directory.demote(line, core),
            AnyDirectory::Wide(directory) => directory.demote(line, core),
        }
    }

    /// `core` handled the message of a store to a line and keeps other translations made from it: it stays a sharer, and
    /// nobody may store to the line without asking.
    pub fn keep_sharer<B: Below>(&mut self, core: CoreId, line: CacheLine, now: Time, below: &mut B) {
        match self.directory {
            AnyDirectory::None => {}
            AnyDirectory::Narrow(_) => self.keep_sharer_in::<u64, B>(core, line, now, below),
            AnyDirectory::Wide(_) => self.keep_sharer_in::<WideSet, B>(core, line, now, below),
        }
    }

    fn keep_sharer_in<S: InDirectory, B: Below>(
        &mut self,
        core: CoreId,
        line: CacheLine,
        now: Time,
        below: &mut B,
    ) {
        let Some(directory) = S::of(&mut self.directory) else { return };
        let Sharers { mut cores, .. } = directory.sharers(line);
        let writer = cores.clone().pop();
        cores.insert(core);
        self.record(line, Sharers { cores, exclusive: false, translates: true }, now, below);
        if let Some(writer) = writer.filter(|writer| *writer != core && self.in_private(*writer, line)) {
            self.downgrade(writer, line, now, below);
        }
    }
}
