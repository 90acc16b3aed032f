//! Which files of a folder are resources of a site. The inventory and the server ask the same folder, so they cannot disagree.

use std::path::Path;

use resync_core::build::{BuildError, Folder};

use crate::site::DOCUMENT_FOLDER;

/// The collection in `directory`, whose site is written to `out`. Both must exist.
///
/// Besides what is never a resource ([`Folder`]), the folder into which the site is written is left out, and the documents' own folder.
pub(crate) fn open(directory: &Path, out: &Path) -> Result<Folder, BuildError> {
    let folder = Folder::open(directory)?;
    let site = Folder::open(out)?;
    let (root, out) = (folder.root().to_owned(), site.root());
    if root != out {
        let folder = folder.reserve(DOCUMENT_FOLDER);
        return if out.starts_with(root) { folder.leave_out(out) } else { Ok(folder) };
    }
    let documents = root.join(DOCUMENT_FOLDER);
    if documents.exists() { folder.leave_out(documents) } else { Ok(folder) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use resync_core::build::{Refusal, SkipReason};

    use super::*;

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
    fn a_collection_inside_the_site_is_not_left_out() {
        let place = tempfile::tempdir().unwrap();
        let data = place.path().join("data");
        fs::create_dir(&data).unwrap();
        fs::write(data.join("a"), "x").unwrap();
        assert_eq!(refusal(&open(&data, place.path()).unwrap(), "a"), None);
    }
}
