//! `web`: a web server in the manner of thttpd, which maps the files that it serves (Navarro et
//! al., sections 6.2 and 6.5).
//!
//! The files and how popular they are stand in `site`; the paper's own come from an access log that
//! is not published. The requests of a seed are one endless sequence, and `first` says where in it
//! to begin: `web:requests=100K` and then `web:first=100K,requests=100K` are two parts of one. The
//! process is the one of [`process`](super::process), its heap right behind its data. For each
//! request:
//!
//! 1. The connection's buffer in the heap, one of 64 that are used in turn, 1 KB each, is written,
//!    and a page of the stack.
//! 2. If the file is not mapped it is opened and mapped, at an address as the system chooses it
//!    ([`room`]), and an entry of 128 bytes is written in the heap, which grows by 8 KB for
//!    each 64. If it is, its entry is read and updated.
//! 3. The file is read in order to its end: a load for each 8 bytes.
//! 4. A line of 100 bytes goes to the log, which is written page by page.
//!
//! thttpd keeps a file mapped after it was served, for ten minutes and by its defaults up to about
//! 2000 files, but "not as a hard limit". At the paper's peak (table 1) what is mapped is larger by
//! 77 MB than the working set, as much as pages of 8 KB add to all files served, so hardly any had
//! been unmapped. So by default all stay; `kept` is a limit to their number, beyond which the one
//! used longest ago is unmapped and closed. A mapped file counts as open here, as the paper has it
//! ("the web server keeps its active files open while it is running"); with the process's end all
//! are closed.
//!
//! The kernel wires memory for vnodes and the like as requests come, evenly, and never frees it: by
//! default 40 pages of 4 KB for each 1000 requests (assumed: half a kilobyte for each file that is
//! opened, about 360 in 1000 requests). The sizes of entries, buffers and log lines, and 3
//! instructions a reference, are assumed too.

mod site;

use super::files::{data_file, open_and_map, room, unmap_and_close};
use super::parameters::{MOST_COUNT, Parameter, Values};
use super::process::{LEAST_HEAP, MALLOC_PAGE, Process};
use super::program::{Out, PAGE, Program, Running};
use super::{Kind, file};
use crate::{Error, Event, Source};
use site::Site;
use std::collections::{BTreeMap, HashMap};
use superpage_pages::{Access, Protection};

pub(super) const KIND: Kind = Kind {
    name: "web",
    help: "a web server that maps the files it serves (Navarro et al., sections 6.2 and 6.5)",
    parameters: &[
        Parameter { name: "requests", default: "50K", help: "the number of requests" },
        Parameter { name: "first", default: "0", help: "the number of the first of them, in an endless sequence" },
        Parameter { name: "kept", default: "1M", help: "the most files that stay mapped" },
        Parameter { name: "wired", default: "40", help: "pages of 4 KB that the kernel wires in 1000 requests" },
        Parameter { name: "seed", default: "1", help: "chooses the files and the requests" },
    ],
    start,
};

/// Where files are mapped: far above the program.
const FILES: u64 = 1 << 36;
/// The log's number among the workload's files, behind those of the site.
const LOG: u64 = site::FILES;
/// Bytes of a line of the log.
const LINE: u64 = 100;
const BUFFERS: u64 = 64;
const BUFFER: u64 = 1 << 10;
/// Bytes of an entry in the heap for each mapped file.
const ENTRY: u64 = 128;
const MOST_REQUESTS: u64 = MOST_COUNT / 1000;

fn start(values: &Values) -> Result<Box<dyn Source>, Error> {
    let requests = values.count("requests", 0..=MOST_REQUESTS)?;
    let first = values.count("first", 0..=MOST_REQUESTS)?;
    let kept = values.count("kept", 1..=MOST_COUNT)?;
    let wired = values.count("wired", 0..=1_000_000)?;
    let site = Site::new(values.seed()?);
    let runs = (requests as f64 * (4.5 + site.mean_request() / PAGE as f64)) as u64;
    let (next, end) = (first, first + requests);
    let server = Server { site, next, end, kept, wired, process: None, done: false, cache: Cache::default() };
    Ok(Running::start(values, server, false, runs))
}

struct Server {
    site: Site,
    /// The next request, and the one after the last.
    next: u64,
    end: u64,
    kept: u64,
    wired: u64,
    process: Option<(Process, Heap)>,
    done: bool,
    cache: Cache,
}

/// Where in the heap the connections' buffers are, and the entries so far, 64 to a chunk.
struct Heap {
    buffers: u64,
    chunks: Vec<u64>,
}

/// The files that are mapped.
#[derive(Default)]
struct Cache {
    mapped: HashMap<u64, Mapped>,
    /// The mapped files by the request that used them last.
    used: BTreeMap<u64, u64>,
    /// For each size of room, the addresses that are free again, the next to be used last.
    free: HashMap<u64, Vec<u64>>,
    /// The end of what was ever mapped, from [`FILES`] on.
    end: u64,
    /// The entries that are free again.
    entries: Vec<u64>,
}

struct Mapped {
    start: u64,
    used: u64,
    entry: u64,
}

impl Program for Server {
    fn step(&mut self, out: &mut Out) -> bool {
        if self.done {
            return false;
        }
        if self.process.is_none() {
            out.begin();
            let mut process = Process::start(out, file("web"), LEAST_HEAP, false);
            let buffers = process.grow_heap(out, BUFFERS * BUFFER);
            self.process = Some((process, Heap { buffers, chunks: Vec::new() }));
            let file_pages = self.next * LINE / PAGE;
            out.event(Event::Open { file: data_file("web", LOG), file_pages });
        } else if self.next < self.end {
            self.serve(out);
            self.next += 1;
        } else {
            out.event(Event::Exit);
            self.done = true;
        }
        true
    }
}

impl Server {
    fn serve(&mut self, out: &mut Out) {
        let request = self.next;
        let (process, heap) = self.process.as_mut().expect("a process that has started");
        accesses(out, heap.buffers + request % BUFFERS * BUFFER, Access::Write, BUFFER / 8);
        accesses(out, Process::stack(), Access::Write, 64);
        let file = self.site.file(request);
        let bytes = self.site.size(file);
        let old = self.cache.mapped.get(&file).map(|mapped| mapped.entry);
        let entry = old.unwrap_or_else(|| self.cache.free_entry());
        if entry / PER_CHUNK == heap.chunks.len() as u64 {
            heap.chunks.push(process.grow_heap(out, MALLOC_PAGE));
        }
        let address = heap.chunks[(entry / PER_CHUNK) as usize] + entry % PER_CHUNK * ENTRY;
        accesses(out, address, Access::Write, if old.is_some() { 4 } else { ENTRY / 8 });
        let start = self.cache.map(out, Served { file, bytes, request, entry });
        for at in (0..bytes).step_by(PAGE as usize) {
            accesses(out, start + at, Access::Read, (bytes - at).min(PAGE).div_ceil(8));
        }
        while self.cache.mapped.len() as u64 > self.kept {
            self.cache.expire(out, &self.site);
        }
        let log = |requests: u64| requests * LINE / PAGE;
        if log(request + 1) > log(request) {
            out.event(Event::Write { file: data_file("web", LOG), start: log(request), pages: 1 });
        }
        let wired = |requests: u64| requests * self.wired / 1000;
        if wired(request + 1) > wired(request) {
            out.event(Event::Wire { pages: wired(request + 1) - wired(request) });
        }
    }
}

/// Entries in a chunk of the heap.
const PER_CHUNK: u64 = MALLOC_PAGE / ENTRY;

/// A file that is served: its size, the request that it is served for, and its entry in the heap.
struct Served {
    file: u64,
    bytes: u64,
    request: u64,
    entry: u64,
}

impl Cache {
    /// An entry that no mapped file has.
    fn free_entry(&mut self) -> u64 {
        self.entries.pop().unwrap_or(self.mapped.len() as u64)
    }

    /// Maps a file unless it is mapped, and returns its address.
    fn map(&mut self, out: &mut Out, served: Served) -> u64 {
        let Served { file, bytes, request, entry } = served;
        self.used.insert(request, file);
        if let Some(mapped) = self.mapped.get_mut(&file) {
            self.used.remove(&mapped.used);
            mapped.used = request;
            return mapped.start;
        }
        let room = room(bytes);
        let start = self.free.get_mut(&room).and_then(Vec::pop).unwrap_or_else(|| {
            let start = self.end.next_multiple_of(room);
            self.end = start + room;
            FILES + start
        });
        open_and_map(out, data_file("web", file), bytes.div_ceil(PAGE), start, Protection::READ);
        self.mapped.insert(file, Mapped { start, used: request, entry });
        start
    }

    /// Unmaps the file that was used longest ago.
    fn expire(&mut self, out: &mut Out, site: &Site) {
        let (_, file) = self.used.pop_first().expect("a mapped file");
        let Mapped { start, entry, .. } = self.mapped.remove(&file).expect("a file that was used is mapped");
        let bytes = site.size(file);
        unmap_and_close(out, data_file("web", file), bytes.div_ceil(PAGE), start);
        self.free.entry(room(bytes)).or_default().push(start);
        self.entries.push(entry);
    }
}

/// `words` loads or stores of 8 bytes from an address on.
fn accesses(out: &mut Out, address: u64, access: Access, words: u64) {
    out.words(address, access, words, 3);
}
