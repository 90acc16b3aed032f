//! What a ResourceSync Source runs: it writes documents that list resources and their changes, and notifies hubs of both.
//!
//! A *site* is a folder OUT with the documents of one or several *sets* of resources. Each set has a Capability List, a Resource List, Change Lists, and dumps
//! and archives if they are wanted; one Source Description lists all sets. The site also holds its state, such as what each hub acknowledged. There are two
//! ways to make one:
//!
//! * from the files of a folder: [`build`] updates the documents, [`publish::dump`] packs dumps, and [`watch::watch`] does all of it and notifies the hubs
//!   whenever files change;
//! * from a system whose resources are not files: [`source::Source`] lists what a database has and is called with its changes.
//!
//! The example `examples/sqlite.rs` of this crate is a program of the second kind, and the one of [`source::Source`] is the shortest.
//!
//! Either way the hubs of a set get notifications on two channels, each with a topic of its own. Change Notifications say which resources changed; they wait
//! in an outbox until each hub accepted them. A Framework Notification says which documents changed. [`notify()`] posts both. [`serve`] serves a site over
//! HTTP, [`check`] checks it against the rules, [`status()`] shows its state, and [`forget`] takes versions of resources out for good.
//!
//! The way of the data, by module: [`settings`] (or a file, [`config`]) → inventory → [`publish`] → outbox → [`mod@notify`].
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
//! // Nothing changed, so nothing is written, and no hub would be notified.
//! assert!(build(&settings, &out)?.written.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! With a hub in the settings, `notify(&out, &[]).await` posts the Change Notifications that wait for it, and then one Framework Notification about all
//! documents that changed; a token has to cover both topics. [`serve::router`] gives an axum router for the site, its topic URIs included.
#![deny(missing_docs)]

pub mod check;
pub mod config;
mod error;
pub mod forget;
mod helpers;
mod inventory;
pub mod notify;
mod outbox;
pub mod publish;
pub mod serve;
pub mod settings;
pub mod site;
pub mod source;
pub mod state;
pub mod status;
mod versions;
pub mod watch;

pub use error::{Action, Error};
#[doc(hidden)]
pub use helpers::blocking;
pub use inventory::Changes;
pub use notify::notify;
pub use publish::build;
pub use settings::{BaseUrl, HubUrl, PageUrl, Settings, UrlError};
pub use status::status;

/// What a program needs whose resources are not files.
pub mod prelude {
    pub use resync_core::{
        build::Item,
        digest::{Algorithm, Digest},
        document::{Change, Link, Relation},
    };

    pub use crate::{
        BaseUrl, HubUrl, PageUrl,
        notify::Token,
        settings::{Keep, Rules, VersionRules},
        source::{Set, Source},
    };
}

/// The example of the README is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
