//! Bearer tokens, and which hub each of them is for.

use std::{fmt, str::FromStr};

use http::HeaderValue;

use super::NotifyError;
use crate::{settings::HubUrl, state::State};

/// A bearer token for a hub: `TOKEN`, or `HUB_URL=TOKEN` where there are several hubs. Never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl FromStr for Token {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.trim().to_owned()))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token([secret])")
    }
}

/// The hubs of a site that may have something to hear, each with what its `Authorization` header says. A token without a URL is for the only hub
/// of the settings, or else for the only one that is leaving.
pub(super) fn credentials(
    state: &State,
    tokens: &[Token],
) -> Result<Vec<(HubUrl, Option<HeaderValue>)>, NotifyError> {
    let hubs: Vec<HubUrl> = state.hubs_to_tell().cloned().collect();
    let staying = state.settings.hubs.len();
    assign(&hubs, if staying > 0 { staying } else { hubs.len() }, tokens)
}

/// `meant` of the hubs, the first ones, may be meant by a token without a URL.
fn assign(
    hubs: &[HubUrl],
    meant: usize,
    tokens: &[Token],
) -> Result<Vec<(HubUrl, Option<HeaderValue>)>, NotifyError> {
    let mut credentials: Vec<_> = hubs.iter().map(|hub| (hub.clone(), None)).collect();
    for Token(token) in tokens.iter().filter(|token| !token.0.is_empty()) {
        let named = |hub: &HubUrl| token.strip_prefix(hub.as_str()).and_then(|rest| rest.strip_prefix('='));
        let (position, secret) = match hubs.iter().position(|hub| named(hub).is_some()) {
            Some(position) => (position, named(&hubs[position]).unwrap_or_default()),
            // A hub that has taken its leave may still be named in a timer's settings: the others are told all the same.
            None if token.starts_with("http://") || token.starts_with("https://") => {
                tracing::warn!("a token names none of the site's hubs, and is not used");
                continue;
            }
            None if meant > 1 => return Err(NotifyError::WhoseToken { hubs: meant }),
            None => (0, token.as_str()),
        };
        let mut value =
            HeaderValue::from_str(&format!("Bearer {secret}")).map_err(|_| NotifyError::BadToken)?;
        value.set_sensitive(true);
        credentials[position].1 = Some(value);
    }
    Ok(credentials)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hubs(urls: &[&str]) -> Vec<HubUrl> {
        urls.iter().map(|url| HubUrl::parse(url).unwrap()).collect()
    }

    fn sent(hubs: &[HubUrl], tokens: &[&str]) -> Result<Vec<Option<String>>, NotifyError> {
        let tokens: Vec<Token> = tokens.iter().map(|token| token.parse().unwrap()).collect();
        let credentials = assign(hubs, hubs.len(), &tokens)?;
        let text = |value: Option<HeaderValue>| value.map(|value| value.to_str().unwrap().to_owned());
        Ok(credentials.into_iter().map(|(_, value)| text(value)).collect())
    }

    #[test]
    fn a_token_reaches_the_hub_it_is_meant_for_and_no_other() {
        let two = hubs(&["http://a.example/hub", "http://b.example/hub"]);
        let named = sent(&two, &["http://b.example/hub=s3cret=="]).unwrap();
        assert_eq!(named, [None, Some("Bearer s3cret==".to_owned())]);
        assert!(matches!(sent(&two, &["s3cret"]), Err(NotifyError::WhoseToken { hubs: 2 })));
        assert_eq!(sent(&two, &["http://c.example/=s3cret"]).unwrap(), [None, None]);
        assert_eq!(sent(&two[..1], &["s3cret"]).unwrap(), [Some("Bearer s3cret".to_owned())]);
        assert!(matches!(sent(&two[..1], &["a\nb"]), Err(NotifyError::BadToken)));
    }

    #[test]
    fn a_token_is_never_shown() {
        let token: Token = "hunter2".parse().unwrap();
        assert!(!format!("{token:?}").contains("hunter2"));
        let bad = sent(&hubs(&["http://a.example/hub"]), &["hunter2\u{7}"]).unwrap_err();
        assert!(!bad.to_string().contains("hunter2"), "{bad}");
    }

    #[test]
    fn a_token_without_url_is_for_the_hub_that_stays_and_never_for_one_that_is_leaving() {
        let hubs = hubs(&["http://new.example/hub", "http://left.example/hub"]);
        let given = assign(&hubs, 1, &["s3cret".parse().unwrap()]).unwrap();
        assert!(given[0].1.is_some() && given[1].1.is_none());
    }
}
