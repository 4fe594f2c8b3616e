//! Numbers and strings in bytes: little-endian, and variable-length ones of seven bits a byte
//! (LEB128).

/// What is wrong with decoded bytes, as the end of a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Damage(pub(crate) &'static str);

const SHORT: Damage = Damage("it ends within a value");

/// Adds a variable-length number: seven bits a byte, the low ones first, the high bit set in all
/// bytes but the last.
pub(crate) fn put_number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Adds a string: its length in bytes, then UTF-8.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    put_number(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// Reads values from the front of untrusted bytes.
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl<'a> Bytes<'a> {
    /// The next `count` bytes.
    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Damage> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(SHORT)?;
        self.0 = rest;
        Ok(taken)
    }

    /// The next `N` bytes.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Damage> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or(SHORT)?;
        self.0 = rest;
        Ok(*taken)
    }

    /// A byte.
    pub(crate) fn byte(&mut self) -> Result<u8, Damage> {
        Ok(self.array::<1>()?[0])
    }

    /// A number of 32 bits, little-endian.
    pub(crate) fn word(&mut self) -> Result<u32, Damage> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// A variable-length number.
    pub(crate) fn number(&mut self) -> Result<u64, Damage> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Damage("it holds a number of more than 64 bits"))
    }

    /// A variable-length number that fits 32 bits.
    pub(crate) fn small(&mut self) -> Result<u32, Damage> {
        u32::try_from(self.number()?).map_err(|_| Damage("it holds a number of more than 32 bits where 32 are allowed"))
    }

    /// A string.
    pub(crate) fn text(&mut self) -> Result<&'a str, Damage> {
        let length = usize::try_from(self.number()?).map_err(|_| SHORT)?;
        std::str::from_utf8(self.take(length)?).map_err(|_| Damage("it holds text that is not UTF-8"))
    }

    /// Checks that nothing is left.
    pub(crate) fn end(&self) -> Result<(), Damage> {
        if self.0.is_empty() { Ok(()) } else { Err(Damage("bytes are left over at its end")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_come_back(value: u64, text in ".{0,20}") {
            let mut out = Vec::new();
            put_number(&mut out, value);
            put_text(&mut out, &text);
            let mut bytes = Bytes(&out);
            prop_assert_eq!(bytes.number(), Ok(value));
            prop_assert_eq!(bytes.text(), Ok(text.as_str()));
            prop_assert_eq!(bytes.end(), Ok(()));
        }
    }

    #[test]
    fn too_long_a_number_is_refused() {
        assert!(Bytes(&[0xff; 10]).number().is_err());
        assert!(Bytes(&[0xff; 3]).number().is_err());
    }
}
