//! Discovery of a topic and its hubs, as WebSub has it (W-028…W-034).

use std::convert::Infallible;
use std::io::Read as _;

use resync_core::websub::key::TopicUrl;
use resync_core::websub::{Advertised, LinkValue, embedded_links};
use url::Url;

use super::{Channel, DiscoverError, MAX_HUBS, discover};
use crate::fetch::{Client, FetchError, Fetched, led_to};

/// How much of a topic is looked through for links, in bytes.
const MAX_LOOKED_THROUGH: u64 = 512 * 1024;

/// The channels that `url` stands for: itself, if it is a topic that names its hubs, or else all channels of the
/// ResourceSync Source that it belongs to (CN-019, FN-060).
///
/// The `Link` headers come first; what they lack is looked for in HTML, Atom, RSS or a JSON Feed (W-030). The topic is what it says to be (W-048), or where redirects led.
///
/// # Errors
/// As [`discover`], [`DiscoverError::NoHub`] for a topic or Source without a hub, and [`DiscoverError::Incomplete`] while some of its
/// sets cannot be read.
pub async fn channels(client: &Client, url: &str) -> Result<Vec<Channel>, DiscoverError> {
    let parsed = Url::parse(url).map_err(|reason| DiscoverError::Url { text: url.to_owned(), reason })?;
    let fetched = match client.document(&parsed).await {
        Ok(fetched) => fetched,
        // A Source at the same host is no substitute for a topic that is away.
        Err(error @ FetchError::Status { .. }) if !error.is_transient() => {
            return of_source(client, url).await;
        }
        Err(error) => return Err(error.into()),
    };
    match topic(fetched) {
        Some(channel) if !channel.hubs.is_empty() => Ok(vec![channel]),
        _ => match of_source(client, url).await {
            // It can be read, and it is no document of a Source.
            Err(error @ DiscoverError::NothingFound { .. }) if !error.is_transient() => {
                Err(DiscoverError::NoHub { url: parsed })
            }
            found => found,
        },
    }
}

/// The channel of the topic at `url` at this `hub`, for topics that name no hub. If it names another one, that is logged, since the
/// publisher may not notify this one.
///
/// # Errors
/// [`DiscoverError::Url`], and [`DiscoverError::Fetch`] when the topic is away or missing. One that may not be read is a topic
/// all the same.
pub async fn channel_at(client: &Client, url: &str, hub: &Url) -> Result<Channel, DiscoverError> {
    let parsed = Url::parse(url).map_err(|reason| DiscoverError::Url { text: url.to_owned(), reason })?;
    let found = match client.document(&parsed).await {
        Ok(fetched) => topic(fetched),
        Err(FetchError::Status { status: 401 | 403, .. }) => None,
        Err(error) => return Err(error.into()),
    };
    let hubs = found.iter().flat_map(|found| &found.hubs);
    let others: Vec<&str> = hubs.map(Url::as_str).collect();
    if !others.is_empty() && !others.contains(&hub.as_str()) {
        let names = others.join(", ");
        tracing::warn!(url, names, %hub, "the topic names another hub than the given one, which may never be notified; leave it out unless you are sure");
    }
    let given = |found: Option<Channel>| match found {
        Some(found) => Ok(found.topic),
        None => TopicUrl::parse(parsed.as_str()),
    };
    let topic =
        given(found).map_err(|source| DiscoverError::Topic { url: Box::new(parsed.clone()), source })?;
    Ok(Channel { topic, hubs: vec![hub.clone()] })
}

async fn of_source(client: &Client, url: &str) -> Result<Vec<Channel>, DiscoverError> {
    let source = discover(client, url).await?;
    // What the others name is not all, and whoever has subscribed to more would leave it.
    if source.retry_may_help() {
        return Err(DiscoverError::Incomplete { url: source.found_at, sets: source.unreadable });
    }
    let sets = source.sets.into_iter().flat_map(|set| [set.change_channel, set.framework_channel]);
    let channels: Vec<Channel> = sets.flatten().filter(|channel| !channel.hubs.is_empty()).collect();
    if channels.is_empty() {
        return Err(DiscoverError::NoHub { url: source.found_at });
    }
    Ok(channels)
}

/// The topic that this document says it is, and the hubs that it names.
fn topic(fetched: Fetched) -> Option<Channel> {
    let Fetched { url, links, content_type, file, .. } = fetched;
    let content = || {
        let mut body = Vec::new();
        if let Err(error) = file.take(MAX_LOOKED_THROUGH).read_to_end(&mut body) {
            tracing::debug!(%error, "cannot search a topic for links");
        }
        embedded_links(content_type.as_deref().unwrap_or_default(), &body)
    };
    let resolve = |rel: &str, link: &LinkValue| {
        let is_hub = rel == "hub";
        Ok(if is_hub { led_to(&url, &link.target).map(String::from) } else { link.target_from(&url) })
    };
    let Ok::<_, Infallible>(found) = Advertised::discover(&links, content, resolve);
    let hubs: Vec<Url> = found.hubs.iter().filter_map(|hub| Url::parse(hub).ok()).take(MAX_HUBS).collect();
    let topic = TopicUrl::parse(found.canonical.as_deref().unwrap_or(url.as_str())).ok()?;
    Some(Channel { topic, hubs })
}
