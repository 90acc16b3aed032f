//! Sites that were made to keep a checker busy for ever, or to fill its memory.

use std::io::Cursor;

use super::super::reading::PackageListing;
use super::super::*;
use super::zip;
use crate::digest::Hashes;
use crate::rules::Rule;
use crate::{lint, xml};

const ROOT: &str = "http://example.org/";

/// A site without an end: what is behind a URL is made up when it is asked for.
struct Endless<F> {
    answer: F,
    asked: usize,
}

impl<F: FnMut(&str) -> String> Fetch for Endless<F> {
    fn get(&mut self, url: &str) -> Result<Fetched, FetchFailure> {
        self.asked += 1;
        let bytes = (self.answer)(url).into_bytes();
        Ok(Fetched { bytes, content_type: Some("application/xml".to_owned()), last_url: url.to_owned() })
    }
}

fn endless<F: FnMut(&str) -> String>(answer: F) -> Endless<F> {
    Endless { answer, asked: 0 }
}

fn number(url: &str) -> usize {
    url.trim_start_matches(ROOT).parse().unwrap_or(0)
}

fn document(root: &str, capability: &str, links: &str, entries: impl IntoIterator<Item = String>) -> String {
    let child = if root == "urlset" { "url" } else { "sitemap" };
    let entries: Vec<_> = entries.into_iter().map(|entry| format!("<{child}>{entry}</{child}>")).collect();
    let entries = entries.concat();
    format!(
        r#"<{root} xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/"
           ><rs:md capability="{capability}" at="2026-01-03T09:00:00Z"/>{links}{entries}</{root}>"#
    )
}

fn link(rel: &str, url: usize) -> String {
    format!(r#"<rs:ln rel="{rel}" href="{ROOT}{url}"/>"#)
}

fn loc(url: usize) -> String {
    format!("<loc>{ROOT}{url}</loc>")
}

#[test]
fn a_chain_without_an_end_is_followed_as_far_as_documents_are_allowed() {
    let mut chain = endless(|url| {
        let next = number(url) + 1;
        document("urlset", "resourcelist", &(link("up", next) + &link("index", next)), [])
    });
    let report = Check::default().documents(500).run(&mut chain, ROOT);
    assert_eq!((report.documents.len(), chain.asked), (500, 500));
    assert!(report.omitted > 0 && !report.is_conforming());
}

#[test]
fn indexes_of_fifty_thousand_indexes_are_looked_at_up_to_the_limit_and_the_rest_is_counted() {
    let whole = document("sitemapindex", "resourcelist", "", (1..=xml::MAX_ENTRIES).map(loc));
    let part = document("sitemapindex", "resourcelist", &link("index", 0), (1..=20).map(loc));
    let mut site = endless(|url| if number(url) == 0 { whole.clone() } else { part.clone() });
    let report = lint::check(&mut site, &format!("{ROOT}0"));
    assert_eq!((report.documents.len(), site.asked), (MAX_DOCUMENTS, MAX_DOCUMENTS));
    // Each of those beyond the limit is counted once as an entry of the index.
    assert!(report.omitted >= xml::MAX_ENTRIES - MAX_DOCUMENTS, "{}", report.omitted);
    let kept: usize = report.documents.iter().map(|document| document.violations.iter().len()).sum();
    assert!(kept <= MAX_KEPT, "{kept}");
    assert!(report.errors() > 0);
}

#[test]
fn ten_thousand_components_that_are_right_are_all_checked() {
    let components = MAX_DOCUMENTS - 1;
    let index = document("sitemapindex", "resourcelist", "", (1..=components).map(loc));
    let list = document("urlset", "resourcelist", &link("index", 0), []);
    let mut site = endless(|url| if number(url) == 0 { index.clone() } else { list.clone() });
    let report = lint::check(&mut site, &format!("{ROOT}0"));
    assert_eq!((report.documents.len(), report.omitted, report.stopped), (MAX_DOCUMENTS, 0, None));
}

#[test]
fn a_document_that_is_its_own_index_component_and_way_up_is_read_once() {
    let mut site = endless(|_| {
        document("sitemapindex", "changelist", &(link("up", 0) + &link("index", 0)), [loc(0), loc(0)])
    });
    let report = lint::check(&mut site, &format!("{ROOT}0"));
    assert_eq!((report.documents.len(), site.asked), (1, 1));
    assert!(!report.is_conforming());
}

#[test]
fn redirects_that_always_lead_elsewhere_end_with_the_requests() {
    struct Moving(usize);
    impl Fetch for Moving {
        fn get(&mut self, _: &str) -> Result<Fetched, FetchFailure> {
            self.0 += 1;
            let next = |far: usize| link("up", self.0 + far);
            let text = document("urlset", "resourcelist", &next(1), [loc(self.0 + 7)]);
            let last_url = format!("{ROOT}moved/{}", self.0);
            Ok(Fetched { bytes: text.into_bytes(), content_type: None, last_url })
        }
    }
    let mut site = Moving(0);
    let report = Check::default().requests(100).run(&mut site, ROOT);
    assert_eq!((site.0, &report.stopped), (100, &Some(Stopped::Requests(100))));
    assert!(report.to_string().contains("ended early: more than 100 requests"), "{report}");
}

#[test]
fn packages_and_topics_count_as_requests() {
    #[derive(Default)]
    struct Counting {
        packages: usize,
        topics: usize,
        is_dump: bool,
    }
    impl Fetch for Counting {
        fn get(&mut self, url: &str) -> Result<Fetched, FetchFailure> {
            let (kind, inside) = if self.is_dump {
                ("resourcedump", r#"<rs:md type="application/zip"/>"#)
            } else {
                ("capabilitylist", r#"<rs:md capability="change-notification"/>"#)
            };
            let text = document("urlset", kind, "", (1..=5_000).map(|number| loc(number) + inside));
            Ok(Fetched { bytes: text.into_bytes(), content_type: None, last_url: url.to_owned() })
        }

        fn package(&mut self, _: &str) -> Result<Option<Box<dyn PackageBytes>>, FetchFailure> {
            self.packages += 1;
            Err(FetchFailure::new("404 Not Found"))
        }

        fn topic(&mut self, _: &str, _: Method) -> Result<Option<TopicAnswer>, FetchFailure> {
            self.topics += 1;
            Err(FetchFailure::new("404 Not Found"))
        }
    }
    for is_dump in [true, false] {
        let mut site = Counting { is_dump, ..Counting::default() };
        let report = Check::default().requests(1_000).run(&mut site, ROOT);
        assert_eq!((site.packages + site.topics, report.stopped), (999, Some(Stopped::Requests(1_000))));
    }
}

#[test]
fn a_fetch_that_has_ended_is_asked_no_more_and_what_was_found_is_told() {
    struct Brief(usize);
    impl Fetch for Brief {
        fn get(&mut self, url: &str) -> Result<Fetched, FetchFailure> {
            self.0 += 1;
            if self.0 > 2 {
                return Err(FetchFailure::last("time is up"));
            }
            let text = document("sitemapindex", "resourcelist", "", (1..=9).map(loc));
            Ok(Fetched { bytes: text.into_bytes(), content_type: None, last_url: url.to_owned() })
        }
    }
    let mut site = Brief(0);
    let report = lint::check(&mut site, ROOT);
    assert_eq!((site.0, report.documents.len(), report.omitted), (3, 2, 8));
    assert_eq!(report.stopped, Some(Stopped::Fetch(FetchFailure::last("time is up"))));
    assert!(
        report.documents.iter().all(|document| {
            document.violations.iter().all(|violation| violation.rule != Rule::Unreachable)
        })
    );
}

#[test]
fn what_is_kept_of_a_document_does_not_grow_with_its_tokens_and_urls() {
    let long = "x".repeat(100_000);
    let mut site = endless(|_| {
        let up = format!(r#"<rs:ln rel="up" href="{ROOT}{long}"/>"#);
        document("urlset", &long, &up, [format!("<loc>{ROOT}{long}</loc>")])
    });
    let report = lint::check(&mut site, ROOT);
    assert_eq!((site.asked, report.documents.len()), (1, 1));
    assert!(report.documents[0].violations.iter().any(|violation| violation.rule == Rule::Unreachable));
    assert!(report.to_string().len() < 10_000, "{}", report.to_string().len());
}

#[test]
fn lists_and_dumps_by_the_thousand_are_compared_each_once() {
    let entry = |capability: &str, url: usize| format!("{}<rs:md capability=\"{capability}\"/>", loc(url));
    let pairs = (0..10_000).flat_map(|_| [entry("resourcelist", 1), entry("resourcedump", 2)]);
    let whole = document("urlset", "capabilitylist", "", pairs);
    let list = document("urlset", "resourcelist", &link("up", 0), [loc(3)]);
    let dump = document("urlset", "resourcedump", &link("up", 0), []);
    let mut site = endless(|url| [&whole, &list, &dump][number(url).min(2)].clone());
    let report = lint::check(&mut site, &format!("{ROOT}0"));
    let differ = |document: &Checked| {
        document.violations.iter().filter(|violation| violation.rule == Rule::SetsDiffer).count()
    };
    assert_eq!(report.documents.iter().map(differ).collect::<Vec<_>>(), [0, 0, 1]);
}

#[test]
fn links_to_one_bitstream_over_and_over_are_one_look_at_it() {
    let link = r#"<rs:ln rel="patch" href="http://example.org/a" path="/big"/>"#;
    let manifest = document(
        "urlset",
        "resourcedump-manifest",
        "",
        (0..3).map(|number| format!("<loc>http://example.org/{number}</loc>{}", link.repeat(50))),
    );
    let package = zip(&[("manifest.xml", manifest.as_bytes()), ("big", &vec![0; 1_000_000])]);
    let said = PackageListing { length: None, hashes: Hashes::default() };
    let mut asked = 0;
    let mut examine = |budget, last| {
        asked = 0;
        package::examine(Box::new(Cursor::new(package.clone())), &said, budget, &mut || {
            asked += 1;
            (asked == last).then(|| FetchFailure::last("time is up"))
        })
    };
    let found = examine(u64::MAX, 0);
    assert_eq!((found.taken, found.is_cut_off, found.end), (1_000_000, false, None));
    let found = examine(999_999, 0);
    assert_eq!((found.taken, found.is_cut_off, found.of_package), (0, true, vec![]));
    let found = examine(u64::MAX, 2);
    assert_eq!((found.taken, found.end), (0, Some(FetchFailure::last("time is up"))));
}
