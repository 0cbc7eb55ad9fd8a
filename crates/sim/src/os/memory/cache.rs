//! The page cache: pages of files in the order in which they would be evicted, least recently read first.

/// No frame: the page went, or was read again since.
const GONE: u32 = u32::MAX;

/// Frames by when they were read last. A frame keeps its place until it is read again.
#[derive(Clone, Debug, Default)]
pub(super) struct PageCache {
    places: Vec<u32>,
    /// The first place that may hold a frame.
    first: usize,
    len: u64,
}

impl PageCache {
    pub fn len(&self) -> u64 {
        self.len
    }

    /// A new page, read just now; its place.
    pub fn push(&mut self, frame: u32) -> u32 {
        self.places.push(frame);
        self.len += 1;
        self.places.len() as u32 - 1
    }

    /// The page at a place was read; its new place.
    pub fn touch(&mut self, place: u32) -> u32 {
        let frame = std::mem::replace(&mut self.places[place as usize], GONE);
        self.places.push(frame);
        self.places.len() as u32 - 1
    }

    /// The page at a place is no longer one of the cache's.
    pub fn remove(&mut self, place: u32) {
        self.places[place as usize] = GONE;
        self.len -= 1;
    }

    /// The page at a place lies in another frame now.
    pub fn set(&mut self, place: u32, frame: u32) {
        self.places[place as usize] = frame;
    }

    /// Takes the page out that was not read for longest; its frame.
    pub fn evict(&mut self) -> Option<u32> {
        while self.first < self.places.len() {
            let frame = std::mem::replace(&mut self.places[self.first], GONE);
            self.first += 1;
            if frame != GONE {
                self.len -= 1;
                return Some(frame);
            }
        }
        None
    }

    /// Closes the gaps when there are many; the frames in their new places then.
    pub fn tidy(&mut self) -> Option<&[u32]> {
        if self.places.len() as u64 <= 2 * self.len + 1024 {
            return None;
        }
        self.places.retain(|frame| *frame != GONE);
        self.first = 0;
        Some(&self.places)
    }

    /// The frames, least recently read first.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.places[self.first.min(self.places.len())..].iter().copied().filter(|frame| *frame != GONE)
    }
}
