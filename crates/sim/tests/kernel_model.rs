//! A model of the kernel: what it touches is in the stream, and what it does is what its switches
//! say.

use std::sync::atomic::AtomicBool;
use superpage_sim::{Conditions, KernelModel, Row, Watch};
use superpage_trace::workload;

/// The row of the measured part of a workload, with each of these kernels, and of the whole.
fn rows(machine: &str, kernels: &[&str], text: &str) -> Vec<[Row; 2]> {
    let kernels: Vec<String> = kernels.iter().map(|kernel| kernel.to_string()).collect();
    let conditions = Conditions { kernels, memory: Some(32 << 20), ..Conditions::default() };
    let setups = superpage_sim::plan(&[machine.into()], &["base".into()], &conditions).unwrap();
    let mut source = workload::parse_lines(text).unwrap();
    let watch = Watch { lines: true, ..Watch::default() };
    let runs = superpage_sim::run_parts(&setups, source.as_mut(), &AtomicBool::new(false), &|_| {}, &watch).unwrap();
    let measured =
        |run: &superpage_sim::Run| run.parts.iter().find(|part| part.name == "measured").unwrap().row.clone();
    runs.iter().map(|run| [measured(run), run.row.clone()]).collect()
}

/// An eager kernel looks for each of the 2048 pages of 8 MB in both groups of eight, whatever is
/// there; a lazy one with a cutoff gives the space other VSIDs once. Dougan et al., section 7.
#[test]
fn a_flush_of_a_range_is_a_search_for_each_page_or_a_new_context() {
    for machine in ["ppc603", "ppc604"] {
        let kernels = ["linux-ppc:flush=eager", "linux-ppc:cutoff=0", "linux-ppc:cutoff=2048", "linux-ppc:cutoff=2047"];
        let all = rows(machine, &kernels, "mmap-latency:bytes=8M,times=5");
        for [measured, _] in &all[..3] {
            let kernel = measured.kernel_counts.as_ref().unwrap();
            assert_eq!((kernel.flushed_pages, kernel.flush_references), (5 * 2048, 5 * 2048 * 16), "{machine}");
        }
        let kernel = all[3][0].kernel_counts.as_ref().unwrap();
        assert_eq!((kernel.flushed_pages, kernel.renewed), (0, 5), "{machine}");
        assert!(all[0][0].cycles > 30 * all[3][0].cycles, "{machine}");
    }
}

/// Without a table each page of a range is a shootdown, whatever is mapped, or a new context is
/// one. Each range here is flushed when it goes.
#[test]
fn without_a_table_a_flush_of_a_range_is_a_shootdown_for_each_page() {
    let all = rows("ppc603", &["linux-ppc:table=off,cutoff=0", "linux-ppc:table=off"], "mmap-latency:bytes=8M,times=5");
    let shootdowns = all.iter().map(|[measured, _]| (measured.shootdowns, measured.walk_cycles));
    assert_eq!(shootdowns.collect::<Vec<_>>(), [(5 * 2048, all[0][0].walk_cycles), (5, all[1][0].walk_cycles)]);
}

/// The first write of 64 KB and each that follows go through a pipe of 4 KB in 16 pieces: the
/// writer enters the kernel once.
#[test]
fn a_write_in_pieces_is_one_call() {
    let [[measured, _]] = &rows("ppc604", &["linux-ppc"], "pipe-bandwidth:bytes=640K")[..] else { panic!() };
    // And a read for each piece.
    assert_eq!(measured.kernel_counts.as_ref().unwrap().calls, 10 * (1 + 16));
}

/// A block for the frame buffer takes all misses there from the TLBs; on the 603 and the 604, and
/// never from the program's lines.
#[test]
fn a_block_for_a_program_translates_its_device() {
    let kernels = ["linux-ppc", "linux-ppc:program-blocks=on"];
    for machine in ["ppc603", "ppc604"] {
        let all = rows(machine, &kernels, "draw:bytes=1M,times=40");
        let [without, with] = [&all[0][0], &all[1][0]];
        let blocks = |row: &Row| row.kernel_counts.as_ref().unwrap().block_accesses;
        // 48 rows of 4 lines.
        assert_eq!((blocks(without), blocks(with)), (0, 40 * 48 * 4), "{machine}");
        assert!(without.tlb_misses > 200 && 4 * with.tlb_misses < without.tlb_misses, "{machine}");
        assert!(with.cycles < without.cycles, "{machine}");
        assert_eq!(without.references, with.references);
        assert!(all.iter().all(|[_, row]| row.complete && row.frames_leaked == 0), "{machine}");
    }
}

/// Preloads bring the same lines in, at an instruction for each, and nobody waits for them.
#[test]
fn preloads_hide_what_data_take() {
    let all = rows("ppc604", &["linux-ppc", "linux-ppc:preloads=on"], "switch:processes=8,bytes=16K,times=5");
    let [without, with] = [&all[0][0], &all[1][0]];
    let caches = |row: &Row| row.caches.unwrap();
    let misses = |row: &Row| (caches(row).l1d_misses, caches(row).l1i_misses);
    assert_eq!(misses(with), misses(without));
    assert!(caches(without).l1d_prefetched == 0 && caches(with).l1d_prefetched > 100);
    assert!(with.data_cycles < without.data_cycles && with.cycles < without.cycles);
    let instructions = |row: &Row| row.kernel_counts.as_ref().unwrap().instructions;
    // 40 passes: two calls, each with an entry of 4 lines, and a switch of 18.
    assert_eq!(instructions(with) - instructions(without), 40 * (2 * 4 + 18));
}

/// Both kinds of numbers are flushed page by page, so that nothing is found which should not be.
#[test]
fn vsids_of_processes_do_what_those_of_a_counter_do() {
    let all = rows("ppc604", &["linux-ppc:flush=eager", "linux-ppc:flush=eager,vsids=process"], "start:times=6");
    let of = |row: &Row| {
        let kernel = row.kernel_counts.as_ref().unwrap();
        (row.faults, row.tlb_misses, kernel.reloads, kernel.flushed_pages, kernel.renewed, kernel.valid_now)
    };
    assert_eq!(of(&all[0][1]), of(&all[1][1]));
}

/// Programs do what they do without a model, in the memory that is left.
#[test]
fn programs_do_the_same_with_any_kernel() {
    let old = "linux-ppc:blocks=off,handlers=c,flush=eager,reclaim=no,clear=no";
    for (machine, kernels) in [
        ("ppc603", vec!["linux-ppc", old, "linux-ppc:table=off,tables=uncached"]),
        ("ppc604", vec!["linux-ppc:device-blocks=on,idle=uncached", old, "linux-ppc:clear=cached,list=off"]),
        ("zen5", vec!["linux-ppc", "linux-ppc:blocks=off"]),
    ] {
        let all = rows(machine, &kernels, "start:times=6");
        let same =
            |row: &Row| (row.references, row.instructions, row.faults, row.peak_resident_bytes, row.frames_leaked);
        for [_, row] in &all {
            assert!(row.complete && row.frames_leaked == 0, "{:?}", row.error);
            assert_eq!(same(row), same(&all[0][1]), "{machine} {:?}", row.kernel);
        }
        // A kernel that is mapped page by page takes entries of the TLBs.
        let shares: Vec<f64> = all
            .iter()
            .map(|[row, _]| {
                let kernel = row.kernel_counts.as_ref().unwrap();
                kernel.kernel_entries as f64 / kernel.tlb_entries.max(1) as f64
            })
            .collect();
        assert!(2.0 * shares[0] < shares[1] && shares[1] > 0.2, "{machine} {shares:?}");
        let first = |row: &Row| row.first_level_dtlb_misses + row.first_level_itlb_misses;
        assert!(first(&all[0][0]) < first(&all[1][0]), "{machine}");
    }
}

#[test]
fn what_is_no_kernel_is_told() {
    for (text, part) in [
        ("linux", "there is no such model: there are linux-ppc"),
        ("linux-ppc:colour=on", "there is no switch \"colour\": there are blocks, clear"),
        ("linux-ppc:blocks", "\"blocks\" is no switch"),
        ("linux-ppc:blocks=on,blocks=off", "switch \"blocks\" is there twice"),
        ("linux-ppc:flush=never", "expected `eager` or `lazy`"),
        ("linux-ppc:scatter=1024", "no multiple of 512"),
        ("linux-ppc:cutoff=-1", "switch cutoff = -1: "),
        ("linux-ppc:flush=eager,cutoff=20", "cutoff goes with flush=lazy"),
        ("linux-ppc:vsids=process", "vsids=process goes with flush=eager"),
        ("linux-ppc:flush=eager,reclaim=idle", "eager flushes leave none"),
        ("linux-ppc:table=off,reclaim=demand", "it goes with table=on"),
        ("linux-ppc:table=off,scatter=16", "scatter is for the hash table"),
        ("linux-ppc:clear=no,list=off", "it goes with clear="),
        ("linux-ppc:blocks=yes", "switch blocks = \"yes\": unknown variant `yes`, expected `on` or `off`"),
        ("linux-ppc:blocks=1", "switch blocks = \"1\": unknown variant `1`, expected `on` or `off`"),
        ("missing.toml", "missing.toml"),
    ] {
        let error = KernelModel::named(text).unwrap_err().to_string();
        assert!(error.starts_with(&format!("kernel {text}: ")) && error.contains(part), "{error}");
    }
    let refused = |machine: &str, kernel: &str, memory: u64| {
        let conditions = Conditions { kernels: vec![kernel.into()], memory: Some(memory), ..Conditions::default() };
        superpage_sim::plan(&[machine.into()], &[], &conditions).unwrap_err().to_string()
    };
    assert!(refused("ppc604", "linux-ppc:table=off", 32 << 20).contains("software refills"));
    for kilobytes in [1024, 2048, 2112, 3068] {
        let told = format!("leaves {} KB for programs: give at least 3072 KB", kilobytes.max(2048) - 2048);
        assert!(refused("ppc604", "linux-ppc", kilobytes << 10).contains(&told), "{kilobytes}");
    }
    assert!(refused("zen5", "linux-ppc:program-blocks=on", 32 << 20).contains("machines with blocks"));
    assert!(
        refused("zen5", "linux-ppc:flush=eager,vsids=process", 32 << 20)
            .contains("vsids is for machines with a hash table")
    );
    assert!(refused("ppc604", "linux-ppc", 512 << 20).contains("its largest block has 256 MB"));
    assert!(refused("alpha-21264", "linux-ppc", 32 << 20).contains("base pages of 4K, not 8K"));
    for (machine, what) in
        [("skylake-sp", "a TLB with `spaces`"), ("zen5+nested", "a host"), ("zen5+shadow", "shadow superpages")]
    {
        let told = refused(machine, "linux-ppc", 32 << 20);
        assert!(told.contains(&format!("--kernel is for machines without {what}")), "{told}");
    }
    for switch in ["tables=uncached", "handlers=c", "scatter=128", "reclaim=no"] {
        let told = refused("neoverse-v2", &format!("linux-ppc:{switch}"), 32 << 20);
        assert!(told.contains("is for machines with a hash table, as ppc603: here it would do nothing"), "{told}");
    }
    for (blocks, kernel, need) in [
        (0, "linux-ppc", 1),
        (1, "linux-ppc:device-blocks=on", 2),
        (2, "linux-ppc:device-blocks=on,program-blocks=on", 3),
    ] {
        let told = refused(&format!("ppc604:groups.blocks={blocks}"), kernel, 32 << 20);
        assert!(
            told.contains(&format!("of registers for blocks of data it has {blocks}, and {need} are needed")),
            "{told}"
        );
    }
}

/// Where there are no zombies, all idle time is for clearing: without a hash table, and with eager
/// flushes.
#[test]
fn an_idle_task_without_zombies_clears_pages_at_once() {
    let pairs = [
        ["linux-ppc:table=off", "linux-ppc:table=off,reclaim=no"],
        ["linux-ppc:flush=eager", "linux-ppc:flush=eager,reclaim=no"],
    ];
    for kernels in pairs {
        let all = rows("ppc603", &kernels, "start:times=6,idle=1000");
        let of = |row: &Row| (row.cycles, row.kernel_counts.clone());
        assert_eq!(of(&all[0][1]), of(&all[1][1]), "{kernels:?}");
        let kernel = all[0][1].kernel_counts.as_ref().unwrap();
        assert!(kernel.cleared_pages > 20 && kernel.taken_pages > 20 && kernel.reclaimed == 0, "{kernel:?}");
    }
    // With zombies the table comes first, a round of which takes longer than that.
    let all = rows("ppc603", &["linux-ppc"], "start:times=6,idle=1000");
    assert_eq!(all[0][1].kernel_counts.as_ref().unwrap().cleared_pages, 0);
}

/// The most entries are those of any moment, also where none are left at the end, as of an eager
/// kernel, which leaves no zombies either.
#[test]
fn the_most_entries_are_of_any_moment() {
    for kernel in ["linux-ppc", "linux-ppc:flush=eager", "linux-ppc:reclaim=no"] {
        let [[_, row]] = &rows("ppc604", &[kernel], "start:times=40")[..] else { panic!() };
        let counts = row.kernel_counts.as_ref().unwrap();
        let (most, mean) = (counts.most_valid_entries, counts.valid_entries as f64 / counts.looks as f64);
        assert!(10.0 < mean && mean < most as f64 && most <= counts.reloads, "{kernel} {counts:?}");
        let eager = kernel.ends_with("eager");
        assert_eq!((counts.live_entries == counts.valid_entries, counts.valid_now == 0), (eager, eager), "{kernel}");
        assert!(counts.live_entries <= counts.valid_entries && counts.valid_now <= most, "{kernel}");
    }
}

/// What the processor looks at costs what it does, and what software looks at what that does.
#[test]
fn entries_cost_what_looks_at_them() {
    let cycles = |values: &str, text: &str| {
        let [[measured, _]] = &rows(&format!("ppc604:{values}"), &["linux-ppc:flush=eager"], text)[..] else {
            panic!()
        };
        (measured.walk_cycles, measured.kernel_counts.as_ref().unwrap().flush_references)
    };
    let text = "mmap-latency:bytes=1M,times=5";
    let [before, after] = [3, 5].map(|each| cycles(&format!("groups.software-entry-cycles={each}"), text));
    // Whatever is placed meanwhile is looked at too.
    let flushed = before.1;
    assert!(flushed == 5 * 256 * 16 && after.0 - before.0 >= 2 * flushed && after.0 - before.0 < 3 * flushed);
    let [before, after] = [6, 7].map(|each| cycles(&format!("groups.entry-cycles={each}"), text));
    assert!(after.0 - before.0 < flushed / 10, "no flush is by the processor");
}

/// Tables that do not fit are told before they are made.
#[test]
fn hash_tables_count_as_memory_of_the_simulation() {
    let conditions = Conditions { kernels: vec!["linux-ppc".into()], memory: Some(32 << 20), ..Conditions::default() };
    let setups = superpage_sim::plan(&["ppc603:groups.groups=1048576".into()], &[], &conditions).unwrap();
    let limit = superpage_sim::Limit { bytes: 60 << 20, of: "the test".into(), counts_untouched: false };
    let told = superpage_sim::check_memory(&setups, &Watch::default(), &[limit]);
    assert!(told.unwrap_err().to_string().contains("machine ppc603"));
}
