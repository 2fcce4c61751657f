//! How the lines of a request's head end.
//!
//! The HTTP library takes a line that ends by LF alone for a line, as RFC 9112 §2.2 lets it. What stands before this node
//! may have read on to the next CRLF, and have seen another head. So each line has to end by CRLF here.

/// What has been seen of a head, perhaps not from its beginning: some of it may have come with the message before it.
#[derive(Clone, Copy, Debug)]
pub(in crate::api) struct Lines {
    last: u8,
    /// Something has come since the last line ended.
    in_line: bool,
    ended: bool,
    bare: bool,
}

impl Default for Lines {
    /// What came before is not known. It may be a line that now ends, or all of the head but its last bytes, so that an empty
    /// line ends it also where it is the first.
    fn default() -> Self {
        Self { last: b'\r', in_line: false, ended: false, bare: false }
    }
}

impl Lines {
    /// Whether one of them ended by LF alone.
    pub(in crate::api) fn are_bare(self) -> bool {
        self.bare
    }

    /// The same, and the next bytes; what comes after the head is not looked at.
    pub(super) fn and(mut self, bytes: &[u8]) -> Self {
        let mut rest = bytes;
        while !self.ended
            && let Some(end) = memchr::memchr(b'\n', rest)
        {
            let line = &rest[..end];
            let returned = line.last().map_or(self.last == b'\r', |last| *last == b'\r');
            let is_empty = !self.in_line && line.len() <= usize::from(returned);
            self.bare |= !returned;
            self.ended = is_empty;
            (self.in_line, self.last) = (false, b'\n');
            rest = &rest[end + 1..];
        }
        if let Some(last) = rest.last() {
            self.in_line |= rest != b"\r";
            self.last = *last;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same however it is cut into two reads.
    fn are_bare(head: &str) -> bool {
        let whole = Lines::default().and(head.as_bytes()).are_bare();
        for cut in 0..=head.len() {
            let (first, second) = head.as_bytes().split_at(cut);
            assert_eq!(Lines::default().and(first).and(second).are_bare(), whole, "{head:?} at {cut}");
        }
        whole
    }

    #[test]
    fn a_line_that_ends_by_lf_alone_is_seen_wherever_it_stands() {
        assert!(!are_bare("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
        for head in ["GET / HTTP/1.1\nHost: a\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\n\n"] {
            assert!(are_bare(head), "{head:?}");
        }
    }

    #[test]
    fn a_head_of_which_the_beginning_is_not_seen_is_not_taken_for_another() {
        let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n\na\nb";
        for seen in 0..head.len() - "\na\nb".len() {
            assert!(!are_bare(&head[seen..]), "{:?}", &head[seen..]);
        }
    }

    #[test]
    fn what_comes_after_the_head_is_not_looked_at() {
        assert!(!are_bare("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n\na\nb"));
        assert!(!are_bare("POST / HTTP/1.1\r\nHost: a\r\n\r\n\n"));
    }
}
