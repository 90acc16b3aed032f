//! The set that a directory is a copy of, and of which moment. No run makes it a copy of another set, unless that is asked for, and
//! none a copy of another moment.

use std::io;
use std::path::Path;

use resync_core::datetime::DateTime;
use serde::{Deserialize, Serialize};
use url::Url;

use super::earlier_files::has_other_state;
use super::{if_there, state_file, unusable};
use crate::discover::is_same_document;
use crate::sync::files::folder::CopyFolder;
use crate::sync::{Offer, SyncError, SyncOptions};
use crate::text;

const FILE_NAME: &str = "source.json";
const FORMAT: u32 = 1;

/// The documents by which a set is recognised. One of them is enough: a Source may move the others, and its Capability List may
/// be unreachable for a while.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CopiedSource {
    format: u32,
    documents: Vec<Url>,
    /// The moment that it is a copy of; `None` for one that follows the Source (MEM-063).
    #[serde(default, skip_serializing_if = "Option::is_none", with = "text::option")]
    at: Option<DateTime>,
}

impl CopiedSource {
    pub(crate) fn of(offer: &Offer) -> Self {
        let documents = [&offer.capability_list, &offer.resource_list, &offer.resource_dump];
        Self { format: FORMAT, documents: documents.into_iter().flatten().cloned().collect(), at: None }
    }

    /// Of this moment.
    pub(crate) fn at(self, at: Option<DateTime>) -> Self {
        Self { at, ..self }
    }

    /// The moment that this directory is a copy of, if it is one of the past.
    pub(crate) fn moment_of(directory: &Path) -> Option<DateTime> {
        load(&state_file(directory, FILE_NAME)).ok().flatten()?.at
    }

    /// An error if the directory is a copy of another set or moment.
    ///
    /// # Errors
    /// [`SyncError::OtherSource`] and [`SyncError::OtherMoment`], and what the file system says.
    pub(crate) fn allow(&self, directory: &Path, options: &SyncOptions) -> Result<(), SyncError> {
        let known = match load(&state_file(directory, FILE_NAME)) {
            // Another one takes its place.
            Err(_) if options.switch_source && self.at.is_none() => return Ok(()),
            known => known?,
        };
        // A copy from before there was this record follows its Source.
        let is_copy = known.is_some() || (self.at.is_some() && has_other_state(directory));
        let of_when = known.as_ref().and_then(|known| known.at);
        if is_copy && of_when != self.at {
            let text = |at: Option<DateTime>| at.map(|at| at.to_string());
            let (known, wanted) = (text(of_when), text(self.at));
            return Err(SyncError::OtherMoment { directory: directory.to_owned(), known, wanted });
        }
        if options.switch_source {
            return Ok(());
        }
        match known {
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
    fn mem063_a_directory_belongs_to_its_moment_and_every_other_run_refuses_it() {
        let copy = tempfile::tempdir().unwrap();
        let target = Target::open(copy.path(), Url::parse("http://a.example/").unwrap()).unwrap();
        let folder = CopyFolder::open(&target).unwrap();
        let moment = |day| format!("2026-03-0{day}").parse::<DateTime>().unwrap();
        let source = |at| CopiedSource::of(&offer("http://a.example/cl.xml", "")).at(at);
        let is_refused = |at, switch_source| {
            let options = SyncOptions { switch_source, ..SyncOptions::default() };
            matches!(source(at).allow(copy.path(), &options), Err(SyncError::OtherMoment { .. }))
        };
        assert!(!is_refused(None, false) && !is_refused(Some(moment(1)), false), "nothing is recorded yet");
        source(Some(moment(1))).save(&folder).unwrap();
        assert!(!is_refused(Some(moment(1)), false));
        for other in [Some(moment(2)), None] {
            assert!(is_refused(other, false) && is_refused(other, true), "{other:?}");
        }
        let text = std::fs::read_to_string(folder.file(FILE_NAME)).unwrap();
        assert!(text.contains(r#""at":"2026-03-01T00:00:00Z""#), "{text}");

        std::fs::remove_file(folder.file(FILE_NAME)).unwrap();
        std::fs::write(state_file(copy.path(), "point.json"), "{}").unwrap();
        assert!(is_refused(Some(moment(1)), false), "a copy from before there was this record");
        source(None).save(&folder).unwrap();
        assert!(is_refused(Some(moment(1)), true) && !is_refused(None, false));
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
