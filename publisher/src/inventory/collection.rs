//! Which files of a folder are resources of a site, for the inventory and for the server.

use std::path::{Path, PathBuf};

use resync_core::build::Folder;

use super::scope::Scope;
use crate::{
    error::Error,
    settings::{DOCUMENT_FOLDER, Settings},
    state,
};

/// The collection of `settings`, whose site is written to `out`. Both folders must exist.
///
/// Left out are what is never a resource ([`Folder`]), the folder of the site, the documents' own folder, and what the settings ignore.
pub(crate) fn open(settings: &Settings, out: &Path) -> Result<Folder, Error> {
    open_within(settings, out, None)
}

/// The part of the collection that is in a scope, or all of it.
pub(crate) fn open_within(settings: &Settings, out: &Path, scope: Option<Scope>) -> Result<Folder, Error> {
    let mut folder = Folder::open(&settings.directory)?;
    if !settings.ignore.is_empty() {
        let patterns = settings.ignored().map_err(|error| Error::Ignore { reason: error.to_string() })?;
        folder = folder.ignore(move |path| patterns.matched_path_or_any_parents(path, false).is_ignore());
    }
    if let Some(scope) = scope {
        folder = folder.within(move |path| scope.contains(path));
    }
    // The folder of one of several sets lies in that of the whole site.
    let whole = settings.root.as_ref().and_then(|_| out.parent()).unwrap_or(out);
    let site = Folder::open(if whole.as_os_str().is_empty() { Path::new(".") } else { whole })?;
    let (root, out) = (folder.root().to_owned(), site.root().to_owned());
    if root != out {
        let folder = folder.reserve(DOCUMENT_FOLDER);
        return Ok(if out.starts_with(&root) { folder.leave_out(out)? } else { folder });
    }
    for set in documented(settings, &root)? {
        let documents = set.join(DOCUMENT_FOLDER);
        if documents.exists() {
            folder = folder.leave_out(documents)?;
        }
    }
    Ok(folder)
}

/// The folders with documents in a site that is the collection itself.
fn documented(settings: &Settings, site: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut sets = vec![site.to_owned()];
    if let Some(own) = &settings.root {
        sets.extend(state::set_folders(site)?);
        sets.push(site.join(own.name.as_str()));
    }
    Ok(sets)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use resync_core::build::{Refusal, SkipReason};

    use super::*;
    use crate::{
        publish,
        settings::{Root, SetName},
    };

    fn open(directory: &Path, out: &Path) -> Result<Folder, Error> {
        let base_url = crate::BaseUrl::parse("http://example.org/").unwrap();
        super::open(&Settings::new(directory, base_url), out)
    }

    #[test]
    fn what_the_settings_ignore_is_left_out_wherever_it_lies() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir_all(place.path().join("drafts/deep")).unwrap();
        for name in ["a.bak", "a.txt", "drafts/deep/b.txt", "keep.bak"] {
            fs::write(place.path().join(name), "x").unwrap();
        }
        let base_url = crate::BaseUrl::parse("http://example.org/").unwrap();
        let mut settings = Settings::new(place.path(), base_url);
        settings.ignore = ["*.bak", "!keep.bak", "/drafts/"].map(str::to_owned).into();
        let collection = super::open(&settings, place.path()).unwrap();
        assert_eq!(refusal(&collection, "a.bak"), Some(Refusal::Hidden));
        assert_eq!(refusal(&collection, "drafts/deep/b.txt"), Some(Refusal::Hidden));
        assert_eq!((refusal(&collection, "a.txt"), refusal(&collection, "keep.bak")), (None, None));
    }

    fn refusal(folder: &Folder, name: &str) -> Option<Refusal> {
        folder.locate(Path::new(name)).err().and_then(|error| error.refusal())
    }

    #[test]
    fn the_site_inside_the_collection_is_left_out_and_the_name_of_the_documents_is_reserved() {
        let place = tempfile::tempdir().unwrap();
        let data = place.path().join("data");
        for folder in ["site/resync", "resync", "a/resync"] {
            fs::create_dir_all(data.join(folder)).unwrap();
        }
        let collection = open(&data, &data.join("site")).unwrap();
        assert_eq!(refusal(&collection, "site"), Some(Refusal::Hidden));
        assert_eq!(refusal(&collection, "resync"), Some(Refusal::Skipped(SkipReason::Reserved)));
        assert_eq!(refusal(&collection, "a/resync"), None);
    }

    #[test]
    fn documents_beside_the_resources_are_left_out_without_a_word() {
        let place = tempfile::tempdir().unwrap();
        open(place.path(), place.path()).unwrap();
        fs::create_dir(place.path().join("resync")).unwrap();
        let collection = open(place.path(), place.path()).unwrap();
        assert_eq!(refusal(&collection, "resync"), Some(Refusal::Hidden));
    }

    #[test]
    fn the_documents_of_every_set_are_left_out_where_the_site_is_the_collection() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("a"), "x").unwrap();
        let base_url = crate::BaseUrl::parse("http://example.org/").unwrap();
        let sets = ["one", "two"].map(|name| {
            let name = SetName::parse(name).unwrap();
            let out = place.path().join(name.as_str());
            let root = Some(Root { base_url: base_url.clone(), name, described_by: None });
            (out, Settings { root, ..Settings::new(place.path(), base_url.clone()) })
        });
        for round in 0..2 {
            for (out, settings) in &sets {
                assert_eq!(publish::build(settings, out).unwrap().resources, 1, "round {round}");
            }
        }
    }

    #[test]
    fn a_collection_inside_the_site_is_not_left_out() {
        let place = tempfile::tempdir().unwrap();
        let data = place.path().join("data");
        fs::create_dir(&data).unwrap();
        fs::write(data.join("a"), "x").unwrap();
        assert_eq!(refusal(&open(&data, place.path()).unwrap(), "a"), None);
    }
}
