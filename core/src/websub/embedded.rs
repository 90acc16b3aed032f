//! The links that stand in content: in the head of an HTML page, in an Atom feed, in an RSS channel (W-024…W-026, W-030).

use std::borrow::Cow;

use quick_xml::escape::unescape;
use quick_xml::events::{BytesStart, Event};
use quick_xml::{Reader, XmlVersion};

use super::LinkHeader;

/// How much of a page is looked through: links stand in its head (W-026).
const LOOKED_THROUGH: usize = 512 * 1024;
/// How many links of a page are taken.
const MOST_LINKS: usize = 256;
/// How many attributes of a link are looked at.
const MOST_ATTRIBUTES: usize = 64;

/// The links of content of this type, as they are written; none if it is no HTML and no XML.
///
/// ```
/// use resync_core::websub::embedded_links;
///
/// let links = embedded_links("text/html; charset=utf-8", b"<link rel=hub href=/hub>");
/// assert_eq!(links.first("hub"), Some("/hub"));
/// ```
pub fn embedded_links(content_type: &str, body: &[u8]) -> LinkHeader {
    let essence = content_type.split(';').next().unwrap_or_default().trim_ascii().to_ascii_lowercase();
    if essence == "text/html" {
        return html_links(&String::from_utf8_lossy(&body[..body.len().min(LOOKED_THROUGH)]));
    }
    if essence.ends_with("xml") { feed_links(&String::from_utf8_lossy(body)) } else { LinkHeader::default() }
}

/// The links of an Atom feed or an RSS channel: those of the feed itself, not those of its entries.
fn feed_links(text: &str) -> LinkHeader {
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
        if !root_is_known || entry || links.iter().len() >= MOST_LINKS {
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
        let attribute = attributes.take(MOST_ATTRIBUTES).flatten().find(|one| one.key.as_ref() == wanted)?;
        attribute.normalized_value(XmlVersion::Implicit1_0).ok().map(Cow::into_owned)
    };
    match (value("rel"), value("href")) {
        (Some(rel), Some(href)) => links.push(href, rel),
        _ => links,
    }
}

/// The links in the head of a page.
fn html_links(page: &str) -> LinkHeader {
    // Lower case of ASCII only keeps every byte where it is.
    let lower = page.to_ascii_lowercase();
    let mut links = LinkHeader::default();
    let mut at = 0;
    while let Some(begin) = lower[at..].find('<').map(|offset| at + offset) {
        at = begin + 1;
        let rest = &lower[at..];
        if rest.starts_with("!--") {
            at = rest.find("-->").map_or(lower.len(), |end| at + end);
        } else if let Some(raw) =
            ["script", "style", "title", "template", "noscript"].iter().find(|raw| is_tag(rest, raw))
        {
            at = rest.find(&format!("</{raw}")).map_or(lower.len(), |end| at + end);
        } else if is_tag(rest, "body") || rest.starts_with("/head") || links.iter().len() >= MOST_LINKS {
            break;
        } else if is_tag(rest, "link") {
            let (attributes, after) = attributes(&page[at + "link".len()..]);
            links = with_html_link(links, &attributes);
            at = page.len() - after.len();
        }
    }
    links
}

fn is_tag(rest: &str, name: &str) -> bool {
    rest.strip_prefix(name)
        .is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '-'))
}

fn with_html_link(links: LinkHeader, attributes: &[(&str, &str)]) -> LinkHeader {
    let (mut rel, mut href) = (None, None);
    for &(name, value) in attributes {
        let place = match name.to_ascii_lowercase().as_str() {
            "rel" => &mut rel,
            "href" => &mut href,
            _ => continue,
        };
        place.get_or_insert_with(|| unescape(value).map_or_else(|_| value.to_owned(), Cow::into_owned));
    }
    match (rel, href) {
        (Some(rel), Some(href)) => links.push(href, rel),
        _ => links,
    }
}

/// The attributes of a tag up to its end, with and without quotes, and what follows them: whatever was read here is not read
/// again, or else many tags without an end would take time in proportion to the square of their number.
fn attributes(mut rest: &str) -> (Vec<(&str, &str)>, &str) {
    let mut found = Vec::new();
    for _ in 0..MOST_ATTRIBUTES {
        rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '/');
        let end = rest
            .find(|c: char| c.is_ascii_whitespace() || matches!(c, '=' | '>' | '/'))
            .unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        if name.is_empty() {
            break;
        }
        let Some(value) = after.trim_ascii_start().strip_prefix('=') else {
            rest = after;
            continue;
        };
        let value = value.trim_ascii_start();
        let (value, after) = match value.chars().next() {
            Some(quote @ ('"' | '\'')) => value[1..].split_once(quote).unwrap_or((&value[1..], "")),
            _ => value
                .split_at(value.find(|c: char| c.is_ascii_whitespace() || c == '>').unwrap_or(value.len())),
        };
        found.push((name, value));
        rest = after;
    }
    (found, rest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hubs(content_type: &str, text: &str) -> Vec<String> {
        embedded_links(content_type, text.as_bytes()).with_rel("hub").map(str::to_owned).collect()
    }

    #[test]
    fn d20_a_page_of_tags_without_an_end_is_read_once() {
        for part in ["<link a ", "<link ", "<link rel=hub href='", "<link a=b/", "<link\n=", "<!-- <link a "]
        {
            let page = part.repeat(LOOKED_THROUGH / part.len());
            assert!(hubs("text/html", &page).len() <= MOST_LINKS, "{part}");
        }
        let feed = format!("<feed><link {}rel='hub' href='/hub'/></feed>", "a='' ".repeat(40_000));
        assert!(hubs("application/atom+xml", &feed).is_empty());
    }

    #[test]
    fn d20_of_a_tag_with_endless_attributes_a_few_are_looked_at_and_the_next_tag_counts() {
        let (few, many) = ("a ".repeat(MOST_ATTRIBUTES - 2), "a ".repeat(MOST_ATTRIBUTES));
        let page = format!("<link {few}rel=hub href=/1><link {many}rel=hub href=/2><link rel=hub href=/3>");
        assert_eq!(hubs("text/html", &page), ["/1", "/3"]);
    }

    proptest! {
        #[test]
        fn what_follows_the_attributes_is_the_end_of_what_was_given(text in "([a-c=>'\"/ü< ]|rel=|href=x){0,200}") {
            let (found, after) = attributes(&text);
            prop_assert!(text.ends_with(after) && found.len() <= MOST_ATTRIBUTES);
            let read: usize = found.iter().map(|(name, value)| name.len() + value.len()).sum();
            prop_assert!(read + after.len() <= text.len());
        }
    }
}
