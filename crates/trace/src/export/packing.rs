//! Files compressed as the end of their name says: `.gz`, `.xz`, `.zst`; others are plain.

use flate2::write::GzEncoder;
use liblzma::write::XzEncoder;
use std::io::{self, Write};
use std::path::Path;

type Plain = Box<dyn Write + Send>;

/// Whether the file with that name is compressed.
pub(super) fn packs(name: &Path) -> bool {
    name.extension().is_some_and(|end| ["gz", "xz", "zst"].iter().any(|packed| end == *packed))
}

/// A writer that may compress.
pub(super) enum Packing {
    Plain(Plain),
    Gzip(GzEncoder<Plain>),
    Xz(XzEncoder<Plain>),
    Zstd(zstd::Encoder<'static, Plain>),
}

impl Packing {
    /// Writes to `out` what is to be the file with that name.
    pub(super) fn new(out: Plain, name: &Path) -> io::Result<Packing> {
        let end = name.extension().and_then(|end| end.to_str());
        Ok(match end {
            Some("gz") => Packing::Gzip(GzEncoder::new(out, flate2::Compression::default())),
            Some("xz") => Packing::Xz(XzEncoder::new(out, 6)),
            Some("zst") => Packing::Zstd(zstd::Encoder::new(out, 0)?),
            _ => Packing::Plain(out),
        })
    }

    /// Writes what is left; the file is complete then.
    pub(super) fn finish(self) -> io::Result<()> {
        let mut out = match self {
            Packing::Plain(out) => out,
            Packing::Gzip(packing) => packing.finish()?,
            Packing::Xz(packing) => packing.finish()?,
            Packing::Zstd(packing) => packing.finish()?,
        };
        out.flush()
    }

    fn out(&mut self) -> &mut dyn Write {
        match self {
            Packing::Plain(out) => out,
            Packing::Gzip(packing) => packing,
            Packing::Xz(packing) => packing,
            Packing::Zstd(packing) => packing,
        }
    }
}

impl Write for Packing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out().flush()
    }
}
