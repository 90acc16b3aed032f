//! Discovery of a topic and its hubs, as WebSub has it (W-028…W-034).

use std::io::Read as _;

use resync_core::websub::embedded_links;
use resync_core::websub::key::TopicUrl;
use resync_core::websub::link_header::LinkHeader;
use url::Url;

use super::{Channel, DiscoverError, MAX_HUBS, discover};
use crate::fetch::{Client, FetchError, Fetched, led_to};

/// How much of a topic is looked through for links, in bytes.
const MAX_LOOKED_THROUGH: u64 = 512 * 1024;

/// The channels that `url` stands for: itself, if it is a topic that names its hubs, or else all channels of the
/// ResourceSync Source that it belongs to (CN-019, FN-060).
///
/// The `Link` headers come first; what they do not say is looked for in the content, if that is HTML, Atom or RSS
/// (W-030). The topic is what it says to be (W-048), or where redirects led.
///
/// # Errors
/// As [`discover`], [`DiscoverError::NoHub`] for a Source without a hub, and [`DiscoverError::Incomplete`] while some of its
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
        Some(channel) => Ok(vec![channel]),
        None => of_source(client, url).await,
    }
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

fn topic(fetched: Fetched) -> Option<Channel> {
    let Fetched { url, links, content_type, file, .. } = fetched;
    let hubs_of = |links: &LinkHeader| -> Vec<Url> {
        let hubs = links.with_rel("hub").filter_map(|hub| led_to(&url, hub));
        hubs.take(MAX_HUBS).collect()
    };
    let (mut hubs, mut canonical) = (hubs_of(&links), links.first("self").map(str::to_owned));
    if hubs.is_empty() || canonical.is_none() {
        let mut body = Vec::new();
        if let Err(error) = file.take(MAX_LOOKED_THROUGH).read_to_end(&mut body) {
            tracing::debug!(%error, "cannot search a topic for links");
        }
        let embedded = embedded_links(content_type.as_deref().unwrap_or_default(), &body).resolve(&url);
        if hubs.is_empty() {
            hubs = hubs_of(&embedded);
        }
        canonical = canonical.or_else(|| embedded.first("self").map(str::to_owned));
    }
    let topic = TopicUrl::parse(canonical.as_deref().unwrap_or(url.as_str())).ok()?;
    (!hubs.is_empty()).then_some(Channel { topic, hubs })
}
