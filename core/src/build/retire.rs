//! The oldest documents of a series move into its archive, so that the index never fills up (AR-014, AR-016).
//!
//! They keep their URIs and their bytes; only who lists them changes. First the archive lists them, then the index no longer does:
//! a run that is killed in between leaves them in both, and the next one goes on.

use std::collections::HashSet;

use super::archive::{ArchiveKind, Archives};
use super::archived::archived;
use super::ready::Ready;
use super::rotation::{Addition, Kind, Series};
use super::settings::Published;
use super::{BuildError, Sink};
use crate::datetime::DateTime;

impl Series<'_> {
    /// Archives what was closed at `before` or earlier.
    pub(super) fn archive<S: Sink>(
        &self,
        sink: &mut S,
        before: DateTime,
        at: DateTime,
    ) -> Result<Published, BuildError> {
        let mut state = self.load(sink)?;
        if !state.closed.is_empty() && !state.is_indexed {
            // What a killed run left undone comes first.
            self.record(sink, Addition::new(before, at), [])?;
            state = self.load(sink)?;
        }
        // An index without documents is none.
        let most = state.closed.len().saturating_sub(usize::from(state.open.is_none()));
        let count = state.closed.iter().take_while(|one| one.until <= before).count().min(most);
        if count == 0 {
            return Ok(Published::default());
        }
        let (old, kept) = state.closed.split_at(count);

        let kind = match self.kind {
            Kind::ChangeList => ArchiveKind::ChangeLists,
            Kind::ChangeDump => ArchiveKind::ChangeDumps,
        };
        let settings = self.settings.archive();
        let url = settings.site.url(&settings.top());
        let present = archived(sink, &settings.site, &settings.top())?;
        let archives = Archives::of(settings, kind, at);
        let known: HashSet<&str> = present.iter().map(|(loc, ..)| loc.as_str()).collect();
        let loc = |number| self.settings.site.url(&self.settings.component(number));
        let added = old.iter().map(|one| (loc(one.number), Some(one.from), Some(one.until)));
        let added: Vec<_> = added.filter(|(loc, ..)| !known.contains(loc.as_str())).collect();
        let mut published = Published::default();
        if !added.is_empty() {
            let entries = u64::try_from(added.len()).unwrap_or(u64::MAX);
            published = Published { entries, ..archives.write(present.into_iter().chain(added), sink)? };
        }

        let index = self.index(kept, state.open, Some(&url))?;
        let mut ready = Ready::new();
        ready.document(sink, self.settings.top(), &index)?;
        published.documents.extend(ready.publish(sink)?);
        Ok(published)
    }
}
