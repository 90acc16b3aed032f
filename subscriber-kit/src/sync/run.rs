//! What every run on a copy begins and ends with: the lock, the lists, and what is remembered for the next run.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use url::Url;

use super::{Authority, ChangesFrom, Offer, SyncError, SyncOptions, Target, refuse_mixed_folders};
use crate::blocking::blocking;
use crate::fetch::Client;
use crate::notification::DatedChange;
use crate::sync::files::folder::{CopyFolder, Staging};
use crate::sync::files::run_outcome::RunOutcome;
use crate::sync::reading::filter::Filter;
use crate::sync::reading::lists::Lists;
use crate::sync::saved::cache::{FileCache, Scope};
use crate::sync::saved::copied_source::CopiedSource;
use crate::sync::saved::copy_state::CopyState;
use crate::sync::saved::earlier_files::{EarlierFiles, refuse_foreign_folder};

/// One run on one locked copy.
pub(super) struct Run<'s> {
    pub(super) target: &'s Target,
    pub(super) options: &'s SyncOptions,
    pub(super) lists: Lists<'s>,
    pub(super) dump: Option<&'s Url>,
    pub(super) scope: Scope,
    source: CopiedSource,
    pub(super) folder: Arc<CopyFolder>,
    /// What earlier runs saved.
    pub(super) saved: Option<CopyState>,
    /// What was here before the copy.
    pub(super) earlier: Arc<EarlierFiles>,
}

impl<'s> Run<'s> {
    /// Locks the copy and loads what earlier runs left.
    pub(super) async fn open(
        client: &'s Client,
        offer: &'s Offer,
        target: &'s Target,
        options: &'s SyncOptions,
        notified: &[DatedChange],
    ) -> Result<Self, SyncError> {
        let list = offer.base(options.baseline).ok_or(SyncError::NothingOffered)?;
        let scope = Scope::of(offer, list, target, options);
        let source = CopiedSource::of(offer).at(options.at);
        let (opening, choices, given) = (target.clone(), options.clone(), source.clone());
        let (folder, earlier) = blocking(move || {
            refuse_mixed_folders(&opening.directory, choices.versions.as_deref())?;
            refuse_foreign_folder(&opening.folder(), &choices)?;
            let open = if choices.dry_run { CopyFolder::inspect } else { CopyFolder::open };
            let folder = open(&opening)?;
            // Under the lock, since another run records its Source.
            given.allow(&opening.directory, &choices)?;
            // Again, since another run may just have ended.
            let earlier = EarlierFiles::of(&opening.folder(), &choices)?;
            earlier.allow(&opening.directory, &choices)?;
            Ok::<_, SyncError>((Arc::new(folder), Arc::new(earlier)))
        })
        .await?;
        let last = last_state(&folder).await;
        let staging = Staging::Copy(Arc::clone(&folder));
        let mut lists = Lists::new(client, offer, target, options, staging)?;
        let known = last.as_ref().and_then(|last| last.notified_of(&scope));
        lists.notified = known.cloned().unwrap_or_default();
        lists.take_new(notified);
        let saved = last.filter(|last| last.is_for(&scope));
        // Useless if the dump itself serves as the list.
        let dump = offer.resource_dump.as_ref().filter(|dump| *dump != list);
        Ok(Self { target, options, lists, dump, scope, source, folder, saved, earlier })
    }

    /// Records what was here before the copy, and whose copy it is, before anything is changed.
    pub(super) async fn record_origin(&self) -> Result<(), SyncError> {
        if self.options.dry_run {
            return Ok(());
        }
        let (earlier, folder) = (Arc::clone(&self.earlier), Arc::clone(&self.folder));
        let source = self.source.clone();
        Ok(blocking(move || earlier.save(&folder).and_then(|()| source.save(&folder))).await?)
    }

    /// When an incremental run should request missing resources again. Without a Change List, it requests only those from
    /// notifications.
    pub(super) fn retry_in(&self, run_outcome: &RunOutcome) -> Option<Duration> {
        run_outcome.retry_in(|line| self.lists.changes.is_some() || self.lists.notified.knows(&line.loc))
    }

    /// Syncs the changed folders, then saves what is known of the copy: the state `next`, or else `before`, with the changes
    /// from notifications.
    pub(super) async fn save(
        &self,
        changed: HashSet<PathBuf>,
        updates: Option<FileCache>,
        next: Option<CopyState>,
        before: Option<&CopyState>,
    ) -> Result<(), SyncError> {
        if self.options.dry_run {
            return Ok(());
        }
        let copy_state =
            next.or_else(|| before.cloned()).map(|next| next.with_notified(&self.lists.notified));
        let copy_state = copy_state.filter(|copy_state| Some(copy_state) != before);
        let has_new_changes = !self.lists.new_changes.is_empty();
        let (folder, earlier) = (Arc::clone(&self.folder), Arc::clone(&self.earlier));
        blocking(move || {
            // A longer record only protects more.
            if let Err(error) = earlier.save(&folder) {
                tracing::info!(%error, "cannot save which files were here before the copy");
            }
            // Makes the renames durable; once per folder is enough.
            folder.end_changes(&changed)?;
            // After the files, so that the record never claims more than the disk has. The point comes before the digests: a
            // handled list counts only together with the point from which its changes continue.
            let point = copy_state.map_or(Ok(()), |one| one.save(&folder));
            match point.and_then(|()| updates.map_or(Ok(()), |updates| updates.save(&folder))) {
                Ok(()) => Ok(()),
                // The hub does not repeat these changes after a successful run.
                Err(error) if has_new_changes => Err(error.into()),
                Err(error) => {
                    tracing::warn!(%error, "cannot save what is known of the copy; the next run repeats work");
                    Ok(())
                }
            }
        })
        .await
    }
}

/// What earlier runs with these settings left.
pub(super) async fn copy_state(folder: &Arc<CopyFolder>, scope: &Scope) -> Option<CopyState> {
    last_state(folder).await.filter(|last| last.is_for(scope))
}

/// What the last run left, whatever its settings.
async fn last_state(folder: &Arc<CopyFolder>) -> Option<CopyState> {
    let folder = Arc::clone(folder);
    blocking(move || CopyState::load(&folder)).await
}

impl Scope {
    fn of(offer: &Offer, list: &Url, target: &Target, options: &SyncOptions) -> Self {
        let SyncOptions { filter, prefer, authority, .. } = options;
        let others = if let Authority::Origins(others) = authority { others.as_slice() } else { &[] };
        let is_all = *filter == Filter::default() && prefer.is_empty() && others.is_empty();
        let by_list = offer.changes(ChangesFrom::List);
        Self {
            list: list.to_string(),
            base: target.base.to_string(),
            delete: options.delete,
            any_origin: *authority == Authority::Any,
            filter: if is_all { String::new() } else { format!("{filter:?} {prefer:?} {others:?}") },
            by_dump: offer.changes(options.changes) != by_list,
        }
    }
}
