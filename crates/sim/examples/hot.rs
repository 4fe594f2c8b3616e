//! A policy of one's own in a simulation: the one of `docs/policy-tutorial.md`, and `base`, as
//! JSON.
//! The Python package's tests hold the same policy in Python to these rows.
//!
//!     cargo run --release -p superpage-sim --example hot zen5 random:bytes=256M,references=100K,populate=no 0.5 1ms

#[path = "../../vm/tests/tutorial/hot.rs"]
mod hot;

use std::error::Error;
use std::sync::atomic::AtomicBool;
use superpage_report::Screen;
use superpage_sim::{Conditions, Format, machine, plan_policies, run, write};
use superpage_trace::workload;
use superpage_vm::{Policy, Target};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, text, share, interval] = &arguments[..] else {
        return Err("expected MACHINE WORKLOAD SHARE INTERVAL, as in zen5 random:bytes=256M 0.5 1ms".into());
    };
    let own = Policy::of(&hot::HOT, [("share", share.as_str()), ("interval", interval)], &Target::MANAGER)?;
    let setups = plan_policies(&[machine(name)?], &[("hot".into(), own)], &Conditions::default())?;
    let mut source = workload::parse(text)?;
    let rows = run(&setups, source.as_mut(), &AtomicBool::new(false), &|_| {})?;
    write(&rows, Format::Json, Screen::of(100), &mut std::io::stdout())?;
    Ok(())
}
