//! The frame around a compressed block or the footer: lengths and counts in front, a checksum at
//! the end.

use super::block::{BLOCK_RUNS, RAW_BYTES};
use super::bytes::{Bytes, Damage};
use xxhash_rust::xxh3::xxh3_64;

/// The bytes of a frame before the compressed ones.
pub(crate) const FRONT: usize = 32;

/// The bytes of the checksum behind them.
pub(crate) const BACK: usize = 8;

/// The most compressed bytes of a frame: zstd's worst case for incompressible ones, with some room.
pub(crate) const PACKED_BYTES: usize = RAW_BYTES + RAW_BYTES / 128 + 1024;

/// The most bytes of a block's whole frame.
pub(crate) const BLOCK_BYTES: u64 = (FRONT + PACKED_BYTES + BACK) as u64;

/// The last 16 bytes of a complete file: the offset of the footer's frame and this.
pub(crate) const CLOSING: [u8; 8] = *b"sp-close";

/// The bytes of the trailer.
pub(crate) const TRAILER: usize = 16;

/// The process and thread numbers of a block before the first switch.
pub(crate) const NOBODY: (u32, u32) = (u32::MAX, u32::MAX);

/// What a frame holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Block,
    Footer,
}

impl Kind {
    fn magic(self) -> [u8; 4] {
        match self {
            Kind::Block => *b"SPBK",
            Kind::Footer => *b"SPFT",
        }
    }
}

/// The front of a frame. The footer's bytes are not compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Front {
    pub(crate) kind: Kind,
    /// The number of the block, from 0; for the footer the number of blocks, truncated to 32 bits.
    pub(crate) number: u32,
    pub(crate) packed: u32,
    pub(crate) raw: u32,
    pub(crate) runs: u32,
    pub(crate) events: u32,
    /// The current process and thread before the block, or [`NOBODY`].
    pub(crate) current: (u32, u32),
}

impl Front {
    /// The length of the whole frame.
    pub(crate) fn length(&self) -> u64 {
        FRONT as u64 + u64::from(self.packed) + BACK as u64
    }

    /// Writes the whole frame to `out`, replacing its contents. `packed` must be as long as the
    /// front says.
    pub(crate) fn encode(&self, packed: &[u8], out: &mut Vec<u8>) {
        out.clear();
        out.extend(self.kind.magic());
        for value in [self.number, self.packed, self.raw, self.runs, self.events, self.current.0, self.current.1] {
            out.extend(value.to_le_bytes());
        }
        out.extend(packed);
        out.extend(xxh3_64(out).to_le_bytes());
    }

    /// Parses a front and checks that its values are plausible.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Front, Damage> {
        let mut bytes = Bytes(bytes);
        let magic = bytes.array::<4>()?;
        let kind = [Kind::Block, Kind::Footer].into_iter().find(|kind| kind.magic() == magic);
        let front = Front {
            kind: kind.ok_or(Damage("it does not begin with SPBK or SPFT"))?,
            number: bytes.word()?,
            packed: bytes.word()?,
            raw: bytes.word()?,
            runs: bytes.word()?,
            events: bytes.word()?,
            current: (bytes.word()?, bytes.word()?),
        };
        let sane = match front.kind {
            Kind::Block => {
                front.packed as usize <= PACKED_BYTES
                    && front.raw as usize <= RAW_BYTES
                    && front.runs as usize <= BLOCK_RUNS
            }
            // The footer is not compressed: it cannot be longer than the file.
            Kind::Footer => front.raw == front.packed,
        };
        if sane { Ok(front) } else { Err(Damage("its lengths are beyond what a block can have")) }
    }
}

/// The checksum at the end of a frame that is whole.
pub(crate) fn checksum(frame: &[u8]) -> &[u8] {
    &frame[frame.len() - BACK..]
}

/// Checks a whole frame, including its checksum; returns its front and its compressed bytes.
pub(crate) fn open(frame: &[u8]) -> Result<(Front, &[u8]), Damage> {
    let (body, checksum) = frame.split_last_chunk::<BACK>().ok_or(Damage("it is too short"))?;
    let front = Front::decode(body)?;
    if front.length() != frame.len() as u64 {
        return Err(Damage("its length differs from the one in the index"));
    }
    if xxh3_64(body) != u64::from_le_bytes(*checksum) {
        return Err(Damage("its bytes do not match its checksum"));
    }
    Ok((front, &body[FRONT..]))
}
