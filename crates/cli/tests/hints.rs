//! What a program asks for (madvise(2)), from a recording to the pages that policies give it.
#![cfg(target_os = "linux")]

use std::path::Path;
use std::process::Command;

/// Two mappings of 8 MB, of which it asks for superpages in the first, and one in which it wants
/// none; it writes to each page.
const PROGRAM: &str = "
#include <sys/mman.h>
int main(void) {
    enum { BYTES = 8 << 20 };
    for (int each = 0; each < 3; each++) {
        char *area = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (each == 0 && madvise(area, BYTES, MADV_HUGEPAGE))
            return 1;
        if (each == 1 && madvise(area, BYTES, MADV_NOHUGEPAGE))
            return 1;
        for (int at = 0; at < BYTES; at += 4096)
            ((volatile char *)area)[at] = 1;
    }
    return 0;
}
";

/// Compiles the program; `None`, said, where programs cannot be compiled or recorded here.
fn compiled(folder: &Path) -> Option<std::path::PathBuf> {
    for program in ["qemu-x86_64", "cc"] {
        if !Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success()) {
            superpage_testing::skip!("system", "no {program}");
            return None;
        }
    }
    if !cfg!(target_arch = "x86_64") {
        superpage_testing::skip!("x86-64", "the program is for x86-64");
        return None;
    }
    let (source, program) = (folder.join("hints.c"), folder.join("hints"));
    std::fs::write(&source, PROGRAM).unwrap();
    assert!(Command::new("cc").arg("-O1").arg("-o").arg(&program).arg(&source).status().unwrap().success());
    Some(program)
}

fn superpage(words: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_superpage")).args(words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn superpages_go_where_a_recorded_program_asks_for_them() {
    let _turn = superpage_testing::turn_of("record");
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled(folder.path()) else { return };
    let trace = folder.path().join("hints.sp");
    let (program, trace) = (program.to_str().unwrap(), trace.to_str().unwrap());
    superpage(&["record", "-o", trace, "--", program]);

    let text = superpage(&["trace", "export", "text", trace]);
    let area = |hint: &str| {
        let line = text.lines().find(|line| line.starts_with("advise") && line.ends_with(hint)).expect(hint);
        let page = line.split(" page ").nth(1).unwrap().split(' ').next().unwrap();
        u64::from_str_radix(page.trim_start_matches("0x"), 16).unwrap()
    };
    // Aligned parts of 2 MB in 8 MB: four, or three where the mapping is not aligned. The third one
    // lies by the others.
    let parts = |page: u64| 3 + u64::from(page.is_multiple_of(512));
    let (huge, base) = (parts(area(" huge")), parts(area(" base")));
    assert!(superpage(&["trace", "info", trace]).contains("advise"));

    let policies = ["thp", "thp:enabled=madvise", "mthp:size=2M,enabled=madvise", "thp:hints=ignored", "reservation"];
    let mut words = vec!["sim", "-m", "zen5", "--format", "json", "--trace", trace];
    policies.iter().for_each(|policy| words.extend(["-p", policy]));
    let rows: serde_json::Value = serde_json::from_str(&superpage(&words)).unwrap();
    let promoted = |policy: &str| {
        let row = rows.as_array().unwrap().iter().find(|row| row["policy"] == policy).expect(policy);
        row["promotions"].as_u64().unwrap()
    };
    assert_eq!(promoted("thp:enabled=madvise"), huge, "only what was asked for");
    assert_eq!(promoted("mthp:size=2M,enabled=madvise"), huge);
    assert_eq!(promoted("thp:hints=ignored"), promoted("thp") + base, "all but where base pages are asked for");
    assert!(promoted("thp") >= huge + 3, "{rows}");
    assert!(promoted("reservation") > promoted("thp"), "Navarro et al. know no hints");
}
