//! The Source Description of a site (RS-070, RS-071).

use super::ready::put;
use super::{BuildError, Sink};
use crate::document::SourceDescription;
pub use crate::misplaced::SOURCE_DESCRIPTION;

/// Checks a Source Description and publishes it as [`SOURCE_DESCRIPTION`], in a sink that stands for the root of a host. Publish it
/// last.
pub fn publish_source_description<S: Sink>(
    description: SourceDescription,
    sink: &mut S,
) -> Result<(), BuildError> {
    put(sink, SOURCE_DESCRIPTION, &description.build()?)
}
