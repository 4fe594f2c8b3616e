//! The connection to one process: bytes in, messages out.

use super::buffers::Slot;
use super::wire::{self, CHUNK, CHUNK_WORDS, SLOTS, SWAPPED, THREAD_ENDS, VERSION, code};
use rustix::net::SendFlags;
use std::collections::HashMap;
use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;

/// How much is read at once: several chunks.
const READ_BYTES: usize = 1 << 19;
const HEADER_BYTES: usize = 16;

/// One connection of a process.
pub(super) struct Connection {
    pub(super) stream: UnixStream,
    bytes: Vec<u8>,
    /// The part of `bytes` that has been read and not used.
    used: usize,
    filled: usize,
    /// The token of the process, once it has sent it.
    pub(super) token: Option<u64>,
    /// Whether its process is known to the stream, so that its chunks may be used.
    pub(super) admitted: bool,
    /// Nothing more will come.
    pub(super) closed: bool,
    /// The numbers in the trace of the process's threads.
    pub(super) threads: HashMap<u32, u32>,
}

impl Connection {
    pub(super) fn new(stream: UnixStream) -> Connection {
        let bytes = vec![0; 2 * READ_BYTES];
        Connection {
            stream,
            bytes,
            used: 0,
            filled: 0,
            token: None,
            admitted: false,
            closed: false,
            threads: HashMap::new(),
        }
    }

    /// Reads what is available, without waiting.
    pub(super) fn read(&mut self) -> std::io::Result<()> {
        if self.bytes.len() - self.filled < READ_BYTES {
            self.bytes.copy_within(self.used..self.filled, 0);
            self.filled -= self.used;
            self.used = 0;
        }
        match self.stream.read(&mut self.bytes[self.filled..]) {
            Ok(0) => self.closed = true,
            Ok(count) => self.filled += count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => self.closed = true,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// The thread of the next chunk, if enough of it has arrived.
    pub(super) fn next_thread(&self) -> Option<u32> {
        let header = self.bytes[self.used..self.filled].get(..HEADER_BYTES)?;
        Some((word(&header[8..]) >> 32) as u32)
    }

    /// The next message, `None` if it has not arrived completely. The words of one that holds them
    /// go into `words`.
    pub(super) fn message(&mut self, words: &mut Vec<u64>) -> Result<Option<Message>, String> {
        let bytes = &self.bytes[self.used..self.filled];
        let Some((header, rest)) = bytes.split_at_checked(HEADER_BYTES) else { return Ok(None) };
        let (mark, place) = (word(&header[..8]), word(&header[8..]));
        let (thread, length) = ((place >> 32) as u32, (place & 0xffff_ffff) as usize);
        if length > CHUNK_WORDS {
            return Err(format!("a chunk has {length} words, expected at most {CHUNK_WORDS}"));
        }
        let (message, bytes) = match mark {
            CHUNK => (Message::Chunk { thread, slot: None }, length * size_of::<u64>()),
            THREAD_ENDS => (Message::ThreadEnds { thread }, 0),
            _ if (SWAPPED..SWAPPED + SLOTS as u64).contains(&mark) => {
                (Message::Chunk { thread, slot: Some(Slot { slot: (mark - SWAPPED) as usize, length }) }, 0)
            }
            _ => return Err(format!("a chunk begins with {mark:#x}, expected {CHUNK:#x}")),
        };
        let Some(body) = rest.get(..bytes) else { return Ok(None) };
        words.clear();
        words.extend(body.chunks_exact(8).map(word));
        self.used += HEADER_BYTES + bytes;
        Ok(Some(message))
    }

    /// Reads the first chunk of a connection, if it has arrived, which says which process this is.
    pub(super) fn greet(&mut self, words: &mut Vec<u64>) -> Result<(), String> {
        if self.token.is_none() && self.message(words)?.is_some() {
            match words[..] {
                [hello, VERSION, token] if hello == wire::event(code::HELLO, 2) => self.token = Some(token),
                _ => return Err("a connection does not begin with its process's number".into()),
            }
        }
        Ok(())
    }
}

/// What a process sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Message {
    /// Words of a thread: here, or in a slot of its file.
    Chunk { thread: u32, slot: Option<Slot> },
    /// A thread needs its file no more.
    ThreadEnds { thread: u32 },
}

impl Drop for Connection {
    /// Releases the process. If the connection ends without this byte, it knows that its recorder
    /// was killed, and exits too.
    fn drop(&mut self) {
        let _ = rustix::net::send(&self.stream, &[0], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }
}

/// The word in eight bytes.
pub(super) fn word(bytes: &[u8]) -> u64 {
    u64::from_ne_bytes(bytes.try_into().expect("eight bytes"))
}
