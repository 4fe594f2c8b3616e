//! Whole streams of workloads.

use superpage_trace::{Batch, Counts, Event, Run, check_stream, workload};

/// The whole stream of a workload: its runs, and its events with their places among all runs.
pub(crate) fn stream(text: &str) -> (Vec<Run>, Vec<(usize, Event)>) {
    let mut source = workload::parse(text).unwrap();
    let (mut batch, mut runs, mut events) = (Batch::default(), Vec::new(), Vec::new());
    while source.fill(&mut batch).unwrap() {
        events.extend(batch.events.iter().map(|(at, event)| (runs.len() + *at as usize, event.clone())));
        runs.extend_from_slice(&batch.runs);
    }
    assert!(!source.fill(&mut batch).unwrap() && batch == Batch::default(), "{text} goes on after its end");
    (runs, events)
}

/// What the stream of a workload holds, every rule checked.
pub(crate) fn counts(text: &str) -> Counts {
    check_stream(&mut *workload::parse(text).unwrap()).unwrap()
}
