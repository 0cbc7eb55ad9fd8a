//! Kernels: what each reads and writes, by its own definition.

use super::promises::check;
use super::*;

#[test]
fn triad_reads_b_and_c_and_writes_a_in_order() {
    let accesses = run_accesses("stream,bytes=384 KiB,width=8,iterations=1,init=none");
    let (a, b, c) = (accesses[2].addr, accesses[0].addr, accesses[1].addr);
    assert_eq!(accesses.len(), 3 * 16384);
    for (i, triple) in accesses.chunks(3).enumerate() {
        let offset = 8 * i as u64;
        assert_eq!([triple[0].addr, triple[1].addr, triple[2].addr], [b + offset, c + offset, a + offset]);
        assert_eq!(triple[2].kind, AccessKind::Write);
        assert!(triple.iter().all(|access| access.depends_on == 0));
    }
}

#[test]
fn gups_loads_and_stores_each_word_it_updates() {
    let accesses = run_accesses("gups,bytes=64 KiB,updates=20e3");
    assert_eq!(accesses.len(), 40_000);
    let mut counts = vec![0u32; 8192];
    let base = accesses.iter().map(|a| a.addr).min().unwrap() & !0xffff;
    for pair in accesses.chunks(2) {
        assert_eq!((pair[0].kind, pair[1].kind), (AccessKind::Read, AccessKind::Write));
        assert_eq!(pair[0].addr, pair[1].addr);
        counts[((pair[0].addr - base) / 8) as usize] += 1;
    }
    // Poisson with mean 2.44: an empty share of exp(-2.44), 8.7 %.
    let empty = counts.iter().filter(|c| **c == 0).count() as f64 / 8192.0;
    assert!((0.07..0.105).contains(&empty), "{empty}");
}

#[test]
fn chase_visits_each_node_once_per_lap_and_depends_on_the_load_before() {
    let nodes = 1000;
    let accesses = run_accesses("chase,bytes=64000 B,accesses=3000");
    let lap = |n: usize| accesses[n * nodes..(n + 1) * nodes].iter().map(|a| a.addr).collect::<Vec<_>>();
    let mut sorted = lap(0);
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), nodes);
    assert!(sorted.windows(2).all(|pair| pair[1] - pair[0] == 64));
    assert_eq!(lap(0), lap(1));
    assert_eq!(lap(0), lap(2));
    assert!(accesses[1..].iter().all(|a| a.depends_on == 1));
}

#[test]
fn iwb_threads_visit_disjoint_pages_one_line_each() {
    let mut visits = [0u32; 64];
    let mut base = u64::MAX;
    for batch in &batches("iwb,bytes=256 KiB,threads=4,passes=2,mode=write,init=none") {
        base = batch.addr.iter().copied().fold(base, u64::min);
        for (pair, kinds) in batch.addr.chunks(2).zip(batch.kind.chunks(2)) {
            assert_eq!(pair[0], pair[1]);
            assert_eq!(kinds, [AccessKind::Read, AccessKind::Write]);
            let page = (pair[0] - base) / 4096;
            assert_eq!((pair[0] - base) % 4096, 0, "always the page's first line");
            assert_eq!(page % 4, u64::from(batch.stream.0), "thread n visits n, n + N, n + 2N");
            visits[page as usize] += 1;
        }
    }
    assert_eq!(visits, [2; 64]);
}

#[test]
fn pb_writes_the_first_half_and_initialises_in_the_order_asked_for() {
    let accesses = run_accesses("pb,bytes=512 KiB,threads=1,passes=1");
    let base = accesses[0].addr;
    for access in &accesses {
        let in_write_half = access.addr - base < 256 << 10;
        assert!(in_write_half || access.kind == AccessKind::Read);
    }
    assert_eq!(accesses.len(), 3 * 64);
    for (init, first) in [("write-first", 0), ("read-first", 256 << 10)] {
        let batches = batches(&format!("pb,bytes=512 KiB,threads=2,init={init}"));
        let order: Vec<u64> = batches.iter().flat_map(|b| b.addr.clone()).take(128).collect();
        assert!(
            order[..64].iter().all(|addr| (first..first + (256 << 10)).contains(&(addr - base))),
            "{init}"
        );
    }
}

#[test]
fn passes_before_the_run_are_made_and_not_counted() {
    for spec in [
        "iwb,bytes=64 KiB,threads=2,passes=3",
        "pb,bytes=64 KiB,threads=2,passes=3",
        "bt,bytes=1 MiB,threads=2,iterations=3",
        "ft,bytes=1 MiB,threads=2,iterations=3",
        "mg,bytes=1 MiB,planes=16,threads=2,iterations=3",
        "cg,rows=2000,threads=2,iterations=3",
    ] {
        let warm = format!("{spec},warmup=2");
        let (cold_run, warm_run) = (run_accesses(spec), run_accesses(&warm));
        assert_eq!(cold_run.len(), warm_run.len(), "{spec}");
        let all = |spec: &str| batches(spec).iter().map(|batch| batch.addr.len()).sum::<usize>();
        assert_eq!(all(&warm) - all(spec), 2 * cold_run.len() / 3, "{spec}");
    }
}

#[test]
fn bt_writes_the_right_hand_side_most_and_never_the_forcing() {
    let traffic = traffic("bt,bytes=2 MiB,planes=6,iterations=2");
    let written = |name: &str| traffic[name].1;
    // Three differences, three solves of which each writes twice, against one addition.
    assert_eq!(written("rhs"), 9 * written("u"));
    assert_eq!(written("forcing"), 0);
    assert_eq!(written("us") * 5, written("u"));
    assert!(traffic["u"].0 > 10 * written("u"));
}

#[test]
fn ft_writes_each_array_as_often_as_its_passes_do() {
    let traffic = traffic("ft,bytes=1 MiB,iterations=1");
    let one = traffic["u0"].1;
    assert_eq!(["u0", "u1"].map(|name| traffic[name]), [(one, one), (3 * one, 4 * one)]);
    assert_eq!(traffic["twiddle"], (one / 2, 0));
}

#[test]
fn mg_never_writes_its_right_hand_side_and_sweeps_the_others_as_a_v_cycle_does() {
    let traffic = traffic("mg,bytes=2 MiB,planes=16,iterations=1");
    let grid = traffic["v"].0 / 2;
    assert_eq!(traffic["v"], (2 * grid, 0), "two residuals of the finest grid");
    let (r, u) = (traffic["r"].1 as f64 / grid as f64, traffic["u"].1 as f64 / grid as f64);
    // On the finest grid two residuals, an interpolation and a smoothing; below an eighth, a sixty-fourth, ...
    assert!((2.0..2.5).contains(&r) && (2.0..2.7).contains(&u), "{r} {u}");
}

#[test]
fn cg_s_workspace_is_touched_before_the_matrix_and_never_again() {
    let traffic = |workspace: bool| traffic(&format!("cg,rows=2000,nonzeros=20,workspace={workspace}"));
    let (with, without) = (traffic(true), traffic(false));
    assert_eq!(with.get("workspace").copied().unwrap_or_default(), (0, 0));
    assert_eq!(with["values"], without["values"]);
    let (with, without) = (open("cg,rows=2000,nonzeros=20,workspace=true"), open("cg,rows=2000,nonzeros=20"));
    assert_eq!(with.unwrap().footprint(), without.unwrap().footprint() + 12 * 2000 * 20);
}

#[test]
fn ft_touches_its_arrays_side_by_side() {
    let touched: Vec<u64> = batches("ft,bytes=4 MiB").iter().flat_map(|b| b.addr.clone()).take(500).collect();
    let u0 = touched.iter().filter(|addr| **addr < touched[0] + (1 << 20)).count();
    assert!((190..210).contains(&u0), "two fifths of the pages are u0's: {u0}");
}

#[test]
fn cg_stores_a_row_s_product_once_however_long_the_row() {
    assert_eq!(traffic("cg,rows=2000,nonzeros=200,iterations=2")["q"].1, 2 * 2000 * 8);
}

#[test]
fn pmbench_draws_pages_around_the_middle_after_touching_all_in_order() {
    for (sigma, inside) in [("0.125", 0.6827), ("0.25", 0.6827 / 0.9545)] {
        let spec = format!("pmbench,bytes=16 MiB,accesses=1e5,reads=0.8,sigma={sigma}");
        let touched: Vec<u64> = batches(&spec).iter().flat_map(|b| b.addr.clone()).take(4096).collect();
        assert!(touched.windows(2).all(|pair| pair[1] - pair[0] == 4096));
        let accesses = run_accesses(&spec);
        let middle = touched[2048] as f64;
        let reach = sigma.parse::<f64>().unwrap() * f64::from(16 << 20);
        let near = accesses.iter().filter(|a| (a.addr as f64 - middle).abs() < reach).count() as f64 / 1e5;
        assert!((near - inside).abs() < 0.01, "{sigma}: {near}");
        let reads = accesses.iter().filter(|a| a.kind == AccessKind::Read).count() as f64 / 1e5;
        assert!((reads - 0.8).abs() < 0.01, "{reads}");
    }
}

#[test]
fn pmbench_s_middle_moves_from_phase_to_phase() {
    let accesses = run_accesses("pmbench,bytes=16 MiB,accesses=1e5,sigma=0.02,phases=4");
    let least = accesses.iter().map(|a| a.addr).min().unwrap();
    let means: Vec<u64> = accesses
        .chunks(25_000)
        .map(|phase| (phase.iter().map(|a| a.addr - least).sum::<u64>() / phase.len() as u64) >> 20)
        .collect();
    assert!(means.windows(2).all(|pair| (3..=5).contains(&(pair[1] - pair[0]))), "MiB: {means:?}");
}

#[test]
fn programs_settle_with_a_little_of_their_run_between_much_computing() {
    let (instructions, accesses) = settled("gups,bytes=8 MiB,updates=1e6,settle=4e9");
    assert_eq!((instructions, accesses), (4_000_000_000, 2000 * 2 * 64));
    // What fills its own structures does so before.
    let (instructions, accesses) = settled("kv,keys=4000,value=16 B,requests=8e3,settle=1e7");
    assert_eq!(instructions, 10_000_000);
    assert!((2000 * 4..2000 * 40).contains(&accesses), "{accesses}");
    // Less to do than there is time for: the run begins, with nothing left.
    let (instructions, accesses) = settled("gups,bytes=8 MiB,updates=640,settle=4e6,threads=2");
    assert!(instructions < 4_000_000 && accesses > 640, "{instructions} {accesses}");
    for spec in
        ["gups,bytes=8 MiB,updates=640,settle=4e6,threads=2", "bfs,scale=10,edges=1e5,settle=1e6,threads=2"]
    {
        check(spec);
    }
}

#[test]
fn the_list_of_edges_lies_in_memory_and_is_not_searched() {
    let spec = "bfs,scale=12,edgefactor=8,edges=1e5";
    let listed = format!("{spec},list=true");
    let footprint = |spec: &str| open(spec).unwrap().footprint();
    assert_eq!(footprint(&listed) - footprint(spec), 16 * 8 * 4096);
    let traffic = traffic(&listed);
    assert!(traffic.contains_key("edges") && !traffic.contains_key("list"), "{traffic:?}");
}

#[test]
fn a_classifier_gathers_rows_by_columns_and_updates_one_vector() {
    let spec = "svm,rows=100e3,features=20e3,nonzeros=10,updates=2000,moves=0.5,init=none";
    let traffic = traffic(spec);
    assert!(!traffic.contains_key("data by rows"), "it is made once and never read again");
    let (nodes, gathered) = (traffic["data by columns"], traffic["D"]);
    assert_eq!(gathered, (2000 * 10 * 8, 0), "one look at each row of each column");
    assert_eq!(nodes.1, 0);
    // Columns are read again, and the direction is updated, where the coordinate moves: every second time.
    let moved = nodes.0 / 16 - 2000 * 10;
    assert!((9_000..11_000).contains(&moved), "{moved}");
    assert_eq!(traffic["xTd"], (8 * (2000 * 10 + moved), 8 * moved));
    assert_eq!(traffic["wpd"].1, 8 * moved / 10);
}

/// Instructions computed, and accesses made, between the end of initialisation and the begin of the run.
fn settled(spec: &str) -> (u64, u64) {
    let (mut instructions, mut accesses) = (0, 0);
    for batch in &batches(spec) {
        for item in batch.items() {
            match item {
                Item::Access(_) if instructions > 0 => accesses += 1,
                Item::Access(_) => {}
                Item::Event(e) => match &e.event {
                    Event::Compute { instructions: more } => instructions += more,
                    Event::Mark { kind: MarkKind::RegionBegin, .. } => return (instructions, accesses),
                    _ => {}
                },
            }
        }
    }
    panic!("{spec}: the run never begins");
}

#[test]
fn lbm_reads_inner_cells_whole_and_writes_each_of_their_distributions_once() {
    let traffic = traffic("lbm,side=12,iterations=2");
    let cells = 10u64.pow(3);
    for name in ["lattice", "next lattice"] {
        assert_eq!(traffic[name], (cells * 160, cells * 19 * 8), "{name}");
    }
    // A cell is five pieces.
    let written = pieces("lbm,side=12", "next lattice", 32);
    let at = |x: usize, y: usize, z: usize| written[5 * ((z * 12 + y) * 12 + x)..][..5].iter().sum::<u64>();
    // A cell deep inside reads 19 cells, the middle of a side wall the five before it, an edge one, a corner none.
    assert_eq!([at(5, 5, 5), at(0, 5, 5), at(0, 0, 5), at(0, 0, 0)], [19, 5, 1, 0]);
}

#[test]
fn su3_reads_each_link_from_both_its_ends_and_each_vector_from_eight_sites() {
    let pieces = pieces("su3,side=4", "sites", 16);
    let per_site = 1152 / 16;
    for (site, pieces) in pieces.chunks(per_site).enumerate() {
        let colour = (site + site / 4 + site / 16 + site / 64) % 2;
        assert_eq!(pieces[..36], [2; 36], "links of {site}");
        // The first colour's second vector is written and read, the other's first.
        let (used, idle) = if colour == 0 { (39..42, 36..39) } else { (36..39, 39..42) };
        assert_eq!((&pieces[used], &pieces[idle]), (&[9, 9, 9][..], &[0, 0, 0][..]), "vectors of {site}");
    }
}

#[test]
fn astar_reaches_every_free_cell_once_in_a_search() {
    // One search over 30 by 30 cells within the border.
    let spec = "astar,side=32,walls=0,expansions=900";
    let traffic = traffic(spec);
    let lists = (traffic["front"].0 + traffic["next front"].0, traffic["front"].1 + traffic["next front"].1);
    assert_eq!(lists, (900 * 4, 900 * 4), "each is listed and read once");
    assert_eq!(traffic["grid"].1, 900 * 4, "each is marked once");
    let reads = pieces(spec, "grid", 4);
    // A corner is seen from the one cell inside it, the cell beside it by its three neighbours, its mark included.
    assert!((1..3).contains(&reads[0]) && reads[33] > 3, "{} {}", reads[0], reads[33]);
}

#[test]
fn influence_is_gathered_from_followers_anywhere_and_stored_once_for_each_user() {
    // Eight followers of each of 4096 users: 2000 users are a part of one pass.
    let spec = "tunkrank,scale=12,edgefactor=4,implicit=true,edges=16000,init=none";
    let traffic = traffic(spec);
    assert_eq!(traffic["edges"], (16_000 * 8, 0));
    assert_eq!(traffic["users"], (16_000 * 16, 2000 * 8));
    assert_eq!(traffic["offsets"], (2001 * 8, 0));
    // The skew of the graph: the tenth of the users who are looked at most have over a third of all looks.
    let mut counts = pieces("tunkrank,scale=12,edges=1e5,init=none", "users", 16);
    counts.sort_unstable();
    let most = counts[counts.len() * 9 / 10..].iter().sum::<u64>() as f64;
    assert!(most / counts.iter().sum::<u64>() as f64 > 0.33, "{most}");
}

#[test]
fn flesh_visits_each_tetrahedron_once_in_an_iteration_and_its_nodes_by_number() {
    let tetrahedra = 5 * 8 * 8 * 8;
    let nodes = 1024; // 729, in whole blocks
    let spec = |visits: u64| format!("facesim,side=8,visits={visits},init=none");
    let whole = traffic(&spec(tetrahedra));
    assert_eq!(whole["corners"], (tetrahedra * 16, 0));
    assert_eq!(whole["stiffness"], (tetrahedra * 192, 0));
    assert_eq!(whole["x"], (nodes * 32, nodes * 32));
    assert_eq!(whole["q"], ((4 * tetrahedra + 2 * nodes) * 32, (4 * tetrahedra + nodes) * 32));
    // Less than an iteration: nothing but tetrahedra.
    let part = traffic(&spec(100));
    assert_eq!((part["corners"].0, part.get("x").copied()), (100 * 16, None));
    // Each inner node belongs to 8 or to 32 tetrahedra, by turns.
    let mut visits = pieces(&format!("{},seed=3", spec(tetrahedra - 1)), "p", 32);
    visits.retain(|count| *count > 0);
    assert_eq!((visits.len(), visits.iter().max()), (729, Some(&32)));
}

#[test]
fn influence_ends_where_a_thread_s_users_have_no_followers() {
    // 40 threads share 16 users, of whom some have no edge.
    let accesses = run_accesses("tunkrank,scale=4,edgefactor=1,edges=200,threads=40");
    assert!((100..400).contains(&accesses.len()), "{}", accesses.len());
}
