//! The part of a sweep that one computer runs.

/// A part of the cells: those whose places, counted from 1, leave the remainder `index` when
/// divided by `of`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// The number of the part, from 1.
    pub index: usize,
    /// The number of parts.
    pub of: usize,
}

impl Default for Shard {
    fn default() -> Shard {
        Shard { index: 1, of: 1 }
    }
}

impl Shard {
    /// Whether the cell at this place is in it.
    pub(crate) fn has(&self, place: usize) -> bool {
        place % self.of == self.index - 1
    }
}

impl std::str::FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Shard, String> {
        let parts = text.split_once('/').and_then(|(index, of)| Some((index.parse().ok()?, of.parse().ok()?)));
        match parts {
            Some((index, of)) if (1..=of).contains(&index) => Ok(Shard { index, of }),
            _ => Err(format!("{text}: expected I/N, the part I of N, as in 3/8")),
        }
    }
}
