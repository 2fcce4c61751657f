//! HTTP/1.1 as somebody else reads it: heads by `httparse`, framing by RFC 9112 §6.3 to the letter.

/// One request.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Read {
    pub(super) method: String,
    pub(super) target: String,
    /// Names in lower case.
    pub(super) fields: Vec<(String, Vec<u8>)>,
    pub(super) body: Vec<u8>,
    /// Whether the body has come to its end.
    pub(super) whole: bool,
    /// How many bytes it is.
    pub(super) length: usize,
}

impl Read {
    /// All values of `name`.
    pub(super) fn values(&self, name: &str) -> Vec<&[u8]> {
        self.fields.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_slice()).collect()
    }

    /// The elements of all lists that `name` has, in lower case.
    pub(super) fn elements(&self, name: &str) -> Vec<String> {
        let lists = self.values(name).into_iter().map(|value| String::from_utf8_lossy(value).to_ascii_lowercase());
        lists.flat_map(|list| list.split(',').map(|element| element.trim().to_owned()).collect::<Vec<_>>()).collect()
    }
}

/// The first request of `bytes`; `None` where its head is malformed or does not end.
pub(super) fn read(bytes: &[u8]) -> Option<Read> {
    let mut fields = [httparse::EMPTY_HEADER; 256];
    let mut request = httparse::Request::new(&mut fields);
    let Ok(httparse::Status::Complete(head)) = request.parse(bytes) else { return None };
    let (method, target) = (request.method?.to_owned(), request.path?.to_owned());
    let fields: Vec<(String, Vec<u8>)> =
        request.headers.iter().map(|field| (field.name.to_ascii_lowercase(), field.value.to_vec())).collect();
    let mut read = Read { method, target, fields, body: Vec::new(), whole: true, length: head };
    if !read.values("transfer-encoding").is_empty() {
        if read.elements("transfer-encoding") != ["chunked"] {
            return None;
        }
        let (body, length, whole) = chunks(&bytes[head..]);
        read = Read { body, whole, length: head + length, ..read };
    } else if let Some(length) = read.values("content-length").first() {
        let length: usize = std::str::from_utf8(length).ok()?.parse().ok()?;
        let body = &bytes[head..][..length.min(bytes.len() - head)];
        read = Read { body: body.to_vec(), whole: body.len() == length, length: head + body.len(), ..read };
    }
    Some(read)
}

/// The requests of `bytes`, up to the first one that is none or has not all come.
pub(super) fn read_all(mut bytes: &[u8]) -> Vec<Read> {
    let mut all = Vec::new();
    while let Some(read) = read(bytes) {
        bytes = &bytes[read.length..];
        let whole = read.whole;
        all.push(read);
        if !whole {
            break;
        }
    }
    all
}

/// A chunked body, how many bytes it took, and whether that was all of it.
fn chunks(bytes: &[u8]) -> (Vec<u8>, usize, bool) {
    let (mut body, mut at) = (Vec::new(), 0);
    loop {
        let Ok(httparse::Status::Complete((line, size))) = httparse::parse_chunk_size(&bytes[at..]) else { return (body, at, false) };
        at += line;
        if size == 0 {
            break;
        }
        let came = usize::try_from(size).unwrap_or(usize::MAX).min(bytes.len() - at);
        body.extend_from_slice(&bytes[at..at + came]);
        at += came;
        if came as u64 != size || !bytes[at..].starts_with(b"\r\n") {
            return (body, at, false);
        }
        at += 2;
    }
    // Trailers end by the book: with two whole line ends, of which the first may be that of the last chunk.
    match bytes[at - 2..].windows(4).position(|window| window == b"\r\n\r\n") {
        Some(end) => (body, at + end + 2, true),
        None => (body, at, false),
    }
}
