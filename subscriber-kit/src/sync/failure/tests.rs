//! What is told of a failure: its kind, which the page names, the end of its sentence, and its cause among others.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use resync_core::digest::Hashes;
use url::Url;

use super::*;
use crate::memento::MementoError;
use crate::sync::PathError;

const LOC: &str = "http://a.example/1";

/// All kinds, in the order of the enum.
fn kinds() -> Vec<FailureKind> {
    let next = |kind: &FailureKind| {
        Some(match kind {
            FailureKind::Status => FailureKind::Unreachable,
            FailureKind::Unreachable => FailureKind::HostPaused,
            FailureKind::HostPaused => FailureKind::Address,
            FailureKind::Address => FailureKind::OtherOrigin,
            FailureKind::OtherOrigin => FailureKind::Redirect,
            FailureKind::Redirect => FailureKind::Mismatch,
            FailureKind::Mismatch => FailureKind::NoVersion,
            FailureKind::NoVersion => FailureKind::UnprovenVersion,
            FailureKind::UnprovenVersion => FailureKind::TooLarge,
            FailureKind::TooLarge => FailureKind::RunFull,
            FailureKind::RunFull => FailureKind::NoSpace,
            FailureKind::NoSpace => FailureKind::Path,
            FailureKind::Path => FailureKind::EarlierFile,
            FailureKind::EarlierFile => FailureKind::CannotRead,
            FailureKind::CannotRead => FailureKind::CannotWrite,
            FailureKind::CannotWrite => FailureKind::CannotRemove,
            FailureKind::CannotRemove => FailureKind::Unreadable,
            FailureKind::Unreadable => FailureKind::PackageFormat,
            FailureKind::PackageFormat => FailureKind::Missing,
            FailureKind::Missing => FailureKind::Stale,
            FailureKind::Stale => FailureKind::Corrupt,
            FailureKind::Corrupt => FailureKind::Other,
            FailureKind::Other => return None,
        })
    };
    std::iter::successors(Some(FailureKind::Status), next).collect()
}

/// As JSON has it.
fn name(kind: FailureKind) -> String {
    serde_json::to_value(kind).unwrap().as_str().unwrap().to_owned()
}

#[test]
fn the_page_names_every_kind_and_no_other() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/destination.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, all) = page.split_once("\n`kind` is ").unwrap();
    let all = all.split("\n\n").next().unwrap();
    let mut named: Vec<_> = all.split('`').skip(1).step_by(2).collect();
    let mut kinds: Vec<_> = kinds().into_iter().map(name).collect();
    named.sort_unstable();
    kinds.sort_unstable();
    assert_eq!(named, kinds);
}

#[test]
fn every_failure_has_its_kind_and_says_what_to_do_unless_only_the_source_can_mend_it() {
    let mut seen = Vec::new();
    let of_requests =
        of_requests().into_iter().map(|(error, kind, end)| (ResourceError::from(error), kind, end));
    let of_versions =
        of_versions().into_iter().map(|(error, kind, end)| (ResourceError::from(error), kind, end));
    for (error, kind, end) in of_resources().into_iter().chain(of_versions).chain(of_requests) {
        let failure = Failure::of(LOC, &error);
        assert_eq!(failure.kind, kind, "{error}");
        assert!(failure.cause.ends_with(end), "{kind:?}: {}", failure.cause);
        assert!(!failure.cause.contains(LOC), "who reads it knows the resource: {}", failure.cause);
        seen.push(kind);
    }
    // The others are of lists, and of audits.
    let unseen = kinds().into_iter().filter(|kind| !seen.contains(kind)).map(name);
    assert_eq!(unseen.collect::<Vec<_>>(), ["unreadable", "package-format", "missing", "stale", "corrupt"]);
}

/// Errors of a resource here, their kinds, and the ends of their sentences.
fn of_resources() -> Vec<(ResourceError, FailureKind, &'static str)> {
    let (denied, full) = (io::ErrorKind::PermissionDenied, io::ErrorKind::StorageFull);
    vec![
        (ResourceError::from(PathError::TooLong), FailureKind::Path, "its path is too long for a file"),
        (
            PathError::InTheWay(PathBuf::from("1"), "folder").into(),
            FailureKind::Path,
            "--delete removes it if no listed resource needs it",
        ),
        (ResourceError::EarlierFile, FailureKind::EarlierFile, "`sync --adopt` replaces it"),
        (
            ResourceError::OtherOrigin { list: "http://a.example".to_owned() },
            FailureKind::OtherOrigin,
            "allow it with --origin",
        ),
        (
            ResourceError::Length { listed: 1, sent: None },
            FailureKind::Mismatch,
            "the list may be out of date",
        ),
        (
            ResourceError::Hash { listed: Hashes::default(), sent: Hashes::default() },
            FailureKind::Mismatch,
            "the list may be out of date",
        ),
        (
            ResourceError::TooLarge { max: 1 },
            FailureKind::TooLarge,
            "increase --max-resource-size if you trust this Source",
        ),
        (ResourceError::RunFull { max: 1 }, FailureKind::RunFull, "the next run continues"),
        (ResourceError::NoSpace { needed: 2, free: 1 }, FailureKind::NoSpace, "free some space"),
        (
            ResourceError::Read(denied.into()),
            FailureKind::CannotRead,
            "give the user of this program access to it",
        ),
        (
            ResourceError::Write(denied.into()),
            FailureKind::CannotWrite,
            "give the user of this program access to it",
        ),
        (ResourceError::Write(full.into()), FailureKind::NoSpace, "free some space"),
        (ResourceError::Remove(io::ErrorKind::Other.into()), FailureKind::CannotRemove, "check the disk"),
    ]
}

/// The same where its state of a past moment is wanted.
fn of_versions() -> Vec<(MementoError, FailureKind, &'static str)> {
    let server = || "http://b.example".to_owned();
    vec![
        (MementoError::NoTimeGate, FailureKind::NoVersion, "name that with --timegate"),
        (
            MementoError::NoVersion { server: server(), status: 404 },
            FailureKind::NoVersion,
            "name that with --timegate",
        ),
        (
            MementoError::Deleted { server: server() },
            FailureKind::NoVersion,
            "the lists say that it was there",
        ),
        (
            MementoError::NoDatetime { server: server() },
            FailureKind::UnprovenVersion,
            "so it is no past state",
        ),
        (
            MementoError::OtherOriginal { server: server() },
            FailureKind::UnprovenVersion,
            "a past state of this resource",
        ),
        (
            MementoError::Unproven { server: server(), datetime: "Thu, 01 Feb 2024 00:00:00 GMT".to_owned() },
            FailureKind::UnprovenVersion,
            "show that it is the wanted one",
        ),
    ]
}

/// The same of errors of its request.
fn of_requests() -> Vec<(FetchError, FailureKind, &'static str)> {
    let url = || Url::parse(LOC).unwrap();
    let other = || Box::new(Url::parse("http://b.example/1").unwrap());
    vec![
        (FetchError::of_status(&url(), 404), FailureKind::Status, "answers 404"),
        (
            FetchError::Network { url: url(), reason: "refused".to_owned() },
            FailureKind::Unreachable,
            "check the URL and the server",
        ),
        (FetchError::Timeout { url: url() }, FailureKind::Unreachable, "increase the timeout"),
        (FetchError::TooSlow { url: url(), min: 1 }, FailureKind::Unreachable, "lower --min-rate"),
        (
            FetchError::CutOff { url: url(), reason: "reset".to_owned() },
            FailureKind::Unreachable,
            "try again later",
        ),
        (
            FetchError::HostPaused { url: url(), left: Duration::from_secs(9) },
            FailureKind::HostPaused,
            "10 s remain",
        ),
        (
            FetchError::NotPublic { url: url(), address: "10.0.0.1".to_owned() },
            FailureKind::Address,
            "allow it with --any-address",
        ),
        (
            FetchError::MixedAddresses {
                url: url().into(),
                public: "1.1.1.1".to_owned(),
                private: "10.0.0.1".to_owned(),
            },
            FailureKind::Address,
            "allow it with --any-address",
        ),
        (
            FetchError::DnsRebinding { url: url().into(), address: "10.0.0.1".to_owned(), before: "public" },
            FailureKind::Address,
            "restart this process if the move is intended",
        ),
        (
            FetchError::ForeignRedirect { url: url(), target: other() },
            FailureKind::OtherOrigin,
            "allow it with --origin",
        ),
        (
            FetchError::TooManyRedirects { url: url(), last: other(), max: 5 },
            FailureKind::Redirect,
            "a loop or a chain that is too long",
        ),
        (
            FetchError::BadRedirect { url: url(), status: 302 },
            FailureKind::Redirect,
            "its Location is missing or unusable",
        ),
        (FetchError::TooLarge { url: url(), max: 2 }, FailureKind::TooLarge, "is larger than 2 B"),
        (FetchError::NoSpace { url: url(), needed: 2, free: 1 }, FailureKind::NoSpace, "free some space"),
        (FetchError::Setup("no TLS".to_owned()), FailureKind::Other, "no TLS"),
        (FetchError::Scheme { url: url() }, FailureKind::Other, "is not an http or https URL"),
        (FetchError::Spool { url: url(), reason: "denied".to_owned() }, FailureKind::Other, "denied"),
    ]
}

fn loc(number: u64) -> String {
    format!("http://a.example/{number}")
}

fn answered(number: u64, status: u16) -> Failure {
    let error = FetchError::of_status(&Url::parse(&loc(number)).unwrap(), status);
    Failure::of(&loc(number), &error.into())
}

/// The status, number and example of each.
fn told(causes: &[Cause]) -> Vec<(Option<u16>, u64, &str)> {
    causes.iter().map(|cause| (cause.status, cause.count, cause.loc.as_str())).collect()
}

fn counted(all: impl IntoIterator<Item = Failure>) -> (Vec<Failure>, Vec<Cause>) {
    let (mut failures, mut causes) = (Vec::new(), Vec::new());
    all.into_iter().for_each(|failure| add(&mut failures, &mut causes, failure));
    (failures, causes)
}

#[test]
fn a_cause_is_told_by_its_kind_and_by_its_sentence_only_where_the_kind_leaves_it_open() {
    let length =
        |number, sent| Failure::of(&loc(number), &ResourceError::Length { listed: 1, sent: Some(sent) });
    let cannot_write =
        |number, kind: io::ErrorKind| Failure::of(&loc(number), &ResourceError::Write(kind.into()));
    let (failures, causes) = counted([
        answered(0, 404),
        answered(1, 403),
        answered(2, 404),
        length(3, 7),
        length(4, 8),
        cannot_write(5, io::ErrorKind::PermissionDenied),
        cannot_write(6, io::ErrorKind::StorageFull),
        cannot_write(7, io::ErrorKind::QuotaExceeded),
    ]);
    let counts: Vec<_> = causes.iter().map(|cause| (cause.kind, cause.status, cause.count)).collect();
    assert_eq!(
        counts,
        [
            (FailureKind::Status, Some(404), 2),
            (FailureKind::Status, Some(403), 1),
            (FailureKind::Mismatch, None, 2),
            (FailureKind::CannotWrite, None, 1),
            (FailureKind::NoSpace, None, 2),
        ]
    );
    assert!(causes[2].cause.contains('7'), "as of its example: {:?}", causes[2]);
    assert_eq!((failures.len(), failures[4].cause.contains('8')), (8, true));
}

#[test]
fn redirects_are_one_cause_for_each_origin_that_they_lead_to() {
    let url = |text: String| Url::parse(&text).unwrap();
    let redirected = |number: u64, target: &str| {
        let target = Box::new(url(format!("{target}/{number}")));
        Failure::of(&loc(number), &FetchError::ForeignRedirect { url: url(loc(number)), target }.into())
    };
    // The redirect of its own host came first.
    let twice = |number: u64, target: &str| {
        let (url, target) = (url(format!("{}/moved", loc(number))), Box::new(url(target.to_owned())));
        Failure::of(&loc(number), &FetchError::ForeignRedirect { url, target }.into())
    };
    // The origin that they lead to is allowed, and away.
    let away = |number: u64| {
        let url = url(format!("http://b.example/{number}"));
        Failure::of(&loc(number), &FetchError::Timeout { url }.into())
    };
    let circling = |number: u64| {
        let last = Box::new(url(format!("{}?again", loc(number))));
        Failure::of(
            &loc(number),
            &FetchError::TooManyRedirects { url: url(loc(number)), last, max: 5 }.into(),
        )
    };
    let (_, causes) = counted([
        redirected(0, "http://b.example"),
        redirected(1, "http://b.example"),
        redirected(2, "http://c.example"),
        twice(3, "http://b.example/x"),
        away(4),
        away(5),
        circling(6),
        circling(7),
    ]);
    let counts: Vec<_> = causes.iter().map(|cause| (cause.kind, cause.count)).collect();
    assert_eq!(
        counts,
        [
            (FailureKind::OtherOrigin, 3),
            (FailureKind::OtherOrigin, 1),
            (FailureKind::Unreachable, 2),
            (FailureKind::Redirect, 2),
        ],
        "{causes:?}"
    );
    assert!(causes[0].cause.contains("http://b.example;"), "it is what --origin takes: {:?}", causes[0]);
}

#[test]
fn of_what_a_second_run_tried_again_only_its_own_verdict_counts() {
    let (mut failures, causes) = counted((0..150).map(|number| answered(number, 404)));
    let (new, next) = counted([answered(7, 404), answered(8, 503)]);
    let again: Vec<_> = (0..149).map(|number| answered(number, 404)).collect();
    failures.retain(|failure| !again.contains(failure));
    failures.extend(new);
    let causes = joined(causes, again.into_iter(), next, &failures);
    assert_eq!(told(&causes), [(Some(404), 2, &*loc(7)), (Some(503), 1, &*loc(8))]);
    let mended = (0..3).map(|number| answered(number, 404));
    assert_eq!(joined(counted(mended.clone()).1, mended, Vec::new(), &[]), []);
}

#[test]
fn a_failure_of_another_version_is_read() {
    let before: Failure =
        serde_json::from_str(r#"{"loc":"http://a.example/","cause":"it is missing"}"#).unwrap();
    assert_eq!((before.kind, before.status), (FailureKind::Other, None));
    let later = r#"{"loc":"http://a.example/","kind":"a-new-one","cause":"it is so"}"#;
    assert_eq!(serde_json::from_str::<Failure>(later).unwrap().kind, FailureKind::Other);
    let text = serde_json::to_string(&answered(1, 404)).unwrap();
    assert!(text.contains(r#""kind":"status","status":404,"cause":"answers 404""#), "{text}");
    assert_eq!(serde_json::from_str::<Failure>(&text).unwrap(), answered(1, 404));
}
