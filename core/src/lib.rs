//! ResourceSync (ANSI/NISO Z39.99-2017) documents and the WebSub wire vocabulary: model, reader, writer,
//! rules, generators and site checks.
//!
//! No network and no async: bytes in, values out. The modules:
//!
//! * [`document`]: one model for every document of the family, with typed constructors;
//! * [`xml`]: streaming reader and writer;
//! * [`rules`]: what a conforming document must satisfy, one named violation per rule;
//! * [`lint`]: a whole site checked, document by document and against each other;
//! * [`build`]: from an inventory of resources to lists, dumps, archives and their indexes;
//! * [`misplaced`]: where a document is if its site is served under another URL than its documents name;
//! * [`package`]: the packages of dumps, read with suspicion;
//! * [`datetime`] and [`digest`]: the two value types that go wrong most often;
//! * [`durable`]: files that are replaced whole, also in a crash;
//! * [`origins`]: from where the files of a copy came;
//! * [`lock`]: file locks, each held by one process at a time;
//! * [`media_type`]: a media type without its parameters, and which are XML;
//! * [`address`]: which addresses are public, and which are one client;
//! * [`memento`]: the past of a resource (RFC 7089): dates, URIs and links of its versions, TimeMaps;
//! * [`websub`]: subscription requests, verification, discovery of hubs, signatures.
//!
//! # Example: build a Resource List, write it, read it back
//!
//! ```
//! use resync_core::datetime::DateTime;
//! use resync_core::digest::{Algorithm, Digest, Hashes};
//! use resync_core::document::{Resource, ResourceList};
//! use resync_core::xml;
//!
//! let at: DateTime = "2026-01-03T09:00:00Z".parse()?;
//! let page = b"<p>Hello</p>";
//! let list = ResourceList::new(at, "https://example.org/capabilitylist.xml")
//!     .resource(
//!         Resource::new("https://example.org/hello.html")
//!             .lastmod(at)
//!             .length(12)
//!             .media_type("text/html")
//!             .hashes(Hashes::from_iter([Digest::of(Algorithm::Sha256, page)])),
//!     )
//!     .build()?;
//!
//! let bytes = xml::write(&list);
//! let again = xml::read(&bytes)?.into_document()?;
//! assert_eq!(again, list);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(missing_docs)]

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod address;
pub mod build;
pub mod datetime;
pub mod digest;
pub mod document;
pub mod durable;
pub mod lint;
pub mod lock;
pub mod media_type;
pub mod memento;
pub mod misplaced;
mod model;
pub mod origins;
pub mod package;
pub mod rules;
pub mod websub;
pub mod xml;
