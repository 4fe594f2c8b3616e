//! The symbols of remapped code, where `perf` searches for symbols of code without a file.

use super::code::Code;
use crate::Error;
use object::{Object, ObjectSegment, ObjectSymbol, SymbolKind};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A map `/tmp/perf-PID.map`, removed when dropped.
#[derive(Debug)]
pub struct Symbols {
    path: PathBuf,
    kept: bool,
}

impl Symbols {
    /// Writes the map, with the functions of the symbol tables of the files. A file of that name,
    /// left by an ended process with this number, is replaced. Some 4 ms per MB of a program's
    /// file.
    pub(super) fn write(pid: u32, code: &[(Code, File)]) -> Result<Symbols, Error> {
        let mut text = String::new();
        for (code, file) in code {
            for (address, Function { bytes, name }) in functions(code, file)? {
                let _ = writeln!(text, "{address:x} {bytes:x} {name}");
            }
        }
        let path = PathBuf::from(format!("/tmp/perf-{pid}.map"));
        let _ = std::fs::remove_file(&path);
        // A new file, so that no link of another user is followed.
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&path);
        file.as_mut()
            .map_err(|error| std::io::Error::from(error.kind()))
            .and_then(|file| file.write_all(text.as_bytes()))
            .map_err(Error::file("write", &path))?;
        Ok(Symbols { path, kept: false })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves the file there: `perf report` reads it after the command has ended.
    pub fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Symbols {
    fn drop(&mut self) {
        if !self.kept {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// A function of a program: its length and its name.
struct Function {
    bytes: u64,
    name: String,
}

/// The functions in a piece of code, by address; of a program without symbol table those that it
/// exports.
fn functions(code: &Code, mut file: &File) -> Result<BTreeMap<u64, Function>, Error> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(Error::file("read", &code.path))?;
    let unreadable = |error| Error::Unable(format!("{} is no program that can be read: {error}", code.path.display()));
    let file = object::File::parse(&bytes[..]).map_err(unreadable)?;
    let segments: Vec<(u64, u64, u64)> =
        file.segments().map(|segment| (segment.address(), segment.size(), segment.file_range().0)).collect();
    let mut found = BTreeMap::new();
    for symbol in file.symbols().chain(file.dynamic_symbols()) {
        let (at, bytes) = (symbol.address(), symbol.size());
        let segment = segments.iter().find(|(start, size, _)| (*start..start + size).contains(&at));
        let (Some((start, _, offset)), SymbolKind::Text, Ok(name)) = (segment, symbol.kind(), symbol.name()) else {
            continue;
        };
        // From the file's address to its offset, and from there to where the process has it.
        let Some(into) = (at - start + offset).checked_sub(code.offset) else { continue };
        let address = code.range.start + into;
        if bytes > 0 && code.range.contains(&address) {
            found.entry(address).or_insert_with(|| Function { bytes, name: name.to_string() });
        }
    }
    Ok(found)
}
