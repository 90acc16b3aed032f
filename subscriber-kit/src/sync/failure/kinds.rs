//! Every kind of failure: what the page calls it, which errors are of it, and how their sentences end.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use resync_core::digest::Hashes;
use url::Url;

use super::{Failure, FailureKind, ResourceError};
use crate::fetch::FetchError;
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
