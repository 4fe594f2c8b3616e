//! Messages on standard error for the user.

use crate::foreign::foreign;
use std::fmt;
use std::io::{self, Write};

/// Prints a line on standard error, like `eprintln!`; but if standard error is full or closed, only
/// the line is lost, while `eprintln!` panics. Characters that a terminal would obey are escaped:
/// the line may contain untrusted names and paths.
pub fn tell(sentence: fmt::Arguments<'_>) {
    let mut text = String::new();
    for line in sentence.to_string().lines() {
        text += &foreign(line);
        text.push('\n');
    }
    // In one piece, since others may write there too.
    let _ = io::stderr().lock().write_all(text.as_bytes());
}
