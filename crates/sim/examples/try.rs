use std::sync::atomic::AtomicBool;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let machines: Vec<String> = args[2].split(';').map(String::from).collect();
    let policies: Vec<String> = args[3].split(';').map(String::from).collect();
    let mut c = superpage_sim::Conditions::default();
    if let Some(m) = args.get(4) {
        c.memory = Some(superpage_pages::parse_bytes(m).unwrap());
    }
    let setups = superpage_sim::plan(&machines, &policies, &c).unwrap_or_else(|e| panic!("{e}"));
    let mut source: Box<dyn superpage_trace::Source> =
        superpage_trace::workload::parse(&args[1]).unwrap_or_else(|e| panic!("{e}"));
    let t = std::time::Instant::now();
    let rows = superpage_sim::run(&setups, source.as_mut(), &AtomicBool::new(false), &|_| {}).unwrap();
    eprintln!("{:?}", t.elapsed());
    superpage_sim::write(&rows, superpage_sim::Format::Table, &mut std::io::stdout()).unwrap();
}
