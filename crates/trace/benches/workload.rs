//! How fast each built-in workload gives its stream: data references and runs a second, the best of
//! five rounds. What is timed is the filling of batches alone; the references are counted before.

use std::time::Instant;
use superpage_trace::{Batch, check_stream, workload};

fn main() {
    let all = [
        "random:references=50M",
        "matrix:rounds=10",
        "touch:bytes=64M,rounds=1000",
        "stride:rounds=20K",
        "sequential:bytes=4G,passes=8",
        "chase:references=50M",
        "zipf:references=20M",
        "fftw:n=100",
        "tree:operations=2K",
        "web",
        "c4",
        "sp",
        "gups:updates=20M",
        "graph:scale=20,roots=2",
        "kv:operations=5M",
        "btree:keys=4M,operations=2M",
        "xsbench:gridpoints=2000,lookups=100K",
        "random:references=20M + random:references=20M",
    ];
    println!("{:48} {:>12} {:>12}", "workload", "references/s", "runs/s");
    for text in all {
        let parse = || workload::parse(text).expect("a workload of the table");
        let counts = check_stream(&mut *parse()).expect("a stream that keeps the rules");
        let round = || {
            let (mut batch, start) = (Batch::default(), Instant::now());
            let mut source = parse();
            while source.fill(&mut batch).expect("a stream from memory") {
                std::hint::black_box(&batch);
            }
            start.elapsed()
        };
        let best = (0..5).map(|_| round()).min().expect("five rounds").as_secs_f64();
        let rate = |count: u64| count as f64 / best / 1e6;
        println!("{text:48} {:>10.0} M {:>10.0} M", rate(counts.references), rate(counts.runs));
    }
}
