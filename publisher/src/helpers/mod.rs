//! Small helpers without a subject of this project.

pub(crate) mod debounce;
pub(crate) mod files;
pub(crate) mod http_client;
pub(crate) mod line_search;
pub(crate) mod serde_text;
pub(crate) mod url_path;

pub mod blocking;
