//! A model of the kernel: what it touches is in the stream, and what it does is what its switches say.

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

/// An eager kernel looks for each of the 2048 pages of 8 MB in both groups of eight, whatever is there; a lazy one with a cutoff gives the
/// space other VSIDs once. Dougan et al., section 7.
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
        assert!(all[0][0].cycles > 50 * all[3][0].cycles, "{machine}");
    }
}

/// Programs do what they do without a model, in the memory that is left.
#[test]
fn programs_do_the_same_with_any_kernel() {
    let old = "linux-ppc:blocks=off,handlers=c,flush=eager,reclaim=no,clear=no";
    for (machine, kernels) in [
        ("ppc603", vec!["linux-ppc", old, "linux-ppc:table=off,tables=uncached,reclaim=demand"]),
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
        ("linux-ppc:cutoff=-1", "cutoff"),
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
    assert!(refused("ppc604", "linux-ppc", 1 << 20).contains("give more with --memory"));
    assert!(refused("ppc604", "linux-ppc", 512 << 20).contains("its largest block has 256 MB"));
    assert!(refused("alpha-21264", "linux-ppc", 32 << 20).contains("base pages of 4K, not 8K"));
}
