//! Two Change Lists of which one begins where the other ends: a change at that very moment may be in either, or in both (RS-128).
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use crate::support::copy::counts;
use crate::support::{Source, client, document, entry, expected, files};
use resync_subscriber_kit::sync::{Depth, Offer, Report, SyncOptions, Target, synchronise};
use tempfile::TempDir;
use url::Url;

const BEGIN: &str = "2026-11-20T09:00:00Z";
const BOUNDARY: &str = "2026-11-20T10:00:00Z";

/// What is in the Change Lists of a Source.
struct Lists {
    first: Vec<String>,
    /// Once the first one is closed.
    second: Option<Vec<String>>,
}

/// A Source of `/a`, `/bare` and `/gone`, which change at the boundary.
async fn source() -> Source {
    let source = Source::start().await;
    let entries = ["/a", "/bare", "/gone"].map(|path| source.resource(path, b"1"));
    source.resource_list_of(BEGIN, "/resourcelist.xml", &entries);
    publish(&source, &Lists { first: Vec::new(), second: None });
    source
}

fn publish(source: &Source, Lists { first, second }: &Lists) {
    let until = if second.is_some() { format!(r#" until="{BOUNDARY}""#) } else { String::new() };
    let root = |times: &str| format!(r#"<rs:md capability="changelist" {times}/>"#);
    let part = |path: &str, times: &str| {
        format!("<sitemap><loc>{}</loc><rs:md {times}/></sitemap>", source.url(path))
    };
    let of_first = format!(r#"from="{BEGIN}"{until}"#);
    source.put("/1.xml", document("urlset", &root(&of_first), first).as_bytes());
    let mut parts = vec![part("/1.xml", &of_first)];
    if let Some(second) = second {
        let times = format!(r#"from="{BOUNDARY}""#);
        source.put("/2.xml", document("urlset", &root(&times), second).as_bytes());
        parts.push(part("/2.xml", &times));
    }
    let index = document("sitemapindex", &root(&format!(r#"from="{BEGIN}""#)), &parts);
    source.put("/changelist.xml", index.as_bytes());
}

/// The changes of the boundary: an update that says what there is now, one that does not, and a deletion.
fn of_the_boundary(source: &Source) -> Vec<String> {
    let told = format!(r#"<rs:md change="updated" datetime="{BOUNDARY}" "#);
    source.put("/bare", b"2");
    source.remove("/gone");
    vec![
        source.resource("/a", b"2").replace("<rs:md ", &told),
        entry(&source.url("/bare"), &format!(r#"change="updated" datetime="{BOUNDARY}""#)),
        entry(&source.url("/gone"), &format!(r#"change="deleted" datetime="{BOUNDARY}""#)),
    ]
}

async fn run(source: &Source, directory: &TempDir) -> Report {
    let url = |path: &str| Url::parse(&source.url(path)).unwrap();
    let offer = Offer { change_list: Some(url("/changelist.xml")), ..Offer::list(url("/resourcelist.xml")) };
    let target = Target::open(directory.path(), url("/")).unwrap();
    let options = SyncOptions { delete: true, retries: 0, ..SyncOptions::default() };
    let report = synchronise(&client(), &offer, &target, &options, Depth::Changes).await.unwrap();
    assert!(report.in_step(), "{report:?}");
    report
}

/// What the Source was asked for besides documents.
fn fetched(source: &Source) -> Vec<String> {
    let mut fetched: Vec<_> = source.asked().into_iter().filter(|path| !path.contains(".xml")).collect();
    fetched.sort();
    fetched
}

#[tokio::test]
async fn rs128_a_change_that_stands_in_two_lists_is_one_and_none_of_the_boundary_is_lost() {
    let (source, directory) = (source().await, tempfile::tempdir().unwrap());
    run(&source, &directory).await;
    let at_boundary = of_the_boundary(&source);
    publish(&source, &Lists { first: at_boundary.clone(), second: None });
    source.asked();
    assert_eq!(counts(&run(&source, &directory).await)[..3], [0, 2, 1]);
    assert_eq!(fetched(&source), ["/a", "/bare"]);

    // The next list has them again, and one more of the same moment.
    let late = source.resource("/late", b"1");
    let late = late.replace("<rs:md ", &format!(r#"<rs:md change="created" datetime="{BOUNDARY}" "#));
    let second = [at_boundary.clone(), vec![late]].concat();
    let lists = Lists { first: at_boundary, second: Some(second) };
    publish(&source, &lists);
    assert_eq!(counts(&run(&source, &directory).await)[..3], [1, 0, 0]);
    assert!(!fetched(&source).contains(&"/a".to_owned()), "what is here already is not fetched again");
    let now = expected(&[("a", "2"), ("bare", "2"), ("late", "1")]);
    assert_eq!(files(directory.path()), now);

    // Who reads both lists at once fetches each resource once.
    let anew = tempfile::tempdir().unwrap();
    assert_eq!(counts(&run(&source, &anew).await), [3, 0, 0, 0, 0]);
    assert_eq!(fetched(&source), ["/a", "/bare", "/late"]);
    assert_eq!(files(anew.path()), now);
}
