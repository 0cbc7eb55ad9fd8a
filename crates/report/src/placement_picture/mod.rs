//! A picture of where memory lay during a run: addresses upward, time to the right, the tier as colour; what was accessed
//! when, what moved, and what share of the accesses the first tier served.
//!
//! It is drawn for print: on white, so that it is legible on any page, in colours that people with red-green blindness tell
//! apart. Equal contents give equal bytes, and they are few: what does not fit is drawn coarser.

mod svg;

/// Columns of the finest picture.
const MOST_COLUMNS: usize = 160;
/// Rows of the finest picture.
const MOST_ROWS: usize = 64;
/// Bytes beyond which a picture is drawn coarser.
const MOST_BYTES: usize = 28_000;

/// What is drawn.
#[derive(Clone, Debug, Default)]
pub struct PlacementPicture {
    /// The headline.
    pub title: String,
    /// What stands below it.
    pub subtitle: String,
    /// The first tier, and what stands for all others.
    pub tiers: [String; 2],
    /// Bytes of a row's piece of memory; rows by address.
    pub row_bytes: u64,
    /// Seconds of a column.
    pub column_seconds: f64,
    /// The columns, by time; all have as many rows.
    pub columns: Vec<PlacementBand>,
}

/// A column.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlacementBand {
    /// Pages of each row in the first tier and in others.
    pub resident: Vec<[u64; 2]>,
    /// Accesses of each row that reached memory.
    pub accesses: Vec<u64>,
    /// Accesses that the first tier and others served.
    pub served: [u64; 2],
    /// Bytes that were promoted and demoted.
    pub moved: [u64; 2],
}

impl PlacementPicture {
    /// The picture.
    pub fn to_svg(&self) -> String {
        let mut picture = self.reduced(MOST_COLUMNS, MOST_ROWS);
        loop {
            let svg = svg::draw(&picture);
            let (columns, rows) =
                (picture.columns.len(), picture.columns.first().map_or(0, |c| c.resident.len()));
            if svg.len() <= MOST_BYTES || columns.max(rows) < 16 {
                return svg;
            }
            picture = picture.reduced(columns * 7 / 8, rows * 7 / 8);
        }
    }

    /// The picture in at most so many columns and rows.
    fn reduced(&self, columns: usize, rows: usize) -> PlacementPicture {
        let join = |all: usize, most: usize| all.div_ceil(most.max(1)).max(1);
        let by_column = join(self.columns.len(), columns);
        let by_row = join(self.columns.first().map_or(0, |band| band.resident.len()), rows);
        let sum = |values: &[u64]| values.iter().sum::<u64>();
        let pair = |values: &[[u64; 2]]| values.iter().fold([0; 2], |a, b| [a[0] + b[0], a[1] + b[1]]);
        let bands = self.columns.chunks(by_column).map(|bands| {
            // Memory lies where it lay at the end of a column.
            let last = &bands[bands.len() - 1];
            let mut accesses = vec![0; last.accesses.len()];
            for band in bands {
                accesses.iter_mut().zip(&band.accesses).for_each(|(sum, more)| *sum += more);
            }
            PlacementBand {
                resident: last.resident.chunks(by_row).map(pair).collect(),
                accesses: accesses.chunks(by_row).map(sum).collect(),
                served: pair(&bands.iter().map(|band| band.served).collect::<Vec<_>>()),
                moved: pair(&bands.iter().map(|band| band.moved).collect::<Vec<_>>()),
            }
        });
        PlacementPicture {
            columns: bands.collect(),
            row_bytes: self.row_bytes * by_row as u64,
            column_seconds: self.column_seconds * by_column as f64,
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests;
