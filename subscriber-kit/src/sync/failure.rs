//! Why single resources are not in step, and what many of these failures have in common.

use serde::{Deserialize, Serialize};

use super::ResourceError;
use crate::disk_error::is_full;
use crate::fetch::FetchError;

/// How many failures a report spells out, and an audit findings and surplus files; all are counted, and
/// [reported](super::Progress::with_listener).
pub const FAILURES_KEPT: usize = 100;

/// How many bytes of a URI or a cause they spell out: more than a path may have, so that only nonsense is cut.
const MAX_TEXT: usize = 16 * 1024;

/// One resource that is not in step, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Its URI as the list writes it.
    pub loc: String,
    /// Why, for a program.
    #[serde(default)]
    pub kind: FailureKind,
    /// What the server answered, if the kind is [`FailureKind::Status`].
    #[serde(default)]
    pub status: Option<u16>,
    /// Why, in a sentence.
    pub cause: String,
}

/// A cause, and how many resources are not in step because of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    /// As in [`Failure`].
    #[serde(default)]
    pub kind: FailureKind,
    /// As in [`Failure`].
    #[serde(default)]
    pub status: Option<u16>,
    /// In a sentence about the resource at `loc`: a length or hash in it is that of this one.
    pub cause: String,
    /// How many there are.
    pub count: u64,
    /// The URI of one of them.
    pub loc: String,
}

/// What kind of failure it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum FailureKind {
    /// The server refuses it, or does not have it: [`Failure::status`].
    Status,
    /// There was no answer, or not all of one.
    Unreachable,
    /// Its host asked for a pause.
    HostPaused,
    /// Its address is not among those that may be asked.
    Address,
    /// It is of another origin than its list, or redirects to one (RS-200).
    OtherOrigin,
    /// Its redirects cannot be followed.
    Redirect,
    /// Its length or hash is not the listed one (RS-199).
    Mismatch,
    /// Nobody that was asked has its state of a past moment (MEM-050).
    NoVersion,
    /// What came is not proven to be its state of a past moment (MEM-053 to MEM-056).
    UnprovenVersion,
    /// It is larger than allowed.
    TooLarge,
    /// The run has transferred as much as it may.
    RunFull,
    /// The disk has not enough space for it.
    NoSpace,
    /// It has no safe path here, or something is in the way.
    Path,
    /// A file that is not of this copy stands in its place.
    EarlierFile,
    /// Its file here cannot be read.
    CannotRead,
    /// Its file cannot be written.
    CannotWrite,
    /// Its file cannot be removed.
    CannotRemove,
    /// Entries of a list cannot be understood (RS-050).
    Unreadable,
    /// A package is not of a format that can be read (RS-101).
    PackageFormat,
    /// An audit found no file.
    Missing,
    /// An audit found an older version.
    Stale,
    /// An audit found what was never fetched.
    Corrupt,
    /// Anything else.
    #[default]
    #[serde(other)]
    Other,
}

impl Failure {
    pub(crate) fn new(loc: &str, kind: FailureKind, cause: &str) -> Self {
        Self { loc: shortened(loc), kind, status: None, cause: shortened(cause) }
    }

    /// Of the resource that the list calls `loc`. The sentence does not say that again; if it tells causes apart, it names no place
    /// that only this resource leads to.
    pub(crate) fn of(loc: &str, error: &ResourceError) -> Self {
        let kind = FailureKind::of(error);
        match error {
            ResourceError::Fetch(error) => {
                let cause = if kind.is_one_cause() { error.about(loc) } else { error.about_resource(loc) };
                Self { status: error.status(), ..Self::new(loc, kind, &cause) }
            }
            error => Self::new(loc, kind, &error.to_string()),
        }
    }
}

impl Cause {
    /// Whether the failure has this cause.
    #[must_use]
    pub fn explains(&self, failure: &Failure) -> bool {
        self.key() == key(failure.kind, failure.status, &failure.cause)
    }

    fn of(failure: &Failure) -> Self {
        let Failure { loc, kind, status, cause } = failure.clone();
        Self { kind, status, cause, count: 1, loc }
    }

    fn key(&self) -> Key<'_> {
        key(self.kind, self.status, &self.cause)
    }
}

/// By what causes are told apart.
type Key<'c> = (FailureKind, Option<u16>, &'c str);

/// The sentence counts where the kind leaves the cause open, and not where it has numbers of one resource.
fn key(kind: FailureKind, status: Option<u16>, cause: &str) -> Key<'_> {
    (kind, status, if kind.is_one_cause() { "" } else { cause })
}

impl FailureKind {
    fn of(error: &ResourceError) -> Self {
        match error {
            ResourceError::Fetch(error) => Self::of_request(error),
            ResourceError::Path(_) => Self::Path,
            ResourceError::EarlierFile => Self::EarlierFile,
            ResourceError::OtherOrigin { .. } => Self::OtherOrigin,
            ResourceError::Memento(error) if error.is_unproven() => Self::UnprovenVersion,
            ResourceError::Memento(_) => Self::NoVersion,
            ResourceError::Length { .. } | ResourceError::Hash { .. } => Self::Mismatch,
            ResourceError::TooLarge { .. } => Self::TooLarge,
            ResourceError::RunFull { .. } => Self::RunFull,
            ResourceError::NoSpace { .. } => Self::NoSpace,
            ResourceError::Read(_) => Self::CannotRead,
            ResourceError::Write(error) if is_full(error) => Self::NoSpace,
            ResourceError::Write(_) => Self::CannotWrite,
            ResourceError::Remove(_) => Self::CannotRemove,
        }
    }

    fn of_request(error: &FetchError) -> Self {
        match error {
            FetchError::Status { .. } => Self::Status,
            FetchError::Network { .. }
            | FetchError::Timeout { .. }
            | FetchError::TooSlow { .. }
            | FetchError::CutOff { .. } => Self::Unreachable,
            FetchError::HostPaused { .. } => Self::HostPaused,
            FetchError::NotPublic { .. }
            | FetchError::MixedAddresses { .. }
            | FetchError::DnsRebinding { .. } => Self::Address,
            FetchError::ForeignRedirect { .. } => Self::OtherOrigin,
            FetchError::TooManyRedirects { .. } | FetchError::BadRedirect { .. } => Self::Redirect,
            FetchError::TooLarge { .. } => Self::TooLarge,
            FetchError::NoSpace { .. } => Self::NoSpace,
            FetchError::Setup(_) | FetchError::Scheme { .. } | FetchError::Spool { .. } => Self::Other,
        }
    }

    /// Whether all failures of this kind, with the same status, have one cause, whatever their sentences say.
    fn is_one_cause(self) -> bool {
        matches!(
            self,
            Self::Status
                | Self::HostPaused
                | Self::Redirect
                | Self::Mismatch
                | Self::UnprovenVersion
                | Self::NoSpace
        )
    }
}

/// Keeps a failure, up to the limit.
pub(crate) fn keep(failures: &mut Vec<Failure>, failure: Failure) {
    if failures.len() < FAILURES_KEPT {
        failures.push(failure);
    }
}

/// Keeps a failure, and counts its cause, both up to the limit.
pub(crate) fn add(failures: &mut Vec<Failure>, causes: &mut Vec<Cause>, failure: Failure) {
    if let Some(known) = causes.iter_mut().find(|known| known.explains(&failure)) {
        known.count += 1;
    } else if causes.len() < FAILURES_KEPT {
        causes.push(Cause::of(&failure));
    }
    keep(failures, failure);
}

/// The causes of two runs, of which the second, with the causes `next`, handled the failures in `again` once more. `left` are those
/// that are kept of both.
pub(crate) fn joined(
    mut causes: Vec<Cause>,
    again: impl Iterator<Item = Failure>,
    next: Vec<Cause>,
    left: &[Failure],
) -> Vec<Cause> {
    for failure in again {
        if let Some(known) = causes.iter_mut().find(|known| known.explains(&failure)) {
            known.count = known.count.saturating_sub(1);
        }
    }
    for new in next {
        match causes.iter_mut().find(|known| known.key() == new.key()) {
            Some(known) => known.count += new.count,
            None => causes.push(new),
        }
    }
    causes.retain(|cause| cause.count > 0);
    causes.truncate(FAILURES_KEPT);
    for cause in &mut causes {
        // The one that it names may be in step now.
        if let Some(example) = left.iter().find(|failure| cause.explains(failure)) {
            *cause = Cause { count: cause.count, ..Cause::of(example) };
        }
    }
    causes
}

/// A text of the Source, cut to a sensible length.
pub(crate) fn shortened(text: &str) -> String {
    if text.len() <= MAX_TEXT {
        return text.to_owned();
    }
    let end = (0..=MAX_TEXT).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    format!("{}…", &text[..end])
}

#[cfg(test)]
mod tests;
