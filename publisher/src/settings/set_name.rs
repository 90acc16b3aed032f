//! The name of a set of resources.

use serde::{Deserialize, Serialize};

use super::text_form::text_form;

/// The folder of the documents, under the base URL and under OUT. Neither a set nor a resource can have this name.
pub const DOCUMENT_FOLDER: &str = "resync";

/// The name of a set of resources, which stands in the URLs of its documents: small letters, digits, `-` and `_`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SetName(String);

/// A text that cannot be the name of a set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{name}` is not usable as the name of a set; use up to 64 lower-case letters, digits, `-` and `_`, but not `resync`"
)]
pub struct SetNameError {
    name: String,
}

impl SetName {
    /// Checks a name.
    pub fn parse(text: &str) -> Result<Self, SetNameError> {
        let is_plain =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_');
        let is_name = (1..=64).contains(&text.len()) && text.bytes().all(is_plain) && text != DOCUMENT_FOLDER;
        if is_name { Ok(Self(text.to_owned())) } else { Err(SetNameError { name: text.to_owned() }) }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

text_form!(SetName: SetNameError);
