//! Atom and RSS without the entries that a subscriber has got already (W-143). No other format may be shortened.

use std::collections::HashSet;
use std::ops::Range;

use quick_xml::Reader;
use quick_xml::events::Event;

/// The feed `new` without the entries that stand in `old` byte for byte; an entry that was changed stays. `None` when one of
/// them is no feed whose entries can be told apart, or when nothing can be left out: then the whole is what to send.
pub fn without_known_entries(old: &[u8], new: &[u8]) -> Option<Vec<u8>> {
    let (before, after) = (Feed::read(old)?, Feed::read(new)?);
    // What the root declares decides what the bytes of an entry mean.
    if before.root != after.root {
        return None;
    }
    let known: HashSet<&str> = before.entries.iter().map(|entry| &before.text[entry.clone()]).collect();
    let mut shortened = String::with_capacity(new.len());
    let mut kept = 0;
    for entry in after.entries.iter().filter(|entry| known.contains(&after.text[(*entry).clone()])) {
        shortened.push_str(after.text[kept..entry.start].trim_end());
        kept = entry.end;
    }
    if kept == 0 {
        return None;
    }
    shortened.push_str(&after.text[kept..]);
    Some(shortened.into_bytes())
}

/// A well-formed feed with the places of its entries.
struct Feed<'a> {
    text: &'a str,
    root: &'a str,
    entries: Vec<Range<usize>>,
}

impl<'a> Feed<'a> {
    /// RSS 1.0 lists its items a second time, so it is none of these, nor is what brings a document type along.
    fn read(bytes: &'a [u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        // The reader passes over a byte order mark without counting it.
        let mark = text.len() - text.trim_start_matches('\u{feff}').len();
        let mut reader = Reader::from_str(&text[mark..]);
        let (mut root, mut entries) = (None, Vec::new());
        let (mut open, mut entry) = (Vec::<String>::new(), None);
        loop {
            let begin = mark + usize::try_from(reader.buffer_position()).ok()?;
            let event = reader.read_event().ok()?;
            let end = mark + usize::try_from(reader.buffer_position()).ok()?;
            match event {
                Event::Start(start) => {
                    let name = start.local_name().as_ref().to_owned();
                    if open.is_empty() && root.replace(text.get(begin..end)?).is_some() {
                        return None;
                    }
                    if is_entry(&open, &name) {
                        entry = Some(begin);
                    }
                    open.push(name);
                }
                Event::End(_) => {
                    let name = open.pop()?;
                    if is_entry(&open, &name) {
                        entries.push(entry.take()?..end);
                    }
                }
                Event::Eof if open.is_empty() => return Some(Self { text, root: root?, entries }),
                Event::Empty(_) if open.is_empty() => return None,
                Event::DocType(_) | Event::Eof => return None,
                _ => {}
            }
        }
    }
}

/// Whether an element of this name below these is an entry of its feed.
fn is_entry(open: &[String], name: &str) -> bool {
    match open {
        [feed] => feed == "feed" && name == "entry",
        [rss, channel] => rss == "rss" && channel == "channel" && name == "item",
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn atom(entries: &[(u8, u8)]) -> String {
        let entries = entries.iter().fold(String::new(), |text, (id, version)| {
            text + &format!(
                "\n  <entry><id>urn:{id}</id><title>v{version}</title><source><entry/></source></entry>"
            )
        });
        format!(
            "<?xml version='1.0' encoding='utf-8'?>\n<feed xmlns='http://www.w3.org/2005/Atom'>\n  <title>Gr\u{fc}\u{df}e</title>{entries}\n</feed>\n"
        )
    }

    fn shortened(old: &str, new: &str) -> Option<String> {
        without_known_entries(old.as_bytes(), new.as_bytes()).map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn w143_only_entries_that_were_sent_before_are_left_out() {
        let (old, new) = (atom(&[(2, 0), (1, 0)]), atom(&[(3, 0), (2, 1), (1, 0)]));
        assert_eq!(
            shortened(&old, &new),
            Some(atom(&[(3, 0), (2, 1)])),
            "2 was changed, so it is sent again"
        );
        let rss =
            |items: &str| format!("<rss version=\"2.0\"><channel><title>t</title>{items}</channel></rss>");
        let (one, two) = ("<item><guid>1</guid></item>", "<item><guid>2</guid></item>");
        assert_eq!(shortened(&rss(one), &rss(&format!("{two}{one}"))), Some(rss(two)));
    }

    #[test]
    fn w143_a_byte_order_mark_moves_nothing() {
        let marked = |feed: String| format!("\u{feff}{feed}");
        let (old, new) = (atom(&[(2, 0), (1, 0)]), atom(&[(3, 0), (2, 1), (1, 0)]));
        assert_eq!(shortened(&marked(old), &marked(new)), Some(marked(atom(&[(3, 0), (2, 1)]))));
        let odd = "\u{feff}<feed xmsentry>\u{feff} <entry></entry></feed>";
        assert_eq!(shortened(odd, odd).as_deref(), Some("\u{feff}<feed xmsentry>\u{feff}</feed>"));
    }

    #[test]
    fn w142_what_cannot_be_taken_apart_safely_is_sent_whole() {
        let feed = atom(&[(1, 0)]);
        assert_eq!(shortened(&feed, &atom(&[(2, 0)])), None, "nothing to leave out");
        assert_eq!(shortened(&feed, &feed.replace("/Atom'", "/Atom' xml:base='/x/'")), None, "another root");
        let html = "<html><body><entry>1</entry></body></html>";
        let rdf = "<rdf:RDF xmlns:rdf='r'><channel><items/></channel><item>1</item></rdf:RDF>";
        let dtd = "<!DOCTYPE feed [<!ENTITY a 'b'>]><feed><entry>1</entry></feed>";
        for other in
            [html, rdf, dtd, "<feed><entry>1</entry>", "<feed><entry>1</feed></entry>", "{\"entry\":1}", ""]
        {
            assert_eq!(shortened(other, other), None, "{other}");
        }
    }

    proptest! {
        /// The model: the feed that is written from the entries that are new.
        #[test]
        fn w143_the_rest_is_the_feed_of_what_is_new(
            old in prop::collection::btree_map(0..8_u8, 0..3_u8, 1..8), new in prop::collection::btree_map(0..8_u8, 0..3_u8, 1..8),
        ) {
            let entries = |map: &std::collections::BTreeMap<u8, u8>| map.iter().map(|(id, version)| (*id, *version)).collect::<Vec<_>>();
            let fresh: Vec<_> = entries(&new).into_iter().filter(|(id, version)| old.get(id) != Some(version)).collect();
            let expected = (fresh.len() < new.len()).then(|| atom(&fresh));
            prop_assert_eq!(shortened(&atom(&entries(&old)), &atom(&entries(&new))), expected);
        }

        #[test]
        fn whatever_the_bytes_it_never_panics(old in "(<|</|feed|entry|rss|channel|item|[>/ü -]){0,30}", new in "(<|</|feed|entry|[>/ü -]){0,30}") {
            without_known_entries(old.as_bytes(), new.as_bytes());
        }
    }
}
