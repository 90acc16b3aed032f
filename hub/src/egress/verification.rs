//! The HTTP request that asks a callback for its intent, and what its answer means (WebSub section 5.3).

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::header::USER_AGENT;
use http_body_util::Full;
use resync_core::websub::{self, CallbackUrl, Challenge, TopicUrl, VerifyToken};

use super::client::{self, Answer, EgressError, ReadLimit};
use crate::store::Confirmation;

/// A challenge is 64 characters; a longer answer is no confirmation.
pub(crate) const REPLY_READ: ReadLimit = ReadLimit::Keep(4 * 1024);

/// What the callback answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Confirmed(Confirmation),
    Refused(String),
    Unreachable(String),
}

/// Why the callback was not asked; each is the hub's own.
#[derive(Debug)]
pub(crate) enum NotSent {
    /// No file descriptor is left.
    NoFileDescriptors,
    /// The limit for connections to the callback's network is reached for so long.
    RateLimited(Duration),
}

/// Asks whether the callback wants to be subscribed with this lease, or (`None`) to be unsubscribed. The token of its request is sent back.
///
/// # Errors
/// When the callback is no target of an HTTP request.
pub(crate) fn verification(
    topic: &TopicUrl,
    callback: &CallbackUrl,
    lease: Option<Duration>,
    challenge: &Challenge,
    token: Option<&VerifyToken>,
) -> Result<Request<Full<Bytes>>, http::Error> {
    let (topic, challenge) = (topic.as_str().to_owned(), challenge.clone());
    let verification = match lease {
        Some(lease) => websub::Verification::Subscribe { topic, challenge, lease: lease.as_secs() },
        None => websub::Verification::Unsubscribe { topic, challenge, lease: None },
    };
    Request::get(verification.to_url_echoing(callback, token))
        .header(USER_AGENT, client::USER_AGENT)
        .body(Full::new(Bytes::new()))
}

/// What an answer to [`verification`] means.
pub(crate) fn verification_reply(
    answer: Result<Answer, EgressError>,
    challenge: &Challenge,
) -> Result<Reply, NotSent> {
    Ok(match answer {
        Ok(answer) => Confirmation::check(challenge, answer.status, &answer.body, answer.peer)
            .map_or_else(|reason| Reply::Refused(reason.to_string()), Reply::Confirmed),
        Err(EgressError::NoFileDescriptors) => return Err(NotSent::NoFileDescriptors),
        Err(EgressError::RateLimited(wait)) => return Err(NotSent::RateLimited(wait)),
        Err(error @ (EgressError::Forbidden(_) | EgressError::TooLarge(_) | EgressError::Compressed)) => {
            Reply::Refused(error.to_string())
        }
        Err(error) => Reply::Unreachable(error.to_string()),
    })
}
