//! Where everything on the site lives: one path under OUT and one URL for each document, and the topic.

use crate::settings::BaseUrl;

/// The folder of the documents, under the base URL and under OUT. A collection cannot publish resources below it.
pub const DOCUMENT_FOLDER: &str = "resync";

/// Path of the framework channel's topic, under the base URL.
pub const TOPIC_PATH: &str = "resync/framework/";

/// Path of the topic of the Change Notifications, under the base URL.
pub const CHANGES_PATH: &str = "resync/changes/";

/// Path of the Source Description, under the base URL (RS-071).
pub const SOURCE_DESCRIPTION_PATH: &str = ".well-known/resourcesync";

/// The place of one document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// Path below OUT, with `/` between the parts.
    pub path: String,
    /// URL under which readers find it.
    pub url: String,
}

/// The layout of a site: fixed paths below a base URL.
#[derive(Clone, Debug)]
pub struct Site {
    base: BaseUrl,
}

impl Site {
    /// The site at `base`.
    pub fn new(base: BaseUrl) -> Self {
        Self { base }
    }

    /// The Source Description, `.well-known/resourcesync`.
    pub fn source_description(&self) -> Location {
        self.place(SOURCE_DESCRIPTION_PATH)
    }

    /// The Capability List of the one set of resources.
    pub fn capability_list(&self) -> Location {
        self.place(&format!("{DOCUMENT_FOLDER}/capabilitylist.xml"))
    }

    /// The Resource List, or its index when there are too many resources for one list.
    pub fn resource_list(&self) -> Location {
        self.place(&format!("{DOCUMENT_FOLDER}/resourcelist.xml"))
    }

    /// The index of the Change Lists.
    pub fn change_list(&self) -> Location {
        self.place(&format!("{DOCUMENT_FOLDER}/changelist.xml"))
    }

    /// The Change List of a number, counted from 1.
    pub fn change_list_component(&self, number: u64) -> Location {
        self.place(&format!("{DOCUMENT_FOLDER}/changelist-{number}.xml"))
    }

    /// The topic URI of the framework channel.
    pub fn topic(&self) -> String {
        format!("{}{TOPIC_PATH}", self.base.as_str())
    }

    /// The topic URI of the Change Notifications.
    pub fn change_topic(&self) -> String {
        format!("{}{CHANGES_PATH}", self.base.as_str())
    }

    /// What lies at a path below OUT.
    pub fn place(&self, path: &str) -> Location {
        Location { path: path.to_owned(), url: format!("{}{path}", self.base.as_str()) }
    }
}
