//! What a robots.txt and an HTML page say about where ResourceSync documents are. Hints only: what they lead to
//! is checked as everything else.

use std::fs::File;
use std::io::Read as _;

use url::Url;

/// How much of a page or a robots.txt is looked through, in bytes.
const MAX_LOOKED_THROUGH: u64 = 512 * 1024;

/// How many `<link>` of a page are looked at.
const MAX_LINK_TAGS: usize = 256;

/// The targets of the `Sitemap:` lines (RS-162).
pub(super) fn sitemaps(robots: File) -> Vec<Url> {
    let text = beginning(robots);
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let sitemaps = lines.filter(|(field, _)| field.trim().eq_ignore_ascii_case("sitemap"));
    sitemaps.filter_map(|(_, target)| Url::parse(target.trim()).ok()).collect()
}

/// The targets of the `<link rel="resourcesync">` of a page (RS-161).
pub(super) fn linked_from_html(page: File, url: &Url) -> Vec<Url> {
    let text = beginning(page);
    // Lower case of ASCII only keeps every byte where it is.
    let lower = text.to_ascii_lowercase();
    let mut found = Vec::new();
    let (mut at, mut tags) = (0, 0);
    while let Some(begin) = lower[at..].find('<').map(|offset| at + offset) {
        at = begin + 1;
        if lower[begin..].starts_with("<!--") {
            let Some(end) = lower[begin..].find("-->") else { break };
            at = begin + end;
        } else if lower[begin..].starts_with("<link") && tags < MAX_LINK_TAGS {
            tags += 1;
            let target = resourcesync_target(&text[begin + "<link".len()..]);
            found.extend(target.and_then(|target| url.join(&target.replace("&amp;", "&")).ok()));
        }
    }
    found
}

/// The `href` of a link whose `rel` holds `resourcesync`; `rest` is what follows the tag's name.
fn resourcesync_target(rest: &str) -> Option<String> {
    let (mut relates, mut target) = (false, None);
    for (name, value) in attributes(rest) {
        if name.eq_ignore_ascii_case("rel") {
            relates = value.split_ascii_whitespace().any(|rel| rel.eq_ignore_ascii_case("resourcesync"));
        } else if name.eq_ignore_ascii_case("href") {
            target = Some(value.trim().to_owned());
        }
    }
    target.filter(|_| relates)
}

/// The attributes of a tag up to its end, with and without quotes.
fn attributes(mut rest: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '/');
        let end = rest
            .find(|c: char| c.is_ascii_whitespace() || matches!(c, '=' | '>' | '/'))
            .unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        if name.is_empty() {
            return found;
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
}

fn beginning(file: File) -> String {
    let mut bytes = Vec::new();
    if let Err(error) = file.take(MAX_LOOKED_THROUGH).read_to_end(&mut bytes) {
        tracing::debug!(%error, "a page cannot be looked through");
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use std::io::{Seek as _, Write as _};

    use super::*;

    fn file(text: &str) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file.rewind().unwrap();
        file
    }

    #[test]
    fn rs162_the_sitemap_lines_of_a_robots_txt_are_found() {
        let found = sitemaps(file(
            "User-agent: *\r\nDisallow: /x\r\nsitemap:http://a.example/1.xml \r\nSitemap: http://a.example/2.xml\nSitemap: nonsense",
        ));
        assert_eq!(
            found.iter().map(Url::as_str).collect::<Vec<_>>(),
            ["http://a.example/1.xml", "http://a.example/2.xml"]
        );
    }

    #[test]
    fn rs161_the_link_of_a_page_is_found_however_it_is_written() {
        let base = Url::parse("http://a.example/dir/page").unwrap();
        for page in [
            r#"<html><head><link rel="resourcesync" href="/cl.xml"></head>"#,
            "<HTML><LINK HREF=/cl.xml REL=ResourceSync>",
            "<link\n  href = '/cl.xml'\n  rel = 'alternate resourcesync' />",
            "<link disabled rel=resourcesync href=../cl.xml>",
        ] {
            let found = linked_from_html(file(page), &base);
            assert_eq!(
                found.iter().map(Url::as_str).collect::<Vec<_>>(),
                ["http://a.example/cl.xml"],
                "{page}"
            );
        }
        for page in [
            r#"<!-- <link rel="resourcesync" href="/cl.xml"> -->"#,
            r#"<link rel="stylesheet" href="/cl.xml">"#,
            r#"<link rel="resourcesync""#,
            "<link",
            "",
        ] {
            assert!(linked_from_html(file(page), &base).is_empty(), "{page}");
        }
    }

    proptest::proptest! {
        #[test]
        fn whatever_the_page_it_is_looked_through(page in "(<link|rel=|href|resourcesync|[<>='\"/ü! -]|-->){0,30}") {
            linked_from_html(file(&page), &Url::parse("http://a.example/").unwrap());
        }
    }
}
