//! What a robots.txt and an HTML page say about where ResourceSync documents are. Hints only: what they lead to
//! is checked as everything else.

use std::fs::File;
use std::io::Read as _;

use resync_core::websub::embedded_links;
use url::Url;

/// How much of a page or a robots.txt is looked through, in bytes.
const MAX_LOOKED_THROUGH: u64 = 512 * 1024;

/// The targets of the `Sitemap:` lines (RS-162).
pub(super) fn sitemaps(robots: File) -> Vec<Url> {
    let text = beginning(robots);
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let sitemaps = lines.filter(|(field, _)| field.trim().eq_ignore_ascii_case("sitemap"));
    sitemaps.filter_map(|(_, target)| Url::parse(target.trim()).ok()).collect()
}

/// The targets of the `<link rel="resourcesync">` in the head of a page (RS-161).
pub(super) fn linked_from_html(page: File, url: &Url) -> Vec<Url> {
    let links = embedded_links("text/html", beginning(page).as_bytes()).resolve(url);
    links.with_rel("resourcesync").filter_map(|target| Url::parse(target).ok()).collect()
}

fn beginning(file: File) -> String {
    let mut bytes = Vec::new();
    if let Err(error) = file.take(MAX_LOOKED_THROUGH).read_to_end(&mut bytes) {
        tracing::debug!(%error, "cannot search a page for links");
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
