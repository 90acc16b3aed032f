//! Past states of resources (RFC 7089): which links lead to them, and which answers may be one.
//!
//! A *memento* is one past state of a resource at a URI of its own; at a *TimeGate* a state is negotiated by its time.
//! Archives give the nearest state that they have, and show it as they like. So nothing counts as a memento before its
//! headers were checked here, and its bytes by the [synchronisation](crate::sync) that wants it:
//! [`SyncOptions::at`](crate::sync::SyncOptions::at).

mod error;
mod lifetime;
mod links;
mod offered;

use http::{HeaderMap, HeaderName, HeaderValue};
use resync_core::datetime::DateTime;
use resync_core::memento::{ACCEPT_DATETIME, HttpDate};

pub use error::MementoError;
pub(crate) use lifetime::Lifetime;
pub(crate) use links::VersionLinks;
pub(crate) use offered::{Claim, NoOffer, Offered};

/// In which form an archive should give a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// As it gives it by itself; many rewrite links, for example.
    Usual,
    /// As it was (RFC 7240, `Prefer: raw`).
    Raw,
}

/// The headers that ask for the state of a moment (MEM-051, MEM-055).
pub(crate) fn asking(at: DateTime, form: Form) -> HeaderMap {
    let moment = HeaderValue::from_str(&HttpDate::from(at).to_string()).ok();
    let moment = moment.map(|moment| (HeaderName::from_static(ACCEPT_DATETIME), moment));
    let raw = (HeaderName::from_static("prefer"), HeaderValue::from_static("raw"));
    moment.into_iter().chain((form == Form::Raw).then_some(raw)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mem051_a_moment_is_asked_for_as_an_rfc_1123_date_in_gmt() {
        let at: DateTime = "2024-02-01T01:00:00.75+01:00".parse().unwrap();
        let headers = asking(at, Form::Usual);
        assert_eq!(headers.len(), 1);
        assert_eq!(headers["Accept-Datetime"], "Thu, 01 Feb 2024 00:00:00 GMT");
        assert_eq!(asking(at, Form::Raw)["Prefer"], "raw");
    }
}
