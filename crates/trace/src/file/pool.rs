//! Threads that encode and compress blocks, in any order of the work and in the right order of the
//! results.

use super::block::Columns;
use super::frame::{Front, Kind};
use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// The level of zstd. On recorded programs level 1 makes files about 6 % larger, and level 6 makes
/// them about 10 % smaller in twice the time.
const LEVEL: i32 = 3;

/// More threads than these hardly ever have something to do: one stream fills blocks no faster.
const THREADS: usize = 8;

/// Blocks for each thread that are encoded or wait for it: one of them while the thread is busy
/// with another.
const BLOCKS: usize = 2;

/// What is known of a block before it is encoded.
pub(crate) struct Block {
    pub(crate) columns: Columns,
    pub(crate) number: u32,
    /// The process and thread before it.
    pub(crate) before: (u32, u32),
    /// Whether its runs are of lines.
    pub(crate) lines: bool,
}

/// An encoded block.
pub(crate) struct Encoded {
    pub(crate) frame: io::Result<Vec<u8>>,
    pub(crate) runs: u32,
    /// The columns, emptied, to be used again.
    pub(crate) columns: Columns,
}

/// Encodes blocks, one after the other.
struct Packer {
    compressor: zstd::bulk::Compressor<'static>,
    raw: Vec<u8>,
    packed: Vec<u8>,
}

impl Packer {
    fn new() -> io::Result<Packer> {
        Ok(Packer { compressor: zstd::bulk::Compressor::new(LEVEL)?, raw: Vec::new(), packed: Vec::new() })
    }

    fn encode(&mut self, block: Block) -> Encoded {
        let Block { mut columns, number, before, lines } = block;
        let (runs, events) = (columns.runs() as u32, columns.events());
        columns.encode(&mut self.raw, lines);
        self.packed.clear();
        self.packed.reserve(zstd::zstd_safe::compress_bound(self.raw.len()));
        let done = self.compressor.compress_to_buffer(&self.raw, &mut self.packed);
        let frame = done.map(|_| {
            let (packed, raw) = (self.packed.len() as u32, self.raw.len() as u32);
            let front = Front { kind: Kind::Block, number, packed, raw, runs, events, current: before };
            let mut frame = Vec::with_capacity(front.length() as usize);
            front.encode(&self.packed, &mut frame);
            frame
        });
        Encoded { frame, runs, columns }
    }
}

/// A thread, with its work and its results.
struct Worker {
    blocks: Sender<Block>,
    encoded: Receiver<Encoded>,
    thread: JoinHandle<()>,
}

impl Worker {
    fn start() -> io::Result<Worker> {
        let mut packer = Packer::new()?;
        let (blocks, work) = channel::<Block>();
        let (results, encoded) = channel();
        let thread = std::thread::Builder::new().name("encoder".into()).spawn(move || {
            for block in work {
                if results.send(packer.encode(block)).is_err() {
                    break;
                }
            }
        })?;
        Ok(Worker { blocks, encoded, thread })
    }
}

/// Threads that encode blocks; each begins with the first block that comes to it.
pub(crate) struct Pool {
    workers: Vec<Worker>,
    /// The most threads: one for each processor.
    most: usize,
    /// Which threads have the blocks that were not returned, in the order of the blocks.
    order: VecDeque<usize>,
    next: usize,
}

impl Pool {
    pub(crate) fn new() -> Pool {
        let most = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS);
        Pool { workers: Vec::new(), most, order: VecDeque::new(), next: 0 }
    }

    /// Whether all threads have enough to do: then something must be taken before more is given.
    pub(crate) fn is_full(&self) -> bool {
        self.order.len() >= BLOCKS * self.most
    }

    /// Gives a block to the next thread.
    pub(crate) fn give(&mut self, block: Block) -> io::Result<()> {
        if self.next == self.workers.len() {
            match Worker::start() {
                Ok(worker) => self.workers.push(worker),
                // Those that there are do it all.
                Err(_) if self.next > 0 => (self.most, self.next) = (self.next, 0),
                Err(error) => return Err(error),
            }
        }
        let sent = self.workers[self.next].blocks.send(block);
        sent.map_err(|_| ended())?;
        self.order.push_back(self.next);
        self.next = (self.next + 1) % self.most;
        Ok(())
    }

    /// Waits for the first of the blocks that were given and not taken; `None` if there is none.
    pub(crate) fn take(&mut self) -> Option<io::Result<Encoded>> {
        let worker = self.order.pop_front()?;
        Some(self.workers[worker].encoded.recv().map_err(|_| ended()))
    }

    /// The first of the blocks that were given and not taken, if it is encoded.
    pub(crate) fn take_ready(&mut self) -> Option<Encoded> {
        let encoded = self.workers[*self.order.front()?].encoded.try_recv().ok()?;
        self.order.pop_front();
        Some(encoded)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for Worker { blocks, encoded, thread } in self.workers.drain(..) {
            drop((blocks, encoded));
            let _ = thread.join();
        }
    }
}

fn ended() -> io::Error {
    io::Error::other("a thread that encodes blocks has ended")
}
