//! Sweeps whose cells run on workers of a cluster: this side keeps what they return.

use crate::cells::Cells;
use crate::folder::Folder;
use crate::pass::{CellFiles, pass};
use crate::run::{finish, missing};
use crate::{Done, Plan, Shard, merge};
use std::collections::HashMap;
use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use superpage_sim::{Error, Kept, Row};

impl Plan {
    /// The names of all cells, each with the place of its stream on its cores: cells of one place
    /// can share a pass. For the Python package, as all of this file.
    pub fn cell_names(&self) -> impl Iterator<Item = (&str, usize)> {
        self.cells.iter().enumerate().map(|(place, cell)| (cell.name.as_str(), self.stream_of(place)))
    }

    /// The paths of traces that cells read.
    pub fn traces(&self) -> impl Iterator<Item = &str> {
        self.inputs.keys().filter_map(|name| name.strip_prefix(crate::axis::TRACE))
    }

    /// Runs the cells at these places, which are over one stream, in one pass, and returns the name
    /// and the file of each; `None` if `stop` ended them.
    ///
    /// # Errors
    /// [`Error::Usage`]: there is no such cell, or they are over different streams.
    /// [`Error::Output`]: a file cannot be made.
    pub fn run_cells(&self, places: &[usize], stop: &AtomicBool) -> Result<Option<CellFiles>, Error> {
        let stream = |place: &usize| (*place < self.cells.len()).then(|| self.stream_of(*place));
        let first = places.first().and_then(stream);
        if first.is_none() || places.iter().any(|place| stream(place) != first) {
            let problem = format!("cells {places:?}: expected places below {} over one stream", self.cells.len());
            return Err(Error::Usage(problem));
        }
        let cells = places.iter().map(|place| Ok((*place, self.setups_of(&self.cells[*place])?)));
        pass(self, &cells.collect::<Result<Vec<_>, Error>>()?, stop)
    }

    /// All rows, from a folder that has all cells.
    ///
    /// # Errors
    /// [`Error::Output`]: a cell is not there, or cannot be read.
    pub fn merged(&self, path: &Path) -> Result<Vec<Row>, Error> {
        merge::rows(self, &Cells::of(path)?, processors())
    }
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// The folder of a sweep, held for as long as this lives, as by [`run`](crate::run).
pub struct RemoteCells {
    plan: Arc<Plan>,
    folder: Folder,
    /// The numbers of rows of cells, by name.
    rows: HashMap<String, usize>,
}

impl RemoteCells {
    /// Opens the folder, or makes it; `None` if `stop` was set while another process kept this one
    /// waiting. With `repair` it removes damaged cells, which are missing then.
    ///
    /// # Errors
    /// [`Error::Usage`]: it cannot be used, is of another sweep or version, or in use.
    /// [`Error::Output`]: cells that it has are damaged.
    pub fn open(plan: Arc<Plan>, path: &Path, repair: bool, stop: &AtomicBool) -> Result<Option<RemoteCells>, Error> {
        let waits = |note: &str| superpage_output::tell(format_args!("{note}"));
        let Some(folder) = Folder::open(path, &plan, Shard::default(), stop, &waits)? else { return Ok(None) };
        let all: Vec<usize> = (0..plan.cells.len()).collect();
        missing(&plan, folder.cells(), &all, repair, (processors(), stop))?;
        let rows = plan.cells.iter().map(|cell| (cell.name.clone(), cell.rows.len())).collect();
        Ok(Some(RemoteCells { plan, folder, rows }))
    }

    /// What its user should know, a sentence without a full stop.
    pub fn note(&self) -> Option<&str> {
        self.folder.note()
    }

    /// The places of the cells that it does not have.
    ///
    /// # Errors
    /// [`Error::Usage`]: the folder cannot be read.
    pub fn missing(&self) -> Result<Vec<usize>, Error> {
        let there = self.folder.cells().names()?;
        Ok((0..self.plan.cells.len()).filter(|place| !there.contains(&self.plan.cells[*place].name)).collect())
    }

    /// Keeps a cell that ran elsewhere, whole or not at all.
    ///
    /// # Errors
    /// [`Error::Usage`]: it is none of the sweep, or not of this version. [`Error::Output`]: it
    /// cannot be written.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        let wrong = |problem: &str| Err(Error::Usage(format!("cell {name}: {problem}")));
        let Some(rows) = self.rows.get(name) else {
            return wrong("none of this sweep: the worker has another version of superpage, or other files");
        };
        match Kept::read(bytes.to_vec()) {
            Ok(kept) if kept.runs.len() == *rows => self.folder.cells().write(name, bytes),
            Ok(_) => wrong("it has another number of rows"),
            Err(problem) => wrong(&problem),
        }
    }

    /// What the folder has after `ran` cells; when it has all, writes `rows.parquet` and
    /// `index.html`, which says `command`.
    ///
    /// # Errors
    /// [`Error::Output`]: a cell cannot be read, or a file not be written.
    pub fn finish(&self, ran: usize, command: &str) -> Result<Done, Error> {
        finish(&self.plan, &self.folder, ran, command, (processors(), &AtomicBool::new(false)))
    }
}
