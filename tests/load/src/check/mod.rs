//! Each copy of a notification against what was posted, by code that shares nothing with the hub: a parser of its own, and another
//! implementation of HMAC than the one that signs.
//!
//! A copy is compared with what is known when it arrives, which costs as little as counting it. Its signature is kept, and checked
//! when no clock runs, or by whoever has nothing else to do.

mod judge;
mod signature;

use std::sync::OnceLock;

use super::request::Request;
use super::stamp::Stamp;

pub use judge::Copies;
pub(super) use judge::{Known, judge};
pub(super) use signature::{Signer, is_signed, read as read_signature};

/// How everything is published.
pub(super) const KIND: &str = "text/plain";

/// What is wrong with a copy by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    Callback,
    Kind,
    Links,
    Body,
    Unsigned,
}

impl Flaw {
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Callback => "it was sent to another host than that of the callback",
            Self::Kind => "another content type than was published",
            Self::Links => "no links to the hub and to the topic, or others beside them",
            Self::Body => "other bytes than were published",
            Self::Unsigned => "no signature",
        }
    }
}

/// A copy, as short as it can be kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copy {
    pub(super) subscriber: u32,
    /// How many came to the subscriber before it.
    pub(super) turn: u32,
    pub(super) stamp: Option<Stamp>,
    pub(super) bytes: u32,
    pub(super) signature: [u8; 32],
    pub(super) flaw: Option<Flaw>,
}

/// For whom a copy is.
#[derive(Clone, Copy)]
pub(super) struct Addressee<'a> {
    pub(super) subscriber: u32,
    pub(super) turn: u32,
    pub(super) topic: usize,
    /// As `Host` names the callback's.
    pub(super) authority: &'a str,
    /// Whether the connection leads to it.
    pub(super) is_at_home: bool,
}

impl Copy {
    pub(super) fn of(request: &Request<'_>, to: Addressee<'_>, links: &Links) -> Self {
        let (mut host, mut kind, mut link, mut signature) = ("", "", "", None);
        for (name, value) in request.all_fields() {
            match name.len() {
                4 if name.eq_ignore_ascii_case("host") => host = value,
                4 if name.eq_ignore_ascii_case("link") => link = value,
                12 if name.eq_ignore_ascii_case("content-type") => kind = value,
                15 if name.eq_ignore_ascii_case("x-hub-signature") => signature = signature::read(value),
                _ => {}
            }
        }
        let stamp = Stamp::read(request.body);
        let wrong = [
            (!to.is_at_home || host != to.authority || !request.line.starts_with("POST "), Flaw::Callback),
            (kind != KIND, Flaw::Kind),
            (!links.are_right(to.topic, link), Flaw::Links),
            (stamp.is_none(), Flaw::Body),
            (signature.is_none(), Flaw::Unsigned),
        ];
        Self {
            subscriber: to.subscriber,
            turn: to.turn,
            stamp,
            bytes: u32::try_from(request.body.len()).unwrap_or(u32::MAX),
            signature: signature.unwrap_or_default(),
            flaw: wrong.into_iter().find_map(|(is_wrong, flaw)| is_wrong.then_some(flaw)),
        }
    }
}

/// What copies must link to.
#[derive(Debug, Default)]
pub(super) struct Links {
    /// `None`: any one.
    hub: Option<String>,
    /// Topics, each with a field that was found to be right: most of them are the same.
    topics: Vec<(String, OnceLock<Box<str>>)>,
}

impl Links {
    pub(super) fn new(hub: Option<String>, topics: impl IntoIterator<Item = String>) -> Self {
        Self { hub, topics: topics.into_iter().map(|topic| (topic, OnceLock::new())).collect() }
    }

    fn are_right(&self, topic: usize, field: &str) -> bool {
        let Some((topic, right)) = self.topics.get(topic) else { return false };
        if right.get().is_some_and(|right| **right == *field) {
            return true;
        }
        let mut links: Vec<_> = read(field).collect();
        links.sort_unstable_by_key(|(_, relation)| *relation);
        let [(hub, "hub"), (own, "self")] = links[..] else { return false };
        let are_right = own == topic && self.hub.as_ref().is_none_or(|known| known == hub);
        if are_right {
            // Another one may be there already, and is as right.
            let _ = right.set(field.into());
        }
        are_right
    }
}

/// Each link with its relation. No URL of this tool has a comma or a semicolon.
fn read(field: &str) -> impl Iterator<Item = (&str, &str)> {
    field.split(',').filter_map(|link| {
        let (target, parameters) = link.trim().strip_prefix('<')?.split_once('>')?;
        let relation = parameters.split(';').find_map(|one| one.trim().strip_prefix("rel="))?;
        Some((target, relation.trim_matches('"')))
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const LINKS: &str = "<http://hub/>; rel=\"hub\", <http://topic/0>; rel=\"self\"";

    fn flaw(host: &str, more: &str, body: &[u8]) -> Option<Flaw> {
        let head =
            format!("POST /7 HTTP/1.1\r\nHost: {host}\r\n{more}Content-Length: {}\r\n\r\n", body.len());
        let bytes = [head.as_bytes(), body].concat();
        let links = Links::new(Some("http://hub/".to_owned()), ["http://topic/0".to_owned()]);
        let to = Addressee { subscriber: 7, turn: 0, topic: 0, authority: "127.1.0.7:80", is_at_home: true };
        Copy::of(&Request::find(&bytes).unwrap(), to, &links).flaw
    }

    #[test]
    fn a_copy_goes_to_its_callback_with_its_type_its_links_its_bytes_and_a_signature() {
        let body = Stamp { run: 1, post: 2, due: Duration::ZERO }.body(100);
        let signed = format!("X-Hub-Signature: sha256={}\r\n", "0f".repeat(32));
        let (kind, link) = ("content-type: text/plain\r\n", format!("Link: {LINKS}\r\n"));
        let all = format!("{kind}{link}{signed}");
        assert_eq!(flaw("127.1.0.7:80", &all, &body), None);
        assert_eq!(flaw("127.1.0.8:80", &all, &body), Some(Flaw::Callback));
        assert_eq!(flaw("127.1.0.7:80", &all.replace("plain", "html"), &body), Some(Flaw::Kind));
        assert_eq!(flaw("127.1.0.7:80", &all.replace("topic/0", "topic/1"), &body), Some(Flaw::Links));
        assert_eq!(flaw("127.1.0.7:80", &all.replace("hub/", "bub/"), &body), Some(Flaw::Links));
        assert_eq!(flaw("127.1.0.7:80", &all, &[&body[..99], b"!"].concat()), Some(Flaw::Body));
        for signature in ["", "X-Hub-Signature: sha256=0f\r\n", "X-Hub-Signature: sha1=0f0f\r\n"] {
            assert_eq!(
                flaw("127.1.0.7:80", &format!("{kind}{link}{signature}"), &body),
                Some(Flaw::Unsigned)
            );
        }
    }

    #[test]
    fn a_field_that_was_right_before_does_not_make_another_one_right() {
        let links = Links::new(None, ["http://topic/0".to_owned()]);
        assert!(links.are_right(0, LINKS) && links.are_right(0, LINKS));
        assert!(!links.are_right(0, &LINKS.replace("self", "selves")) && !links.are_right(1, LINKS));
        assert!(!links.are_right(0, &format!("{LINKS}, <http://elsewhere/>; rel=\"hub\"")));
    }
}
