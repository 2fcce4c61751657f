//! ZooKeeper's encoding: integers in network order, texts and bytes after their length.

/// Bytes that are not what the protocol says they should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the answer is not as ZooKeeper's protocol has it")]
pub(super) struct Garbled;

/// A record that is being written.
#[derive(Default)]
pub(super) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    pub(super) fn int(mut self, value: i32) -> Self {
        self.bytes.extend(value.to_be_bytes());
        self
    }

    pub(super) fn long(mut self, value: i64) -> Self {
        self.bytes.extend(value.to_be_bytes());
        self
    }

    pub(super) fn flag(mut self, value: bool) -> Self {
        self.bytes.push(u8::from(value));
        self
    }

    pub(super) fn buffer(self, value: &[u8]) -> Self {
        let length = i32::try_from(value.len()).expect("nothing that is sent is that long");
        self.int(length).raw(value)
    }

    pub(super) fn text(self, value: &str) -> Self {
        self.buffer(value.as_bytes())
    }

    pub(super) fn raw(mut self, value: &[u8]) -> Self {
        self.bytes.extend_from_slice(value);
        self
    }

    /// What was written.
    pub(super) fn bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// What was written, after its length, as it goes over the wire.
    pub(super) fn frame(self) -> Vec<u8> {
        Self::default().buffer(&self.bytes).bytes
    }
}

/// A record that is being read.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn int(&mut self) -> Result<i32, Garbled> {
        self.array().map(i32::from_be_bytes)
    }

    pub(super) fn long(&mut self) -> Result<i64, Garbled> {
        self.array().map(i64::from_be_bytes)
    }

    pub(super) fn flag(&mut self) -> Result<bool, Garbled> {
        self.array::<1>().map(|[byte]| byte != 0)
    }

    /// Bytes, of which there may be none: then their length is -1.
    pub(super) fn buffer(&mut self) -> Result<&'a [u8], Garbled> {
        match self.int()? {
            -1 => Ok(&[]),
            length => self.take(usize::try_from(length).map_err(|_| Garbled)?),
        }
    }

    pub(super) fn text(&mut self) -> Result<&'a str, Garbled> {
        std::str::from_utf8(self.buffer()?).map_err(|_| Garbled)
    }

    pub(super) fn rest(self) -> &'a [u8] {
        self.rest
    }

    fn array<const LENGTH: usize>(&mut self) -> Result<[u8; LENGTH], Garbled> {
        self.take(LENGTH)?.try_into().map_err(|_| Garbled)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Garbled> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Garbled)?;
        self.rest = rest;
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_back() {
        let bytes = Writer::default().int(-7).long(1 << 40).flag(true).text("ü").buffer(b"").raw(b"rest").bytes();
        let mut reader = Reader::new(&bytes);
        assert_eq!((reader.int(), reader.long(), reader.flag()), (Ok(-7), Ok(1 << 40), Ok(true)));
        assert_eq!((reader.text(), reader.buffer()), (Ok("ü"), Ok(&b""[..])));
        assert_eq!(reader.rest(), b"rest");
        assert_eq!(Writer::default().int(1).frame(), [0, 0, 0, 4, 0, 0, 0, 1]);
    }

    #[test]
    fn no_bytes_are_read_that_are_not_there() {
        for bytes in [&[][..], &[0, 0], &[0, 0, 0, 5, 1], &[0x7f, 0xff, 0xff, 0xff], &[0x80, 0, 0, 0], &[0, 0, 0, 1, 0xff]] {
            assert_eq!(Reader::new(bytes).text(), Err(Garbled), "{bytes:?}");
        }
        assert_eq!(Reader::new(&[0xff; 4]).buffer(), Ok(&b""[..]));
    }
}
