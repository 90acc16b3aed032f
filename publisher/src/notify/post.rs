//! The POST to a hub, and what its answer means.

use std::time::Duration;

use http::{
    HeaderValue, StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE, LINK, RETRY_AFTER},
};
use reqwest::redirect::Policy;
use resync_common::{client::retry_after, words::Size};
use resync_core::websub::XML_CONTENT_TYPE;

use super::message::Message;
use crate::{error::Error, helpers::http_client, settings::HubUrl};

/// How long a hub may take to accept a connection.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a hub may take to answer.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// The request header that lets a hub recognise a repeat.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// How much of a hub's answer is shown.
const SHOWN_OF_AN_ANSWER: usize = 2 * 1024;

/// Why a hub did not accept a notification.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// No connection.
    #[error(
        "cannot reach the hub ({reason}); nothing is lost: a watch or the next `resync-source notify` retries"
    )]
    Unreachable {
        /// The chain of causes.
        reason: String,
    },
    /// A connection, but no answer.
    #[error(
        "no answer from the hub ({reason}); a watch or the next `resync-source notify` repeats the notification"
    )]
    NoAnswer {
        /// The chain of causes.
        reason: String,
    },
    /// The token is missing or not accepted.
    #[error("the hub answered {status}: {text}; give --token a token that may publish to `{topic}`")]
    Unauthorised {
        /// 401 or 403.
        status: StatusCode,
        /// The hub's own words.
        text: String,
        /// The topic.
        topic: String,
    },
    /// The notification is too long for it (413).
    #[error(
        "the hub answered {status}: {text}; it refuses a notification of {}. Its operator must allow 1 MiB (`publish.max_body` of resync-hub). Nothing is lost: the notification waits, and the Change List has the same changes",
        Size(*length as u64)
    )]
    TooLong {
        /// 413.
        status: StatusCode,
        /// The hub's own words.
        text: String,
        /// How long the notification is.
        length: usize,
    },
    /// Any other answer that is no success.
    #[error(
        "the hub answered {status}: {text}; nothing is lost: a watch or the next `resync-source notify` retries"
    )]
    Refused {
        /// The status.
        status: StatusCode,
        /// The hub's own words.
        text: String,
        /// The pause that it asks for.
        retry_after: Option<Duration>,
    },
}

impl PostError {
    /// The pause that the hub asks for before it is tried again, at most [`LONGEST_PAUSE`](resync_common::client::LONGEST_PAUSE).
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Whether the hub will refuse the same notification again, for example because of its length.
    pub fn is_final(&self) -> bool {
        let may_pass = [
            StatusCode::REQUEST_TIMEOUT,
            StatusCode::TOO_EARLY,
            StatusCode::TOO_MANY_REQUESTS,
            StatusCode::NOT_FOUND,
        ];
        match self {
            Self::TooLong { .. } => true,
            Self::Refused { status, .. } => status.is_client_error() && !may_pass.contains(status),
            Self::Unreachable { .. } | Self::NoAnswer { .. } | Self::Unauthorised { .. } => false,
        }
    }

    /// Whether the hub may have accepted the notification all the same.
    pub fn is_unanswered(&self) -> bool {
        match self {
            Self::NoAnswer { .. } => true,
            Self::Refused { status, .. } => status.is_server_error(),
            Self::Unreachable { .. } | Self::Unauthorised { .. } | Self::TooLong { .. } => false,
        }
    }
}

/// Posts a message; returns the status of a 2xx (FN-036).
pub(super) async fn post(
    client: &reqwest::Client,
    hub: &HubUrl,
    authorization: Option<HeaderValue>,
    message: Message,
) -> Result<StatusCode, PostError> {
    let length = message.body.len();
    let mut request = client
        .post(hub.url().clone())
        .header(CONTENT_TYPE, XML_CONTENT_TYPE)
        .header(LINK, message.links)
        .header(IDEMPOTENCY_KEY, message.key)
        .body(message.body);
    if let Some(authorization) = authorization {
        request = request.header(AUTHORIZATION, authorization);
    }
    match request.send().await {
        Ok(response) => judge(response, message.topic, length).await,
        Err(error) => {
            let is_unsent = error.is_connect() || error.is_builder();
            let reason = http_client::reason(error);
            Err(if is_unsent { PostError::Unreachable { reason } } else { PostError::NoAnswer { reason } })
        }
    }
}

async fn judge(
    mut response: reqwest::Response,
    topic: String,
    length: usize,
) -> Result<StatusCode, PostError> {
    let status = response.status();
    if status.is_success() {
        return Ok(status);
    }
    let pause = response.headers().get(RETRY_AFTER).and_then(|value| retry_after(value.to_str().ok()?));
    let mut text = Vec::new();
    while text.len() < SHOWN_OF_AN_ANSWER {
        match response.chunk().await {
            Ok(Some(chunk)) => text.extend_from_slice(&chunk),
            Ok(None) | Err(_) => break,
        }
    }
    text.truncate(SHOWN_OF_AN_ANSWER);
    let text = printable(&text);
    Err(match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => PostError::Unauthorised { status, text, topic },
        StatusCode::PAYLOAD_TOO_LARGE => PostError::TooLong { status, text, length },
        _ => PostError::Refused { status, text, retry_after: pause },
    })
}

/// A hub's answer on one line, without characters that could steer a terminal.
fn printable(text: &[u8]) -> String {
    let text: String =
        String::from_utf8_lossy(text).chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match text.trim() {
        "" => "(no reason given)".to_owned(),
        words => words.to_owned(),
    }
}

/// One client for all hubs; redirects are not followed.
pub(crate) fn client() -> Result<reqwest::Client, Error> {
    http_client::client(Policy::none(), CONNECT_TIMEOUT, TIMEOUT).map_err(Error::Client)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hubs_words_cannot_steer_the_terminal() {
        assert_eq!(printable(b"no\x1b[2J such\ntopic\r\n"), "no [2J such topic");
        assert_eq!(printable(b" \n"), "(no reason given)");
    }

    #[test]
    fn a_refusal_is_final_unless_the_hub_may_answer_otherwise_later() {
        let is_final = |status: u16| {
            let status = StatusCode::from_u16(status).unwrap();
            PostError::Refused { status, text: String::new(), retry_after: None }.is_final()
        };
        for status in [400, 405, 410, 415, 422] {
            assert!(is_final(status), "{status}");
        }
        for status in [404, 408, 425, 429, 500, 502, 503] {
            assert!(!is_final(status), "{status}");
        }
    }
}
