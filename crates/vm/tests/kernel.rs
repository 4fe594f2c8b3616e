//! The kernel of `kernel/`, booted in QEMU: on a processor's own page tables, faults and use bits.

use std::path::Path;
use std::process::Command;

#[test]
fn a_kernel_boots_and_its_programs_read_what_they_wrote() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let qemu = Command::new("qemu-system-x86_64").arg("--version").output();
    if !root.join("kernel").exists() || !qemu.is_ok_and(|output| output.status.success()) {
        return superpage_testing::skip!(
            "qemu-system",
            "qemu-system-x86_64 is not installed (apt install qemu-system-x86)"
        );
    }
    let output = Command::new("make").current_dir(root).args(["--no-print-directory", "kernel"]).output().unwrap();
    let (told, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{told}{errors}");
    assert!(told.contains("\n0 wrong words in all"), "{told}");
    let number = |line: &str, after: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.windows(2).find_map(|pair| pair[0].parse::<u64>().ok().filter(|_| pair[1] == after))
    };
    let lines: Vec<&str> = told.lines().filter(|line| line.contains(" wrong words") && line.starts_with(' ')).collect();
    assert_eq!(lines.len(), 14, "{told}");
    for policy in lines.chunks(7) {
        let of = |line: usize, what| number(policy[line], what).unwrap_or_else(|| panic!("{what} in {}", policy[line]));
        assert_eq!((of(0, "promotions"), of(0, "demotions")), (4, 0));
        assert!(of(2, "demotions") > 0, "a fork and a write demote: {told}");
        assert!(of(5, "out") > 6000 && of(5, "in") > 6000, "the daemon pages: {told}");
    }
    let shootdowns = told.lines().filter_map(|line| number(line, "shootdowns,"));
    assert_eq!(shootdowns.filter(|sent| *sent > 100).count(), 2, "both policies share pages: {told}");
    assert!(lines[0].contains(" 2048 faults") && lines[7].contains(" 4 faults"), "{told}");
}
