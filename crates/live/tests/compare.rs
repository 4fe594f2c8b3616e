//! What a comparison does before its first run.
#![cfg(target_os = "linux")]

use superpage_linux::settings::{Settings, System, THP_ENABLED};
use superpage_live::Policy;
use superpage_live::compare::{Options, settings};

/// The lock is waited for while a signal still ends the wait: before anything else, also where only
/// the reference needs it.
#[test]
fn the_lock_is_taken_first_where_only_the_reference_changes_settings() {
    let _turn = superpage_testing::turn_of("settings");
    if let Err(error) = Settings::take(true) {
        return superpage_testing::skip!("system", "{error}");
    }
    if System::live().get(THP_ENABLED).is_err() {
        return superpage_testing::skip!("system", "this kernel has no transparent huge pages");
    }
    let named = |name: &str| name.parse::<Policy>().unwrap();
    let options = Options { policies: vec![named("base")], ..Options::new(["true"]) };
    let held = |options: &Options| {
        let settings = settings(options);
        let held =
            [Settings::lock, Settings::share].map(|take| take(&mut Settings::new(System::live(), false)).is_err());
        drop(settings);
        held
    };
    assert_eq!(held(&options), [true, false], "nothing is changed, and nobody else may change anything");
    assert_eq!([true; 2], held(&Options { reference: named("thp"), ..options }));
}
