//! The `WebSub` wire vocabulary: what travels between publisher, hub and subscriber, as types that only a check can make.
//!
//! Implements the 2026 edition of the W3C Recommendation; requirement numbers (`W-…`, `D-…`, `H-…`) are those of the
//! project's requirement list. Nothing here does network: bytes go in, values or named causes come out.
//!
//! | subject | types | section |
//! |---|---|---|
//! | request to a hub | [`Request`], [`Subscribe`], [`Unsubscribe`], [`Publish`] | 5.1, 6 |
//! | topic and callback URLs, and the key that tells subscriptions apart | [`TopicUrl`], [`CallbackUrl`] | 5.1.1 |
//! | verification of intent and denial | [`Verification`], [`Challenge`], [`VerifyToken`], [`append_query`] | 5.2, 5.3 |
//! | discovery of a topic's hubs | [`Advertised`], [`LinkHeader`], [`embedded_links`], [`is_same_hub`] | 4, 7 |
//! | authenticated distribution | [`Secret`], [`SigningKey`], [`Signature`], [`SignedBody`] | 7.1 |
//! | re-verification of a subscription in force | [`sign_query`], [`is_query_signed`] | – |
//! | identity of a notification | [`NotificationId`] | – |
//!
//! ```
//! use resync_core::websub::{Challenge, Request, Verification};
//!
//! let body = b"hub.mode=subscribe&hub.topic=https%3A%2F%2Fsource.example%2Fchanges.xml\
//!              &hub.callback=https%3A%2F%2Fdestination.example%2Fcb%3Fid%3D7";
//! let Request::Subscribe(asked) = Request::parse(body)? else { unreachable!() };
//! let intent = Verification::Subscribe {
//!     topic: asked.topic.as_str().to_owned(),
//!     challenge: Challenge::parse("9f2c41d0e8")?,
//!     lease: 864_000,
//! };
//! assert_eq!(
//!     intent.to_url(&asked.callback),
//!     "https://destination.example/cb?id=7&hub.mode=subscribe\
//!      &hub.topic=https%3A%2F%2Fsource.example%2Fchanges.xml&hub.challenge=9f2c41d0e8&hub.lease_seconds=864000"
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod callback;
pub mod discovery;
pub mod form;
pub mod identity;
pub mod key;
pub mod link_header;
pub mod query_signature;
pub mod secret;
pub mod signature;
pub mod verification;
pub mod verify_token;

pub use callback::append_query;
pub use discovery::{Advertised, embedded_links, is_same_hub};
pub use form::{FormError, MAX_PARAMETERS, Publish, Request, Subscribe, Unsubscribe, is_form};
pub use identity::{NotificationId, NotificationIdError, WEBHOOK_ATTEMPT, WEBHOOK_ID, WEBHOOK_TEST};
pub use key::{CallbackUrl, MAX_URL, TopicUrl, UrlError};
pub use link_header::{LinkHeader, LinkValue, MAX_LINKS, legal_target};
pub use query_signature::{X_HUB_QUERY_SIGNATURE, is_query_signed, sign_query};
pub use secret::{MAX_SECRET, Secret, SecretError};
pub use signature::{Signature, SignatureError, SignatureMethod, SignedBody, SigningKey, X_HUB_SIGNATURE};
pub use verification::{Challenge, ChallengeError, MAX_CHALLENGE, Verification, VerificationError};
pub use verify_token::{MAX_VERIFY_TOKEN, VerifyToken, VerifyTokenError};

/// Media type of a request to a hub (W-041).
pub const FORM_CONTENT_TYPE: &str = "application/x-www-form-urlencoded";
/// Media type of `ResourceSync` documents, and so of the notifications that carry them.
pub const XML_CONTENT_TYPE: &str = "application/xml";

/// A text from outside, made fit for an error message: control characters escaped, at most 64 characters.
fn excerpt(text: &str) -> String {
    const LONGEST: usize = 64;
    let mut shown: String = text.chars().take(LONGEST).flat_map(char::escape_debug).collect();
    if text.chars().nth(LONGEST).is_some() {
        shown.push('…');
    }
    shown
}

/// Two random UUIDs as 64 lower-case hexadecimal characters: 244 random bits.
fn random_hex() -> String {
    format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple())
}
