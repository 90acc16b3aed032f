//! Where a site is whose documents name another place.

use resync_core::document::Capability;
use resync_core::misplaced::{Bases, places};

use super::{DiscoverError, Search, Source};

impl Search<'_> {
    /// An error if the Source has no set that can be read. It says so if the site is served elsewhere than its documents say.
    pub(super) async fn with_sets(&self, mut source: Source) -> Result<Source, DiscoverError> {
        if !source.sets.is_empty() {
            return Ok(source);
        }
        let Some(missing) = source.unreadable.iter_mut().find(|one| one.is_absent) else {
            return Err(DiscoverError::NoReadableSet { sets: source.unreadable });
        };
        for place in places(&source.found_at, &missing.url) {
            let found = self.read(&place).await;
            if found.is_ok_and(|found| found.capability() == Some(&Capability::CapabilityList)) {
                let Bases { served, named } = Bases::of(&place, &missing.url);
                missing.reason = format!(
                    "{}; the site is at {served}, but its documents name {named}: it must be built with the base URL {served}, or be served at {named}",
                    missing.reason
                );
                break;
            }
        }
        Err(DiscoverError::NoReadableSet { sets: source.unreadable })
    }
}
