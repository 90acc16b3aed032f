//! The layout of a site: a path under OUT and a URL for each document, and the topics.

pub use crate::settings::DOCUMENT_FOLDER;
use crate::settings::{BaseUrl, Root, Settings};

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
///
/// A set of a site of several lies below it, in a folder of its name, as a site of one set would; it shares the Source Description.
#[derive(Clone, Debug)]
pub struct Site {
    base: BaseUrl,
    root: Option<BaseUrl>,
}

impl Site {
    /// The site at `base`.
    pub fn new(base: BaseUrl) -> Self {
        Self { base, root: None }
    }

    /// The site, or the part of a site, of a set of resources.
    pub fn of(settings: &Settings) -> Self {
        match &settings.root {
            None => Self::new(settings.base_url.clone()),
            Some(root) => Self::of_set(root),
        }
    }

    /// The part of a site of several sets that belongs to one of them.
    pub(crate) fn of_set(root: &Root) -> Self {
        Self { base: root.base_url.below(&root.name), root: Some(root.base_url.clone()) }
    }

    /// The URL of the folder that the documents lie in.
    pub fn base(&self) -> &BaseUrl {
        &self.base
    }

    /// The Source Description, `.well-known/resourcesync`.
    pub fn source_description(&self) -> Location {
        match &self.root {
            None => self.place(SOURCE_DESCRIPTION_PATH),
            Some(root) => Location {
                path: format!("../{SOURCE_DESCRIPTION_PATH}"),
                url: format!("{root}{SOURCE_DESCRIPTION_PATH}"),
            },
        }
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

    /// A path below OUT and its URL.
    pub fn place(&self, path: &str) -> Location {
        Location { path: path.to_owned(), url: format!("{}{path}", self.base.as_str()) }
    }
}
