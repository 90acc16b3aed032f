//! Bearer tokens, and which hub each of them is for.

use std::{collections::BTreeSet, fmt, path::PathBuf, str::FromStr};

use http::HeaderValue;

use crate::{error::Error, settings::HubUrl, state::State};

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

/// Adds the URL of its hub to each token that has none: the only hub of the sets in `outs`, or else their only former hub. With several hubs such a token
/// is refused, so that it reaches no other hub than its own. One with a URL that none of the sets knows is ignored, and a warning logged.
pub fn tokens_for(outs: &[PathBuf], tokens: &[Token]) -> Result<Vec<Token>, Error> {
    let mut hubs = Hubs::default();
    for out in outs {
        if let Ok(state) = State::load(out) {
            hubs.current.extend(state.settings.hubs.iter().cloned());
            hubs.all.extend(state.hubs_to_notify().cloned());
        }
    }
    hubs.name(tokens)
}

/// The hubs of several sets.
#[derive(Default)]
pub(crate) struct Hubs {
    /// Those of the settings.
    pub(crate) current: BTreeSet<HubUrl>,
    /// These and former ones.
    pub(crate) all: BTreeSet<HubUrl>,
}

impl Hubs {
    /// Tokens with the URLs of their hubs; unchanged if there is no hub. Warns of those whose hub no set has.
    pub(crate) fn name(&self, tokens: &[Token]) -> Result<Vec<Token>, Error> {
        let is_strange = |token: &Token| !self.all.iter().any(|hub| token.secret_for(hub).is_some());
        // The settings of a timer may still name a former hub.
        for _ in tokens.iter().filter(|token| token.has_url() && is_strange(token)) {
            tracing::warn!("ignored a token that matches no hub of the site");
        }
        let meant = if self.current.is_empty() { &self.all } else { &self.current };
        let name = |token: &Token| match (meant.first(), meant.len()) {
            (Some(hub), 1) if token.is_bare() => Ok(Token(format!("{hub}={}", token.0))),
            (Some(_), hubs) if token.is_bare() => Err(Error::WhoseToken { hubs }),
            _ => Ok(token.clone()),
        };
        tokens.iter().filter(|token| !token.0.is_empty()).map(name).collect()
    }
}

impl Token {
    /// Whether it names no hub. An empty one is no token.
    pub fn is_bare(&self) -> bool {
        !self.0.is_empty() && !self.has_url()
    }

    fn has_url(&self) -> bool {
        self.0.starts_with("http://") || self.0.starts_with("https://")
    }

    /// What is behind the URL of this hub.
    fn secret_for(&self, hub: &HubUrl) -> Option<&str> {
        self.0.strip_prefix(hub.as_str())?.strip_prefix('=')
    }
}

/// The hubs of a site that may have to be notified, each with its `Authorization` header. A token without a URL is for the only hub of the settings, or
/// else for the only former hub.
pub(super) fn credentials(
    state: &State,
    tokens: &[Token],
) -> Result<Vec<(HubUrl, Option<HeaderValue>)>, Error> {
    let hubs: Vec<HubUrl> = state.hubs_to_notify().cloned().collect();
    let current = state.settings.hubs.len();
    assign(&hubs, if current > 0 { current } else { hubs.len() }, tokens)
}

/// A token without a URL can only mean one of the first `meant` hubs.
fn assign(
    hubs: &[HubUrl],
    meant: usize,
    tokens: &[Token],
) -> Result<Vec<(HubUrl, Option<HeaderValue>)>, Error> {
    let mut credentials: Vec<_> = hubs.iter().map(|hub| (hub.clone(), None)).collect();
    if hubs.is_empty() {
        return Ok(credentials);
    }
    for token in tokens.iter().filter(|token| !token.0.is_empty()) {
        let named = hubs.iter().enumerate().find_map(|(at, hub)| Some((at, token.secret_for(hub)?)));
        let (position, secret) = match named {
            Some(named) => named,
            // It is for a hub of another set.
            None if token.has_url() => continue,
            None if meant > 1 => return Err(Error::WhoseToken { hubs: meant }),
            None => (0, token.0.as_str()),
        };
        let mut value = HeaderValue::from_str(&format!("Bearer {secret}")).map_err(|_| Error::BadToken)?;
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

    fn sent(hubs: &[HubUrl], tokens: &[&str]) -> Result<Vec<Option<String>>, Error> {
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
        assert!(matches!(sent(&two, &["s3cret"]), Err(Error::WhoseToken { hubs: 2 })));
        assert_eq!(sent(&two, &["http://c.example/=s3cret"]).unwrap(), [None, None]);
        assert_eq!(sent(&two[..1], &["s3cret"]).unwrap(), [Some("Bearer s3cret".to_owned())]);
        assert!(matches!(sent(&two[..1], &["a\nb"]), Err(Error::BadToken)));
        assert!(sent(&[], &["s3cret"]).unwrap().is_empty(), "there is no hub");
    }

    #[test]
    fn a_token_without_url_reaches_no_hub_of_another_set() {
        let [first, second, left] = ["http://a.example/hub", "http://b.example/hub", "http://c.example/hub"]
            .map(|url| HubUrl::parse(url).unwrap());
        let named = |staying: &[&HubUrl], leaving: &[&HubUrl]| {
            let of = |hubs: &[&HubUrl]| hubs.iter().map(|hub| (*hub).clone()).collect::<BTreeSet<_>>();
            let (staying, leaving) = (of(staying), of(leaving));
            let all = staying.union(&leaving).cloned().collect();
            let tokens = Hubs { current: staying, all }.name(&["s3cret".parse().unwrap()])?;
            Ok::<_, Error>(tokens.into_iter().map(|token| token.0).collect::<Vec<_>>())
        };
        assert!(matches!(named(&[&first, &second], &[]), Err(Error::WhoseToken { hubs: 2 })));
        assert_eq!(named(&[&first, &first], &[&left]).unwrap(), ["http://a.example/hub=s3cret"]);
        assert_eq!(named(&[], &[&left]).unwrap(), ["http://c.example/hub=s3cret"]);
        assert!(matches!(named(&[], &[&left, &first]), Err(Error::WhoseToken { hubs: 2 })));
        assert_eq!(named(&[], &[]).unwrap(), ["s3cret"]);
    }

    #[test]
    fn a_token_is_bare_unless_it_names_a_hub_or_is_empty() {
        let is_bare = |text: &str| text.parse::<Token>().unwrap().is_bare();
        assert!(is_bare("s3cret=="));
        assert!(
            !is_bare("http://a.example/hub=s3cret")
                && !is_bare("https://a.example/hub=s3cret")
                && !is_bare(" ")
        );
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
