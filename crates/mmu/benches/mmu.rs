//! The numbers of DESIGN.md for the hardware half, each beside the same work done natively in the
//! same run.

use std::hint::black_box;
use std::time::Instant;
use superpage_mmu::{Machine, Mmu, Request, Trap};
use superpage_pages::{Access, Mapped, PageSize, Pfn, Protection, Vpn};

/// Bytes of the `random` workload.
const BYTES: u64 = 256 << 20;
/// References of a round.
const REFERENCES: u64 = 20_000_000;
/// Rounds; the fastest counts, for others use the machine too.
const ROUNDS: usize = 5;

/// The stream of both sides: 64-bit xorshift.
struct Stream(u64);

impl Stream {
    #[inline(always)]
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Million references a second, in the fastest round.
fn rate(references: u64, mut round: impl FnMut()) -> f64 {
    round();
    let seconds = (0..ROUNDS).map(|_| {
        let start = Instant::now();
        round();
        start.elapsed().as_secs_f64()
    });
    references as f64 / seconds.fold(f64::INFINITY, f64::min) / 1e6
}

/// Loads of random words of a block of memory.
fn native(bytes: u64) -> f64 {
    let words = vec![1u64; bytes as usize / 8];
    let mask = words.len() as u64 - 1;
    let mut stream = Stream(1);
    rate(REFERENCES, || {
        let mut sum = 0u64;
        for _ in 0..REFERENCES {
            sum = sum.wrapping_add(words[(stream.next() >> 20 & mask) as usize]);
        }
        black_box(sum);
    })
}

/// Maps `bytes` from page 0x1000 on in pages of `size`.
fn mapped(machine: &Machine, bytes: u64, size: PageSize) -> (Mmu, u64, u64) {
    let mut mmu = Mmu::new(machine);
    let base = machine.ladder().base();
    let first = (1 << 30) >> base.shift();
    let step = size.bytes() / base.bytes();
    for page in (0..bytes / base.bytes()).step_by(step as usize) {
        mmu.enter(0, Vpn(first + page), Mapped { frame: Pfn(page), size, protection: Protection::ALL }, Access::Read);
    }
    (mmu, first, bytes / base.bytes())
}

/// Requests to random pages, each an access to another one as good as always.
fn random(machine: &Machine, bytes: u64, size: PageSize, trap_free: bool) -> f64 {
    let (mut mmu, first, pages) = mapped(machine, bytes, size);
    let mut stream = Stream(1);
    let mut requests = [Request::new(Vpn(0), Access::Read); 4096];
    rate(REFERENCES, || {
        let mut left = REFERENCES;
        while left > 0 {
            let count = left.min(requests.len() as u64) as usize;
            for request in &mut requests[..count] {
                *request = Request::new(Vpn(first + (stream.next() >> 20 & (pages - 1))), Access::Read);
            }
            let trap: Option<(usize, Trap)> = mmu.run(&requests[..count]);
            assert!(trap.is_none() == trap_free);
            left -= count as u64;
        }
    })
}

/// Faults: each page of a block is touched for the first time, entered and unmapped again.
fn faults(machine: &Machine) -> f64 {
    let base = machine.ladder().base();
    let pages = (16 << 20) / base.bytes();
    let mut mmu = Mmu::new(machine);
    let rounds = 20;
    rate(rounds * pages, || {
        for _ in 0..rounds {
            let requests: Vec<Request> = (0..pages).map(|page| Request::new(Vpn(page), Access::Write)).collect();
            let mut done = 0;
            while let Some((index, _)) = mmu.run(&requests[done..]) {
                done += index;
                let page = requests[done].page();
                mmu.enter(
                    0,
                    page,
                    Mapped { frame: Pfn(page.0), size: base, protection: Protection::READ_WRITE },
                    Access::Write,
                );
                mmu.retry(requests[done]).expect("the page is mapped now");
                done += 1;
            }
            for page in 0..pages {
                mmu.remove(0, Vpn(page), base);
            }
        }
    })
}

/// Promotions and demotions of one extent, a second (in millions).
fn promotions(machine: &Machine, to: PageSize) -> f64 {
    let (mut mmu, first, _) = mapped(machine, to.bytes(), machine.ladder().base());
    let rounds = 2_000;
    rate(2 * rounds, || {
        for _ in 0..rounds {
            mmu.promote(0, Vpn(first), machine.ladder().base(), to);
            mmu.demote(0, Vpn(first), to, machine.ladder().base());
        }
    })
}

fn row(what: &str, ours: f64, reference: Option<f64>, figure: &str) {
    let reference = reference.map_or("-".into(), |reference| format!("{reference:.1}"));
    println!("{what:<58} | {ours:>8.1} | {reference:>9} | {figure}");
}

fn main() {
    println!("{:<58} | {:>8} | {:>9} | figure of DESIGN.md", "what (million a second)", "ours", "reference");
    let reference = native(BYTES);
    for name in Machine::names() {
        let machine = Machine::builtin(name).expect("a built-in machine is sound");
        let base = machine.ladder().base();
        let what = format!("random 256M, {base} pages, {name} (reference: native loads)");
        row(&what, random(&machine, BYTES, base, true), Some(reference), "at least 74, toward 100 and more");
    }
    for name in ["alpha-21264", "skylake-sp", "golden-cove", "zen5"] {
        let machine = Machine::builtin(name).expect("a built-in machine is sound");
        let (base, large) = (machine.ladder().base(), machine.ladder().sizes()[1]);
        let hits = 16 * base.bytes();
        let loads = native(hits);
        row(
            &format!("hits: random over 16 {base} pages, {name}"),
            random(&machine, hits, base, true),
            Some(loads),
            "-",
        );
        let what = format!("random 256M, {large} pages, {name}");
        row(&what, random(&machine, BYTES, large, true), Some(reference), "-");
        row(&format!("first touch, fault, retry, remove, {name}"), faults(&machine), None, "-");
        let what = format!("promote or demote {base} <-> {large}, {name}");
        row(&what, promotions(&machine, large), None, "-");
    }
}
