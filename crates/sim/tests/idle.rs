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
