//! What a workload's kernel runs against: real memory, a recorder of events, or both.
//!
//! A kernel is written once, over [`Memory`]. Emission and native runs differ only in the implementation they hand it,
//! so they cannot differ in the sequence of accesses.

use crate::WorkloadError;
use crate::pages::{NativePages, ResidentPages, rounded};
use memmap2::{MmapOptions, MmapRaw};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use terrace_model::AddressRange;
use terrace_trace::{AccessKind, Event};

/// First address of every workload's memory. All of it lies in one window, so that a native run can place the window
/// anywhere and add one offset.
pub(crate) const WINDOW: u64 = 0x1000_0000_0000;

/// A value that one access moves. Loads and stores are relaxed atomics: plain moves on real hardware, and defined
/// behaviour where a program (GUPS) races by design.
pub(crate) trait Word: Copy {
    /// Bytes moved.
    const BYTES: u8;
    /// What untouched memory holds.
    const ZERO: Self;
    /// # Safety
    /// `from` is valid for reads of `BYTES` bytes and aligned to the element.
    unsafe fn read(from: *const u8) -> Self;
    /// # Safety
    /// `to` is valid for writes of `BYTES` bytes and aligned to the element.
    unsafe fn write(self, to: *mut u8);
    /// Some bits of the value, for a checksum.
    fn bits(self) -> u64;
}

impl Word for u64 {
    const BYTES: u8 = 8;
    const ZERO: u64 = 0;
    #[inline(always)]
    unsafe fn read(from: *const u8) -> u64 {
        // SAFETY: the caller's promise.
        unsafe { AtomicU64::from_ptr(from.cast_mut().cast()).load(Relaxed) }
    }
    #[inline(always)]
    unsafe fn write(self, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { AtomicU64::from_ptr(to.cast()).store(self, Relaxed) }
    }
    #[inline(always)]
    fn bits(self) -> u64 {
        self
    }
}

impl Word for u32 {
    const BYTES: u8 = 4;
    const ZERO: u32 = 0;
    #[inline(always)]
    unsafe fn read(from: *const u8) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { AtomicU32::from_ptr(from.cast_mut().cast()).load(Relaxed) }
    }
    #[inline(always)]
    unsafe fn write(self, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { AtomicU32::from_ptr(to.cast()).store(self, Relaxed) }
    }
    #[inline(always)]
    fn bits(self) -> u64 {
        self.into()
    }
}

impl Word for u8 {
    const BYTES: u8 = 1;
    const ZERO: u8 = 0;
    #[inline(always)]
    unsafe fn read(from: *const u8) -> u8 {
        // SAFETY: the caller's promise.
        unsafe { AtomicU8::from_ptr(from.cast_mut().cast()).load(Relaxed) }
    }
    #[inline(always)]
    unsafe fn write(self, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { AtomicU8::from_ptr(to.cast()).store(self, Relaxed) }
    }
    #[inline(always)]
    fn bits(self) -> u64 {
        self.into()
    }
}

/// A vector register's worth: one access in the stream, `N` moves on real memory.
impl<const N: usize> Word for [u64; N] {
    const BYTES: u8 = 8 * N as u8;
    const ZERO: [u64; N] = [0; N];
    #[inline(always)]
    unsafe fn read(from: *const u8) -> [u64; N] {
        // SAFETY: the caller's promise covers all N words.
        std::array::from_fn(|i| unsafe { u64::read(from.add(8 * i)) })
    }
    #[inline(always)]
    unsafe fn write(self, to: *mut u8) {
        for (i, word) in self.into_iter().enumerate() {
            // SAFETY: the caller's promise covers all N words.
            unsafe { word.write(to.add(8 * i)) }
        }
    }
    #[inline(always)]
    fn bits(self) -> u64 {
        self.into_iter().fold(0, u64::wrapping_add)
    }
}

/// Loads and stores as a kernel issues them. Addresses are those of the workload's layout.
///
/// `depends_on` and `instructions` mean what they mean in an event batch; real memory ignores them.
pub(crate) trait Memory {
    /// Whether loads give what was stored. Where they do not, a kernel computes what it would have read.
    const HOLDS_DATA: bool;
    /// Whether [`Memory::event`] does anything, so that kernels need not build events in vain.
    const WANTS_EVENTS: bool;
    /// A load.
    fn load<T: Word>(&mut self, addr: u64, depends_on: u8, instructions: u16) -> T;
    /// A store.
    fn store<T: Word>(&mut self, addr: u64, value: T, depends_on: u8, instructions: u16);
    /// A load whose value decides nothing, such as that of a payload. Emission has no need to read it.
    fn load_payload<T: Word>(&mut self, addr: u64, depends_on: u8, instructions: u16);
    /// A store that is only ever read by [`Memory::load_payload`]. Emission has no need to keep it.
    fn store_payload<T: Word>(&mut self, addr: u64, value: T, depends_on: u8, instructions: u16);
    /// A store that leaves the content as it is: first touch.
    fn touch(&mut self, addr: u64, instructions: u16);
    /// Anything that is no access.
    fn event(&mut self, event: Event);
    /// Instructions without an access, beyond what an access can carry.
    fn compute(&mut self, instructions: u64);
    /// What `addr` holds, without an access: emission may look ahead to know what to [`prefetch`](Memory::prefetch).
    /// `None` where nothing is held, and in native runs, whose memory sees the stream's accesses and no others.
    #[inline(always)]
    fn glance(&self, _addr: u64) -> Option<u64> {
        None
    }
    /// Asks the host's memory for the content at `addr`, which emission will read soon. Nothing in native runs.
    #[inline(always)]
    fn prefetch(&self, _addr: u64) {}
}

/// Asks the host's memory for an element of what a kernel keeps itself, ahead of its use. Out of range asks for nothing.
#[inline(always)]
pub(crate) fn prefetch<T>(slice: &[T], at: u64) {
    if let Some(element) = slice.get(at as usize) {
        prefetch_host(std::ptr::from_ref(element).cast());
    }
}

#[inline(always)]
fn prefetch_host(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Where a pointer leads that is stored as its distance from `target`, the place that the content is computed to lie at.
/// The distance is zero and memory is zero from the start, so no input data need be written and emission needs none; but
/// on real memory the access still waits for the load, as the program's own would.
#[inline(always)]
pub(crate) fn follow(target: u64, distance: u64) -> u64 {
    target.wrapping_add(distance)
}

/// Where an [`Emitter`](crate::emitter::Emitter) finds the values of loads.
pub(crate) trait Contents: Send {
    const HOLDS_DATA: bool;
    fn read<T: Word>(&self, addr: u64) -> T;
    fn write<T: Word>(&self, addr: u64, value: T);
    /// As [`Memory::glance`]; any address will do.
    #[inline(always)]
    fn glance(&self, _addr: u64) -> Option<u64> {
        None
    }
    /// As [`Memory::prefetch`]; any address will do.
    #[inline(always)]
    fn prefetch(&self, _addr: u64) {}
}

/// No contents: nothing is allocated, whatever the footprint.
pub(crate) struct Nothing;

impl Contents for Nothing {
    const HOLDS_DATA: bool = false;
    #[inline(always)]
    fn read<T: Word>(&self, _: u64) -> T {
        T::ZERO
    }
    #[inline(always)]
    fn write<T: Word>(&self, _: u64, _: T) {}
}

/// Real memory behind a workload's whole window, reserved at once and backed by the system as it is touched.
pub(crate) struct Backing {
    map: MmapRaw,
    /// Where the window begins in the mapping.
    begin: usize,
    bytes: u64,
}

impl Backing {
    /// Reserves `bytes`.
    pub fn new(bytes: u64) -> Result<Backing, WorkloadError> {
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        let map = MmapOptions::new()
            .len(length)
            .no_reserve_swap()
            .map_anon()
            .map_err(|error| WorkloadError::Memory { bytes, error })?;
        Ok(Backing { map: map.into(), begin: 0, bytes })
    }

    /// Reserves `bytes` whose parts `ranges` are backed by these pages, at an address that all of them divide.
    pub fn of_pages(
        bytes: u64,
        pages: NativePages,
        ranges: &[AddressRange],
    ) -> Result<Backing, WorkloadError> {
        const LARGEST: u64 = 1 << 30;
        if pages == NativePages::System {
            return Backing::new(bytes);
        }
        let whole = bytes.next_multiple_of(LARGEST);
        let mut backing = Backing::new(whole + LARGEST)?;
        let start = backing.map.as_mut_ptr() as u64;
        backing.begin = (start.next_multiple_of(LARGEST) - start) as usize;
        backing.bytes = whole;
        backing.ask_for(pages, ranges)?;
        backing.bytes = bytes;
        Ok(backing)
    }

    #[cfg(target_os = "linux")]
    fn ask_for(&self, pages: NativePages, ranges: &[AddressRange]) -> Result<(), WorkloadError> {
        let advice = if pages == NativePages::TransparentHuge {
            memmap2::Advice::HugePage
        } else {
            memmap2::Advice::NoHugePage
        };
        let refused = |bytes, error| WorkloadError::Memory { bytes, error };
        let advised = self.map.advise_range(advice, self.begin, self.bytes as usize);
        // A kernel built without transparent huge pages refuses the advice, and gives 4 KiB anyway.
        if pages == NativePages::TransparentHuge {
            advised.map_err(|error| refused(self.bytes, error))?;
        }
        let Some(page) = pages.pooled() else { return Ok(()) };
        for range in rounded(ranges, page) {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_HUGETLB;
            let size = (page.trailing_zeros() as i32) << libc::MAP_HUGE_SHIFT;
            // SAFETY: the range lies inside our own mapping, of which nothing is in use yet, and stays mapped with it.
            let at = unsafe {
                let at = self.map.as_mut_ptr().add(self.begin + (range.start.0 - WINDOW) as usize);
                let access = libc::PROT_READ | libc::PROT_WRITE;
                libc::mmap(at.cast(), range.bytes as usize, access, flags | size, -1, 0)
            };
            if at == libc::MAP_FAILED {
                return Err(refused(range.bytes, std::io::Error::last_os_error()));
            }
        }
        Ok(())
    }

    #[cfg(not(target_os = "linux"))]
    fn ask_for(&self, _: NativePages, _: &[AddressRange]) -> Result<(), WorkloadError> {
        let error = std::io::Error::from(std::io::ErrorKind::Unsupported);
        Err(WorkloadError::Memory { bytes: self.bytes, error })
    }

    /// Asks for huge pages: emission walks the content at random, and nothing depends on how long that takes. Native
    /// runs keep what the system gives a program by default.
    pub fn with_huge_pages(self) -> Backing {
        // Only advice: where the system has no huge pages, emission is slower.
        #[cfg(target_os = "linux")]
        let _ = self.map.advise(memmap2::Advice::HugePage);
        self
    }

    /// The host address of `addr`. Panics outside the window, so that a generator's mistake cannot corrupt memory.
    #[inline(always)]
    fn at(&self, addr: u64, bytes: u8) -> *mut u8 {
        let offset = addr.wrapping_sub(WINDOW);
        // The reservation ends in whole huge pages, so `bytes` is never below the width of an access.
        assert!(offset <= self.bytes - u64::from(bytes), "an access lies outside the workload's memory");
        // SAFETY: inside the mapping, as just checked.
        unsafe { self.map.as_mut_ptr().add(self.begin + offset as usize) }
    }

    /// What a range holds. Nobody writes to it meanwhile.
    pub fn bytes(&self, range: AddressRange) -> &[u8] {
        if range.bytes == 0 {
            return &[];
        }
        let _ends_inside = self.at(range.end().0 - 1, 1);
        // SAFETY: begin and end lie inside the mapping, as just checked.
        unsafe { std::slice::from_raw_parts(self.at(range.start.0, 1), range.bytes as usize) }
    }

    /// Bytes of the window that the system has backed with pages.
    pub fn resident_bytes(&self) -> u64 {
        const CHUNK_PAGES: usize = 1 << 16;
        let mut states = vec![0u8; CHUNK_PAGES];
        let pages = (self.bytes / 4096) as usize;
        let mut resident = 0;
        for first in (0..pages).step_by(CHUNK_PAGES) {
            let count = CHUNK_PAGES.min(pages - first);
            // SAFETY: the range lies inside the mapping, and `states` has a byte for each page asked for.
            let result = unsafe {
                libc::mincore(
                    self.map.as_mut_ptr().add(self.begin + first * 4096).cast(),
                    count * 4096,
                    states.as_mut_ptr().cast(),
                )
            };
            if result == 0 {
                resident += states[..count].iter().filter(|state| **state & 1 != 0).count() as u64;
            }
        }
        resident * 4096
    }

    /// Resident bytes of the window by the size of their pages.
    pub fn resident_pages(&self) -> ResidentPages {
        let start = self.map.as_mut_ptr() as u64 + self.begin as u64;
        ResidentPages::of(AddressRange::new(start, self.bytes))
    }
}

impl Contents for Backing {
    const HOLDS_DATA: bool = true;
    #[inline(always)]
    fn read<T: Word>(&self, addr: u64) -> T {
        debug_assert_eq!(addr % u64::from(T::BYTES).min(8), 0, "an unaligned access");
        // SAFETY: `at` checks the bounds; kernels align elements, and the mapping is page-aligned.
        unsafe { T::read(self.at(addr, T::BYTES)) }
    }
    #[inline(always)]
    fn write<T: Word>(&self, addr: u64, value: T) {
        debug_assert_eq!(addr % u64::from(T::BYTES).min(8), 0, "an unaligned access");
        // SAFETY: as for `read`.
        unsafe { value.write(self.at(addr, T::BYTES)) }
    }
    #[inline(always)]
    fn glance(&self, addr: u64) -> Option<u64> {
        let inside = addr.wrapping_sub(WINDOW) <= self.bytes - 8 && addr.is_multiple_of(8);
        inside.then(|| self.read(addr))
    }
    #[inline(always)]
    fn prefetch(&self, addr: u64) {
        if addr.wrapping_sub(WINDOW) < self.bytes {
            prefetch_host(self.at(addr, 1));
        }
    }
}

/// Real memory, nothing else: what a native run is timed on.
pub(crate) struct Native<'a> {
    pub backing: &'a Backing,
    pub accesses: u64,
    pub checksum: u64,
}

impl<'a> Native<'a> {
    pub fn new(backing: &'a Backing) -> Native<'a> {
        Native { backing, accesses: 0, checksum: 0 }
    }
}

impl Memory for Native<'_> {
    const HOLDS_DATA: bool = true;
    const WANTS_EVENTS: bool = false;
    #[inline(always)]
    fn load<T: Word>(&mut self, addr: u64, _: u8, _: u16) -> T {
        let value: T = self.backing.read(addr);
        self.accesses += 1;
        self.checksum = self.checksum.wrapping_add(value.bits());
        value
    }
    #[inline(always)]
    fn store<T: Word>(&mut self, addr: u64, value: T, _: u8, _: u16) {
        self.accesses += 1;
        self.backing.write(addr, value);
    }
    #[inline(always)]
    fn load_payload<T: Word>(&mut self, addr: u64, depends_on: u8, instructions: u16) {
        self.load::<T>(addr, depends_on, instructions);
    }
    #[inline(always)]
    fn store_payload<T: Word>(&mut self, addr: u64, value: T, depends_on: u8, instructions: u16) {
        self.store(addr, value, depends_on, instructions);
    }
    #[inline(always)]
    fn touch(&mut self, addr: u64, _: u16) {
        self.accesses += 1;
        let value: u64 = self.backing.read(addr);
        self.backing.write(addr, value);
    }
    fn event(&mut self, _: Event) {}
    fn compute(&mut self, instructions: u64) {
        // A chain of two cycles a round, at two instructions a cycle: rotate, exclusive or, count, branch.
        let mut word = instructions;
        for round in 0..instructions / 4 {
            word = word.rotate_left(5) ^ round;
        }
        std::hint::black_box(word);
    }
}

/// A hash of a stream's accesses in order: offsets, widths and kinds. Equal digests mean equal sequences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest(u64);

impl Digest {
    /// Adds one access.
    #[inline]
    pub fn add(&mut self, addr: u64, size: u8, kind: AccessKind) {
        let access = (addr.wrapping_sub(WINDOW) << 9) ^ (u64::from(size) << 1) ^ kind as u64;
        self.0 = (self.0.rotate_left(5) ^ access).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    /// The hash so far.
    pub fn value(self) -> u64 {
        self.0
    }
}

/// Another memory, with the sequence of accesses hashed on the way.
pub(crate) struct Digested<M> {
    pub inner: M,
    pub digest: Digest,
}

impl<M: Memory> Memory for Digested<M> {
    const HOLDS_DATA: bool = M::HOLDS_DATA;
    const WANTS_EVENTS: bool = M::WANTS_EVENTS;
    fn load<T: Word>(&mut self, addr: u64, depends_on: u8, instructions: u16) -> T {
        self.digest.add(addr, T::BYTES, AccessKind::Read);
        self.inner.load(addr, depends_on, instructions)
    }
    fn store<T: Word>(&mut self, addr: u64, value: T, depends_on: u8, instructions: u16) {
        self.digest.add(addr, T::BYTES, AccessKind::Write);
        self.inner.store(addr, value, depends_on, instructions);
    }
    fn load_payload<T: Word>(&mut self, addr: u64, depends_on: u8, instructions: u16) {
        self.digest.add(addr, T::BYTES, AccessKind::Read);
        self.inner.load_payload::<T>(addr, depends_on, instructions);
    }
    fn store_payload<T: Word>(&mut self, addr: u64, value: T, depends_on: u8, instructions: u16) {
        self.digest.add(addr, T::BYTES, AccessKind::Write);
        self.inner.store_payload(addr, value, depends_on, instructions);
    }
    fn touch(&mut self, addr: u64, instructions: u16) {
        self.digest.add(addr, 8, AccessKind::Write);
        self.inner.touch(addr, instructions);
    }
    fn event(&mut self, event: Event) {
        self.inner.event(event);
    }
    // The accesses are what is digested, so there is no need to wait.
    fn compute(&mut self, _: u64) {}
    fn glance(&self, addr: u64) -> Option<u64> {
        self.inner.glance(addr)
    }
    fn prefetch(&self, addr: u64) {
        self.inner.prefetch(addr);
    }
}
