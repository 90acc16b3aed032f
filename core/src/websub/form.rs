//! Requests to a hub: subscribe, unsubscribe and publish, as the form that carries them (sections 5.1 and 6).

use std::{borrow::Cow, collections::HashSet};

use percent_encoding::percent_decode;
use url::form_urlencoded;

use super::{
    CallbackUrl, FORM_CONTENT_TYPE, Secret, SecretError, TopicUrl, UrlError, VerifyToken, VerifyTokenError,
    excerpt,
};
use crate::media_type::essence;

/// The most parameters that a form may have, those that are not understood included.
pub const MAX_PARAMETERS: usize = 1000;

/// A request to a hub.
///
/// ```
/// use resync_core::websub::Request;
///
/// let Request::Publish(ping) = Request::parse(b"hub.mode=publish&hub.url=https%3A%2F%2Fsource.example%2Fchanges.xml")?
///     else { unreachable!() };
/// assert_eq!(ping.topics[0].as_str(), "https://source.example/changes.xml");
///
/// let error = Request::parse(b"hub.mode=subscribe&hub.topic=https%3A%2F%2Fsource.example%2F").unwrap_err();
/// assert_eq!(error.to_string(), "hub.callback is missing: it must be the URL to which the hub delivers");
/// # Ok::<(), resync_core::websub::FormError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// `hub.mode=subscribe`
    Subscribe(Subscribe),
    /// `hub.mode=unsubscribe`
    Unsubscribe(Unsubscribe),
    /// `hub.mode=publish`
    Publish(Publish),
}

/// A wish to subscribe, or to renew a subscription (W-010, W-011, W-013).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscribe {
    /// Where to deliver.
    pub callback: CallbackUrl,
    /// What to deliver.
    pub topic: TopicUrl,
    /// The lease asked for in seconds, at least 1 (W-049); what does not fit is `u64::MAX` (D-04).
    pub lease: Option<u64>,
    /// The key that is to sign deliveries (W-054).
    pub secret: Option<Secret>,
    /// What the verification has to say back (C-02).
    pub verify_token: Option<VerifyToken>,
}

/// A wish to end a subscription (W-014).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsubscribe {
    /// The callback of the subscription.
    pub callback: CallbackUrl,
    /// The topic of the subscription.
    pub topic: TopicUrl,
    /// What the verification has to say back (C-02).
    pub verify_token: Option<VerifyToken>,
}

/// A ping: these topics have new content, which the hub is to fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publish {
    /// At least one topic, each once, in the order sent (C-04, C-05).
    pub topics: Vec<TopicUrl>,
}

/// Why a form is no [`Request`]. `Display` is the plain text for the developer who sent it (W-088).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormError {
    /// More than [`MAX_PARAMETERS`].
    #[error("the form has {found} parameters: it may have at most {MAX_PARAMETERS}; send several requests")]
    TooManyParameters {
        /// How many there are.
        found: usize,
    },
    /// A ping of more topics than whoever reads it would take.
    #[error("the ping names {found} topics: name at most {most}, and send several pings")]
    TooManyTopics {
        /// How many there are.
        found: usize,
        /// How many there may be.
        most: usize,
    },
    /// Bytes that are not UTF-8 after percent-decoding (W-042).
    #[error(
        "the parameter \"{parameter}\" is not UTF-8: encode the form's text as UTF-8, then percent-encode it"
    )]
    NotUtf8 {
        /// The parameter's name, shortened.
        parameter: String,
    },
    /// A parameter that this mode needs is absent or empty.
    #[error("{parameter} is missing: it must be {expected}")]
    Missing {
        /// The parameter.
        parameter: &'static str,
        /// What it has to be.
        expected: &'static str,
    },
    /// A parameter that may be given once was given more often (D-05).
    #[error("{parameter} is given {count} times: give it once")]
    Repeated {
        /// The parameter.
        parameter: &'static str,
        /// How often it was given.
        count: usize,
    },
    /// A mode that is none of the three (W-046).
    #[error("hub.mode is \"{found}\": it must be subscribe, unsubscribe or publish, in lower case")]
    Mode {
        /// The mode as sent, shortened.
        found: String,
    },
    /// A callback to which nothing can be delivered.
    #[error("hub.callback: {0}")]
    Callback(#[source] UrlError),
    /// A topic that is no web address.
    #[error("{parameter} \"{found}\": {reason}")]
    Topic {
        /// `hub.topic` or `hub.url`.
        parameter: &'static str,
        /// The topic as sent, shortened.
        found: String,
        /// What is wrong with it.
        #[source]
        reason: UrlError,
    },
    /// A lease that is no positive whole number (W-049, D-04).
    #[error(
        "hub.lease_seconds is \"{found}\": it must be a whole number of seconds, 1 or more, such as 864000; leave it out for the hub's default"
    )]
    Lease {
        /// The lease as sent, shortened.
        found: String,
    },
    /// A secret that cannot be used (W-057).
    #[error("hub.secret: {0}")]
    Secret(#[source] SecretError),
    /// A token that cannot be kept until the verification (C-02).
    #[error("hub.verify_token: {0}")]
    VerifyToken(#[source] VerifyTokenError),
}

/// Whether a `Content-Type` says that the body is such a form; parameters and letter case do not matter (W-041).
pub fn is_form(content_type: &str) -> bool {
    essence(content_type).eq_ignore_ascii_case(FORM_CONTENT_TYPE)
}

impl Request {
    /// Reads the body of a POST to a hub.
    ///
    /// Parameters that are not understood are ignored (W-059), as are a lease and a secret where they mean nothing
    /// (W-053). Empty leases, secrets and tokens count as absent (D-04, D-05).
    pub fn parse(body: &[u8]) -> Result<Self, FormError> {
        Self::parse_within(body, MAX_PARAMETERS)
    }

    /// As [`Request::parse`], but a ping that names more than `most` topics, repetitions included, is refused before any
    /// of them is looked at: reading a thousand URLs costs far more than counting them.
    pub fn parse_within(body: &[u8], most: usize) -> Result<Self, FormError> {
        if let Some(found) =
            topics_of_plain_ping(body).filter(|found| (most + 1..MAX_PARAMETERS).contains(found))
        {
            return Err(FormError::TooManyTopics { found, most });
        }
        let form = Form::read(body)?;
        let mode = form.required(
            "hub.mode",
            "subscribe, unsubscribe or publish, in the body of the request and not in the hub URL's query",
        )?;
        match mode {
            "subscribe" => Ok(Self::Subscribe(Subscribe {
                callback: form.callback()?,
                topic: form.topic()?,
                lease: form.lease()?,
                secret: form.secret()?,
                verify_token: form.verify_token()?,
            })),
            "unsubscribe" => Ok(Self::Unsubscribe(Unsubscribe {
                callback: form.callback()?,
                topic: form.topic()?,
                verify_token: form.verify_token()?,
            })),
            "publish" => Ok(Self::Publish(Publish { topics: form.topics(most)? })),
            other => Err(FormError::Mode { found: excerpt(other) }),
        }
    }
}

impl Subscribe {
    /// The body to POST to a hub as [`FORM_CONTENT_TYPE`].
    pub fn to_form(&self) -> String {
        let lease = self.lease.map(|seconds| seconds.to_string());
        let mut parameters = intent("subscribe", &self.callback, &self.topic).to_vec();
        parameters.extend(lease.as_deref().map(|seconds| ("hub.lease_seconds", seconds)));
        parameters.extend(self.secret.as_ref().map(|secret| ("hub.secret", secret.as_str())));
        parameters.extend(echoed(self.verify_token.as_ref()));
        encode(parameters)
    }
}

impl Unsubscribe {
    /// The body to POST to a hub as [`FORM_CONTENT_TYPE`].
    pub fn to_form(&self) -> String {
        let intent = intent("unsubscribe", &self.callback, &self.topic);
        encode(intent.into_iter().chain(echoed(self.verify_token.as_ref())))
    }
}

impl Publish {
    /// The body to POST to a hub as [`FORM_CONTENT_TYPE`], with the widespread `hub.url` (C-04).
    pub fn to_form(&self) -> String {
        let topics = self.topics.iter().map(|topic| ("hub.url", topic.as_str()));
        encode(std::iter::once(("hub.mode", "publish")).chain(topics))
    }
}

fn intent<'a>(mode: &'a str, callback: &'a CallbackUrl, topic: &'a TopicUrl) -> [(&'static str, &'a str); 3] {
    [("hub.mode", mode), ("hub.topic", topic.as_str()), ("hub.callback", callback.as_str())]
}

fn echoed(token: Option<&VerifyToken>) -> Option<(&'static str, &str)> {
    token.map(|token| ("hub.verify_token", token.as_str()))
}

fn encode<'a>(parameters: impl IntoIterator<Item = (&'static str, &'a str)>) -> String {
    form_urlencoded::Serializer::new(String::new()).extend_pairs(parameters).finish()
}

/// A positive whole number of seconds in decimal digits; `u64::MAX` where it does not fit (D-04).
pub(super) fn lease_seconds(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let seconds = digits.then(|| text.parse().unwrap_or(u64::MAX));
    seconds.filter(|&seconds| seconds > 0)
}

/// How many topics a ping names, counted without decoding anything. `None` for other requests, and for pings with parameters whose
/// names or mode are percent-encoded, which nobody does.
fn topics_of_plain_ping(body: &[u8]) -> Option<usize> {
    let (mut is_ping, mut topics) = (false, 0);
    for part in body.split(|&b| b == b'&') {
        is_ping |= part == b"hub.mode=publish";
        let topic = part.strip_prefix(b"hub.url=").or_else(|| part.strip_prefix(b"hub.topic="));
        topics += usize::from(topic.is_some_and(|topic| !topic.is_empty()));
    }
    is_ping.then_some(topics)
}

/// A form's parameters, decoded, in the order sent.
struct Form<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Form<'a> {
    fn read(body: &'a [u8]) -> Result<Self, FormError> {
        let parts = body.split(|&b| b == b'&').filter(|part| !part.is_empty());
        let found = parts.clone().count();
        if found > MAX_PARAMETERS {
            return Err(FormError::TooManyParameters { found });
        }
        // The decoder below replaces what is not UTF-8 without a word, so it is looked for first.
        for part in parts {
            if percent_decode(part).decode_utf8().is_err() {
                let name = part.split(|&b| b == b'=').next().unwrap_or_default();
                return Err(FormError::NotUtf8 {
                    parameter: excerpt(&percent_decode(name).decode_utf8_lossy()),
                });
            }
        }
        Ok(Self(form_urlencoded::parse(body).collect()))
    }

    fn values(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(given, _)| given == name).map(|(_, value)| value.as_ref())
    }

    /// The one value of a parameter, if it is there and not empty.
    fn single(&self, parameter: &'static str) -> Result<Option<&str>, FormError> {
        match self.values(parameter).count() {
            0 | 1 => Ok(self.values(parameter).next().filter(|value| !value.is_empty())),
            count => Err(FormError::Repeated { parameter, count }),
        }
    }

    fn required(&self, parameter: &'static str, expected: &'static str) -> Result<&str, FormError> {
        self.single(parameter)?.ok_or(FormError::Missing { parameter, expected })
    }

    fn callback(&self) -> Result<CallbackUrl, FormError> {
        let text = self.required("hub.callback", "the URL to which the hub delivers")?;
        CallbackUrl::parse(text).map_err(FormError::Callback)
    }

    fn topic(&self) -> Result<TopicUrl, FormError> {
        let text = self.required("hub.topic", "the URL that the publisher advertises with rel=\"self\"")?;
        topic("hub.topic", text)
    }

    fn topics(&self, most: usize) -> Result<Vec<TopicUrl>, FormError> {
        let named = self.0.iter().filter_map(|(name, text)| match name.as_ref() {
            "hub.url" if !text.is_empty() => Some(("hub.url", text)),
            "hub.topic" if !text.is_empty() => Some(("hub.topic", text)),
            _ => None,
        });
        let found = named.clone().count();
        if found > most {
            return Err(FormError::TooManyTopics { found, most });
        }
        let mut seen = HashSet::new();
        let mut topics = Vec::new();
        for (parameter, text) in named {
            let topic = topic(parameter, text)?;
            if seen.insert(topic.key().to_owned()) {
                topics.push(topic);
            }
        }
        if topics.is_empty() {
            return Err(FormError::Missing {
                parameter: "hub.url",
                expected: "the URL of the topic that has new content, once for each topic",
            });
        }
        Ok(topics)
    }

    fn lease(&self) -> Result<Option<u64>, FormError> {
        let parse = |text| lease_seconds(text).ok_or_else(|| FormError::Lease { found: excerpt(text) });
        self.single("hub.lease_seconds")?.map(parse).transpose()
    }

    fn secret(&self) -> Result<Option<Secret>, FormError> {
        self.single("hub.secret")?.map(Secret::new).transpose().map_err(FormError::Secret)
    }

    fn verify_token(&self) -> Result<Option<VerifyToken>, FormError> {
        self.single("hub.verify_token")?.map(VerifyToken::new).transpose().map_err(FormError::VerifyToken)
    }
}

fn topic(parameter: &'static str, text: &str) -> Result<TopicUrl, FormError> {
    TopicUrl::parse(text).map_err(|reason| FormError::Topic { parameter, found: excerpt(text), reason })
}

#[cfg(test)]
mod tests;
