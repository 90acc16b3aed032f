//! What is built on: the crates in both lock files against `deny.toml` (licences, sources, bans) and the list of advisories in
//! `tests/advisories.toml`.
//!
//! `RESYNC_TEST_ADVISORIES=FOLDER` names a checkout of the RustSec database, with which that list is compared then; `tests/advisories`
//! does no more than that.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod advisories;
mod policy;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use advisories::{Advisory, list, news, not_compared, write_compared};
use policy::{Exception, Policy, is_licensed, made_up};
use tempfile::tempdir;
use tree::{Crate, crates};

/// As in a lock file.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";
/// All that comes with sled and with nothing else.
const OF_SLED: [&str; 8] = [
    "bitflags 1",
    "fs2 0",
    "fxhash 0",
    "instant 0",
    "parking_lot 0.11",
    "parking_lot_core 0.8",
    "redox_syscall 0.2",
    "sled 0.34",
];

static WORKSPACE: LazyLock<Vec<Crate>> = LazyLock::new(|| crates("Cargo.toml", &[]));
static FUZZ: LazyLock<Vec<Crate>> = LazyLock::new(|| crates("fuzz/Cargo.toml", &[]));

fn locked() -> Vec<&'static Crate> {
    WORKSPACE.iter().chain(&*FUZZ).collect()
}

fn said(it: &Crate) -> String {
    format!("{} {}", it.name, it.version)
}

#[test]
fn every_licence_is_one_that_is_allowed_and_none_is_allowed_in_vain() {
    let allowed = Policy::read().licenses.allow;
    let refused = |allowed: &BTreeSet<String>| -> Vec<String> {
        let refused = locked().into_iter().filter(|it| !is_licensed(&it.license, allowed));
        refused.map(|it| format!("{}: {}", said(it), it.license)).collect()
    };
    assert_eq!(refused(&allowed), [""; 0]);
    for license in &allowed {
        let mut fewer = allowed.clone();
        fewer.remove(license);
        assert!(!refused(&fewer).is_empty(), "nobody needs {license} in deny.toml");
    }
}

#[test]
fn a_licence_expression_is_met_by_one_of_those_that_it_offers_and_all_of_those_that_it_asks_for() {
    let allowed = ["MIT", "ISC"].map(str::to_owned).into();
    for met in [
        "MIT",
        "GPL-3.0 OR MIT",
        "MIT/Apache-2.0",
        "(GPL-3.0 OR ISC) AND MIT",
        "MIT AND (ISC)",
        "MIT WITH X OR Y",
    ] {
        assert!(is_licensed(met, &allowed), "{met}");
    }
    for unmet in
        ["", "GPL-3.0", "MIT AND GPL-3.0", "(MIT OR ISC) AND GPL-3.0", "GPL-3.0 WITH MIT", "(MIT", "MIT AND"]
    {
        assert!(!is_licensed(unmet, &allowed), "{unmet}");
    }
}

#[test]
fn every_crate_comes_from_the_registry_or_is_of_this_repository() {
    let is_known = |it: &Crate| match &it.source {
        Some(source) => source == REGISTRY,
        None => it.name.starts_with("resync-"),
    };
    let others: Vec<_> = locked().into_iter().filter(|it| !is_known(it)).map(said).collect();
    assert_eq!(others, [""; 0]);
}

#[test]
fn two_versions_of_a_crate_have_a_reason_that_still_holds() {
    let skips = Policy::read().bans.skip;
    let mut by_name: BTreeMap<&str, Vec<&Crate>> = BTreeMap::new();
    for it in &*WORKSPACE {
        by_name.entry(&it.name).or_default().push(it);
    }
    by_name.retain(|_, versions| versions.len() > 1);
    for versions in by_name.values() {
        let without = versions.iter().filter(|it| !skips.iter().any(|skip| skip.is_about(it)));
        let without: Vec<_> = without.map(|it| said(it)).collect();
        assert_eq!(without.len(), 1, "one of {without:?} needs a reason in [bans] skip of deny.toml");
    }
    for skip in &skips {
        let holds = by_name.values().flatten().any(|it| skip.is_about(it));
        assert!(holds && !skip.reason.is_empty(), "{} is the only version, or not there", skip.spec());
    }
}

#[test]
fn what_is_banned_is_needed_by_nobody_but_those_that_may() {
    for ban in Policy::read().bans.deny {
        let found: Vec<_> = locked().into_iter().filter(|it| ban.is_about(it)).collect();
        for it in &found {
            let others: Vec<_> = it.needed_by.difference(&ban.wrappers).collect();
            assert!(!ban.wrappers.is_empty(), "{} is banned: {}", said(it), ban.reason);
            assert!(
                others.is_empty(),
                "{} may be there for {:?}, not for {others:?}",
                said(it),
                ban.wrappers
            );
        }
        assert!(ban.wrappers.is_empty() || !found.is_empty(), "{} is not there any more", ban.spec());
    }
}

#[test]
fn without_its_feature_nothing_of_sled_is_left() {
    let hub = ["cli", "jemalloc", "postgres"].map(|feature| format!("resync-hub/{feature}")).join(",");
    let others = format!("{hub},resync-publisher/cli,resync-subscriber-kit/cli");
    let without: BTreeSet<_> =
        crates("Cargo.toml", &["--no-default-features", "--features", &others]).iter().map(said).collect();
    let gone: Vec<_> = WORKSPACE.iter().map(said).filter(|it| !without.contains(it)).collect();
    let is_of_sled = |it: &String| OF_SLED.iter().any(|of| it.starts_with(&format!("{of}.")));
    assert_eq!(gone.len(), OF_SLED.len(), "{gone:?}");
    assert!(gone.iter().all(is_of_sled), "{gone:?}");
    assert_eq!(without.iter().filter(|it| is_of_sled(it)).collect::<Vec<_>>(), [""; 0]);
}

/// What concerns one of the crates, but for the exceptions.
fn holes(list: &[Advisory], crates: &[&Crate], exceptions: &[Exception]) -> Vec<String> {
    let mut found = Vec::new();
    for advisory in
        list.iter().filter(|advisory| exceptions.iter().all(|exception| exception.id != advisory.id))
    {
        let concerned = crates.iter().filter(|it| advisory.concerns(it));
        found.extend(concerned.map(|it| format!("{} {}: {}", said(it), advisory.id, advisory.about)));
    }
    found
}

#[test]
fn no_version_that_we_have_is_known_to_have_a_hole_but_with_a_reason() {
    let exceptions = Policy::read().advisories.ignore;
    assert_eq!(holes(&list(), &locked(), &exceptions), [""; 0]);
}

#[test]
fn an_exception_ends_with_its_cause_and_a_line_of_the_list_with_its_crate() {
    let (list, locked) = (list(), locked());
    for Exception { id, reason } in Policy::read().advisories.ignore {
        let advisory = list.iter().find(|advisory| advisory.id == id);
        let advisory =
            advisory.unwrap_or_else(|| panic!("{id} of deny.toml is not in tests/advisories.toml"));
        let holds = locked.iter().any(|it| advisory.concerns(it));
        assert!(holds, "{id} concerns no version that we have any more: remove it from deny.toml");
        assert!(reason.starts_with(&advisory.name), "the reason of {id} says what it is about: {reason}");
    }
    let mut seen = BTreeSet::new();
    for advisory in &list {
        let holds = locked.iter().any(|it| it.name == advisory.name);
        assert!(
            holds,
            "there is no {} any more: remove {} from tests/advisories.toml",
            advisory.name, advisory.id
        );
        assert!(!advisory.about.is_empty() && seen.insert(&advisory.id), "{} is there once", advisory.id);
    }
}

#[test]
fn a_lock_that_goes_back_is_caught() {
    let (list, exceptions) = (list(), Policy::read().advisories.ignore);
    for (name, version, expected) in [
        ("quick-xml", "0.40.9", &["RUSTSEC-2026-0194", "RUSTSEC-2026-0195"][..]),
        ("quick-xml", "0.41.0", &[]),
        ("rustls", "0.23.44", &["RUSTSEC-2026-0285"]),
        ("h2", "0.4.15", &["RUSTSEC-2026-0258"]),
        ("hickory-proto", "0.25.2", &["RUSTSEC-2026-0118", "RUSTSEC-2026-0119"]),
    ] {
        let it = made_up(name, version);
        let found = holes(&list, &[&it], &exceptions);
        let ids: Vec<_> = found.iter().filter_map(|hole| hole.split([' ', ':']).nth(2)).collect();
        assert_eq!(ids, expected, "{name} {version}");
    }
    let unmaintained = made_up("fxhash", "0.2.1");
    assert_eq!(holes(&list, &[&unmaintained], &[]).len(), 1, "without its exception");
}

#[test]
fn a_checkout_of_the_database_shows_what_the_list_does_not_say() {
    let folder = tempdir().unwrap();
    let put = |id: &str, more: &str, versions: &str| {
        let crates = folder.path().join("crates/moss");
        fs::create_dir_all(&crates).unwrap();
        let text = format!(
            "```toml\n[advisory]\nid = \"{id}\"\npackage = \"moss\"\ndate = \"2031-05-01\"\n{more}\n[versions]\n{versions}\n```\n\n# A \"hole\"\n\nProse.\n"
        );
        fs::write(crates.join(format!("{id}.md")), text).unwrap();
    };
    put("RUSTSEC-2031-0001", "", "patched = [\">= 1.2.0\"]\nunaffected = [\"< 1.0.0\"]");
    put("RUSTSEC-2031-0002", "", "patched = [\">= 1.1.5\"]");
    put("RUSTSEC-2031-0003", "withdrawn = \"2031-06-01\"", "patched = []");
    put("RUSTSEC-2031-0004", "", "patched = [\">= 0.9.0\"]");
    put("RUSTSEC-2031-0005", "withdrawn = \"2031-06-02\"", "patched = []");
    put("RUSTSEC-2031-0006", "informational = \"unmaintained\"", "patched = []");
    let line = |id: &str, patched: &str| -> Advisory {
        let text =
            format!("id = \"{id}\"\ncrate = \"moss\"\npatched = [\"{patched}\"]\nabout = \"it is wet\"");
        toml::from_str(&text).unwrap()
    };
    let list = [
        line("RUSTSEC-2031-0004", ">=0.8.0"),
        line("RUSTSEC-2031-0005", ">=0.8.0"),
        line("RUSTSEC-2031-0002", ">=1.1.5"),
    ];
    let (moss, fern) = (made_up("moss", "1.1.9"), made_up("fern", "1.0.0"));
    let expected = [
        "RUSTSEC-2031-0001 is new and CONCERNS moss 1.1.9:\n    \
         { id = \"RUSTSEC-2031-0001\", crate = \"moss\", patched = [\">=1.2.0\"], unaffected = [\"<1.0.0\"], about = \"A \\\"hole\\\"\" },",
        "RUSTSEC-2031-0004 speaks of other versions by now:\n    \
         { id = \"RUSTSEC-2031-0004\", crate = \"moss\", patched = [\">=0.9.0\"], about = \"A \\\"hole\\\"\" },",
        "RUSTSEC-2031-0005 of moss was withdrawn on 2031-06-02: remove its line",
        "RUSTSEC-2031-0006 is new and CONCERNS moss 1.1.9:\n    \
         { id = \"RUSTSEC-2031-0006\", crate = \"moss\", patched = [], about = \"A \\\"hole\\\"\" },",
    ];
    assert_eq!(news(folder.path(), &list, &[&moss, &fern]), expected);
    let later = made_up("moss", "1.2.0");
    let said = news(folder.path(), &list, &[&later]).swap_remove(0);
    assert!(said.starts_with("RUSTSEC-2031-0001 is new and concerns no version that we have:"), "{said}");
}

#[test]
fn every_crate_that_we_have_was_compared_with_the_database() {
    if let Some(folder) = env::var_os("RESYNC_TEST_ADVISORIES").map(PathBuf::from) {
        let news = news(&folder, &list(), &locked());
        assert!(news.is_empty(), "tests/advisories.toml does not know:\n{}", news.join("\n"));
        write_compared(&locked());
    }
    let unknown = not_compared(&locked());
    assert!(
        unknown.is_empty(),
        "nobody has looked whether these crates have a known hole; run tests/advisories (CONTRIBUTING.md): {unknown:?}"
    );
    let stranger = Crate { source: Some(REGISTRY.to_owned()), ..made_up("no-crate-of-ours", "1.0.0") };
    assert_eq!(not_compared(&[&stranger]), BTreeSet::from(["no-crate-of-ours"]));
}
