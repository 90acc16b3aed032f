//! Memento (RFC 7089): what the past of a resource is asked for by, and how its versions are named and linked.
//!
//! | subject | types | requirement |
//! |---|---|---|
//! | dates of HTTP headers, in the one form of RFC 1123 | [`HttpDate`] | MEM-027, MEM-051 |
//! | a version's place in time, as URIs have it | [`Stamp`] | MEM-032 |
//! | the URIs of a Source that keeps versions | [`Layout`], [`VersionPath`] | MEM-020 |
//! | which version was there at a moment | [`Versions`] | MEM-025, MEM-026, MEM-030 |
//! | the links of TimeGates, mementos and TimeMaps | [`Described`] | MEM-024, MEM-028, MEM-033 |
//! | the text of TimeMaps, written, and read as it arrives | [`link_format`] | MEM-058 |
//! | what the links of a TimeMap mean | [`TimeMapLink`] | MEM-054, MEM-058 |
//!
//! Nothing here does network or reads a clock: bytes and moments go in, values come out.
//!
//! ```
//! use resync_core::memento::{HttpDate, Layout, Stamp, Versions};
//!
//! let kept: [Stamp; 2] = ["20240101000000".parse()?, "20240601120000".parse()?];
//! let versions = Versions::of(&kept);
//! let asked: HttpDate = "Thu, 01 Feb 2024 00:00:00 GMT".parse()?;
//! let chosen = versions.choose(Some(asked)).and_then(|index| versions.stamp(index)).unwrap();
//! assert_eq!(
//!     Layout::new("https://example.org/resync/versions/").memento(chosen, "https://example.org/a.txt"),
//!     "https://example.org/resync/versions/20240101000000/https://example.org/a.txt"
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod described;
pub mod http_date;
pub mod layout;
pub mod link_format;
pub mod stamp;
pub mod time_map;
pub mod versions;

pub use described::{Described, MAX_MEMENTOS};
pub use http_date::{HttpDate, HttpDateError};
pub use layout::{Layout, VERSIONS_PATH, VersionPath, is_same_original};
pub use link_format::{LINK_FORMAT_TYPE, LinkFormatReader, MAX_TIME_MAP, TimeMapTooLong};
pub use stamp::{Stamp, StampError};
pub use time_map::TimeMapLink;
pub use versions::{Version, Versions};

/// The request header that asks a TimeGate for a moment, in lower case.
pub const ACCEPT_DATETIME: &str = "accept-datetime";
/// The response header that makes an answer a memento, in lower case.
pub const MEMENTO_DATETIME: &str = "memento-datetime";
