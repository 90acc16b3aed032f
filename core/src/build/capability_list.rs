//! The Capability List of a site (RS-080).

use super::sink::put;
use super::{BuildError, Sink, Site};
use crate::document::CapabilityList;
use crate::xml;

/// Checks a Capability List and publishes it as [`Site::CAPABILITY_LIST`]. Publish it after what it points at.
pub fn publish_capability_list<S: Sink>(list: CapabilityList, sink: &mut S) -> Result<(), BuildError> {
    Ok(put(sink, Site::CAPABILITY_LIST, &xml::write(&list.build()?))?)
}
