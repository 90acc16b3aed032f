//! Requests as receivers read them: as little as is needed, found in what a connection has brought so far.

use memchr::memmem;

/// A complete request at the beginning of what was read.
#[derive(Debug)]
pub(super) struct Request<'a> {
    /// The request line.
    pub(super) line: &'a str,
    /// The header fields.
    pub(super) fields: &'a str,
    pub(super) body: &'a [u8],
    /// Bytes of all of it.
    pub(super) length: usize,
}

impl<'a> Request<'a> {
    /// `None` as long as it is not complete.
    pub(super) fn find(bytes: &'a [u8]) -> Option<Self> {
        let head = memmem::find(bytes, b"\r\n\r\n")? + 4;
        let text = std::str::from_utf8(&bytes[..head]).ok()?;
        let (line, fields) = text.split_once("\r\n")?;
        let mut request = Self { line, fields, body: &[], length: head };
        let body: usize = request.field("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        request.length = head + body;
        request.body = bytes.get(head..request.length)?;
        Some(request)
    }

    /// The value of the first field with this name, which is in lower case.
    pub(super) fn field(&self, name: &str) -> Option<&'a str> {
        let mut rest = self.fields.as_bytes();
        let mut from = 0;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            let line = &rest[..end];
            if line.len() > name.len()
                && line[name.len()] == b':'
                && line[..name.len()].eq_ignore_ascii_case(name.as_bytes())
            {
                return self.fields.get(from + name.len() + 1..from + end).map(str::trim);
            }
            from += end + 1;
            rest = &rest[end + 1..];
        }
        None
    }

    /// Each field with its value.
    pub(super) fn all_fields(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let lines = self.fields.lines().filter_map(|line| line.split_once(':'));
        lines.map(|(name, value)| (name, value.trim()))
    }

    /// Whether its connection ends with it (RFC 9112, section 9.3).
    pub(super) fn is_last(&self) -> bool {
        match self.field("connection") {
            Some(wish) => wish.eq_ignore_ascii_case("close"),
            None => self.line.ends_with("HTTP/1.0"),
        }
    }

    /// What is asked for, with its query.
    pub(super) fn target(&self) -> &'a str {
        self.line.split(' ').nth(1).unwrap_or_default()
    }

    /// A parameter of the query, decoded.
    pub(super) fn parameter(&self, name: &str) -> Option<String> {
        let (_, query) = self.target().split_once('?')?;
        let mut pairs = url::form_urlencoded::parse(query.as_bytes());
        pairs.find(|(found, _)| found == name).map(|(_, value)| value.into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_found_when_all_of_it_is_there_and_not_before() {
        let bytes = b"POST /7 HTTP/1.1\r\nHost: h\r\ncontent-LENGTH: 5\r\nLink: <x>\r\n\r\nhelloGET ";
        for end in 0..bytes.len() - 4 {
            assert!(Request::find(&bytes[..end]).is_none(), "{end}");
        }
        let request = Request::find(bytes).unwrap();
        assert_eq!((request.body, request.length), (&b"hello"[..], bytes.len() - 4));
        assert_eq!((request.target(), request.field("link")), ("/7", Some("<x>")));
        let asked = Request::find(b"GET /7?hub.mode=subscribe&hub.challenge=a%2Bb HTTP/1.1\r\n\r\n").unwrap();
        assert_eq!(asked.parameter("hub.challenge").as_deref(), Some("a+b"));
        assert!(asked.body.is_empty() && asked.field("host").is_none());
    }

    #[test]
    fn a_request_says_whether_another_one_may_follow_it() {
        let is_last = |text: &str| Request::find(text.as_bytes()).unwrap().is_last();
        assert!(!is_last("GET / HTTP/1.1\r\nHost: h\r\n\r\n"));
        assert!(is_last("GET / HTTP/1.1\r\nConnection: Close\r\n\r\n"));
        assert!(is_last("GET / HTTP/1.0\r\nHost: h\r\n\r\n"));
        assert!(!is_last("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
    }
}
