//! What the handlers of public requests share.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use http::HeaderMap;
use url::Url;

use super::client::TrustedProxies;
use super::client_limit::Readers;
use super::form_turns::FormTurns;
use super::limits::{Limits, TooMany};
use super::publish::PublishState;
use crate::admin::Drain;
use crate::subscriptions::Requests;
use crate::topics::CatchUp;

/// The state of the public endpoint.
#[derive(Debug)]
pub struct EndpointState {
    /// Subscribe and unsubscribe requests.
    pub requests: Requests,
    /// Pings and posted content.
    pub publish: PublishState,
    /// Logs read again.
    pub catch_up: CatchUp,
    /// Limits unread answers.
    pub readers: Readers,
    /// Anybody may read logs.
    pub open_log: bool,
    /// Rate limits.
    pub limits: Limits,
    /// Proxies that may name the client.
    pub proxies: TrustedProxies,
    /// The hub's own URL, as Sources and subscribers use it.
    pub hub_url: Arc<str>,
    /// The hub that accepts subscriptions instead.
    pub moved_to: Option<Url>,
    /// Whether the hub is drained.
    pub drain: Drain,
    /// Turns to handle forms.
    pub forms: FormTurns,
}

impl EndpointState {
    /// Who sends a request, within the rate limit of its address.
    ///
    /// # Errors
    /// [`TooMany`] beyond it.
    pub(super) fn client(&self, peer: SocketAddr, headers: &HeaderMap) -> Result<IpAddr, TooMany> {
        let client = self.proxies.client(peer.ip(), headers);
        self.limits.client(client, Instant::now()).map(|()| client)
    }
}
