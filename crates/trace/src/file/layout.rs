//! Where the parts of a file are: from its footer or, if that is missing, from the blocks
//! themselves.

use super::bytes::{Bytes, Damage};
use super::frame::{self, BACK, CLOSING, FRONT, Front, Kind, TRAILER};
use super::header::{self, DESCRIPTION_BYTES, MAGIC, PREFIX, VERSION};
use super::totals::Totals;
use crate::Error;
use crate::event::Info;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use xxhash_rust::xxh3::xxh3_64;

/// Bytes that can be read at any position.
pub(crate) trait Input: Read + Seek + Send {}
impl<T: Read + Seek + Send> Input for T {}

/// Where a block is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) first_run: u64,
    pub(crate) runs: u64,
}

/// Everything that is known of a file without decoding a block.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) version: u32,
    pub(crate) info: Info,
    pub(crate) notes: Vec<(String, String)>,
    pub(crate) blocks: Vec<Block>,
    pub(crate) length: u64,
    /// From the footer; `None` if it is missing.
    pub(crate) totals: Option<Totals>,
    /// Where and why the blocks end, if there is no footer.
    pub(crate) cut: Option<(u64, Damage)>,
}

impl Layout {
    /// Reads the header and the footer or, if that is missing, walks along the blocks.
    pub(crate) fn read(input: &mut dyn Input, path: &Path) -> Result<Layout, Error> {
        let io = |source| Error::Io { path: path.to_owned(), source };
        let name = path.display().to_string();
        let length = input.seek(SeekFrom::End(0)).map_err(io)?;
        if length == 0 {
            let problem = "is empty; expected a trace: make one with `superpage record` or `superpage trace import`";
            return Err(Error::input(name, problem));
        }
        let mut prefix = [0; PREFIX];
        let found = (length as usize).min(PREFIX);
        read_at(input, 0, &mut prefix[..found]).map_err(io)?;
        let checked = check_prefix(&prefix[..found], length);
        let (version, first_block) = checked.map_err(|problem| Error::input(&name, problem))?;
        let mut head = vec![0; first_block as usize];
        read_at(input, 0, &mut head).map_err(io)?;
        let (body, checksum) = head.split_at(head.len() - 8);
        let sound = xxh3_64(body).to_le_bytes() == checksum;
        let described =
            if sound { header::decode(&body[PREFIX..], version) } else { Err(Damage("its checksum does not match")) };
        let (info, notes) = described.map_err(|Damage(problem)| {
            let problem =
                format!("its header (bytes 0 to {first_block}) is damaged: {problem}; record the trace again");
            Error::input(&name, problem)
        })?;
        let mut layout = Layout { version, info, notes, blocks: Vec::new(), length, totals: None, cut: None };
        if layout.read_footer(input, first_block).map_err(io)?.is_err() {
            layout.walk(input, first_block).map_err(io)?;
        }
        layout.info.runs = Some(layout.blocks.last().map_or(0, |block| block.first_run + block.runs));
        Ok(layout)
    }

    /// Reads blocks and totals from the footer, or returns why it cannot.
    fn read_footer(&mut self, input: &mut dyn Input, first: u64) -> io::Result<Result<(), Damage>> {
        let missing = Ok(Err(Damage("its end is missing")));
        let Some(trailer_at) = self.length.checked_sub(TRAILER as u64).filter(|&at| at >= first) else {
            return missing;
        };
        let mut trailer = [0; TRAILER];
        read_at(input, trailer_at, &mut trailer)?;
        let (footer_at, closing) = trailer.split_first_chunk().expect("the trailer is longer than an offset");
        let footer_at = u64::from_le_bytes(*footer_at);
        if *closing != CLOSING || footer_at < first || footer_at >= trailer_at {
            return missing;
        }
        let mut footer = vec![0; (trailer_at - footer_at) as usize];
        read_at(input, footer_at, &mut footer)?;
        Ok(self.decode_footer(&footer, first, footer_at))
    }

    fn decode_footer(&mut self, footer: &[u8], first: u64, footer_at: u64) -> Result<(), Damage> {
        let (front, body) = frame::open(footer)?;
        if front.kind != Kind::Footer {
            return Err(Damage("it ends with a block"));
        }
        let mut bytes = Bytes(body);
        let totals = Totals::get(&mut bytes, self.version)?;
        let (mut offset, mut first_run) = (first, 0u64);
        let mut blocks = Vec::new();
        for _ in 0..bytes.number()? {
            let (length, runs) = (u64::from(bytes.small()?), u64::from(bytes.small()?));
            blocks.push(Block { offset, length, first_run, runs });
            offset = offset.saturating_add(length);
            first_run = first_run.saturating_add(runs);
        }
        bytes.end()?;
        if offset != footer_at || first_run != totals.runs {
            return Err(Damage("its index does not add up"));
        }
        self.blocks = blocks;
        self.totals = Some(totals);
        Ok(())
    }

    /// Finds the blocks by their fronts alone, up to the first that is not whole.
    fn walk(&mut self, input: &mut dyn Input, first: u64) -> io::Result<()> {
        let (mut offset, mut first_run) = (first, 0);
        loop {
            let left = self.length - offset;
            let mut front = [0; FRONT];
            let damage = if left == 0 {
                Damage("its footer is missing")
            } else if left < (FRONT + BACK) as u64 {
                Damage("it ends within the block")
            } else {
                read_at(input, offset, &mut front)?;
                match Front::decode(&front) {
                    Err(damage) => damage,
                    Ok(front) if front.kind == Kind::Footer => Damage("its footer is damaged"),
                    Ok(front) if front.length() > left => Damage("it ends within the block"),
                    Ok(front) => {
                        let (length, runs) = (front.length(), u64::from(front.runs));
                        self.blocks.push(Block { offset, length, first_run, runs });
                        offset += length;
                        first_run += runs;
                        continue;
                    }
                }
            };
            self.cut = Some((offset, damage));
            return Ok(());
        }
    }
}

/// Checks the first bytes; returns the version and where the first block begins.
fn check_prefix(prefix: &[u8], length: u64) -> Result<(u32, u64), String> {
    let mut bytes = Bytes(prefix);
    if bytes.0.iter().zip(MAGIC).any(|(&found, expected)| found != expected) {
        let hint = match prefix {
            [0xfd, b'7', b'z', ..] => " (it looks like xz)",
            [0x1f, 0x8b, ..] => " (it looks like gzip)",
            [0x28, 0xb5, 0x2f, 0xfd, ..] => " (it looks like zstd)",
            _ if prefix.is_ascii() => " (it looks like text)",
            _ => "",
        };
        return Err(format!(
            "is not a superpage trace: it does not begin with \"sp-trace\"{hint}; \
             traces of other tools are read with `superpage trace import FORMAT FILE -o FILE`"
        ));
    }
    let cut = |_| {
        format!(
            "is cut off in its header, at byte {length}: no part of it can be used; record or import the trace again"
        )
    };
    bytes.take(MAGIC.len()).map_err(cut)?;
    let (version, description) = (bytes.word().map_err(cut)?, bytes.word().map_err(cut)?);
    if version > VERSION {
        return Err(format!(
            "is a trace of version {version}, and this superpage reads versions up to {VERSION}: use a newer superpage"
        ));
    }
    if version == 0 || description as usize > DESCRIPTION_BYTES {
        return Err("its header (bytes 8 to 16) is damaged; record or import the trace again".into());
    }
    let first_block = PREFIX as u64 + u64::from(description) + 8;
    if first_block > length { Err(cut(Damage(""))) } else { Ok((version, first_block)) }
}

/// Reads into `out` from `offset` on.
pub(crate) fn read_at(input: &mut dyn Input, offset: u64, out: &mut [u8]) -> io::Result<()> {
    input.seek(SeekFrom::Start(offset))?;
    input.read_exact(out)
}
