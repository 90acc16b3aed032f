//! The request that asks a callback for its intent, and what the answer says (WebSub section 5.3).

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::header::USER_AGENT;
use http_body_util::Full;
use resync_core::websub::{self, CallbackUrl, Challenge, TopicUrl};

use crate::egress::{self, Answer, EgressError, ReadLimit};
use crate::store::Confirmation;

/// A challenge is 64 characters; whoever answers more than this is not confirming.
pub(crate) const ANSWER_READ: ReadLimit = ReadLimit::Keep(4 * 1024);

/// What the callback said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Confirmed(Confirmation),
    Refused(String),
    Unreachable(String),
}

/// Nothing was asked, for reasons that lie here.
#[derive(Debug)]
pub(crate) enum NotAsked {
    /// No file descriptor is left.
    Exhausted,
    /// Too much was asked for at the callback's network of late.
    Crowded(Duration),
}

/// The question whether somebody wants to be subscribed for so long, or (`None`) to be subscribed no longer.
///
/// # Errors
/// When the callback is no request target.
pub(crate) fn asking(
    topic: &TopicUrl,
    callback: &CallbackUrl,
    lease: Option<Duration>,
    challenge: &Challenge,
) -> Result<Request<Full<Bytes>>, http::Error> {
    let (topic, challenge) = (topic.as_str().to_owned(), challenge.clone());
    let verification = match lease {
        Some(lease) => websub::Verification::Subscribe { topic, challenge, lease: lease.as_secs() },
        None => websub::Verification::Unsubscribe { topic, challenge, lease: None },
    };
    Request::get(verification.to_url(callback))
        .header(USER_AGENT, egress::USER_AGENT)
        .body(Full::new(Bytes::new()))
}

/// What came back for it.
pub(crate) fn reply(answer: Result<Answer, EgressError>, challenge: &Challenge) -> Result<Reply, NotAsked> {
    Ok(match answer {
        Ok(answer) => Confirmation::check(challenge, answer.status, &answer.body, answer.peer)
            .map_or_else(|reason| Reply::Refused(reason.to_string()), Reply::Confirmed),
        Err(EgressError::Exhausted) => return Err(NotAsked::Exhausted),
        Err(EgressError::Crowded(wait)) => return Err(NotAsked::Crowded(wait)),
        Err(error @ (EgressError::Forbidden(_) | EgressError::TooLarge(_) | EgressError::Compressed)) => {
            Reply::Refused(error.to_string())
        }
        Err(error) => Reply::Unreachable(error.to_string()),
    })
}
