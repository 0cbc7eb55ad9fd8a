use super::cells::{Cell, Scale, cells};
use super::*;

fn panel(runs: &[(u64, Look)]) -> MemoryPanel {
    let runs: Vec<MemoryRun> =
        runs.iter().map(|(frames, look)| MemoryRun { frames: *frames, look: *look }).collect();
    let frames = runs.iter().map(|run| run.frames).sum();
    MemoryPanel { title: "dram".to_owned(), note: String::new(), frames, runs }
}

#[test]
fn a_cell_has_the_look_of_most_of_what_is_used_in_it() {
    let heap = Look::Part(0, PageSize::Base);
    let panel = panel(&[(3, heap), (5, Look::Free), (4, Look::Kernel), (4, heap), (2, Look::Cached)]);
    let cell = |look, quarters| Cell { look, quarters };
    assert_eq!(cells(&panel, 8, 18), [cell(heap, 2), cell(Look::Kernel, 4), cell(Look::Cached, 4)]);
    assert_eq!(cells(&panel, 8, 8), [cell(heap, 2)], "three eighths are nearest to two quarters");
}

#[test]
fn large_memories_fit_and_what_is_free_at_the_end_is_left_out() {
    let heap = Look::Part(0, PageSize::Huge);
    let picture = MemoryPicture {
        parts: vec!["<heap>".to_owned()],
        rows: vec![vec![panel(&[(1 << 20, heap), (47 << 20, Look::Free)]); 2]],
        ..MemoryPicture::default()
    };
    let scale = Scale::of(&picture);
    assert_eq!((scale.frames, scale.shown[0]), (128, 1 << 20));
    let svg = picture.to_svg();
    assert_eq!(svg, picture.to_svg());
    assert!(
        svg.contains("and 188 GiB beyond, free") && svg.contains("One cell is 512 KiB (128 frames)"),
        "{svg}"
    );
    assert!(svg.contains("&lt;heap&gt;:") && svg.contains("2m 4 GiB"), "{svg}");
}
