//! The policy of `docs/policy-tutorial.md` in the simulator.

#[path = "../../vm/tests/tutorial/hot.rs"]
mod hot;

use std::sync::atomic::AtomicBool;
use superpage_sim::{Conditions, Row, plan, run};
use superpage_trace::workload;
use superpage_vm::{Policy, Target};

fn row(share: &str) -> Row {
    let setups = plan(&["zen5".into()], &["base".into()], &Conditions::default()).unwrap();
    let own = Policy::of(&hot::HOT, [("share", share), ("interval", "1ms")], &Target::MANAGER).unwrap();
    let setups = setups.into_iter().map(|setup| setup.with_policy(own.clone())).collect::<Vec<_>>();
    let mut source = workload::parse("random:bytes=256M,references=100K,populate=no").unwrap();
    run(&setups, source.as_mut(), &AtomicBool::new(false), &|_| {}).unwrap().remove(0)
}

#[test]
fn what_is_used_is_promoted_and_what_is_not_is_left() {
    // Of 65 536 pages some four fifths are ever used: no region is used to 99 %, and each soon to 2
    // %.
    let (little, all) = (row("0.02"), row("0.99"));
    assert_eq!((little.policy.as_str(), all.promotions), ("hot", 0));
    assert!(little.promotions > 100 && little.bytes_copied > 0, "{little:?}");
    assert!(little.tlb_misses < all.tlb_misses && little.other_core_cycles > 0, "{little:?}");
}
