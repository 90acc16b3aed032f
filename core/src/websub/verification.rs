//! Verification of intent and denial: the GET that a hub sends to a callback (sections 5.2, 5.3).

use std::fmt;

use url::form_urlencoded;

use super::{CallbackUrl, VerifyToken, append_query, excerpt, form::lease_seconds, random_hex};

/// The longest challenge in characters that is read or echoed (W-189).
pub const MAX_CHALLENGE: usize = 1024;

/// What a subscriber echoes to show that it asked: 1 to [`MAX_CHALLENGE`] characters of `A-Z a-z 0-9 + - . / = _` (W-110).
///
/// Text of this alphabet cannot run as code, whatever a browser takes it for.
#[derive(Clone, PartialEq, Eq)]
pub struct Challenge(Box<str>);

/// Why a text is no [`Challenge`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChallengeError {
    /// No characters, or more than [`MAX_CHALLENGE`].
    #[error("a challenge has 1 to {MAX_CHALLENGE} characters, not {length}")]
    Length {
        /// Its length in bytes.
        length: usize,
    },
    /// A character outside the alphabet.
    #[error("a challenge consists of A-Z a-z 0-9 + - . / = _ and must not contain {0:?}")]
    Character(char),
}

impl Challenge {
    /// A new challenge of 64 hexadecimal characters, 244 of its bits random (W-186).
    pub fn random() -> Self {
        Self(random_hex().into())
    }

    /// Checks length and alphabet.
    pub fn parse(text: &str) -> Result<Self, ChallengeError> {
        if text.is_empty() || text.len() > MAX_CHALLENGE {
            return Err(ChallengeError::Length { length: text.len() });
        }
        match text.chars().find(|&c| !is_challenge_character(c)) {
            Some(found) => Err(ChallengeError::Character(found)),
            None => Ok(Self(text.into())),
        }
    }

    /// The text to send, and to expect as the whole body of the answer (W-116, D-03).
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Challenge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Challenge({})", excerpt(&self.0))
    }
}

fn is_challenge_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.' | '/' | '=' | '_')
}

/// What a hub says to a callback in the query of a GET. Leases are in seconds; topics are as the subscriber wrote them.
///
/// ```
/// use resync_core::websub::Verification;
///
/// let query = "id=7&hub.mode=denied&hub.topic=https%3A%2F%2Fsource.example%2Fchanges.xml&hub.reason=no%20such%20topic";
/// let Verification::Denied { topic, reason } = Verification::parse(query)? else { unreachable!() };
/// assert_eq!(topic, "https://source.example/changes.xml");
/// assert_eq!(reason.as_deref(), Some("no such topic"));
/// # Ok::<(), resync_core::websub::VerificationError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verification {
    /// Did you ask to subscribe? (W-107 to W-111)
    Subscribe {
        /// The topic asked for.
        topic: String,
        /// What to echo.
        challenge: Challenge,
        /// The lease that the hub decided, counted from the sending of this request.
        lease: u64,
    },
    /// Did you ask to unsubscribe?
    Unsubscribe {
        /// The topic of the subscription.
        topic: String,
        /// What to echo.
        challenge: Challenge,
        /// Allowed here (W-112) but without meaning to a subscriber (W-113).
        lease: Option<u64>,
    },
    /// The hub does not accept the subscription, or no longer does (W-098 to W-102).
    Denied {
        /// The topic of the subscription.
        topic: String,
        /// Why, for people.
        reason: Option<String>,
    },
}

/// Why a query is no [`Verification`]. A subscriber answers 404 to each.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VerificationError {
    /// A parameter that this mode needs is absent or empty.
    #[error("{0} is missing from the query")]
    Missing(&'static str),
    /// A mode that is none of the three.
    #[error("hub.mode is \"{found}\": it must be subscribe, unsubscribe or denied")]
    Mode {
        /// The mode as sent, shortened.
        found: String,
    },
    /// A challenge that must not be echoed.
    #[error("hub.challenge: {0}")]
    Challenge(#[from] ChallengeError),
    /// A lease that is no positive whole number.
    #[error("hub.lease_seconds is \"{found}\": it must be a whole number of seconds, 1 or more")]
    Lease {
        /// The lease as sent, shortened.
        found: String,
    },
}

impl Verification {
    /// Reads the query of a request to a callback.
    ///
    /// The callback's own parameters are passed over. Where one of them has the name of a hub's parameter, the last of
    /// that name counts, since the hub's come last (W-079).
    pub fn parse(query: &str) -> Result<Self, VerificationError> {
        let asked = Parameters::collect(query);
        let topic = || asked.topic.clone().ok_or(VerificationError::Missing("hub.topic"));
        let challenge = || {
            let text = asked.challenge.as_deref().ok_or(VerificationError::Missing("hub.challenge"))?;
            Ok::<_, VerificationError>(Challenge::parse(text)?)
        };
        match asked.mode.as_deref().ok_or(VerificationError::Missing("hub.mode"))? {
            "subscribe" => {
                let written =
                    asked.lease.as_deref().ok_or(VerificationError::Missing("hub.lease_seconds"))?;
                let lease = lease_seconds(written)
                    .ok_or_else(|| VerificationError::Lease { found: excerpt(written) })?;
                Ok(Self::Subscribe { topic: topic()?, challenge: challenge()?, lease })
            }
            "unsubscribe" => Ok(Self::Unsubscribe {
                topic: topic()?,
                challenge: challenge()?,
                lease: asked.lease.as_deref().and_then(lease_seconds),
            }),
            "denied" => Ok(Self::Denied { topic: topic()?, reason: asked.reason.clone() }),
            other => Err(VerificationError::Mode { found: excerpt(other) }),
        }
    }

    /// The URL to GET: the callback, its own query untouched, with this appended (W-078, W-106).
    pub fn to_url(&self, callback: &CallbackUrl) -> String {
        self.to_url_echoing(callback, None)
    }

    /// The same with the token of the request that is verified, for older subscribers (C-02). A denial has none.
    pub fn to_url_echoing(&self, callback: &CallbackUrl, token: Option<&VerifyToken>) -> String {
        match self {
            Self::Subscribe { topic, challenge, lease } => {
                intent_url(callback, ("subscribe", topic, challenge, Some(*lease)), token)
            }
            Self::Unsubscribe { topic, challenge, lease } => {
                intent_url(callback, ("unsubscribe", topic, challenge, *lease), token)
            }
            Self::Denied { topic, reason } => {
                let mut parameters = vec![("hub.mode", "denied"), ("hub.topic", topic)];
                parameters.extend(reason.as_deref().map(|reason| ("hub.reason", reason)));
                append_query(callback, &parameters)
            }
        }
    }
}

fn intent_url(
    callback: &CallbackUrl,
    (mode, topic, challenge, lease): (&str, &str, &Challenge, Option<u64>),
    token: Option<&VerifyToken>,
) -> String {
    let lease = lease.map(|seconds| seconds.to_string());
    let mut parameters =
        vec![("hub.mode", mode), ("hub.topic", topic), ("hub.challenge", challenge.as_str())];
    parameters.extend(lease.as_deref().map(|seconds| ("hub.lease_seconds", seconds)));
    parameters.extend(token.map(|token| ("hub.verify_token", token.as_str())));
    append_query(callback, &parameters)
}

/// The last value of each parameter of interest; an empty one counts as absent.
#[derive(Default)]
struct Parameters {
    mode: Option<String>,
    topic: Option<String>,
    challenge: Option<String>,
    lease: Option<String>,
    reason: Option<String>,
}

impl Parameters {
    fn collect(query: &str) -> Self {
        let mut found = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let place = match name.as_ref() {
                "hub.mode" => &mut found.mode,
                "hub.topic" => &mut found.topic,
                "hub.challenge" => &mut found.challenge,
                "hub.lease_seconds" => &mut found.lease,
                "hub.reason" => &mut found.reason,
                _ => continue,
            };
            *place = Some(value.into_owned()).filter(|value| !value.is_empty());
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn callback() -> CallbackUrl {
        CallbackUrl::parse("https://d.example/cb?id=7").unwrap()
    }

    fn challenge(text: &str) -> Challenge {
        Challenge::parse(text).unwrap()
    }

    #[test]
    fn w110_b08_only_the_alphabet_is_a_challenge() {
        let alphabet = "ABCXYZabcxyz0189+-./=_";
        assert_eq!(challenge(alphabet).as_str(), alphabet);
        for outside in ['<', '>', '&', ' ', '\n', '\0', '~', '%', ',', '"', 'ü', '\u{661}'] {
            let text = format!("abc{outside}");
            assert_eq!(Challenge::parse(&text), Err(ChallengeError::Character(outside)));
        }
    }

    #[test]
    fn w189_a_challenge_has_1_to_1024_characters() {
        assert_eq!(Challenge::parse(""), Err(ChallengeError::Length { length: 0 }));
        assert!(Challenge::parse(&"a".repeat(1024)).is_ok());
        assert_eq!(Challenge::parse(&"a".repeat(1025)), Err(ChallengeError::Length { length: 1025 }));
    }

    #[test]
    fn b08_random_challenges_are_long_legal_and_different_in_100_requests() {
        let all: std::collections::BTreeSet<_> =
            (0..100).map(|_| Challenge::random().as_str().to_owned()).collect();
        assert_eq!(all.len(), 100);
        for text in all {
            assert_eq!(text.len(), 64);
            assert!(Challenge::parse(&text).is_ok());
        }
    }

    #[test]
    fn w111_a_verification_of_a_subscription_carries_mode_topic_challenge_and_lease() {
        let intent = Verification::Subscribe {
            topic: "https://blog.example/feed".into(),
            challenge: challenge("9f2c"),
            lease: 86_400,
        };
        assert_eq!(
            intent.to_url(&callback()),
            "https://d.example/cb?id=7&hub.mode=subscribe&hub.topic=https%3A%2F%2Fblog.example%2Ffeed\
             &hub.challenge=9f2c&hub.lease_seconds=86400"
        );
    }

    #[test]
    fn w111_a_verification_of_a_subscription_without_a_lease_is_refused() {
        let query = "hub.mode=subscribe&hub.topic=t&hub.challenge=c";
        assert_eq!(Verification::parse(query), Err(VerificationError::Missing("hub.lease_seconds")));
        for lease in ["0", "-1", "1.5", "abc", "%201"] {
            let error = Verification::parse(&format!("{query}&hub.lease_seconds={lease}")).unwrap_err();
            assert!(matches!(error, VerificationError::Lease { .. }), "{lease}: {error}");
        }
    }

    #[test]
    fn w112_w113_the_lease_of_an_unsubscribe_is_neither_required_nor_checked() {
        let query = "hub.mode=unsubscribe&hub.topic=t&hub.challenge=c";
        for (lease, read) in [("", None), ("&hub.lease_seconds=abc", None), ("&hub.lease_seconds=5", Some(5))]
        {
            let expected =
                Verification::Unsubscribe { topic: "t".into(), challenge: challenge("c"), lease: read };
            assert_eq!(Verification::parse(&format!("{query}{lease}")), Ok(expected));
        }
    }

    #[test]
    fn w098_to_w101_a_denial_carries_mode_topic_and_perhaps_a_reason() {
        let topic = "https://s.example/t?a=1&b=2#".to_owned();
        let silent = Verification::Denied { topic: topic.clone(), reason: None };
        let url = "https://d.example/cb?id=7&hub.mode=denied&hub.topic=https%3A%2F%2Fs.example%2Ft%3Fa%3D1%26b%3D2%23";
        assert_eq!(silent.to_url(&callback()), url);
        let reasoned = Verification::Denied { topic, reason: Some("no such topic".into()) };
        assert_eq!(reasoned.to_url(&callback()), format!("{url}&hub.reason=no%20such%20topic"));
    }

    #[test]
    fn w079_the_hubs_parameters_come_last_and_count() {
        let own = "hub.mode=mine&hub.challenge=&hub.topic=x&hub.mode=denied&hub.topic=real";
        assert_eq!(Verification::parse(own), Ok(Verification::Denied { topic: "real".into(), reason: None }));
    }

    #[test]
    fn every_refusal_has_its_cause() {
        use VerificationError::Missing;
        assert_eq!(Verification::parse(""), Err(Missing("hub.mode")));
        assert_eq!(Verification::parse("hub.mode=denied"), Err(Missing("hub.topic")));
        assert_eq!(Verification::parse("hub.mode=unsubscribe&hub.topic=t"), Err(Missing("hub.challenge")));
        assert_eq!(
            Verification::parse("hub.mode=publish&hub.topic=t"),
            Err(VerificationError::Mode { found: "publish".into() })
        );
        assert_eq!(
            Verification::parse("hub.mode=unsubscribe&hub.topic=t&hub.challenge=<script>"),
            Err(VerificationError::Challenge(ChallengeError::Character('<')))
        );
    }

    fn verifications() -> impl Strategy<Value = Verification> {
        let topic = "\\PC{1,40}";
        let challenges = || "[A-Za-z0-9+./=_-]{1,64}".prop_map(|text| Challenge::parse(&text).unwrap());
        prop_oneof![
            (topic, challenges(), 1..=u64::MAX)
                .prop_map(|(topic, challenge, lease)| Verification::Subscribe { topic, challenge, lease }),
            (topic, challenges(), prop::option::of(1..=u64::MAX))
                .prop_map(|(topic, challenge, lease)| Verification::Unsubscribe { topic, challenge, lease }),
            (topic, prop::option::of("\\PC{1,40}"))
                .prop_map(|(topic, reason)| Verification::Denied { topic, reason }),
        ]
    }

    proptest! {
        #[test]
        fn b06_what_a_hub_sends_is_what_a_subscriber_reads(
            sent in verifications(),
            own in "[a-z0-9=&+%.]{0,30}|hub\\.(mode|topic|challenge)=[a-z&]{0,9}",
        ) {
            let callback = CallbackUrl::parse(&format!("https://d.example/cb?{own}")).unwrap();
            let url = sent.to_url(&callback);
            let (_, query) = url.split_once('?').unwrap();
            prop_assert_eq!(Verification::parse(query), Ok(sent));
        }

        #[test]
        fn no_query_makes_parsing_panic(query in "\\PC{0,200}|(hub\\.(mode|topic|challenge|lease_seconds)=[a-z0-9%]{0,12}&){0,6}") {
            let _ = Verification::parse(&query);
        }
    }
}
