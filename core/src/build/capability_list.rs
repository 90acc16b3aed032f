//! The Capability List of a site (RS-080).

use super::ready::put;
use super::{BuildError, Sink, Site};
use crate::document::CapabilityList;

/// Checks a Capability List and publishes it as [`Site::CAPABILITY_LIST`]. Publish it after what it points at.
pub fn publish_capability_list<S: Sink>(list: CapabilityList, sink: &mut S) -> Result<(), BuildError> {
    put(sink, Site::CAPABILITY_LIST, &list.build()?)
}
