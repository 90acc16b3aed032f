//! What Resource Lists and Resource Dumps say of their snapshot, in every document and in the index (RS-090 to RS-108).

use super::Completed;
use super::parts::{Kind, Part};
use super::settings::Settings;
use crate::datetime::DateTime;
use crate::document::{Document, Header, ResourceDump, ResourceDumpIndex, ResourceList, ResourceListIndex};
use crate::rules::Violations;

/// Which snapshot document.
#[derive(Clone, Copy, Debug)]
pub(super) enum Snapshot {
    ResourceList,
    ResourceDump,
}

/// One snapshot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken<'a> {
    pub(super) what: Snapshot,
    pub(super) settings: &'a Settings,
    pub(super) at: DateTime,
    pub(super) completed: Completed,
}

impl Kind for Taken<'_> {
    fn header(&self, index: Option<String>, completed: Option<DateTime>) -> Header {
        macro_rules! header {
            ($document:ident) => {{
                let mut document = $document::new(self.at, self.settings.site.capability_list());
                if let Some(completed) = completed {
                    document = document.completed(completed);
                }
                if let Some(index) = index {
                    document = document.index(index);
                }
                if let Some(archives) = &self.settings.archives {
                    document = document.archives(archives);
                }
                document.header()
            }};
        }
        match self.what {
            Snapshot::ResourceList => header!(ResourceList),
            Snapshot::ResourceDump => header!(ResourceDump),
        }
    }

    fn index(&self, parts: Vec<Part>) -> Result<Document, Violations> {
        macro_rules! index {
            ($index:ident, $method:ident) => {{
                let mut index = $index::new(self.at, self.settings.site.capability_list());
                if let Some(completed) = parts.last().and_then(|part| part.completed) {
                    index = index.completed(completed);
                }
                if let Some(archives) = &self.settings.archives {
                    index = index.archives(archives);
                }
                let listed = parts.into_iter();
                listed
                    .fold(index, |index, part| index.$method(part.url, Some(self.at), part.completed))
                    .build()
            }};
        }
        match self.what {
            Snapshot::ResourceList => index!(ResourceListIndex, list),
            Snapshot::ResourceDump => index!(ResourceDumpIndex, dump),
        }
    }

    fn completed(&self) -> Option<DateTime> {
        self.completed.after(self.at)
    }
}
