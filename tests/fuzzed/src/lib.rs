//! The fuzz targets: each takes any input and says by a panic what must hold and does not. Tests run them over their seeds, and
//! libFuzzer for as long as one likes (`tests/fuzz`).

pub mod datetime;
pub mod digest;
pub mod document;
pub mod embedded;
pub mod feed;
pub mod form;
pub mod head;
pub mod link_header;
pub mod lint;
pub mod moment;
pub mod signature;
pub mod time_map;
pub mod verification;
pub mod version_path;
