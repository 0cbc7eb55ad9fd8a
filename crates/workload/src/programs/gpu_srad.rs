//! Diffusion of speckles in an image on a GPU: neighbours by tables of rows and columns.

use crate::WorkloadInfo;
use crate::gpu::{LANES, OnGpu, Place, WARPS, Warps, WithThreads, load_lanes, store_lanes};
use crate::layout::Layout;
use crate::memory::{Backing, Contents, Memory};
use crate::opencl::session::Argument::{self, Array, Number};
use crate::parameters::*;
use crate::random::hash;

const INFO: WorkloadInfo = WorkloadInfo {
    name: "gpu-srad",
    summary: "on a GPU: two kernels of speckle-reducing diffusion over an image",
    description: "\
Two kernels in each iteration. The first reads a pixel, its place among rows and columns from tables, and its four neighbours, and writes \
four differences and a coefficient. The second reads coefficients of three pixels and the four differences, and updates the pixel.

Stands for Rodinia's srad_v1 (Che et al., IISWC 2009). It differs: the sum over the image that each iteration begins with is left out.",
    parameters: declared::<WithThreads<Parameters>>,
    exact: true,
};

#[derive(Clone, Debug, PartialEq, Parameters)]
pub(crate) struct Parameters {
    /// Pixels along each side, rounded up to a multiple of 32.
    #[parameter(default = 512, range = 32..=65536, unit = "pixels")]
    side: u64,
    /// Iterations.
    #[parameter(default = 2, range = 1..=10000, unit = "iterations")]
    iterations: u64,
}

#[derive(Clone)]
pub(crate) struct Work {
    side: u64,
    pixels: u64,
    iterations: u64,
    tables: [u64; 4],
    differences: [u64; 4],
    coefficients: u64,
    image: u64,
}

impl OnGpu for Work {
    type Parameters = Parameters;
    const INFO: &'static WorkloadInfo = &INFO;

    fn new(parameters: &Parameters, layout: &mut Layout) -> Result<Work, Problem> {
        let side = parameters.side.next_multiple_of(LANES);
        let pixels = side * side;
        Ok(Work {
            side,
            pixels,
            iterations: parameters.iterations,
            tables: ["d_iN", "d_iS", "d_jE", "d_jW"].map(|name| layout.array(name, 4 * side)),
            differences: ["d_dN", "d_dS", "d_dW", "d_dE"].map(|name| layout.array(name, 4 * pixels)),
            coefficients: layout.array("d_c", 4 * pixels),
            image: layout.array("d_I", 4 * pixels),
        })
    }

    fn launches(&self) -> u64 {
        2 * self.iterations
    }

    fn accesses(&self) -> u64 {
        self.iterations * self.pixels * (4 + 5 + 5 + 2 + 3 + 4 + 2)
    }

    const OPENCL: Option<&'static str> = Some(include_str!("gpu_srad.cl"));

    fn arguments(&self, launch: u64) -> Vec<Argument> {
        let [north, south, east, west] = self.tables;
        let tables =
            if launch.is_multiple_of(2) { vec![north, south, east, west] } else { vec![south, east] };
        let arrays = tables.into_iter().chain(self.differences).chain([self.coefficients, self.image]);
        arrays.map(Array).chain([Number(self.side)]).collect()
    }

    fn fill(&self, memory: &Backing) {
        let [north, south, east, west] = self.tables;
        for at in 0..self.side {
            let (before, behind) = (at.saturating_sub(1) as u32, (at + 1).min(self.side - 1) as u32);
            [north, west].iter().for_each(|table| memory.write(table + 4 * at, before));
            [south, east].iter().for_each(|table| memory.write(table + 4 * at, behind));
        }
        (0..self.pixels).for_each(|at| memory.write(self.image + 4 * at, hash(1, at) as u32 >> 24));
    }

    fn compute(&self, memory: &Backing) {
        let of = |array: u64, pixel: u64| memory.read::<u32>(array + 4 * pixel);
        let Work { side, pixels, image, coefficients, .. } = *self;
        let last = side - 1;
        // The neighbours of a pixel to the north, south, west and east.
        let around = |pixel: u64| {
            let (row, column) = (pixel % side, pixel / side);
            [
                column * side + row.saturating_sub(1),
                column * side + (row + 1).min(last),
                column.saturating_sub(1) * side + row,
                (column + 1).min(last) * side + row,
            ]
        };
        for _ in 0..self.iterations {
            for pixel in 0..pixels {
                let differences = around(pixel).map(|other| of(image, other).wrapping_sub(of(image, pixel)));
                let square =
                    |sum: u32, difference: &u32| sum.wrapping_add(difference.wrapping_mul(*difference));
                memory.write(coefficients + 4 * pixel, differences.iter().fold(of(image, pixel), square));
                for (array, difference) in self.differences.into_iter().zip(differences) {
                    memory.write(array + 4 * pixel, difference);
                }
            }
            for pixel in 0..pixels {
                let [_, south, _, east] = around(pixel);
                let coefficients = [pixel, south, pixel, east].map(|at| of(coefficients, at));
                let changes = self.differences.into_iter().zip(coefficients);
                let changes = changes.map(|(array, factor)| of(array, pixel).wrapping_mul(factor));
                memory.write(image + 4 * pixel, changes.fold(of(image, pixel), u32::wrapping_add));
            }
        }
    }
}

impl Warps for Work {
    const PIECE: u64 = 7 * LANES;

    fn name(&self, launch: u64) -> &'static str {
        if launch.is_multiple_of(2) { "srad" } else { "srad2" }
    }

    fn groups(&self, _: u64) -> u64 {
        self.pixels / (WARPS * LANES)
    }

    fn pieces(&self, launch: u64) -> u64 {
        if launch.is_multiple_of(2) { 3 } else { 2 }
    }

    fn piece<M: Memory>(&self, memory: &mut M, Place { launch, warp, piece }: Place) {
        // A column of the image lies side by side.
        let first = warp * LANES;
        let (row, column) = (|lane: u64| (first + lane) % self.side, first / self.side);
        let at = |array: u64| move |lane: u64| array + 4 * (first + lane);
        let last = self.side - 1;
        let pixel = |array: u64, row: u64, column: u64| array + 4 * (column * self.side + row);
        let [north, south, east, west] = self.tables;
        let below = |lane: u64| (row(lane) + 1).min(last);
        let right = (column + 1).min(last);
        match (launch % 2, piece) {
            (0, 0) => {
                load_lanes::<u32>(memory, |lane| north + 4 * row(lane), false, 12);
                load_lanes::<u32>(memory, |lane| south + 4 * row(lane), false, 2);
                load_lanes::<u32>(memory, |_| west + 4 * column, false, 2);
                load_lanes::<u32>(memory, |_| east + 4 * column, false, 2);
                load_lanes::<u32>(memory, at(self.image), false, 2);
            }
            (0, 1) => {
                let (above, left) = (|lane: u64| row(lane).saturating_sub(1), column.saturating_sub(1));
                load_lanes::<u32>(memory, |lane| pixel(self.image, above(lane), column), true, 3);
                load_lanes::<u32>(memory, |lane| pixel(self.image, below(lane), column), false, 3);
                load_lanes::<u32>(memory, |lane| pixel(self.image, row(lane), left), false, 3);
                load_lanes::<u32>(memory, |lane| pixel(self.image, row(lane), right), false, 3);
            }
            (0, _) => {
                self.differences.iter().for_each(|array| store_lanes::<u32>(memory, at(*array), 4));
                store_lanes::<u32>(memory, at(self.coefficients), 20);
            }
            (_, 0) => {
                load_lanes::<u32>(memory, |lane| south + 4 * row(lane), false, 12);
                load_lanes::<u32>(memory, |_| east + 4 * column, false, 2);
                load_lanes::<u32>(memory, at(self.coefficients), false, 2);
                load_lanes::<u32>(memory, |lane| pixel(self.coefficients, below(lane), column), true, 3);
                load_lanes::<u32>(memory, |lane| pixel(self.coefficients, row(lane), right), false, 3);
            }
            _ => {
                self.differences.iter().for_each(|array| load_lanes::<u32>(memory, at(*array), false, 3));
                load_lanes::<u32>(memory, at(self.image), false, 2);
                store_lanes::<u32>(memory, at(self.image), 6);
            }
        }
    }
}
