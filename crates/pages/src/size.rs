//! Page sizes, and memory sizes and counts as people write them (64K, 2M).

use core::fmt;
use core::str::FromStr;

/// The size of a page: a power of two of bytes, from 1 byte to 2^63.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageSize(u8);

impl PageSize {
    /// 4 KB, the base page of most machines today.
    pub const KB4: PageSize = PageSize(12);
    /// 64 KB: 16 base pages of 4 KB.
    pub const KB64: PageSize = PageSize(16);
    /// 2 MB, what one entry of the second level of x86-64's page tables maps.
    pub const MB2: PageSize = PageSize(21);
    /// 1 GB, what one entry of the third level of x86-64's page tables maps.
    pub const GB1: PageSize = PageSize(30);

    /// The page size of `1 << shift` bytes; `None` if `shift` is 64 or more.
    pub const fn from_shift(shift: u32) -> Option<PageSize> {
        if shift < 64 { Some(PageSize(shift as u8)) } else { None }
    }

    /// The page size of exactly `bytes` bytes; `None` unless that is a power of two.
    pub const fn from_bytes(bytes: u64) -> Option<PageSize> {
        if bytes.is_power_of_two() { Some(PageSize(bytes.trailing_zeros() as u8)) } else { None }
    }

    /// The base-two logarithm of the size in bytes.
    pub const fn shift(self) -> u32 {
        self.0 as u32
    }

    /// The size in bytes.
    pub const fn bytes(self) -> u64 {
        1 << self.0
    }
}

impl fmt::Display for PageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        ExactBytes(self.bytes()).fmt(f)
    }
}

impl fmt::Debug for PageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PageSize {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<PageSize, SizeError> {
        PageSize::from_bytes(parse_bytes(text)?).ok_or(SizeError::NotAPowerOfTwo)
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for PageSize {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for PageSize {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<PageSize, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = PageSize;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a page size such as \"4K\" or \"2M\"")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<PageSize, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Visitor)
    }
}

/// Why a string is not a size or a count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SizeError {
    /// Not digits followed by at most one of the letters K, M, G or T.
    #[error("expected digits and at most one letter of K, M, G, T, such as 64K")]
    Syntax,
    /// The number does not fit in 64 bits.
    #[error("the number is larger than 64 bits hold")]
    TooLarge,
    /// A page size that is not a power of two.
    #[error("a page size is a power of two, such as 64K")]
    NotAPowerOfTwo,
}

fn parse_scaled(text: &str, unit: u64) -> Result<u64, SizeError> {
    let (digits, power) = match text.as_bytes().last() {
        Some(b'K' | b'k') => (&text[..text.len() - 1], 1),
        Some(b'M' | b'm') => (&text[..text.len() - 1], 2),
        Some(b'G' | b'g') => (&text[..text.len() - 1], 3),
        Some(b'T' | b't') => (&text[..text.len() - 1], 4),
        _ => (text, 0),
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(SizeError::Syntax);
    }
    let number: u64 = digits.parse().map_err(|_| SizeError::TooLarge)?;
    number.checked_mul(unit.pow(power)).ok_or(SizeError::TooLarge)
}

/// Parses a number of bytes: digits, then optionally K, M, G or T for powers of 1024.
pub fn parse_bytes(text: &str) -> Result<u64, SizeError> {
    parse_scaled(text, 1024)
}

/// Parses a count: digits, then optionally K, M, G or T for powers of 1000.
pub fn parse_count(text: &str) -> Result<u64, SizeError> {
    parse_scaled(text, 1000)
}

/// A number of bytes as [`parse_bytes`] reads it, in the largest unit that leaves no fraction:
/// `512M`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ExactBytes(pub u64);

impl fmt::Display for ExactBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut number, mut unit) = (self.0, 0);
        while number != 0 && number.is_multiple_of(1024) && unit < 4 {
            number /= 1024;
            unit += 1;
        }
        write!(f, "{number}{}", ["", "K", "M", "G", "T"][unit])
    }
}

/// A number of bytes as people read it: four digits and a binary unit, `512 MB`. It is not read
/// back: see [`ExactBytes`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 1024 {
            return write!(f, "{} B", self.0);
        }
        scaled(self.0, 1024.0, [" B", " KB", " MB", " GB", " TB"], f)
    }
}

/// A number as people read it: four digits and a decimal unit, `1.20 M`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Count(pub u64);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 100_000 {
            return write!(f, "{}", self.0);
        }
        scaled(self.0, 1000.0, ["", " K", " M", " G", " T"], f)
    }
}

fn scaled(number: u64, step: f64, units: [&str; 5], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (mut number, mut unit) = (number as f64, 0);
    while number >= step && unit < 4 {
        number /= step;
        unit += 1;
    }
    let digits = if number < 10.0 { 2 } else { usize::from(number < 100.0) };
    write!(f, "{number:.digits$}{}", units[unit])
}

#[cfg(test)]
mod tests {
    extern crate alloc;
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn sizes_read_back_as_written() {
        for text in ["4K", "64K", "2M", "1G", "8K", "512K", "1", "0", "3K"] {
            assert_eq!(ExactBytes(parse_bytes(text).unwrap()).to_string(), text);
        }
        assert_eq!("2M".parse::<PageSize>().unwrap().to_string(), "2M");
        assert_eq!(parse_count("2K"), Ok(2000));
    }

    #[test]
    fn people_read_four_digits() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KB"),
            (10 << 20, "10.0 MB"),
            ((1 << 20) - 1, "1024 KB"),
            (u64::MAX, "16777216 TB"),
        ] {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "K", "4KB", "-1", "4 K", "1.5M", "+3", "é"] {
            assert_eq!(parse_bytes(text), Err(SizeError::Syntax), "{text}");
        }
        assert_eq!(parse_bytes("99999999999999999999"), Err(SizeError::TooLarge));
        assert_eq!(parse_bytes("99999999999999T"), Err(SizeError::TooLarge));
        assert_eq!("3K".parse::<PageSize>(), Err(SizeError::NotAPowerOfTwo));
    }
}
