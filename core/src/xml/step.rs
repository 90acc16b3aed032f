//! What the tags of a document mean to a reader.

use std::io::BufRead;

use super::dialect::{Child, Translator};
use super::field::Field;
use super::namespaces::Namespace;
use super::tokens::Tokens;
use super::{ReadError, md_ln};
use crate::document::{Link, Metadata, Root};
use crate::rules::Rule;

/// What a token means to a document.
pub(super) enum Step {
    Entry(Root),
    Field(Field),
    /// It is in `metadata`.
    Metadata,
    Link(Option<Box<Link>>),
    /// A child that only an older form has.
    Old(Box<Child>),
    /// An element that says nothing to us.
    Other,
    Close,
    Text,
    End,
}

/// What a start tag means, with the content of an `rs:md` in `metadata`.
pub(super) fn open<R: BufRead>(
    tokens: &mut Tokens<R>,
    metadata: &mut Metadata,
    translator: &mut Translator,
    found: &mut Vec<(Rule, String)>,
) -> Result<Step, ReadError> {
    let field = match (tokens.namespace(), tokens.name()) {
        (Namespace::Rs | Namespace::DLib, "md") => {
            // What was read before and not taken is no part of this.
            *metadata = Metadata::default();
            md_ln::metadata(tokens, metadata, &mut |rule, detail| found.push((rule, detail)))?;
            return Ok(Step::Metadata);
        }
        (Namespace::Rs | Namespace::DLib, "ln") => {
            let link = md_ln::link(tokens, &mut |rule, detail| found.push((rule, detail)))?;
            return Ok(Step::Link(link.map(Box::new)));
        }
        (Namespace::Sitemap, "url") => return open_entry(tokens, Root::UrlSet, found),
        (Namespace::Sitemap, "sitemap") => return open_entry(tokens, Root::SitemapIndex, found),
        (Namespace::Sitemap, "loc") => Field::Loc,
        (Namespace::Sitemap, "lastmod") => Field::Lastmod,
        (Namespace::Sitemap, "changefreq") => Field::ChangeFrequency,
        (Namespace::Sitemap, "priority") => Field::Priority,
        _ => return open_other(tokens, translator, found),
    };
    translator.begin_field();
    tokens.attributes(|attribute| translator.field_attribute(&attribute))?;
    Ok(Step::Field(field))
}

fn open_entry<R: BufRead>(
    tokens: &mut Tokens<R>,
    root: Root,
    found: &mut Vec<(Rule, String)>,
) -> Result<Step, ReadError> {
    let mut attributes = false;
    tokens.attributes(|_| attributes = true)?;
    if attributes {
        found.push((Rule::EntryAttributes, "they are left out".to_owned()));
    }
    Ok(Step::Entry(root))
}

fn open_other<R: BufRead>(
    tokens: &mut Tokens<R>,
    translator: &Translator,
    found: &mut Vec<(Rule, String)>,
) -> Result<Step, ReadError> {
    if let Some(child) = translator.open(tokens)? {
        return Ok(Step::Old(child));
    }
    tokens.attributes(|_| {})?;
    if !matches!(tokens.namespace(), Namespace::Foreign | Namespace::Xhtml) {
        found.push((Rule::ElementUnknown, format!("{} is left out", tokens.name())));
    }
    Ok(Step::Other)
}
