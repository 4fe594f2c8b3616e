//! Sentences for the person who has called.

use crate::foreign::foreign;
use std::fmt;
use std::io::{self, Write};

/// A line on standard error, as of `eprintln!`; but where standard error is full or nobody reads it, the line is lost and
/// nothing else, while `eprintln!` panics. What a terminal would obey is written out: names and paths that others have chosen may
/// be in it.
pub fn tell(sentence: fmt::Arguments<'_>) {
    let mut text = String::new();
    for line in sentence.to_string().lines() {
        text += &foreign(line);
        text.push('\n');
    }
    // In one piece, as others may write there too.
    let _ = io::stderr().lock().write_all(text.as_bytes());
}
