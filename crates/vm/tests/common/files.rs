//! Files: they are opened, read, written and removed, and a long one presses on memory.

use super::refused::Before;
use super::scenario::{CLOSE, OPEN, READ_FILE, SYNC, WRITE_FILE};
use super::{STREAM, Source, World};
use superpage_vm::{Fault, FaultError};

/// The pages of the file [`STREAM`].
const STREAM_PAGES: u64 = 1 << 16;

impl World {
    /// Reads or writes a page of a file without a mapping; the daemon makes room if need be. `None`
    /// if the file is not open, or if memory is full.
    fn access_file(&mut self, file: u32, page: u64, writing: bool) -> Option<Fault> {
        let access = |world: &mut World| {
            loop {
                let before = Before::of(world);
                let done = if writing {
                    world.vm.write(&mut world.contents, file, page)
                } else {
                    world.vm.read(&world.pmap, &mut world.contents, file, page)
                };
                if let Err(error) = done {
                    before.unresolved(world, error);
                }
                match done {
                    Err(FaultError::Busy(frame)) => world.finish(frame),
                    Err(FaultError::Contents(_)) => {}
                    done => return done,
                }
            }
        };
        let mut done = access(self);
        if let Err(FaultError::OutOfMemory(_)) = done {
            assert_eq!(self.vm.buddy().free_frames(), 0);
            let mut made_room = self.vm.run_daemon(&mut self.pmap, &mut self.contents);
            while !made_room && let Some((frame, ..)) = self.contents.reading.first().copied() {
                self.finish(frame);
                made_room = self.vm.run_daemon(&mut self.pmap, &mut self.contents);
            }
            done = access(self);
            assert!(!made_room || done.is_ok(), "the daemon said that it made room");
        }
        let fault = done.ok()?;
        Some(fault)
    }

    /// Presses on memory: a file that does not fit is read until the daemon has run so often, or
    /// has twice filled memory.
    pub(super) fn press(&mut self, runs: u64, stride: u64) {
        self.vm.open(STREAM, STREAM_PAGES).unwrap();
        let until = self.vm.stats().daemon_runs + runs;
        for _ in 0..2 * self.contents.memory.len() {
            let page = self.streamed % STREAM_PAGES;
            self.streamed += stride;
            let Some(fault) = self.access_file(STREAM, page, false) else { break };
            assert_eq!(self.contents.memory[fault.frame.0 as usize], 0, "page {page} of the long file was read");
            self.answer_daemon();
            if self.vm.stats().daemon_runs >= until {
                break;
            }
        }
        self.vm.close(STREAM).unwrap();
    }

    /// Opens, closes, reads, writes, writes out or removes a file.
    pub(super) fn file(&mut self, file: u32, what: u8, start: u64, pages: u64) {
        let open = self.opens.entry(file).or_default();
        match what {
            OPEN => {
                self.vm.open(file, 200).unwrap();
                *open += 1;
            }
            CLOSE if *open > 0 => {
                self.vm.close(file).unwrap();
                *open -= 1;
            }
            CLOSE => assert!(self.attempt(|world| world.vm.close(file)).is_err()),
            READ_FILE | WRITE_FILE => {
                let open = *open > 0;
                for page in start..(start + pages).min(200) {
                    let Some(fault) = self.access_file(file, page, what == WRITE_FILE) else {
                        assert!(!open || self.vm.buddy().free_frames() == 0);
                        return;
                    };
                    assert!(open);
                    let frame = fault.frame.0 as usize;
                    if what == READ_FILE {
                        let expected = self.files.get(&(file, page)).copied().unwrap_or(0);
                        assert_eq!(self.contents.memory[frame], expected, "page {page} of file {file} was read");
                    } else {
                        self.written += 1;
                        self.contents.memory[frame] = self.written;
                        self.write_file(file, page, self.written);
                    }
                }
            }
            SYNC => {
                let sync = |world: &mut World| world.vm.sync(&mut world.pmap, &mut world.contents, file);
                let _ = self.attempt(sync);
                if self.attempt(sync).is_ok() && !self.through {
                    let mut written = self.files.iter().filter(|((of, _), _)| *of == file);
                    assert!(written.all(|(page, contents)| self.contents.disk.get(page).unwrap_or(&0) == contents));
                }
            }
            _ => {
                let mut all = self.slots.values().flat_map(|slots| slots.values());
                let of = |source: Source| match source {
                    Source::File { file, .. } | Source::Copied { file, .. } => Some(file),
                    Source::Cell { .. } => None,
                };
                // While it is mapped, it goes on living: what it then holds is for those who map
                // it.
                if !all.any(|slot| of(slot.source) == Some(file)) {
                    self.wait(|world| world.vm.remove_file(file)).unwrap();
                    self.opens.remove(&file);
                    self.files.retain(|(of, _), _| *of != file);
                    let disk = self.contents.disk.iter().filter(|((of, _), _)| *of == file);
                    self.files.extend(disk.map(|(page, contents)| (*page, *contents)));
                }
            }
        }
    }

    /// A page of a file has new contents.
    pub(super) fn write_file(&mut self, file: u32, page: u64, contents: u32) {
        self.files.insert((file, page), contents);
        if self.through {
            self.contents.disk.insert((file, page), contents);
        }
    }
}
