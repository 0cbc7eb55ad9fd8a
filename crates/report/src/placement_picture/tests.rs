use super::*;

/// Pages go to the first tier row by row, one per column; one row is accessed in each.
fn picture(columns: usize, rows: usize) -> PlacementPicture {
    let band = |at: usize| PlacementBand {
        resident: (0..rows).map(|row| if row <= at { [8, 0] } else { [0, 8] }).collect(),
        accesses: (0..rows).map(|row| if row == at { 100 } else { 0 }).collect(),
        served: [100, 0],
        moved: [32 << 10, 0],
    };
    PlacementPicture {
        title: "a <policy>".to_owned(),
        tiers: ["dram".to_owned(), "pcm".to_owned()],
        row_bytes: 32 << 10,
        column_seconds: 0.001,
        columns: (0..columns).map(band).collect(),
        ..PlacementPicture::default()
    }
}

#[test]
fn every_row_is_a_line_of_one_colour_and_then_of_the_other() {
    let svg = picture(4, 3).to_svg();
    assert_eq!(svg, picture(4, 3).to_svg());
    // The lowest address is the lowest row, and in the first tier from the first column on.
    assert!(svg.contains("<path stroke=\"#0072b2\" d=\"M0 2h4M1 1h3M2 0h2\"/>"), "{svg}");
    assert!(svg.contains("<path stroke=\"#e69f00\" d=\"M0 1h1M0 0h2\"/>"), "{svg}");
    assert!(svg.contains("<path stroke=\"#3c1a5b\" d=\"M0 2h1M1 1h1M2 0h1\"/>"), "{svg}");
    assert!(svg.contains("a &lt;policy&gt;") && svg.contains("promoted, 128 KiB in all"), "{svg}");
    assert!(svg.contains("that dram serves: 100 % over all") && svg.contains(">4 ms<"), "{svg}");
}

#[test]
fn large_pictures_are_reduced_without_loss() {
    let large = picture(1000, 900);
    let small = large.reduced(128, 64);
    assert_eq!((small.columns.len(), small.columns[0].resident.len()), (125, 60));
    assert_eq!((small.row_bytes, small.column_seconds), ((15 * 32) << 10, 0.008));
    let sum = |picture: &PlacementPicture| -> (u64, u64) {
        let columns = picture.columns.iter();
        columns.fold((0, 0), |(n, m), band| (n + band.accesses.iter().sum::<u64>(), m + band.moved[0]))
    };
    assert_eq!(sum(&small), sum(&large));
    assert!(large.to_svg().len() <= MOST_BYTES);
}

#[test]
fn the_worst_picture_is_small_too() {
    let mut worst = picture(128, 64);
    for (column, band) in worst.columns.iter_mut().enumerate() {
        for row in 0..64 {
            let odd = (column + row) % 2;
            band.resident[row] = [8 * odd as u64, 8 - 8 * odd as u64];
            band.accesses[row] = 1 + 100 * odd as u64;
        }
    }
    assert!(worst.to_svg().len() <= MOST_BYTES);
    assert!(PlacementPicture::default().to_svg().ends_with("</svg>\n"), "nothing to draw");
}
