//! Workloads that are arrays of addresses, or generators of such.

use crate::of_trace;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use superpage_pages::Access;
use superpage_trace::Source;
use superpage_trace::import::{Collected, Listed};

/// A workload by accesses, as Python gives it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Accesses<'py> {
    name: String,
    /// Pairs of addresses and writes.
    pieces: Bound<'py, PyAny>,
    /// The bytes of an access.
    bytes: u64,
    /// Instructions an access.
    instructions: u64,
}

/// The accesses between two looks at signals: some hundredths of a second.
const CHUNK: usize = 1 << 20;

/// The stream of these accesses; all are taken from Python now. Signals are let in meanwhile. One
/// array stays as it is; the pieces of a generator are compressed.
pub(crate) fn source(accesses: &Accesses<'_>, lines: bool) -> PyResult<Box<dyn Source>> {
    let mut pieces = accesses.pieces.try_iter()?;
    let Some(first) = pieces.next() else { return listed(accesses, Piece::default(), lines) };
    let first = Piece::read(&first?)?;
    match pieces.next() {
        None => listed(accesses, first, lines),
        Some(second) => {
            let others = pieces.map(|piece| Piece::read(&piece?));
            let all = [Ok(first), second.and_then(|piece| Piece::read(&piece))].into_iter().chain(others);
            collected(accesses, all, lines)
        }
    }
}

/// An array of addresses, and of whether each is a write.
#[derive(Default)]
struct Piece {
    addresses: Vec<u64>,
    /// Empty if all are reads.
    writes: Vec<bool>,
}

impl Piece {
    fn read(piece: &Bound<'_, PyAny>) -> PyResult<Piece> {
        piece.py().check_signals()?;
        let (addresses, writes) = piece.extract::<(Bound<'_, PyAny>, Option<Bound<'_, PyAny>>)>()?;
        let addresses = read_addresses(&addresses)?;
        let writes = writes.map(|writes| read_writes(&writes, addresses.len())).transpose()?;
        Ok(Piece { addresses, writes: writes.unwrap_or_default() })
    }
}

fn listed(accesses: &Accesses<'_>, piece: Piece, lines: bool) -> PyResult<Box<dyn Source>> {
    let Accesses { name, pieces, bytes, instructions } = accesses;
    let (py, count) = (pieces.py(), piece.addresses.len());
    let mut listed = Listed::new((name, lines), piece.addresses, piece.writes, *bytes, *instructions);
    for first in (0..count).step_by(CHUNK) {
        py.check_signals()?;
        py.detach(|| listed.look(first..count.min(first + CHUNK)));
    }
    listed.finish().map_err(of_trace)
}

fn collected(
    accesses: &Accesses<'_>,
    pieces: impl Iterator<Item = PyResult<Piece>>,
    lines: bool,
) -> PyResult<Box<dyn Source>> {
    let Accesses { name, pieces: given, bytes, instructions } = accesses;
    let py = given.py();
    let mut collected = Collected::new(name, lines).map_err(of_trace)?;
    for piece in pieces {
        let Piece { addresses, writes } = piece?;
        for (number, some) in addresses.chunks(CHUNK).enumerate() {
            py.check_signals()?;
            let push = || {
                some.iter().zip(number * CHUNK..).try_for_each(|(address, place)| {
                    let write = writes.get(place).copied().unwrap_or(false);
                    let access = if write { Access::Write } else { Access::Read };
                    collected.push(access, *address, *bytes, *instructions)
                })
            };
            py.detach(push).map_err(of_trace)?;
        }
    }
    py.detach(|| collected.finish()).map_err(of_trace)
}

fn read_addresses(array: &Bound<'_, PyAny>) -> PyResult<Vec<u64>> {
    let py = array.py();
    if let Ok(buffer) = PyBuffer::<u64>::get(array) {
        return buffer.to_vec(py);
    }
    let wrong = || PyValueError::new_err("addresses: expected an array of 64-bit whole numbers, as numpy.uint64");
    let signed = PyBuffer::<i64>::get(array).map_err(|_| wrong())?.to_vec(py)?;
    let address = |address: i64| u64::try_from(address);
    signed
        .into_iter()
        .map(address)
        .collect::<Result<_, _>>()
        .map_err(|_| PyValueError::new_err("addresses: one is negative; expected whole numbers from 0"))
}

fn read_writes(array: &Bound<'_, PyAny>, length: usize) -> PyResult<Vec<bool>> {
    let buffer = PyBuffer::<u8>::get(array)
        .map_err(|_| PyValueError::new_err("writes: expected an array of true and false, as numpy.bool_"))?;
    let writes = buffer.to_vec(array.py())?;
    if writes.len() != length {
        return Err(PyValueError::new_err(format!("writes: {} of them for {length} addresses", writes.len())));
    }
    Ok(writes.into_iter().map(|write| write != 0).collect())
}
