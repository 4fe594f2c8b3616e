//! Sentences for the person who has called.

use std::fmt;
use std::io::{self, Write};

/// A line on standard error, as of `eprintln!`; but where standard error is full or nobody reads it, the line is lost and
/// nothing else, while `eprintln!` panics.
pub fn tell(sentence: fmt::Arguments<'_>) {
    // In one piece, as others may write there too.
    let _ = io::stderr().lock().write_all(format!("{sentence}\n").as_bytes());
}
