//! What a ResourceSync Source runs: documents that list its resources and their changes, and notifications that tell its hubs of both.
//!
//! A *site* is a folder OUT with the documents of one or several *sets* of resources, each with a Capability List, a Resource List, Change Lists, and
//! dumps and archives where they are wanted, under one Source Description; and with the state that remembers what each hub was told. There are two ways to
//! keep one:
//!
//! * from the files of a folder: [`build`] brings the documents in step with them, [`publish::dump`] packs dumps, and [`watch::watch`] does all of it and
//!   tells the hubs, again and again, as files change;
//! * from a system whose resources are no files: [`source::Source`] lists what a database has and hears what changes in it.
//!
//! Either way the hubs of a set hear of it on two channels, each with a topic of its own: Change Notifications say which resources changed, and wait in an
//! outbox from the moment in which the Change List tells the same until a hub takes them; a Framework Notification says which documents changed.
//! [`notify()`] sends what a hub is not known to know. [`serve`] answers for a site over HTTP, [`check`] holds it against the rules, and [`status()`] says how
//! it stands.
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
//! With a hub in the settings, `notify(&out, &[]).await` posts the Change Notifications that wait for it, and then one Framework Notification about all
//! documents that changed; a token has to cover both topics. [`serve::router`] gives an axum router for the site, its topic URIs included. [`source::Source`]
//! has an example of the other way.
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
mod debounce;
pub mod links;
mod lock;
pub mod notify;
mod outbox;
mod plan;
pub mod publish;
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

/// The example of the README is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
