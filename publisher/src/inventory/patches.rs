//! JSON Patches from one version of a JSON file to the next (RS-174, RS-176, RFC 6902).
//!
//! The last version that was seen of each file is kept beside the inventory. A patch is made only between bytes whose digests are those that
//! were told and those that are being told, so whatever a crash leaves here can be missing, but never wrong.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use resync_core::{
    build::{BuildError, Item, Known, path_of},
    digest::{Agreement, Algorithm, Digest, Hasher, Hashes},
    document::{Change, Link, Relation},
};

use crate::{files, settings::Settings, site::Site, state::FOLDER};

/// The folder of the patches, under OUT and under the base URL.
pub(crate) const PATCH_FOLDER: &str = "resync/patches";

/// What the patches are (RS-176).
pub(crate) const PATCH_TYPE: &str = "application/json-patch+json";

/// Longer files get no patches.
const LARGEST: u64 = 1024 * 1024;

/// Makes patches, where the settings ask for them.
pub(super) struct Patches(Option<Work>);

struct Work {
    base: String,
    directory: PathBuf,
    versions: PathBuf,
    out: PathBuf,
    site: Site,
}

impl Patches {
    pub(super) fn of(settings: &Settings, out: &Path) -> Self {
        Self(settings.json_patch.then(|| Work {
            base: settings.base_url.to_string(),
            directory: settings.directory.clone(),
            versions: out.join(FOLDER).join("versions"),
            out: out.to_owned(),
            site: Site::of(settings),
        }))
    }

    pub(super) fn none() -> Self {
        Self(None)
    }

    /// Whether the settings ask for them; then versions are kept even where nothing is told.
    pub(super) fn are_wanted(&self) -> bool {
        self.0.is_some()
    }

    /// What is told of a resource that is there: its change, and what it is now, with a patch where there is one.
    pub(super) fn change(
        &mut self,
        before: Option<&Known>,
        after: &Item,
    ) -> Result<Option<(Change, Item)>, BuildError> {
        let change = match before {
            None => Change::Created,
            Some(before) if after.differs_from(&before.item) => Change::Updated,
            Some(_) => return Ok(None),
        };
        let mut item = after.clone();
        if let Some(work) = &self.0 {
            let patch = work.patch(before, after);
            let failed = |source| BuildError::Content { loc: after.loc.clone(), source };
            item.links.extend(patch.map_err(failed)?);
        }
        Ok(Some((change, item)))
    }

    /// A resource is gone.
    pub(super) fn forget(&mut self, item: &Item) {
        if let Some(work) = &self.0 {
            // What stays takes some room, and nothing else.
            fs::remove_file(work.version(item)).ok();
        }
    }
}

impl Work {
    /// Keeps the new version, and gives the way to it from the one before.
    fn patch(&self, before: Option<&Known>, after: &Item) -> io::Result<Option<Link>> {
        let Some(path) = after.loc.strip_prefix(&self.base).and_then(path_of) else { return Ok(None) };
        let is_json = after.media_type.as_deref() == Some("application/json");
        if !is_json || after.length.is_none_or(|length| length > LARGEST) {
            return Ok(None);
        }
        let version = self.version(after);
        let known = fs::read(&version).unwrap_or_default();
        let Ok(now) = fs::read(self.directory.join(path)) else { return Ok(None) };
        if !is_of(&now, after) {
            return Ok(None);
        }
        fs::create_dir_all(&self.versions)?;
        fs::write(&version, &now)?;
        let known = before.filter(|before| is_of(&known, &before.item)).map(|_| known);
        let Some(patch) = known.and_then(|known| between(&known, &now)) else { return Ok(None) };
        let digest = Digest::of(Algorithm::Sha256, &patch);
        let name = name_of(&format!("{} {digest}", after.loc));
        let place = self.site.place(&format!("{PATCH_FOLDER}/{name}.json"));
        files::replace(&self.out.join(&place.path), &patch)?;
        Ok(Some(Link {
            hash: digest.into(),
            length: u64::try_from(patch.len()).ok(),
            media_type: Some(PATCH_TYPE.to_owned()),
            ..Link::new(Relation::Patch, place.url)
        }))
    }

    fn version(&self, item: &Item) -> PathBuf {
        self.versions.join(name_of(&item.loc))
    }
}

/// A name of a file that stands for a text.
fn name_of(text: &str) -> String {
    Digest::of(Algorithm::Sha256, text.as_bytes()).to_string().replace("sha-256:", "")
}

/// The way from one text of JSON to another, where it is shorter than that.
fn between(before: &[u8], after: &[u8]) -> Option<Vec<u8>> {
    let (before, now) = (serde_json::from_slice(before).ok()?, serde_json::from_slice(after).ok()?);
    let patch = serde_json::to_vec(&json_patch::diff(&before, &now)).ok()?;
    (patch.len() < after.len()).then_some(patch)
}

/// Whether these are the bytes that are told of.
fn is_of(bytes: &[u8], item: &Item) -> bool {
    let mut hasher = Hasher::new(item.hashes.iter().map(Digest::algorithm));
    hasher.update(bytes);
    let hashes: Hashes = hasher.finish();
    item.hashes.compare(&hashes) == Agreement::Same
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rs174_a_patch_leads_from_one_version_to_the_next_and_is_worth_it() {
        let version =
            |rest: &str| format!("{{\"abstract\": \"{}\", {rest}}}", "Long. ".repeat(50)).into_bytes();
        let before = version(r#""authors": ["Ada"], "year": 2025"#);
        let after = version(r#""authors": ["Ada", "Bob"], "year": 2026"#);
        let patch = between(&before, &after).unwrap();
        let mut document = serde_json::from_slice(&before).unwrap();
        let patch: json_patch::Patch = serde_json::from_slice(&patch).unwrap();
        json_patch::patch(&mut document, &patch).unwrap();
        assert_eq!(document, serde_json::from_slice::<serde_json::Value>(&after).unwrap());
        assert_eq!(between(b"{\"a\": 1}", b"[1]"), None, "no shorter than the file");
        assert_eq!(between(b"no JSON", &after), None);
    }
}
