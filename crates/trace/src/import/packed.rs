//! Compressed inputs: xz, gzip, zstd and zip, recognised by their first bytes, and plain ones.

use crate::Error;
use crate::file::open_file;
use flate2::Crc;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use zip::{CompressionMethod, ZipArchive};

/// Bytes read from the file at a time.
const AT_A_TIME: usize = 1 << 16;

/// The contents of a file, decompressed as they are read.
pub(super) struct Packed {
    path: PathBuf,
    input: Box<dyn Read + Send>,
    /// Bytes of its contents read so far.
    bytes: u64,
}

impl Packed {
    /// Opens a file and detects its compression.
    pub(super) fn open(path: &Path) -> Result<Packed, Error> {
        let io = |source| Error::Io { path: path.to_owned(), source };
        let wrong = |problem: &str| Err(Error::input(path.display().to_string(), problem));
        let mut plain = BufReader::with_capacity(AT_A_TIME, open_file(path)?);
        let input: Box<dyn Read + Send> = match plain.fill_buf().map_err(io)? {
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Box::new(liblzma::bufread::XzDecoder::new_multi_decoder(plain)),
            [0x1f, 0x8b, ..] => Box::new(flate2::bufread::MultiGzDecoder::new(plain)),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Box::new(zstd::stream::read::Decoder::with_buffer(plain).map_err(io)?),
            [b'P', b'K', 3, 4, ..] => Box::new(Zipped::open(path, plain)?),
            [4, 0x22, 0x4d, 0x18, ..] => {
                return wrong("is compressed with lz4, which is not read: unpack it first (unlz4)");
            }
            [0xff, 6, 0, 0, b's', b'N', ..] => {
                return wrong("is compressed with snappy, which is not read: unpack it first");
            }
            _ => Box::new(plain),
        };
        Ok(Packed { path: path.to_owned(), input, bytes: 0 })
    }

    /// The file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Fills the buffer as far as there is input.
    pub(super) fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, Error> {
        let mut length = 0;
        while length < buffer.len() {
            match self.input.read(&mut buffer[length..]) {
                Ok(0) => break,
                Ok(read) => length += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.unreadable(length as u64, &error)),
            }
        }
        self.bytes += length as u64;
        Ok(length)
    }

    /// The error of a read that many bytes after those counted.
    pub(super) fn unreadable(&self, after: u64, error: &io::Error) -> Error {
        let problem = format!("cannot be decompressed: {error}; expected a whole file: fetch it again");
        self.error(self.bytes + after, &problem)
    }

    /// An error at a byte of the decompressed contents.
    pub(super) fn error(&self, byte: u64, problem: &str) -> Error {
        Error::input(format!("{}: byte {byte} of its records", self.path.display()), problem)
    }
}

impl Read for Packed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        self.bytes += read as u64;
        Ok(read)
    }
}

/// The files in a zip archive one after the other, in the order of its directory. The directory is
/// the library's to read; the contents are read here, since the library lends a file from the
/// archive, which cannot be kept next to it.
struct Zipped {
    file: File,
    components: std::vec::IntoIter<Component>,
    open: Option<(Component, Box<dyn Read + Send>, Crc)>,
}

struct Component {
    name: String,
    start: u64,
    packed: u64,
    unpacked: u64,
    checksum: u32,
    deflated: bool,
}

impl Zipped {
    fn open(path: &Path, file: BufReader<File>) -> Result<Zipped, Error> {
        let wrong = |problem: String| Error::input(path.display().to_string(), problem);
        let damaged = |error| wrong(format!("is a damaged zip file: {error}; expected a whole one: fetch it again"));
        let mut archive = ZipArchive::new(file).map_err(damaged)?;
        let mut components = Vec::new();
        for number in 0..archive.len() {
            let entry = archive.by_index_raw(number).map_err(damaged)?;
            let name = String::from_utf8_lossy(entry.name_raw()).escape_debug().to_string();
            let deflated = match entry.compression() {
                CompressionMethod::Stored => false,
                CompressionMethod::Deflated if !entry.encrypted() => true,
                _ => {
                    return Err(wrong(format!(
                        "its part {name} is encrypted or not deflated: zip it again, or use gzip"
                    )));
                }
            };
            components.push(Component {
                name,
                start: entry.data_start().unwrap_or_default(),
                packed: entry.compressed_size(),
                unpacked: entry.size(),
                checksum: entry.crc32(),
                deflated,
            });
        }
        Ok(Zipped { file: archive.into_inner().into_inner(), components: components.into_iter(), open: None })
    }

    fn next(&mut self) -> io::Result<bool> {
        let Some(component) = self.components.next() else { return Ok(false) };
        self.file.seek(SeekFrom::Start(component.start))?;
        let packed = BufReader::with_capacity(AT_A_TIME, self.file.try_clone()?.take(component.packed));
        let contents: Box<dyn Read + Send> =
            if component.deflated { Box::new(flate2::bufread::DeflateDecoder::new(packed)) } else { Box::new(packed) };
        self.open = Some((component, contents, Crc::new()));
        Ok(true)
    }
}

impl Read for Zipped {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some((component, contents, sum)) = &mut self.open {
                let read = contents.read(buffer)?;
                if read != 0 || buffer.is_empty() {
                    sum.update(&buffer[..read]);
                    return Ok(read);
                }
                // The sum counts bytes modulo 2^32.
                if sum.sum() != component.checksum || sum.amount() != component.unpacked as u32 {
                    return Err(io::Error::new(
                        ErrorKind::InvalidData,
                        format!("its part {} is damaged", component.name),
                    ));
                }
                self.open = None;
            }
            if !self.next()? {
                return Ok(0);
            }
        }
    }
}
