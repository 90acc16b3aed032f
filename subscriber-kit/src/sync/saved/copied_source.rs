//! The set that a directory is a copy of. No run makes it a copy of another set, unless that is asked for.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use url::Url;

use super::{if_there, state_file, unusable};
use crate::discover::is_same_document;
use crate::sync::files::folder::CopyFolder;
use crate::sync::{Offer, SyncError, SyncOptions};

const FILE_NAME: &str = "source.json";
const FORMAT: u32 = 1;

/// The documents by which a set is recognised. One of them is enough: a Source may move the others, and its Capability List may
/// be unreachable for a while.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CopiedSource {
    format: u32,
    documents: Vec<Url>,
}

impl CopiedSource {
    pub(crate) fn of(offer: &Offer) -> Self {
        let documents = [&offer.capability_list, &offer.resource_list, &offer.resource_dump];
        Self { format: FORMAT, documents: documents.into_iter().flatten().cloned().collect() }
    }

    /// An error if the directory is a copy of another set.
    ///
    /// # Errors
    /// [`SyncError::OtherSource`], and what the file system says.
    pub(crate) fn allow(&self, directory: &Path, options: &SyncOptions) -> Result<(), SyncError> {
        if options.switch_source {
            return Ok(());
        }
        match load(&state_file(directory, FILE_NAME))? {
            Some(known) if !known.is(self) => Err(SyncError::OtherSource {
                directory: directory.to_owned(),
                known: known.name(),
                found: self.name(),
            }),
            _ => Ok(()),
        }
    }

    /// Records that the directory is a copy of it. Before the first change of the directory, so that a run that is killed leaves no
    /// files of an unknown Source.
    pub(crate) fn save(&self, folder: &CopyFolder) -> io::Result<()> {
        let is_known = |known: &Self| self.documents.iter().all(|one| known.documents.contains(one));
        if load(&folder.file(FILE_NAME))?.as_ref().is_some_and(is_known) {
            return Ok(());
        }
        folder.replace_json(FILE_NAME, self)
    }

    fn is(&self, other: &Self) -> bool {
        let mut own = self.documents.iter();
        own.any(|one| other.documents.iter().any(|two| is_same_document(one.as_str(), two.as_str())))
    }

    fn name(&self) -> String {
        self.documents.first().map(ToString::to_string).unwrap_or_default()
    }
}

/// What is recorded; `None` without a record.
fn load(record: &Path) -> io::Result<Option<CopiedSource>> {
    let Some(bytes) = if_there(std::fs::read(record))? else { return Ok(None) };
    let known: CopiedSource = serde_json::from_slice(&bytes).map_err(|error| unusable(record, error))?;
    if known.format != FORMAT {
        return Err(unusable(record, "it has another format"));
    }
    Ok(Some(known))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Target;

    fn offer(capability_list: &str, resource_list: &str) -> Offer {
        let url = |text: &str| Url::parse(text).ok();
        Offer { capability_list: url(capability_list), resource_list: url(resource_list), ..Offer::default() }
    }

    #[test]
    fn a_set_is_recognised_by_one_of_its_documents_and_by_http_as_by_https() {
        let copy = tempfile::tempdir().unwrap();
        let target = Target::open(copy.path(), Url::parse("http://a.example/").unwrap()).unwrap();
        let folder = CopyFolder::open(&target).unwrap();
        let refuses = |offer: &Offer, switch_source: bool| {
            let options = SyncOptions { switch_source, ..SyncOptions::default() };
            CopiedSource::of(offer).allow(copy.path(), &options).is_err()
        };
        let ([capabilities, list], other) =
            (["http://a.example/cl.xml", "http://a.example/rl.xml"], "http://b.example/cl.xml");
        assert!(!refuses(&offer(other, ""), false), "nothing is recorded yet");
        CopiedSource::of(&offer(capabilities, list)).save(&folder).unwrap();
        let [capabilities_by_tls, list_by_tls] =
            [capabilities, list].map(|url| url.replace("http:", "https:"));
        for (of_the_set, of_its_list) in [
            (capabilities, list),
            (capabilities, "http://a.example/moved.xml"),
            ("http://a.example/moved.xml", list),
            ("", list),
            (capabilities_by_tls.as_str(), ""),
            ("", list_by_tls.as_str()),
        ] {
            assert!(!refuses(&offer(of_the_set, of_its_list), false), "{of_the_set} {of_its_list}");
        }
        for (of_the_set, of_its_list) in [
            (other, "http://b.example/rl.xml"),
            ("http://a.example/other.xml", "http://a.example/other-rl.xml"),
        ] {
            assert!(refuses(&offer(of_the_set, of_its_list), false), "{of_the_set} {of_its_list}");
            assert!(!refuses(&offer(of_the_set, of_its_list), true), "{of_the_set} {of_its_list}");
        }

        // While the Capability List is unreachable, the copy does not forget it.
        CopiedSource::of(&offer("", list)).save(&folder).unwrap();
        assert!(!refuses(&offer(capabilities, ""), false));
        CopiedSource::of(&offer(other, "")).save(&folder).unwrap();
        assert!(refuses(&offer(capabilities, list), false));
    }

    #[test]
    fn a_record_that_cannot_be_read_is_named_and_not_taken_for_none() {
        let copy = tempfile::tempdir().unwrap();
        let record = state_file(copy.path(), FILE_NAME);
        std::fs::create_dir(record.parent().unwrap()).unwrap();
        for text in ["", "{\"format\":2,\"documents\":[]}"] {
            std::fs::write(&record, text).unwrap();
            let given = CopiedSource::of(&offer("http://a.example/cl.xml", ""));
            let error = given.allow(copy.path(), &SyncOptions::default()).unwrap_err();
            assert!(error.to_string().contains("source.json") && !error.is_configuration(), "{error}");
        }
    }

    #[test]
    fn a_record_of_format_1_is_read() {
        let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/archive/state-1");
        let known = load(&archive.join(FILE_NAME)).unwrap().unwrap();
        assert!(known.is(&CopiedSource::of(&offer("http://source.example/capabilitylist.xml", ""))));
    }
}
