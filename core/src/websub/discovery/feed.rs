//! Links in an Atom feed, in an RSS channel, and in an HTML page in XML form (W-024).

use std::borrow::Cow;

use quick_xml::events::{BytesStart, Event};
use quick_xml::{Reader, XmlVersion};

use super::MAX_ATTRIBUTES;
use crate::websub::{LinkHeader, MAX_LINKS};

/// The links of an Atom feed or an RSS channel: those of the feed itself, not those of its entries.
pub(super) fn links(text: &str) -> LinkHeader {
    let mut reader = Reader::from_str(text);
    let mut links = LinkHeader::default();
    let mut depth = 0_usize;
    loop {
        let (start, empty) = match reader.read_event() {
            Ok(Event::Start(start)) => (start, false),
            Ok(Event::Empty(start)) => (start, true),
            Ok(Event::End(_)) => {
                depth = depth.saturating_sub(1);
                continue;
            }
            Ok(Event::Eof) | Err(_) => return links,
            Ok(_) => continue,
        };
        let name = start.local_name();
        let root_is_known = depth > 0 || matches!(name.as_ref(), "feed" | "rss" | "RDF" | "html");
        // An HTML head in XML form is two deep, like an RSS channel; an Atom feed is one deep.
        let entry = matches!(name.as_ref(), "entry" | "item" | "body");
        if !root_is_known || entry || links.iter().len() >= MAX_LINKS {
            return links;
        }
        if name.as_ref() == "link" && (1..=2).contains(&depth) {
            links = with_xml_link(links, &start);
        }
        depth += usize::from(!empty);
    }
}

fn with_xml_link(links: LinkHeader, start: &BytesStart<'_>) -> LinkHeader {
    let value = |wanted: &str| {
        // Unchecked: looking for an attribute's double takes time in proportion to the square of their number.
        let mut attributes = start.attributes();
        attributes.with_checks(false);
        let attribute = attributes.take(MAX_ATTRIBUTES).flatten().find(|one| one.key.as_ref() == wanted)?;
        attribute.normalized_value(XmlVersion::Implicit1_0).ok().map(Cow::into_owned)
    };
    match (value("rel"), value("href")) {
        (Some(rel), Some(href)) => links.push(href, rel),
        _ => links,
    }
}
