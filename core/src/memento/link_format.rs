//! The text of TimeMaps: links as in a `Link` header, one behind the other (RFC 6690, `application/link-format`; MEM-033, MEM-058).

use crate::websub::{LinkHeader, LinkValue};

/// Media type of TimeMaps.
pub const LINK_FORMAT_TYPE: &str = "application/link-format";

/// The longest TimeMap that a Destination reads, in bytes (MEM-058).
pub const MAX_TIME_MAP: u64 = 50_000_000;

/// The longest link that is read, in bytes; a longer one is skipped.
const MAX_LINK: usize = 32 * 1024;

/// A TimeMap has more bytes than its reader takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the TimeMap has more than {most} bytes")]
pub struct TimeMapTooLong {
    /// How many are taken.
    pub most: u64,
}

/// Writes each link on a line of its own.
pub fn write(links: &LinkHeader) -> String {
    let lines: Vec<String> = links.iter().map(LinkValue::to_string).collect();
    lines.join(",\n") + "\n"
}

/// Reads links from chunks of any size, and holds one link at most. What is no link is skipped.
///
/// A line ends a quoted text, since no parameter has several: so one missing quotation mark costs one link.
///
/// ```
/// use resync_core::memento::LinkFormatReader;
///
/// let mut reader = LinkFormatReader::new(1_000);
/// assert!(reader.read(b"<https://s.example/a>; rel=\"orig")?.is_empty());
/// let links = reader.read(b"inal\",\n<https://s.example/b>; rel=memento")?;
/// assert_eq!(links[0].to_string(), r#"<https://s.example/a>; rel="original""#);
/// assert_eq!(reader.end().links.len(), 1);
/// # Ok::<(), resync_core::memento::TimeMapTooLong>(())
/// ```
#[derive(Debug)]
pub struct LinkFormatReader {
    most: u64,
    seen: u64,
    skipped: u64,
    state: State,
    /// From the `<` of a link.
    link: Vec<u8>,
}

/// What is left when a TimeMap ends.
#[derive(Debug)]
#[non_exhaustive]
pub struct End {
    /// Its last links.
    pub links: Vec<LinkValue>,
    /// How many of all links could not be read.
    pub skipped: u64,
}

#[derive(Clone, Copy, Debug)]
enum State {
    BeforeLink,
    Target,
    /// Whether the last character but white space was a `=`.
    Parameters {
        after_equals: bool,
    },
    /// Whether the last character was a backslash.
    Quoted {
        escaped: bool,
    },
}

impl LinkFormatReader {
    /// A reader that takes `most` bytes.
    pub fn new(most: u64) -> Self {
        Self { most, seen: 0, skipped: 0, state: State::BeforeLink, link: Vec::new() }
    }

    /// The links that are certain after this chunk. An error once there were too many bytes; then nothing more is read.
    pub fn read(&mut self, chunk: &[u8]) -> Result<Vec<LinkValue>, TimeMapTooLong> {
        self.seen = self.seen.saturating_add(chunk.len() as u64);
        if self.seen > self.most {
            return Err(TimeMapTooLong { most: self.most });
        }
        let mut found = Vec::new();
        for &byte in chunk {
            self.take(byte, &mut found);
        }
        Ok(found)
    }

    /// The links that were certain only at the end.
    pub fn end(mut self) -> End {
        let mut links = Vec::new();
        self.close(&mut links);
        End { links, skipped: self.skipped }
    }

    fn take(&mut self, byte: u8, found: &mut Vec<LinkValue>) {
        if byte == b'<' && !matches!(self.state, State::Quoted { .. }) {
            self.close(found);
            self.state = State::Target;
        } else {
            self.state = self.state.after(byte);
        }
        if !matches!(self.state, State::BeforeLink) {
            self.link.push(byte);
        }
        if self.link.len() > MAX_LINK {
            self.skipped += 1;
            self.link.clear();
            self.state = State::BeforeLink;
        }
    }

    /// Ends the link that was begun, if any.
    fn close(&mut self, found: &mut Vec<LinkValue>) {
        let links = match self.state {
            State::BeforeLink => return,
            State::Target => LinkHeader::default(),
            State::Parameters { .. } | State::Quoted { .. } => LinkHeader::parse([&self.link]),
        };
        if links.is_empty() {
            self.skipped += 1;
        }
        found.extend(links.iter().cloned());
        self.link.clear();
    }
}

impl State {
    /// The state behind a byte that begins no link.
    fn after(self, byte: u8) -> Self {
        match self {
            Self::Target if byte == b'>' => Self::Parameters { after_equals: false },
            Self::Parameters { after_equals: true } if byte == b'"' => Self::Quoted { escaped: false },
            Self::Parameters { after_equals } => Self::Parameters {
                after_equals: byte == b'=' || (after_equals && byte.is_ascii_whitespace()),
            },
            Self::Quoted { escaped } if byte == b'\n' || (byte == b'"' && !escaped) => {
                Self::Parameters { after_equals: false }
            }
            Self::Quoted { escaped } => Self::Quoted { escaped: !escaped && byte == b'\\' },
            unchanged => unchanged,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The links of a text in chunks of `size` bytes, and how many were skipped.
    fn read(text: &[u8], size: usize) -> (Vec<LinkValue>, u64) {
        let mut reader = LinkFormatReader::new(MAX_TIME_MAP);
        let mut links = Vec::new();
        for chunk in text.chunks(size) {
            links.extend(reader.read(chunk).unwrap());
        }
        let end = reader.end();
        links.extend(end.links);
        (links, end.skipped)
    }

    fn targets(text: &str) -> Vec<String> {
        read(text.as_bytes(), 7).0.into_iter().map(|link| link.target).collect()
    }

    /// The example of RFC 7089, section 5, in its shape: indented lines, one link on several of them.
    const TIME_MAP: &str = "<http://a.example.org>;rel=\"original\",\n \
        <http://arxiv.example.net/timemap/http://a.example.org>\n  ; rel=\"self\";type=\"application/link-format\"\n  \
        ; from=\"Tue, 20 Jun 2000 18:02:59 GMT\"\n  ; until=\"Wed, 09 Apr 2008 20:30:51 GMT\",\n \
        <http://arxiv.example.net/web/20000620180259/http://a.example.org>\n  \
        ; rel=\"first memento\";datetime=\"Tue, 20 Jun 2000 18:02:59 GMT\"\n";

    #[test]
    fn mem058_commas_in_dates_and_targets_end_no_link() {
        let (links, skipped) = read(TIME_MAP.as_bytes(), 5);
        assert_eq!((links.len(), skipped), (3, 0));
        assert_eq!(links[1].param("until"), Some("Wed, 09 Apr 2008 20:30:51 GMT"));
        assert_eq!(links[2].rels, ["first", "memento"]);
        assert_eq!(targets("<http://s.example/a,b;c>; rel=memento"), ["http://s.example/a,b;c"]);
    }

    #[test]
    fn mem058_a_link_that_cannot_be_read_costs_no_other() {
        let cases = [
            ("<a>; rel=memento,\n<b; rel=memento,\n<c>; rel=memento", vec!["a", "c"], 1),
            ("<a>; rel=\"memento,\n<b>; rel=\"memento\"\n,<c>; rel=memento", vec!["a", "b", "c"], 0),
            ("<a>; datetime=\"x\",\n<b>; rel=memento", vec!["b"], 1),
            ("junk, <a>; title=\"<b>; rel=x\"; rel=memento, more", vec!["a"], 0),
            ("<a>; title=it\"s; rel=memento, <b>; rel=memento", vec!["a", "b"], 0),
            ("<a>; rel=memento, <b", vec!["a"], 1),
            ("<!doctype html><p>No TimeMap</p>", vec![], 3),
            ("", vec![], 0),
        ];
        for (text, expected, unread) in cases {
            assert_eq!(targets(text), expected, "{text}");
            assert_eq!(read(text.as_bytes(), 3).1, unread, "{text}");
        }
    }

    #[test]
    fn mem058_one_link_is_held_and_a_longer_one_is_skipped() {
        let long = format!("<{}>; rel=memento,\n<b>; rel=memento", "a".repeat(MAX_LINK));
        assert_eq!(targets(&long), ["b"]);
        let mut reader = LinkFormatReader::new(u64::MAX);
        for _ in 0..20 {
            reader.read(b"<").unwrap();
            reader.read(&[b'a'; MAX_LINK / 2]).unwrap();
            assert!(reader.link.len() <= MAX_LINK);
        }
    }

    #[test]
    fn mem058_a_time_map_beyond_its_bound_is_read_no_further() {
        let mut reader = LinkFormatReader::new(10);
        assert_eq!(reader.read(b"<a>;rel=b,").unwrap().len(), 0);
        assert_eq!(reader.read(b"<"), Err(TimeMapTooLong { most: 10 }));
        assert_eq!(reader.read(b""), Err(TimeMapTooLong { most: 10 }));
    }

    #[test]
    fn mem033_each_link_has_a_line() {
        let links = LinkHeader::default()
            .push("https://s.example/a", "original")
            .push("https://s.example/b", "timegate");
        assert_eq!(
            write(&links),
            "<https://s.example/a>; rel=\"original\",\n<https://s.example/b>; rel=\"timegate\"\n"
        );
    }

    fn some_links() -> impl Strategy<Value = LinkHeader> {
        let link = ("[a-z:/?=,;%0-9]{0,12}", "[a-z]{1,8}", prop::option::of("[ -~]{0,12}"));
        prop::collection::vec(link, 0..8).prop_map(|links| {
            links.into_iter().fold(LinkHeader::default(), |header, (target, rel, title)| {
                let header = header.push(target, rel);
                if let Some(title) = title { header.param("title", title) } else { header }
            })
        })
    }

    proptest! {
        #[test]
        fn what_was_written_is_read_whatever_the_chunks(links in some_links(), size in 1_usize..40) {
            let (read, skipped) = read(write(&links).as_bytes(), size);
            prop_assert_eq!(read, links.iter().cloned().collect::<Vec<_>>());
            prop_assert_eq!(skipped, 0);
        }

        #[test]
        fn chunks_make_no_difference_to_any_bytes(
            text in "([<>;,=\"'\\\\ \na-z]|rel=|memento|; rel=\"self\"|title=|ü|\\x00){0,60}",
            size in 1_usize..40,
        ) {
            prop_assert_eq!(read(text.as_bytes(), size), read(text.as_bytes(), usize::MAX));
        }

        #[test]
        fn no_bytes_make_reading_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let (links, _) = read(&bytes, 16);
            prop_assert!(links.len() <= bytes.len());
        }
    }
}
