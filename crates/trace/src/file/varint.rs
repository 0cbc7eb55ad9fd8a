//! Integers and strings in bytes: unsigned LEB128 numbers, zigzag for signed differences.

/// Appends `value`, 7 bits a byte, least significant first.
pub(super) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends the difference `to - from`, taken modulo 2^64, so that small steps either way are short.
pub(super) fn put_delta(out: &mut Vec<u8>, from: u64, to: u64) {
    put(out, zigzag(to.wrapping_sub(from)));
}

/// Appends a length and that many bytes.
pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    put(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// Maps small negative differences to small numbers: 0, -1, 1, -2 become 0, 1, 2, 3.
#[inline]
pub(super) const fn zigzag(difference: u64) -> u64 {
    (difference << 1) ^ ((difference as i64 >> 63) as u64)
}

/// The reverse of [`zigzag`].
#[inline]
pub(super) const fn unzigzag(code: u64) -> u64 {
    (code >> 1) ^ (code & 1).wrapping_neg()
}

/// Reads what the functions above wrote; never beyond the end, and never more memory than the bytes that are there.
#[derive(Debug)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { bytes, at: 0 }
    }

    /// Bytes consumed so far.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    /// Bytes not yet consumed.
    pub(super) fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    pub(super) fn byte(&mut self) -> Result<u8, String> {
        let byte = *self.bytes.get(self.at).ok_or_else(|| self.short("a byte"))?;
        self.at += 1;
        Ok(byte)
    }

    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], String> {
        if count > self.remaining() {
            return Err(self.short(&format!("{count} bytes")));
        }
        let taken = &self.bytes[self.at..self.at + count];
        self.at += count;
        Ok(taken)
    }

    pub(super) fn number(&mut self) -> Result<u64, String> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
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
        Err(format!("expected a number of at most 64 bits before byte {}", self.at))
    }

    /// A number that must fit `T`; `what` names it in the error.
    pub(super) fn small<T: TryFrom<u64>>(&mut self, what: &str) -> Result<T, String> {
        let value = self.number()?;
        T::try_from(value).map_err(|_| format!("{what} is {value}, more than its field can hold"))
    }

    /// The value that lies a stored difference away from `from`.
    pub(super) fn delta(&mut self, from: u64) -> Result<u64, String> {
        Ok(from.wrapping_add(unzigzag(self.number()?)))
    }

    pub(super) fn text(&mut self) -> Result<String, String> {
        let length = self.small::<usize>("a text's length")?;
        let bytes = self.take(length)?;
        String::from_utf8(bytes.to_vec()).map_err(|_| format!("expected UTF-8 before byte {}", self.at))
    }

    fn short(&self, wanted: &str) -> String {
        format!("expected {wanted} at byte {}, but only {} are left", self.at, self.remaining())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_by_hand() {
        let mut out = Vec::new();
        put(&mut out, 300);
        put_delta(&mut out, 10, 9);
        put_text(&mut out, "hé");
        assert_eq!(out, [0xac, 0x02, 0x01, 0x03, b'h', 0xc3, 0xa9]);
        let mut cursor = Cursor::new(&out);
        assert_eq!(cursor.number(), Ok(300));
        assert_eq!(cursor.delta(10), Ok(9));
        assert_eq!(cursor.text(), Ok("hé".to_owned()));
        assert!(cursor.byte().unwrap_err().contains("only 0 are left"));
    }

    #[test]
    fn extremes_round_trip_and_oversized_numbers_are_refused() {
        for value in [0, 1, 127, 128, u64::MAX - 1, u64::MAX, 1 << 63] {
            let mut out = Vec::new();
            put(&mut out, value);
            assert_eq!(Cursor::new(&out).number(), Ok(value));
            assert_eq!(unzigzag(zigzag(value)), value);
        }
        assert!(Cursor::new(&[0xff; 11]).number().is_err());
        assert!(Cursor::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]).number().is_err());
        assert!(Cursor::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]).text().is_err());
    }
}
