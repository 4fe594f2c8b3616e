//! One stream for several readers, each of which reads all of it, at a pace of its own.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use superpage_trace::{Batch, Error, Info, Source};

/// What one reader sees of a stream: all of it. What one has read and another has not waits in
/// memory, so they are to read in turn.
pub(crate) struct Tap<'a> {
    shared: Arc<Mutex<Shared<'a>>>,
    place: usize,
    info: Info,
}

struct Shared<'a> {
    source: &'a mut dyn Source,
    /// For each reader, what others have read before it.
    ahead: Vec<VecDeque<Batch>>,
}

impl<'a> Tap<'a> {
    /// One for each of so many readers.
    pub(crate) fn of(source: &'a mut dyn Source, readers: usize) -> Vec<Tap<'a>> {
        let info = source.info().clone();
        let shared = Arc::new(Mutex::new(Shared { source, ahead: vec![VecDeque::new(); readers] }));
        let tap = |place| Tap { shared: Arc::clone(&shared), place, info: info.clone() };
        (0..readers).map(tap).collect()
    }
}

impl Source for Tap<'_> {
    fn info(&self) -> &Info {
        &self.info
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(next) = shared.ahead[self.place].pop_front() {
            *batch = next;
            return Ok(true);
        }
        let more = shared.source.fill(batch)?;
        self.info.cut = shared.source.info().cut;
        let others = shared.ahead.iter_mut().enumerate().filter(|(place, _)| more && *place != self.place);
        others.for_each(|(_, ahead)| ahead.push_back(batch.clone()));
        Ok(more)
    }

    fn digest(&self) -> Option<String> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).source.digest()
    }
}
