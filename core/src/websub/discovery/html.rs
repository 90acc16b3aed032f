//! Links in the head of an HTML page (W-025, W-026).

use std::borrow::Cow;

use quick_xml::escape::unescape;

use super::MAX_ATTRIBUTES;
use crate::websub::{LinkHeader, MAX_LINKS};

/// The links in the head of a page.
pub(super) fn links(page: &str) -> LinkHeader {
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
        } else if is_tag(rest, "body") || rest.starts_with("/head") || links.iter().len() >= MAX_LINKS {
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
    for _ in 0..MAX_ATTRIBUTES {
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

    proptest! {
        #[test]
        fn what_follows_the_attributes_is_the_end_of_what_was_given(text in "([a-c=>'\"/ü< ]|rel=|href=x){0,200}") {
            let (found, after) = attributes(&text);
            prop_assert!(text.ends_with(after) && found.len() <= MAX_ATTRIBUTES);
            let read: usize = found.iter().map(|(name, value)| name.len() + value.len()).sum();
            prop_assert!(read + after.len() <= text.len());
        }
    }
}
