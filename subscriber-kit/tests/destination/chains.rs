//! Chains of Change Sets of the alpha draft, served as files: whole, with a circle, and with a hole (MEM-004, MEM-005).
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::support::{Source, client, expected, files};
use resync_subscriber_kit::discover::discover;
use resync_subscriber_kit::sync::{Depth, Method, Offer, Report, SyncOptions, Target, synchronise};
use tempfile::TempDir;
use url::Url;

/// How many sets there are, each with one change of its own resource and one of a resource that all of them change.
const SETS: usize = 40;

const SET: &str = "http://www.openarchives.org/rs/changeset";

struct Chained {
    source: Source,
    directory: TempDir,
}

impl Chained {
    /// In step with the Sitemap of before the first set but so many.
    async fn start(known: usize) -> Self {
        let chained = Self { source: Source::start().await, directory: tempfile::tempdir().unwrap() };
        for number in 0..SETS {
            chained.set(number, previous(number));
            chained.source.put(&format!("/{number}"), format!("of {number}").as_bytes());
        }
        chained.source.put("/all", format!("{}", known.saturating_sub(1)).as_bytes());
        chained.current(known);
        chained.sitemap(known);
        assert!(chained.run(Depth::Full).await.in_step());
        assert_eq!(files(chained.directory.path()).len(), known + 1);
        chained.current(SETS);
        chained.source.put("/all", format!("{}", SETS - 1).as_bytes());
        chained.source.asked();
        chained
    }

    /// The Sitemap after so many sets.
    fn sitemap(&self, sets: usize) {
        let entries = (0..sets).map(|number| format!("/{number}")).chain(["/all".to_owned()]);
        let entries = entries.map(|path| {
            let modified = moment(if path == "/all" { sets.saturating_sub(1) } else { 0 });
            format!("<url><loc>{}</loc><lastmod>{modified}</lastmod></url>", self.source.url(&path))
        });
        let modified = moment(sets.saturating_sub(1));
        let content = format!("{}{}", self.link("current", "/current.xml"), entries.collect::<String>());
        self.source.put("/sitemap.xml", alpha("urlset", &modified, &content).as_bytes());
    }

    fn link(&self, rel: &str, path: &str) -> String {
        format!(r#"<xhtml:link rel="{rel} {SET}" href="{}"/>"#, self.source.url(path))
    }

    /// A set of two changes, the newer one first, and the set that it leads to.
    fn set(&self, number: usize, prev: Option<String>) {
        self.source.put(&set_path(number), self.text(number, prev).as_bytes());
    }

    fn text(&self, number: usize, prev: Option<String>) -> String {
        let (at, loc) = (moment(number), |path: &str| self.source.url(path));
        let content = format!(
            r#"{}{}<url><loc>{}</loc><lastmod rs:type="updated">{at}</lastmod></url><url><loc>{}</loc><lastmod rs:type="created">{at}</lastmod></url>"#,
            self.link("current", "/current.xml"),
            prev.map(|path| self.link("prev", &path)).unwrap_or_default(),
            loc("/all"),
            loc(&format!("/{number}")),
        );
        alpha(r#"urlset rs:type="changeset""#, &at, &content)
    }

    /// The current set is the last of so many.
    fn current(&self, sets: usize) {
        let last = sets.saturating_sub(1);
        self.source.put("/current.xml", self.text(last, previous(last)).as_bytes());
    }

    async fn run(&self, how: Depth) -> Report {
        let found = discover(&client(), &self.source.url("/sitemap.xml")).await.unwrap();
        let offer = Offer::of(found.choose(None).unwrap());
        assert_eq!(offer.change_list.as_ref().unwrap().as_str(), self.source.url("/current.xml"));
        let target = Target::open(self.directory.path(), Url::parse(&self.source.url("/")).unwrap()).unwrap();
        let options =
            SyncOptions { retries: 0, retry_pause: Duration::from_millis(1), ..SyncOptions::default() };
        synchronise(&client(), &offer, &target, &options, how).await.unwrap()
    }

    /// The sets that were asked for, in order.
    fn asked(&self) -> Vec<String> {
        self.source.asked().into_iter().filter(|path| path.starts_with("/set-")).collect()
    }

    fn assert_as_now(&self) {
        let own = (0..SETS).map(|number| (number.to_string(), format!("of {number}")));
        let all: Vec<_> = own.chain([("all".to_owned(), (SETS - 1).to_string())]).collect();
        let all: Vec<_> = all.iter().map(|(name, body)| (name.as_str(), body.as_str())).collect();
        assert_eq!(files(self.directory.path()), expected(&all));
    }
}

fn alpha(root: &str, modified: &str, content: &str) -> String {
    let name = root.split(' ').next().unwrap();
    format!(
        r#"<{root} xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/" xmlns:xhtml="http://www.w3.org/1999/xhtml"><xhtml:meta name="DCTERMS.modified" content="{modified}"/>{content}</{name}>"#
    )
}

fn moment(number: usize) -> String {
    format!("2012-09-01T10:{number:02}:00Z")
}

fn set_path(number: usize) -> String {
    format!("/set-{number}.xml")
}

fn previous(number: usize) -> Option<String> {
    number.checked_sub(1).map(set_path)
}

#[tokio::test]
async fn mem004_a_chain_is_read_back_to_what_is_known_and_dealt_with_oldest_first() {
    let chained = Chained::start(10).await;
    let report = chained.run(Depth::Changes).await;
    assert!(report.in_step() && report.method == Method::Incremental, "{report:?}");
    chained.assert_as_now();
    let back: Vec<String> = (9..SETS - 1).rev().map(set_path).collect();
    assert_eq!(chained.asked(), back, "back to the set whose changes are known, and no further");
    // Nothing is new, so only the current set is asked for.
    assert!(chained.run(Depth::Changes).await.in_step());
    assert!(chained.asked().is_empty());
}

#[tokio::test]
async fn mem004_a_copy_of_nothing_reads_back_to_the_time_of_the_sitemap() {
    let chained = Chained::start(10).await;
    chained.sitemap(30);
    let report = chained.run(Depth::Full).await;
    assert!(report.in_step() && report.method == Method::Baseline, "{report:?}");
    chained.assert_as_now();
    assert_eq!(chained.asked(), (29..SETS - 1).rev().map(set_path).collect::<Vec<_>>());
}

#[tokio::test]
async fn mem005_a_chain_with_a_circle_or_a_hole_leaves_it_open_and_the_sitemap_is_compared() {
    for (what, spoils) in [("leads in a circle", true), ("has a set that cannot be read", false)] {
        let chained = Chained::start(10).await;
        if spoils {
            chained.set(20, Some(set_path(30)));
        } else {
            chained.source.remove(&set_path(20));
        }
        chained.sitemap(15);
        let report = chained.run(Depth::Changes).await;
        assert_eq!(report.method, Method::Baseline, "{what}");
        assert!(report.unproven.as_ref().is_some_and(|why| why.contains(what)), "{report:?}");
        // Of the sets behind the break, the Sitemap knows some.
        let copied = files(chained.directory.path());
        assert!(copied.contains_key("14") && copied.contains_key("39"), "{copied:?}");
        assert!(chained.asked().len() <= 2 * SETS, "it ends");

        // A newer Sitemap closes the gap.
        chained.sitemap(SETS);
        let report = chained.run(Depth::Changes).await;
        assert!(report.in_step(), "{report:?}");
        chained.assert_as_now();
    }
}

#[tokio::test]
async fn mem005_a_chain_that_begins_after_what_is_known_leaves_it_open() {
    let chained = Chained::start(10).await;
    chained.set(25, None);
    let report = chained.run(Depth::Changes).await;
    assert!(report.unproven.is_some_and(|why| why.contains("begins too late")));
}

#[tokio::test]
async fn mem005_a_chain_without_end_is_read_for_so_many_sets() {
    let chained = Chained::start(1).await;
    for number in 0..1100 {
        let next = format!("/set-{}.xml", number + 1);
        let content = format!("{}{}", chained.link("current", "/current.xml"), chained.link("prev", &next));
        let set = alpha(r#"urlset rs:type="changeset""#, "2012-09-02T10:00:00Z", &content);
        chained.source.put(&set_path(number), set.as_bytes());
    }
    chained.source.put("/current.xml", chained.text(39, Some(set_path(0))).as_bytes());
    let report = chained.run(Depth::Changes).await;
    assert!(report.unproven.is_some_and(|why| why.contains("more than 1000 sets")));
}

/// How a chain goes on behind its newest set, by what is damaged.
enum Led {
    /// To what is known, by so many sets.
    Whole(usize),
    Nowhere,
}

impl Led {
    /// Back from the newest set, where some lead elsewhere than to the one before them.
    fn by(elsewhere: &BTreeMap<usize, Option<String>>, known: usize) -> Self {
        let (mut at, mut seen) = (previous(SETS - 1), BTreeSet::from(["/current.xml".to_owned()]));
        for sets in 1.. {
            let set = at.filter(|path| seen.insert(path.clone()));
            let Some(number) = set.and_then(|path| (0..SETS).find(|number| set_path(*number) == path)) else {
                break;
            };
            if number < known {
                return Self::Whole(sets);
            }
            at = elsewhere.get(&number).cloned().unwrap_or_else(|| previous(number));
        }
        Self::Nowhere
    }
}

#[tokio::test]
async fn mem005_wherever_the_sets_of_a_chain_lead_it_is_read_to_an_end_and_a_break_is_told() {
    const KNOWN: usize = 10;
    let seed = resync_harness::seed();
    for seed in (0..8).map(|round| seed.wrapping_add(round)) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let chained = Chained::start(KNOWN).await;
        let mut elsewhere = BTreeMap::new();
        for _ in 0..rng.usize(1..4) {
            let (number, to) = (rng.usize(KNOWN..SETS - 1), rng.usize(0..SETS));
            let prev = match rng.u8(0..6) {
                0 => None,
                1 => Some("/current.xml".to_owned()),
                2 => Some("/nowhere.xml".to_owned()),
                // No document.
                3 => Some("/0".to_owned()),
                _ => Some(set_path(to)),
            };
            chained.set(number, prev.clone());
            elsewhere.insert(number, prev);
        }
        let told = format!("RESYNC_TEST_SEED={seed}: {elsewhere:?}");
        let led = Led::by(&elsewhere, KNOWN);
        let report = chained.run(Depth::Changes).await;
        assert!(chained.asked().len() <= 2 * SETS, "{told}: it ends");
        match led {
            // What a Source leaves out by itself nobody can know.
            Led::Whole(sets) => {
                assert!(report.in_step() && report.method == Method::Incremental, "{told}: {report:?}");
                if sets == SETS - KNOWN {
                    chained.assert_as_now();
                }
            }
            Led::Nowhere => {
                assert!(report.unproven.is_some(), "{told}: {report:?}");
                // A newer Sitemap closes the gap.
                chained.sitemap(SETS);
                let report = chained.run(Depth::Changes).await;
                assert!(report.in_step(), "{told}: {report:?}");
                chained.assert_as_now();
            }
        }
    }
}
