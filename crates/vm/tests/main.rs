//! All tests of the crate's public interface as one program: what changes in the crate is linked
//! once, and a run takes the time of its longest test. One file a question; a new file needs its
//! line here, and `every_file_is_listed` says if it lacks one.

extern crate alloc;

mod allocated;
mod common;
mod machine;

mod adaptive;
mod aging;
mod background;
mod buddy;
mod buddy_cached;
mod busy;
mod colours;
mod compact;
mod contents;
mod contiguity;
mod cost;
mod counts;
mod daemon;
mod daemon_limits;
mod dirty;
mod fault_around;
mod files;
mod fork;
mod hawkeye;
mod hints;
mod hugetlb;
mod kernel;
mod metadata;
mod missed;
mod near_full;
mod out_of_memory;
mod papers;
mod policies;
mod preferred_size;
mod promotion_conditions;
mod protect;
mod quicksilver;
mod random_operations;
mod random_operations_reach;
mod relocate;
mod remap;
mod requests;
mod reservation_lists;
mod shootdowns;
mod speculation;
mod stride;
mod swap;
mod text;
mod thp;
mod touch;
mod trident;
mod tutorial;
mod windows;
mod wired;
mod x86_64;
mod zero_page;
mod zeroed;

#[test]
fn every_file_is_listed() {
    superpage_testing::every_file_is_listed(concat!(env!("CARGO_MANIFEST_DIR"), "/tests"), include_str!("main.rs"));
}
