//! The buddy allocator under any sequence of operations: it validates after each, never gives a
//! frame to two owners, refuses an extent, or a frame of a colour, only if none is free, prefers
//! those without cache pages, forgets no mark of one, and ends as it began.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use superpage_pages::{Extent, Ladder, Level, PageSize, Pfn};
use superpage_vm::Buddy;

#[derive(Arbitrary, Debug)]
struct Input {
    /// The index into `LADDERS`.
    ladder: u8,
    /// One less than the number of frames.
    frames: u16,
    /// The base-two logarithm of the number of colours; 0 is without.
    colours: u8,
    operations: Vec<Operation>,
}

#[derive(Arbitrary, Debug)]
enum Operation {
    Allocate {
        level: u8,
    },
    AllocateColoured {
        page: u16,
    },
    AllocateAt {
        frame: u16,
        level: u8,
    },
    /// Frees a held extent in pieces of this level; its frames then hold cache pages, or what they
    /// held.
    Free {
        which: u16,
        pieces: u8,
        cached: bool,
    },
    Mark {
        frame: u16,
    },
    Forget {
        frame: u16,
    },
}

/// Superpage sizes as powers of two of base pages.
const LADDERS: [&[u32]; 6] = [&[], &[1, 2, 3], &[3, 6, 9], &[4, 9], &[6, 12], &[1, 8, 10, 15]];

fn ladder(which: u8) -> Ladder {
    let orders = LADDERS[usize::from(which) % LADDERS.len()];
    let sizes = [0].iter().chain(orders).map(|order| PageSize::from_shift(12 + order).unwrap());
    Ladder::new(&sizes.collect::<Vec<_>>()).unwrap()
}

fuzz_target!(|input: Input| {
    let ladder = ladder(input.ladder);
    let frames = u64::from(input.frames) + 1;
    let colours = 1 << (input.colours % 18);
    let whole = Buddy::new(ladder, frames).unwrap().with_colours(colours).unwrap();
    let mut buddy = whole.clone();
    let mut free = vec![true; frames as usize];
    let mut marked = vec![false; frames as usize];
    let mut held: Vec<Extent> = Vec::new();
    let members = |extent: Extent| extent.start.0 as usize..(extent.start.0 + ladder.pages(extent.level)) as usize;
    let in_ladder = |level: u8| Level(level % ladder.len() as u8);

    for operation in input.operations {
        match operation {
            Operation::Allocate { level } => {
                let level = in_ladder(level);
                let mut extents = free.chunks_exact(ladder.pages(level) as usize);
                let possible = extents.any(|extent| extent.iter().all(|free| *free));
                // A maximal extent of this size without cache pages is taken first.
                let plain = buddy.iter().any(|e| e.level == level && !marked[members(e)].contains(&true));
                let got = buddy.allocate(level);
                assert_eq!(got.is_some(), possible);
                held.extend(got);
                if let Some(extent) = got {
                    assert!(free[members(extent)].iter().all(|free| *free));
                    assert!(!plain || !marked[members(extent)].contains(&true));
                    free[members(extent)].fill(false);
                }
            }
            Operation::AllocateColoured { page } => {
                let plain = |e: &Extent| !marked[members(*e)].contains(&true);
                let of_colour = |frame: usize| frame as u64 % colours == u64::from(page) % colours;
                let possible = colours > 1 && buddy.iter().filter(plain).flat_map(members).any(of_colour);
                let got = buddy.allocate_coloured(page.into());
                assert_eq!(got.is_some(), possible);
                held.extend(got);
                if let Some(extent) = got {
                    assert_eq!(extent.start.0 % colours, u64::from(page) % colours);
                    assert!(free[members(extent)].iter().all(|free| *free));
                    free[members(extent)].fill(false);
                }
            }
            Operation::AllocateAt { frame, level } => {
                let extent = Extent::around(&ladder, Pfn(frame.into()), in_ladder(level));
                let possible = free.get(members(extent)).is_some_and(|extent| extent.iter().all(|free| *free));
                assert_eq!(buddy.is_free(extent), possible);
                assert_eq!(buddy.allocate_at(extent), possible);
                if possible {
                    free[members(extent)].fill(false);
                    held.push(extent);
                }
            }
            Operation::Free { which, pieces, cached } if !held.is_empty() => {
                let extent = held.swap_remove(usize::from(which) % held.len());
                let level = in_ladder(pieces).min(extent.level);
                for start in members(extent).step_by(ladder.pages(level) as usize) {
                    let piece = Extent { start: Pfn(start as u64), level };
                    if cached {
                        buddy.free_cached(piece);
                        marked[members(piece)].fill(true);
                    } else {
                        buddy.free(piece);
                    }
                }
                free[members(extent)].fill(true);
            }
            Operation::Mark { frame } => {
                let frame = u64::from(frame) % frames;
                buddy.mark_cached(Pfn(frame));
                marked[frame as usize] = true;
            }
            Operation::Forget { frame } => {
                let frame = u64::from(frame) % frames;
                buddy.forget_cached(Pfn(frame));
                marked[frame as usize] = false;
            }
            Operation::Free { .. } => {}
        }
        buddy.validate().unwrap();
        assert_eq!(buddy.free_frames(), free.iter().filter(|free| **free).count() as u64);
        let plain = free.iter().zip(&marked).filter(|(free, marked)| **free && !**marked).count();
        assert_eq!(buddy.plain_frames(), plain as u64);
        assert!((0..).zip(&marked).all(|(frame, marked)| buddy.is_cached(Pfn(frame)) == *marked));
    }
    for extent in held {
        buddy.free(extent);
    }
    (0..frames).for_each(|frame| buddy.forget_cached(Pfn(frame)));
    assert_eq!(buddy, whole);
});
