//! Ways on a grid: a front that grows around walls.

use crate::WorkloadInfo;
use crate::layout::Layout;
use crate::memory::{Backing, Contents, Memory};
use crate::parameters::*;
use crate::program::{Kernel, Program, Progress, share};
use crate::random::{Random, hash};

const INFO: WorkloadInfo = WorkloadInfo {
    name: "astar",
    summary: "ways on a grid with walls by a front that grows from a start (SPEC CPU 473.astar)",
    description: "\
A square grid of cells, some of them walls. A search starts at a random cell, and its front grows by one ring at a time: the \
front's cells are read from a list, the eight cells around each are looked up, and those that are free and not yet reached in this \
search are marked with its number and put onto the next list. It ends when the front dies out, and another begins elsewhere. \
Lists are read and written in sequence; the cells of a front lie all over the grid, and their place is known when the list has \
been read.

Stands for 473.astar of SPEC CPU 2006, whose first algorithm finds ways on a map by such fronts. It differs: walls are drawn at \
random instead of from a map; searches fill all that they can reach; the two other algorithms (terrain by cost, regions as a \
graph) are left out. Each thread has a grid of its own.",
    parameters: declared::<Parameters>,
    exact: false,
};

#[derive(Clone, Debug, PartialEq, Parameters)]
pub(crate) struct Parameters {
    /// Cells along each edge of the grid.
    #[parameter(default = 4096, range = 16..=32768, unit = "cells")]
    side: u64,
    /// Cells whose neighbours are looked up, all threads together.
    #[parameter(default = "10e6", range = 1..=LARGEST_COUNT, unit = "cells")]
    expansions: u64,
    /// Share of cells that are walls.
    #[parameter(default = 0.2, range = 0.0..=0.5, unit = "probability")]
    walls: f64,
    #[parameter(flatten)]
    start: Start,
    #[parameter(flatten)]
    threads: Threads,
    #[parameter(flatten)]
    seed: Seed,
}

const CELL_BYTES: u64 = 4;
/// A cell that no search enters.
const WALL: u32 = u32::MAX;
const NEIGHBOURS: u64 = 8;

#[derive(Clone)]
pub(crate) struct Ways {
    side: u64,
    expansions: u64,
    walls: f64,
    threads: u32,
    seed: u64,
    grids: u64,
    lists: [u64; 2],
    layout: Layout,
}

impl Ways {
    fn cells(&self) -> u64 {
        self.side * self.side
    }

    /// What a cell holds at first: the border and the walls, and cells that no search has reached.
    #[inline(always)]
    fn at_first(&self, thread: u32, cell: u64) -> u32 {
        let (x, y, last) = (cell % self.side, cell / self.side, self.side - 1);
        let border = x == 0 || y == 0 || x == last || y == last;
        let drawn = hash(self.seed ^ u64::from(thread) << 32, cell);
        let is_wall = border || ((drawn >> 11) as f64 / (1u64 << 53) as f64) < self.walls;
        if is_wall { WALL } else { 0 }
    }

    fn grid(&self, thread: u32) -> u64 {
        self.grids + u64::from(thread) * self.cells() * CELL_BYTES
    }
}

impl Program for Ways {
    const INFO: &WorkloadInfo = &INFO;
    type Parameters = Parameters;
    type Thread = Front;

    fn new(parameters: &Parameters) -> Result<Ways, Problem> {
        let (side, threads) = (parameters.side, parameters.threads.count);
        let mut layout = Layout::new(parameters.start.init);
        let grids = layout.array("grid", u64::from(threads) * side * side * CELL_BYTES);
        let lists = ["front", "next front"]
            .map(|name| layout.array(name, u64::from(threads) * longest(side) * CELL_BYTES));
        Ok(Ways {
            side,
            expansions: parameters.expansions,
            walls: parameters.walls,
            threads,
            seed: parameters.seed.number,
            grids,
            lists,
            layout,
        })
    }

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn threads(&self) -> u32 {
        self.threads
    }

    fn thread(&self, index: u32) -> Front {
        let own = share(self.expansions, index, self.threads);
        let lists = self.lists.map(|list| list + u64::from(index) * longest(self.side) * CELL_BYTES);
        Front {
            grid: self.grid(index),
            lists,
            cells: (0..self.cells()).map(|cell| self.at_first(index, cell)).collect(),
            random: Random::of_thread(self.seed, index),
            front: Vec::new(),
            next: Vec::new(),
            at: 0,
            search: 0,
            left: own.end - own.start,
            program: self.clone(),
        }
    }

    fn kernel_accesses(&self) -> u64 {
        // The cell from the list, its neighbours, and on average one new cell, marked and listed.
        self.expansions * (1 + NEIGHBOURS + 2)
    }

    fn prepare(&self, memory: &Backing) {
        for thread in 0..self.threads {
            for cell in 0..self.cells() {
                memory.write(self.grid(thread) + cell * CELL_BYTES, self.at_first(thread, cell));
            }
        }
    }
}

/// Room in a list: fronts bend around walls, but are hardly longer than a few edges of the grid. Lists begin again at their
/// first place where one is longer.
fn longest(side: u64) -> u64 {
    16 * side
}

/// One thread's searches, with what its memory holds.
pub(crate) struct Front {
    program: Ways,
    grid: u64,
    /// The list that is written, and the one that is read.
    lists: [u64; 2],
    cells: Vec<u32>,
    random: Random,
    front: Vec<u32>,
    next: Vec<u32>,
    /// The next cell of the front.
    at: usize,
    /// The number of this search: what its cells are marked with.
    search: u32,
    left: u64,
}

impl Front {
    #[inline(always)]
    fn address(&self, cell: u32) -> u64 {
        self.grid + u64::from(cell) * CELL_BYTES
    }

    /// The address of a list's entry.
    #[inline(always)]
    fn place(&self, list: u64, index: usize) -> u64 {
        list + index as u64 % longest(self.program.side) * CELL_BYTES
    }

    /// Marks a cell as reached and appends it to `list`.
    #[inline(always)]
    fn reach<M: Memory>(&mut self, memory: &mut M, cell: u32, list: u64) {
        self.cells[cell as usize] = self.search;
        memory.store(self.address(cell), self.search, 0, 2);
        memory.store(self.place(list, self.next.len()), cell, 0, 3);
        self.next.push(cell);
    }

    /// A search from a free cell.
    fn begin<M: Memory>(&mut self, memory: &mut M) {
        self.search += 1;
        let cell = loop {
            let cell = self.random.below(self.program.cells()) as u32;
            let _: u32 = memory.load(self.address(cell), 0, 10);
            if self.cells[cell as usize] != WALL {
                break cell;
            }
        };
        self.reach(memory, cell, self.lists[0]);
        self.turn();
    }

    /// The list that was written is read next.
    fn turn(&mut self) {
        std::mem::swap(&mut self.front, &mut self.next);
        self.lists.swap(0, 1);
        self.next.clear();
        self.at = 0;
    }
}

impl Kernel for Front {
    fn step<M: Memory>(&mut self, memory: &mut M) -> Progress {
        if self.left == 0 {
            return Progress::Done;
        }
        if self.at == self.front.len() {
            self.turn();
            if self.front.is_empty() {
                self.begin(memory);
            }
            return Progress::Working;
        }
        let side = self.program.side as i64;
        let count = (self.front.len() - self.at).min(8).min(self.left as usize);
        for index in self.at..self.at + count {
            let _: u32 = memory.load(self.place(self.lists[1], index), 0, 4);
            let cell = self.front[index];
            for (loads, offset) in (1..).zip([-side - 1, -side, -side + 1, -1, 1, side - 1, side, side + 1]) {
                let neighbour = (i64::from(cell) + offset) as u32;
                // Known when the list's entry is: the load before the neighbours' own.
                let _: u32 = memory.load(self.address(neighbour), loads, 4);
                let mark = self.cells[neighbour as usize];
                if mark != WALL && mark != self.search {
                    self.reach(memory, neighbour, self.lists[0]);
                }
            }
        }
        self.at += count;
        self.left -= count as u64;
        Progress::Working
    }
}
