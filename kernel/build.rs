//! Links the kernel at a fixed address, without start files.

fn main() {
    let folder = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    for argument in
        ["-nostartfiles", "-nostdlib", "-static", "-no-pie", &format!("-Wl,-T,{folder}/kernel.ld,--build-id=none")]
    {
        println!("cargo::rustc-link-arg-bins={argument}");
    }
    println!("cargo::rerun-if-changed=kernel.ld");
}
