//! Lists of free blocks, the one that came last first.

/// No frame.
const NONE: u32 = u32::MAX;

/// Doubly linked lists over first frames of blocks; a frame is on one list at most.
#[derive(Clone, Debug)]
pub(crate) struct Lists {
    /// Before and after each frame.
    links: Vec<[u32; 2]>,
    heads: Vec<u32>,
}

impl Lists {
    /// `lists` empty lists over `frames` frames.
    pub fn new(frames: u64, lists: usize) -> Lists {
        // Zeroed memory that is never looked at costs the host nothing; links are only read where they were written.
        Lists { links: vec![[0; 2]; frames as usize], heads: vec![NONE; lists] }
    }

    /// The first of a list.
    pub fn first(&self, list: usize) -> Option<u64> {
        Some(self.heads[list]).filter(|frame| *frame != NONE).map(u64::from)
    }

    /// Puts a frame in front.
    pub fn push(&mut self, list: usize, frame: u64) {
        let next = self.heads[list];
        self.links[frame as usize] = [NONE, next];
        if next != NONE {
            self.links[next as usize][0] = frame as u32;
        }
        self.heads[list] = frame as u32;
    }

    /// Takes a frame out of the list that it is on.
    pub fn unlink(&mut self, list: usize, frame: u64) {
        let [before, after] = self.links[frame as usize];
        match before {
            NONE => self.heads[list] = after,
            _ => self.links[before as usize][1] = after,
        }
        if after != NONE {
            self.links[after as usize][0] = before;
        }
    }

    /// A list from its front.
    pub fn iter(&self, list: usize) -> impl Iterator<Item = u64> + '_ {
        let follow =
            |frame: &u64| Some(self.links[*frame as usize][1]).filter(|next| *next != NONE).map(u64::from);
        std::iter::successors(self.first(list), follow)
    }
}
