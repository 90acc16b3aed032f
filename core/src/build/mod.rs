//! Generators of the pull capabilities: from an inventory of resources to the documents that list them.
//!
//! An [`Inventory`] is any ordered iterator of [`Item`]s; [`FileInventory`] walks a folder. A [`Sink`] is where documents go;
//! [`FolderSink`] replaces files atomically. In between nothing is held whole: a million resources take no more memory than a thousand.
//!
//! # Example: from a folder to a site, and back
//!
//! ```
//! use resync_core::build::{
//!     Completed, FileInventory, FolderSink, ResourceLists, Site, publish_capability_list,
//!     publish_source_description,
//! };
//! use resync_core::document::{Capability, CapabilityList, SourceDescription};
//! use resync_core::xml;
//!
//! let (data, out) = (tempfile::tempdir()?, tempfile::tempdir()?);
//! std::fs::write(data.path().join("hello.txt"), "Hello")?;
//!
//! let site = Site::new("https://example.org/resync");
//! let mut sink = FolderSink::open(out.path().join("resync"))?;
//! let files = FileInventory::of(data.path(), "https://example.org")?.start()?;
//! let lists = ResourceLists::new(&site, files.started()).completed(Completed::Now);
//! let published = lists.write(files, &mut sink)?;
//! assert_eq!(published.top(), Some("resourcelist.xml"));
//!
//! let source = "https://example.org/.well-known/resourcesync";
//! let capabilities = CapabilityList::new(source).capability(Capability::ResourceList, site.url("resourcelist.xml"));
//! publish_capability_list(capabilities, &mut sink)?;
//! let description = SourceDescription::new().capability_list(site.capability_list());
//! publish_source_description(description, &mut FolderSink::open(out.path())?)?;
//!
//! let bytes = std::fs::read(sink.path("resourcelist.xml"))?;
//! let list = xml::read(&bytes)?.into_document()?;
//! assert_eq!(list.entries()[0].loc, "https://example.org/hello.txt");
//! assert_eq!(list.entries()[0].metadata.as_ref().and_then(|metadata| metadata.length), Some(5));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod archive;
mod archived;
mod beneath;
mod capability_list;
mod change_dump;
mod change_list;
mod course;
mod error;
mod file_path;
mod files;
mod folder;
mod folder_sink;
mod generation;
mod going_on;
mod inventory;
mod joined;
mod names;
mod open_folder;
mod output;
mod package_limits;
mod packages;
mod parts;
mod ready;
mod resource_dump;
mod resource_list;
mod retire;
mod rotation;
mod scratch;
mod settings;
mod sink;
mod snapshot;
mod source_description;
mod spool;
mod stamp;
mod status;
mod taken_over;
mod walk;
mod zip;

pub use archive::{ArchiveKind, Archives};
pub use beneath::open_beneath;
pub use capability_list::publish_capability_list;
pub use change_dump::{ChangeDumps, Versions};
pub use change_list::{ChangeLists, Event, differences};
pub use course::{Position, Rotation};
pub use error::BuildError;
pub use files::{FileContents, FileInventory, Files, MAX_READS};
pub use folder::{Folder, LocateError, Refusal, SkipReason, Skipped, SymbolicLinks};
pub use folder_sink::{FolderDocuments, FolderDraft, FolderSink, StagedFile};
pub use inventory::{Contents, Inventory, Item, Items, MemoryInventory};
pub use joined::{Pair, joined};
pub use names::{Foreign, MAX_LOC, Unportable, path_of, url_path_of};
pub use open_folder::OpenFolder;
pub use package_limits::PackageLimits;
pub use resource_dump::ResourceDumps;
pub use resource_list::{ResourceLists, StagedLists};
pub use settings::{Published, Site};
pub use sink::{Documents, MemoryDraft, MemorySink, Sink, open_document};
pub use snapshot::Completed;
pub use source_description::{SOURCE_DESCRIPTION, publish_source_description};
pub use stamp::{Known, Stamp, StampError};
