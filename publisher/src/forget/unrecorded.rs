//! The SHA-256 of a version that neither the lists nor the journal tell: there was no room for its bytes, and the lists have other algorithms.

use std::path::Path;

use resync_core::{
    build::{Contents as _, FileInventory, Item},
    digest::{Agreement, Algorithm, Digest},
};

use crate::{helpers::files, inventory::collection, settings::Settings};

/// The SHA-256 of the file of a resource; `None` unless it still has the bytes that the last build listed.
pub(super) fn digest(settings: &Settings, out: &Path, item: &Item) -> Option<Digest> {
    let collection = collection::open(settings, out).ok()?;
    let mut contents = FileInventory::below(collection, settings.base_url.as_str()).contents();
    let file = contents.open(item).ok()??;
    let algorithms = item.hashes.iter().map(Digest::algorithm).chain([Algorithm::Sha256]);
    let hashes = files::hashes_of(file, algorithms).ok()?;
    let is_listed = item.hashes.compare(&hashes) == Agreement::Same;
    hashes.get(Algorithm::Sha256).copied().filter(|_| is_listed)
}
