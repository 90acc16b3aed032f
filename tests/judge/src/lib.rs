//! Judges from outside: what others wrote says whether a document is valid and whether a signature is right. Nothing of the
//! products is used here.

#![deny(missing_docs)]

mod documents;
mod signatures;

pub use documents::{
    DOCUMENTS, Documents, PublishedSchemas, SCHEMAS, complaints, documents_below, files_below, fixture,
    grammar, judge, written,
};
pub use signatures::{Signed, is_signature, signature, signatures_of_python};
