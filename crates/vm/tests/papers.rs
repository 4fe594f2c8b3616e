//! Policies of papers and kernels that look at memory on their own clock: what each decides.

use crate::background::{SECOND, X86, advance};
use crate::machine::Machine;
use superpage_pages::{Hint, Level, Pfn, Vpn};
use superpage_vm::{Config, Growth, Need, Policy, Target, Vm, planned};

/// Eight regions in a wake-up, from where the last one stopped, and none with too many holes or no
/// access.
#[test]
fn khugepaged_collapses_eight_regions_in_ten_seconds() {
    let huge = |machine: &Machine| (1..21).filter(|region| machine.level(region * 512) == Some(Level(1))).count();
    for (parameters, each) in
        [("", [0, 0, 8, 16, 20]), ("max-none=0,", [0, 0, 0, 0, 0]), ("pages=512,", [0, 0, 1, 2, 3])]
    {
        let mut machine = Machine::new(X86, 16384, &format!("khugepaged:{parameters}fault=off"));
        (1..21).for_each(|region| machine.anonymous(region * 512, 512, Growth::Fixed));
        (1..21).for_each(|region| (0..10).for_each(|page| machine.put(region * 512 + page, region)));
        assert_eq!(huge(&machine), 0);
        for (count, second) in each.into_iter().zip([0, 9, 10, 20, 30]) {
            advance(&mut machine, second, 0);
            assert_eq!(huge(&machine), count, "{parameters} after {second} s");
        }
        assert!((1..21).all(|region| machine.get(region * 512 + 9) == region));
        machine.end();
    }
}

#[test]
fn khugepaged_sleeps_for_a_minute_where_no_extent_is_free() {
    let mut machine = Machine::new(X86, 2048, "khugepaged:fault=off");
    machine.anonymous(512, 512, Growth::Fixed);
    machine.put(512, 1);
    let wired: Vec<Pfn> = (0..2047).map_while(|_| machine.vm.wire_page().ok()).collect();
    assert_eq!(advance(&mut machine, 10, 0), Some(70 * SECOND));
    wired.into_iter().for_each(|frame| machine.vm.unwire_page(frame).unwrap());
    assert_eq!(advance(&mut machine, 69, 0), Some(70 * SECOND));
    assert_eq!(machine.level(512), Some(Level::BASE));
    assert_eq!(advance(&mut machine, 70, 0), Some(80 * SECOND));
    assert_eq!(machine.level(512), Some(Level(1)));
    machine.end();
}

#[test]
fn ingens_promotes_nine_tenths_and_takes_huge_pages_while_memory_is_whole() {
    for (parameters, first) in [("", Level::BASE), (":aggressive=0.5", Level(1))] {
        let mut machine = Machine::new(X86, 8192, &format!("ingens{parameters}"));
        machine.anonymous(512, 4 * 512, Growth::Fixed);
        advance(&mut machine, 0, 0);
        for (region, pages) in [(1, 461), (2, 460)] {
            (0..pages).for_each(|page| machine.put(region * 512 + page, page));
        }
        assert_eq!(machine.level(2 * 512), Some(first), "{parameters}");
        advance(&mut machine, 4, 0);
        assert_eq!([1, 2].map(|region| machine.level(region * 512)), [Some(Level(1)), Some(first)], "{parameters}");
        machine.end();
    }
}

#[test]
fn ethp_makes_huge_what_is_accessed_and_takes_it_back() {
    for (parameters, last) in [("", Level::BASE), (":cold=keep", Level(1))] {
        let mut machine = Machine::new(X86, 8192, &format!("ethp{parameters}"));
        machine.anonymous(512, 3 * 512, Growth::Fixed);
        let touch = |machine: &mut Machine, region: u64, pages| {
            (0..pages).for_each(|page| machine.put(region * 512 + page, page))
        };
        (1..4).for_each(|region| touch(&mut machine, region, [26, 25, 512][region as usize - 1]));
        for second in 0..9 {
            advance(&mut machine, second, 0);
            let levels = [1, 2, 3].map(|region| machine.level(region * 512).unwrap());
            // The copy is accessed, so that the time begins at the second call.
            let first = if second < 8 { Level(1) } else { last };
            assert_eq!(levels, [first, Level::BASE, Level(1)], "{parameters} after {second} s");
            touch(&mut machine, 3, 1);
        }
        machine.end();
    }
}

#[test]
fn emd_breaks_the_huge_pages_that_give_back_most() {
    let mut machine = Machine::new(X86, 4096, "emd:least=20");
    machine.anonymous(512, 8 * 512, Growth::Fixed);
    let huge = |machine: &Machine| (1..8).map(|region| machine.level(region * 512)).collect::<Vec<_>>();
    for (region, pages) in (1..).zip([500, 10, 100, 500, 9, 400, 500]) {
        (0..pages).for_each(|page| machine.put(region * 512 + page, page + 1));
        advance(&mut machine, region, 0);
        assert!(region == 7 || huge(&machine)[..region as usize].iter().all(|level| *level == Some(Level(1))));
    }
    // 512 frames are free, less than 15 %; 1229 are to be.
    let (base, whole) = (Some(Level::BASE), Some(Level(1)));
    assert_eq!(huge(&machine), [whole, base, whole, whole, base, whole, whole]);
    assert_eq!(machine.vm.buddy().free_frames(), 512 + 502 + 503);
    advance(&mut machine, 8, 0);
    assert_eq!(machine.vm.stats().zeroes_given_back, 502 + 503);
    machine.end();
}

/// The text of a plan by its name.
fn plan(name: &str) -> Result<String, String> {
    match name {
        // Regions 2, 3 and 5, of which 5 does not pay; 7 is cut.
        "good" => Ok("huge,heap,300000,addr,>,0x400000,addr,<,0x800000\n\
                      huge,mmap,300000,addr,>,0x400000,addr,<,0x600000\neager,mmap,1\n\
                      huge,mmap,200000,addr,>,0xa00000,addr,<,0xc00000\n\
                      huge,mmap,300000,addr,>,0xe01000,addr,<,0x1000000\n"
            .into()),
        "both" => Ok("# recorded\nhuge,mmap,300000,addr,>,0x200000,addr,<,0x400000\n# native\n\
                      huge,mmap,1,addr,>,0x600000,addr,<,0x800000\n"
            .into()),
        "neither" => Ok("huge,mmap,300000,addr,>,0x200000,addr,<,0x400000\n# native\n".into()),
        "late" => Ok("# native\n\nhuge,mmap\n".into()),
        "all" => Ok("huge,heap,200001\n".into()),
        "bad" => Ok("huge,mmap,300000\n\nhuge,mmap,300000,addr,>\n".into()),
        // A line by itself.
        line if line.starts_with("huge,") || line.starts_with("eager,") || line.starts_with('#') => Ok(line.into()),
        other => Err(format!("there is no {other}")),
    }
}

#[test]
fn a_plan_says_where_huge_pages_pay() {
    let target = Target { read: Some(plan), ..Target::MANAGER };
    let policy = |file| Policy::new("plan", [("file", file)], &target);
    for (file, huge) in [("good", [2, 3].as_slice()), ("all", &[1, 2, 3, 4, 5, 6, 7])] {
        let mut machine = Machine::new(X86, 8192, "base");
        let (ladder, policy) = (*machine.vm.ladder(), policy(file).unwrap());
        machine.vm = Vm::new(Config { ladder, frames: 8192, policy, swap_pages: 0 }).unwrap();
        machine.space = machine.vm.create_space();
        // Region 1 to 4 are populated before the plan is known there, the others are mapped later.
        machine.anonymous(512, 4 * 512, Growth::Fixed);
        (1..5).for_each(|region| machine.put(region * 512 + 7, region));
        assert!((1..5).all(|region| machine.level(region * 512 + 7) == Some(Level::BASE)));
        assert_eq!(machine.vm.due(), Some(0));
        advance(&mut machine, 0, 0);
        machine.anonymous(5 * 512, 3 * 512, Growth::Fixed);
        assert_eq!(machine.vm.due(), Some(0));
        advance(&mut machine, 0, 0);
        assert_eq!(machine.vm.due(), Some(SECOND));
        (5..8).for_each(|region| machine.put(region * 512 + 7, region));
        let found = (1..8).filter(|region| machine.level(region * 512 + 7) == Some(Level(1))).collect::<Vec<_>>();
        assert_eq!(found, huge, "{file}");
        assert!((1..8).all(|region| machine.get(region * 512 + 7) == region));
        machine.end();
    }
    let message = |file| policy(file).unwrap_err().to_string();
    assert!(message("bad").starts_with("policy plan: bad, line 3: expected huge|eager,"), "{}", message("bad"));
    assert_eq!(message("none"), "policy plan: file none: there is no none");
    let elsewhere = "plan:file=good".parse::<Policy>().unwrap_err().to_string();
    assert_eq!(elsewhere, "policy plan: its file is empty, or this memory manager reads none");
    assert_eq!(policy("all").unwrap().to_string(), "plan:file=all");
}

#[test]
fn a_plan_that_was_cut_short_is_refused() {
    let simulated = Target { read: Some(plan), ..Target::MANAGER };
    let live = Target { has: &[Need::Settings, Need::Copying], ..simulated };
    let found = |file: &str, target| Policy::new("plan", [("file", file)], target).map(|policy| planned(&policy));
    for target in [&simulated, &live] {
        for (file, why) in [
            ("huge,mmap,300000,addr,>,0x7fff", "line 1: the file ends within this line"),
            ("huge,mmap,300000", "line 1: the file ends within this line"),
            ("# a\n# nativ", "line 2: the file ends within this line"),
            ("huge,mmap,300000,addr,>,0x7fff\n", "line 1: expected an upper address as well"),
            ("huge,mmap,300000,addr,<,0x7fff\n", "line 1: expected a lower address as well"),
            ("huge,mmap,300000,\n", "line 1: expected huge|eager,"),
            ("huge,mmap,300000,addr,>,0x1000,addr,>,0x2000\n", "line 1: expected huge|eager,"),
            ("huge,mmap,300000,addr,>,1,addr,<,2,addr,<,3\n", "line 1: expected huge|eager,"),
            ("eager,mmap,1,addr,>,1\n", "line 1: expected an upper address as well"),
            ("# a\nhuge,mmap,300000,addr,>,0x2000,addr,<,0x2000\n", "line 2: expected LO below HI"),
        ] {
            let error = found(file, target).unwrap_err().to_string();
            assert!(error.contains(why), "{file}: {error}");
        }
        // CBMM's own: no addresses, an end above 2^47, and what is written as open.
        for (file, ranges) in [
            ("huge,heap,41534456\nhuge,mmap,41534456\n", 0..u64::MAX),
            ("huge,heap,3053488,addr,>,0x7ffff3400000,addr,<,0x800079c00000\n", 0x7fff_f340_0000..0x8000_79c0_0000),
            ("huge,heap,3053488,addr,>,0x0,addr,<,0x100000000000000\n", 0..1 << 56),
        ] {
            assert_eq!(found(file, target).unwrap(), [ranges], "{file}");
        }
    }
    // Traces may have addresses of a kernel, live programs have none.
    for at in ["0xffffffff80000000", "0x100000000000001"] {
        let file = format!("huge,mmap,300000,addr,>,0x1000,addr,<,{at}\n");
        assert!(found(&file, &simulated).is_ok());
        let error = found(&file, &live).unwrap_err().to_string();
        assert!(error.contains("line 1: expected user memory"), "{error}");
    }
}

#[test]
fn a_plan_has_addresses_of_a_recording_and_those_of_the_live_program() {
    let range = |start, end| core::ops::Range { start, end };
    let simulated = Target { read: Some(plan), ..Target::MANAGER };
    let live = Target { has: &[Need::Settings, Need::Copying], ..simulated };
    let found = |file, target| Policy::new("plan", [("file", file)], target).map(|policy| planned(&policy));
    assert_eq!(found("both", &simulated).unwrap(), [range(0x20_0000, 0x40_0000)]);
    // Whatever it saves: it was chosen.
    assert_eq!(found("both", &live).unwrap(), [range(0x60_0000, 0x80_0000)]);
    for target in [&simulated, &live] {
        assert_eq!(found("good", target).unwrap(), [0x40_0000..0x80_0000, 0xe0_1000..0x100_0000]);
        assert_eq!(found("all", target).unwrap(), [range(0, u64::MAX)]);
    }
    assert_eq!(found("neither", &simulated).unwrap(), [range(0x20_0000, 0x40_0000)]);
    let message = found("neither", &live).unwrap_err().to_string();
    assert_eq!(message, "policy plan: neither: no region of it has an address of a live program");
    assert!(found("late", &live).unwrap_err().to_string().contains("late, line 3: expected"));
    assert_eq!(planned(&"thp".parse().unwrap()), []);
}

/// Populates pages until fewer frames are free.
fn fill(machine: &mut Machine, from: u64, free: u64) {
    let mut page = from;
    while machine.vm.buddy().free_frames() >= free {
        machine.put(page, page);
        page += 1;
    }
}

#[test]
fn eager_takes_sizes_up_to_its_ceilings_while_enough_is_free() {
    let mut machine = Machine::new("4K 16K 64K 2M", 4096, "eager:keep=25%");
    machine.anonymous(4096, 2048, Growth::Fixed);
    machine.vm.advise(&mut machine.pmap, machine.space, Vpn(4608).pages(1536), Hint::Huge).unwrap();
    advance(&mut machine, 0, 0);
    assert_eq!([4096, 4608].map(|page| machine.write(page).mapped), [Level(1), Level(3)]);
    // 1024 pages are to stay free: first there is no room for 2 MB, then for nothing but base
    // pages.
    machine.anonymous(8192, 4096, Growth::Fixed);
    fill(&mut machine, 8192, 1024 + 512);
    advance(&mut machine, 1, 0);
    assert_eq!([4352, 5120].map(|page| machine.write(page).mapped), [Level(1), Level(2)]);
    fill(&mut machine, 10240, 1024 + 4);
    advance(&mut machine, 2, 0);
    assert_eq!([4480, 5632].map(|page| machine.write(page).mapped), [Level(0), Level(0)]);
    machine.end();
}

#[test]
fn eager_coalesces_what_faults_wanted_in_vain() {
    let mut machine = Machine::new(X86, 4096, "eager:ceiling=2M,coalesce=on,watermark=3,batch=2");
    let mut pages: Vec<u64> = (8192..8192 + 4000).collect();
    machine.anonymous(8193, 4000, Growth::Fixed);
    pages.iter().for_each(|page| machine.put(page + 1, *page));
    pages.retain(|page| page % 2 == 0);
    pages.iter().for_each(|page| machine.unmap(page + 1, 1));
    machine.anonymous(512, 512, Growth::Fixed);
    machine.put(512, 1);
    let free = |machine: &Machine| machine.vm.buddy().free_extents(Level(1));
    assert_eq!((machine.level(512), free(&machine)), (Some(Level::BASE), 0));
    for (second, extents) in [(0, 2), (1, 3), (2, 3)] {
        advance(&mut machine, second, 0);
        assert_eq!(free(&machine), extents);
    }
    machine.anonymous(1024, 512, Growth::Fixed);
    machine.put(1024, 2);
    assert_eq!(machine.level(1024), Some(Level(1)));
    machine.end();
}
