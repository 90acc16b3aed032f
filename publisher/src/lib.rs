//! What a ResourceSync Source runs: the documents of its files, and the right notifications to its hubs.
//!
//! A *site* is a folder OUT with the Source Description, the Capability List and the Resource List of a collection, plus the state that remembers
//! what each hub was told. Four verbs work on it: [`build`] brings it in step with the files, [`notify()`] tells the hubs what changed,
//! [`serve`] answers for it over HTTP, and [`status()`] says how it stands.
//!
//! # Example: from a folder to a site
//!
//! ```
//! use resync_core::xml;
//! use resync_publisher::{BaseUrl, Settings, build};
//!
//! let place = tempfile::tempdir()?;
//! let (collection, out) = (place.path().join("collection"), place.path().join("site"));
//! std::fs::create_dir(&collection)?;
//! std::fs::write(collection.join("hello world.txt"), "Hello!")?;
//!
//! let settings = Settings::new(&collection, BaseUrl::parse("https://example.org/data/")?);
//! let built = build(&settings, &out)?;
//! assert_eq!((built.resources, built.bytes), (1, 6));
//! assert_eq!(built.source_description, "https://example.org/data/.well-known/resourcesync");
//!
//! let list = xml::read(&std::fs::read(out.join("resync/resourcelist.xml"))?)?.into_document()?;
//! assert_eq!(list.entries()[0].loc, "https://example.org/data/hello%20world.txt");
//!
//! // Nothing changed, so nothing is written, and no hub would be told.
//! assert!(build(&settings, &out)?.written.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! With a hub in the settings, `notify(&out, &[]).await` posts one Framework Notification about all documents that changed, and
//! [`serve::router`] gives an axum router for the site, its topic URI included.
#![deny(missing_docs)]

#[doc(hidden)]
pub mod blocking;
pub mod changes;
pub mod check;
mod client;
mod collection;
pub mod config;
pub mod documents;
mod files;
mod inventory;
pub use inventory::Changes;
pub mod links;
mod lock;
pub mod notify;
mod outbox;
mod plan;
pub mod publish;
mod put_off;
pub mod serve;
pub mod settings;
pub mod site;
pub mod source;
pub mod state;
pub mod status;
mod stored;
mod url_path;
pub mod watch;

pub use notify::notify;
pub use publish::build;
pub use settings::{BaseUrl, HubUrl, PageUrl, Settings, UrlError};
pub use status::status;
