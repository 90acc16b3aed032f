//! Length limits for a topic's links, made absolute, and its content type.
//!
//! Both are stored with every notification and sent to every subscriber, and strangers choose them for topics that are pinged.

use resync_core::websub::LinkValue;
use url::Url;

use crate::store::NotificationLinks;

/// All links of a notification together, made absolute, by their weight ([`NotificationLinks::weight`]). It limits their number too.
/// A delivery's `Link` header is no longer than this.
const MAX_LINK_BYTES: u64 = 4 * 1024;
/// The longest `Content-Type`.
const MAX_CONTENT_TYPE: usize = 256;

/// What is too long. Every message says what its owner can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Oversized {
    /// The links.
    #[error(
        "the topic's links (rel=\"hub\", \"self\" and \"resourcesync\"), made absolute, have more than the {MAX_LINK_BYTES} bytes that fit into a delivery's Link header: name fewer hubs, or shorter URLs"
    )]
    Links,
    /// The content type.
    #[error(
        "the topic's Content-Type has {length} bytes, and at most {MAX_CONTENT_TYPE} are allowed: leave out parameters"
    )]
    ContentType {
        /// Its length.
        length: usize,
    },
}

/// The bytes that are left for links.
#[derive(Debug)]
pub(super) struct LinkBudget(u64);

impl LinkBudget {
    pub(super) fn new() -> Self {
        Self(MAX_LINK_BYTES)
    }

    /// Makes a link absolute and takes the room for it; `None` when it leads nowhere.
    ///
    /// # Errors
    /// [`Oversized::Links`]
    pub(super) fn resolve(&mut self, link: &LinkValue, base: &Url) -> Result<Option<String>, Oversized> {
        // One that is longer than all may be needs no resolving.
        if link.target.len() as u64 > MAX_LINK_BYTES {
            return Err(Oversized::Links);
        }
        let Some(target) = link.target_from(base) else { return Ok(None) };
        self.0 = self.0.checked_sub(NotificationLinks::weight_of(&target)).ok_or(Oversized::Links)?;
        Ok(Some(target))
    }
}

/// Whether the links of a notification fit into the `Link` header of its deliveries.
///
/// # Errors
/// [`Oversized::Links`]
pub(super) fn check_links(links: &NotificationLinks) -> Result<(), Oversized> {
    if links.weight() > MAX_LINK_BYTES { Err(Oversized::Links) } else { Ok(()) }
}

/// Whether a content type is short enough.
///
/// # Errors
/// [`Oversized::ContentType`]
pub(super) fn check_content_type(content_type: &[u8]) -> Result<(), Oversized> {
    let length = content_type.len();
    if length > MAX_CONTENT_TYPE { Err(Oversized::ContentType { length }) } else { Ok(()) }
}
