//! Which answers may be the wanted state of a resource, by their headers (MEM-053, MEM-054, MEM-056, MEM-057).

use resync_core::memento::{HttpDate, is_same_original};
use resync_core::websub::LinkHeader;
use url::Url;

use super::MementoError;
use super::lifetime::Lifetime;
use crate::fetch::{Answer, FetchError, Reply, origin_of};

/// What an answer has to show.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim<'c> {
    /// The resource.
    pub(crate) original: &'c Url,
    pub(crate) lifetime: Lifetime,
    /// Whether a hash will be compared with that of the bytes.
    pub(crate) has_hash: bool,
    /// Whether the list itself names the place as that of this very version.
    pub(crate) is_listed: bool,
}

/// An answer whose headers say that it is the wanted state. Its bytes are not read yet.
#[derive(Debug)]
pub(crate) struct Offered {
    answer: Answer,
    datetime: HttpDate,
}

/// Why an answer is none.
#[derive(Debug)]
pub(crate) enum NoOffer {
    Memento(MementoError),
    /// It says nothing about versions.
    Status(Box<FetchError>),
}

impl From<MementoError> for NoOffer {
    fn from(error: MementoError) -> Self {
        Self::Memento(error)
    }
}

impl Offered {
    /// Checks the headers.
    pub(crate) fn of(reply: Reply, claim: &Claim<'_>) -> Result<Self, NoOffer> {
        let Reply { url, links, memento_datetime, body } = reply;
        let is_dated = memento_datetime.is_some();
        let answer = body.map_err(|error| NoOffer::of(error, &url, is_dated))?;
        let datetime = memento_datetime.and_then(|text| text.parse::<HttpDate>().ok());
        let Some(datetime) = datetime else {
            return Err(MementoError::NoDatetime { server: origin_of(&url) }.into());
        };
        if !(is_of(&links, claim.original) || claim.is_listed && claim.has_hash) {
            return Err(MementoError::OtherOriginal { server: origin_of(&url) }.into());
        }
        if !claim.has_hash && !claim.lifetime.includes(datetime) {
            let datetime = datetime.to_string();
            return Err(MementoError::Unproven { server: origin_of(&url), datetime }.into());
        }
        Ok(Self { answer, datetime })
    }

    /// Of when the state is, and its bytes.
    pub(crate) fn into_parts(self) -> (HttpDate, Answer) {
        (self.datetime, self.answer)
    }
}

impl NoOffer {
    fn of(error: FetchError, url: &Url, is_dated: bool) -> Self {
        match error.status() {
            Some(410) if is_dated => Self::Memento(MementoError::Deleted { server: origin_of(url) }),
            Some(status @ (404 | 410)) => {
                Self::Memento(MementoError::NoVersion { server: origin_of(url), status })
            }
            _ => Self::Status(error.into()),
        }
    }
}

/// Whether the links say that the answer is a state of this resource, and of no other.
fn is_of(links: &LinkHeader, original: &Url) -> bool {
    // A proxy may have merged the slashes, which the parser mends.
    let is_same = |target: &str| {
        Url::parse(target).is_ok_and(|target| is_same_original(target.as_str(), original.as_str()))
    };
    links.first("original").is_some() && links.with_rel("original").all(is_same)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn mem054_the_original_has_to_be_the_resource_itself_however_its_uri_is_written() {
        let is_original = |header: &str| {
            is_of(
                &LinkHeader::parse([header]).resolve(&url("http://b.example/1")),
                &url("http://a.example/~x"),
            )
        };
        assert!(is_original(r#"<http://a.example/~x>; rel="original""#));
        assert!(is_original(r#"<HTTP://A.example:80/%7Ex>; rel="first original""#));
        assert!(is_original("<http:/a.example/~x>; rel=original"), "a proxy has merged the slashes");
        for other in [
            "",
            r#"<http://a.example/~x>; rel="memento""#,
            r#"<http://a.example/y>; rel="original""#,
            r#"</~x>; rel="original""#,
            r#"<http://a.example/~x>; rel="original", <http://a.example/y>; rel="original""#,
        ] {
            assert!(!is_original(other), "{other}");
        }
    }

    #[test]
    fn mem057_what_a_status_says_of_versions() {
        let place = url("http://b.example/1");
        let said = |status, is_dated| NoOffer::of(FetchError::of_status(&place, status), &place, is_dated);
        let server = || "http://b.example".to_owned();
        for (status, is_dated, expected) in [
            (404, false, MementoError::NoVersion { server: server(), status: 404 }),
            (410, false, MementoError::NoVersion { server: server(), status: 410 }),
            (410, true, MementoError::Deleted { server: server() }),
        ] {
            assert!(matches!(said(status, is_dated), NoOffer::Memento(error) if error == expected));
        }
        for (status, is_transient) in [(400, false), (403, false), (500, true), (503, true)] {
            let NoOffer::Status(error) = said(status, false) else {
                panic!("{status} says nothing of versions")
            };
            assert_eq!((error.status(), error.is_transient()), (Some(status), is_transient));
        }
    }
}
