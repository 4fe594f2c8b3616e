//! Notes that say why a policy did nothing.

use crate::script::{Script, run_script};
use superpage_pages::{Access, Hint};
use superpage_report::Screen;
use superpage_sim::{Conditions, Format, Row, write};
use superpage_trace::Event;

/// The notes of rows on one line each.
fn said(rows: &[Row]) -> String {
    let mut out = Vec::new();
    write(rows, Format::Table, Screen::of(1000), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// One mapping of so many pages, of which the first are touched.
fn script(start: u64, pages: u64, touched: u64, hint: Option<Hint>) -> Script {
    let mut script = Script::new();
    script.process(0);
    script.map(start, pages);
    if let Some(hint) = hint {
        script.event(Event::Advise { start, pages, hint });
    }
    script.touch(start..start + touched, Access::Write);
    script
}

fn noted(script: &mut Script, policy: &str, conditions: &Conditions) -> String {
    said(&run_script(script, "zen5", &[policy], conditions))
}

#[test]
fn no_aligned_superpage_is_in_a_mapping() {
    let own = Conditions::default();
    // Its end is before the first aligned 2 MB.
    let said = noted(&mut script(0x1001, 510, 510, None), "thp", &own);
    assert!(said.contains("zen5 thp: no superpage: no fault was in an aligned 2M of private anonymous"), "{said}");
    assert!(said.contains("where the program does not ask for base pages"), "{said}");
    let said = noted(&mut script(0x1001, 510, 510, None), "reservation:sizes=2M", &own);
    assert!(said.contains("no superpage: no fault was in an aligned 2M that was whole in its mapping"), "{said}");
    // What made superpages has no such note, nor has base.
    let said = noted(&mut script(0x1000, 1024, 1024, None), "thp", &own);
    assert!(!said.contains("no superpage"), "{said}");
}

#[test]
fn the_program_does_not_ask_for_huge_pages() {
    let conditions = Conditions::default();
    let asked = |hint| noted(&mut script(0x1000, 1024, 1024, hint), "thp:enabled=madvise", &conditions);
    let said = asked(None);
    assert!(said.contains("for which the program asks for huge pages by madvise, as this policy needs"), "{said}");
    assert!(!asked(Some(Hint::Huge)).contains("no superpage"));
    let said = noted(&mut script(0x1000, 1024, 1024, Some(Hint::Base)), "thp", &conditions);
    assert!(said.contains("where the program does not ask for base pages"), "{said}");
}

#[test]
fn no_reservation_is_filled() {
    let said = noted(&mut script(0x1000, 1024, 15, None), "reservation", &Conditions::default());
    assert!(said.contains("zen5 reservation: no superpage: of 1 reservations, none had an aligned"), "{said}");
}

#[test]
fn no_extent_is_free() {
    let conditions = Conditions { fragment: "1".parse().unwrap(), ..Conditions::default() };
    let said = noted(&mut script(0x1000, 1024, 1024, None), "thp:defrag=never", &conditions);
    assert!(said.contains("no superpage: for none of its 2 requests was an extent of 2M free"), "{said}");
}

/// A run of 10 ms or so under `promote`: what limits it, and the remedy of its note in its place.
#[test]
fn a_run_is_too_short_for_a_background() {
    let rows = |policy: &str, time_scale: &str| {
        let mut script = script(0x1000, 8192, 8192, None);
        script.event(Event::Idle { microseconds: 10_000 });
        let conditions = Conditions { time_scale: time_scale.parse().unwrap(), ..Conditions::default() };
        run_script(&mut script, "zen5", &[policy], &conditions)
    };
    // It never ran; it ran, but no region was seen for its age, or by a scan.
    for (policy, scale, limits) in [
        ("promote", "1", "(interval=1s, age=2s, cpu=0.01)"),
        ("promote", "100", "(interval=1s, age=2s, cpu=0.01)"),
        ("promote:age=10ms,interval=100ms", "10", "(interval=100ms, age=10ms, cpu=0.01)"),
        ("promote:age=10s,interval=1ms,cpu=1", "1", "(interval=1ms, age=10s)"),
    ] {
        let before = rows(policy, scale);
        assert_eq!(before[1].promotions, 0);
        let said = said(&before).split_whitespace().collect::<Vec<_>>().join(" ");
        let remedy = said.split_once("is too short for what it waits for ").expect(&said).1;
        assert!(remedy.starts_with(limits), "{said}");
        let scale = remedy.split_once("--time-scale ").unwrap().1;
        let digits = scale.find(|c: char| !c.is_ascii_digit()).unwrap();
        let cpu = if scale[digits..].starts_with(", and cpu=1") { "cpu=1" } else { "" };
        let separator = if policy.contains(':') || cpu.is_empty() { "," } else { ":" };
        let policy = format!("{policy}{separator}{cpu}");
        let after = rows(policy.trim_end_matches(','), &scale[..digits]);
        assert!(after[1].promotions > 0, "{policy}, {said}");
    }
}
