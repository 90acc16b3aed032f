//! The text of a document: UTF-8, children in the order of RS-045, times in UTC, digests in lower-case hexadecimal.

use super::characters::push_escaped;
use super::{RS_NAMESPACE, SITEMAP_NAMESPACE, XML_NAMESPACE};
use crate::datetime::DateTime;
use crate::digest::Hashes;
use crate::document::{Capability, Change, Entry, ForeignAttribute, Header, Link, Metadata, Root};

/// Text that grows element by element.
#[derive(Debug, Default)]
pub(super) struct Serializer {
    text: String,
}

impl Serializer {
    /// All that was added.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.text.into_bytes()
    }

    /// Drops what lies behind this length.
    pub(super) fn truncate(&mut self, length: usize) {
        self.text.truncate(length);
    }

    /// What stands before the first entry.
    pub(super) fn header(&mut self, header: &Header) {
        self.push("<?xml version=\"1.0\" encoding=\"UTF-8\"?>");
        self.end_line();
        self.push("<");
        self.push(header.root.element());
        self.attribute(" xmlns=\"", SITEMAP_NAMESPACE);
        self.attribute(" xmlns:rs=\"", RS_NAMESPACE);
        self.push(">");
        self.end_line();
        self.metadata("  ", &header.metadata);
        for link in &header.links {
            self.link("  ", link);
        }
    }

    pub(super) fn entry(&mut self, root: Root, entry: &Entry) {
        let element = root.entry_element();
        self.push("  ");
        self.push("<");
        self.push(element);
        self.push(">");
        self.end_line();
        self.push("    ");
        self.push("<loc>");
        push_escaped(&mut self.text, &entry.loc);
        self.push("</loc>");
        self.end_line();
        if let Some(lastmod) = entry.lastmod {
            self.field("<lastmod>", lastmod.text().as_str(), "</lastmod>");
        }
        if let Some(frequency) = entry.changefreq {
            self.field("<changefreq>", frequency.token(), "</changefreq>");
        }
        if let Some(priority) = entry.priority {
            self.field("<priority>", &priority.to_string(), "</priority>");
        }
        if let Some(metadata) = &entry.metadata {
            self.metadata("    ", metadata);
        }
        for link in &entry.links {
            self.link("    ", link);
        }
        self.push("  ");
        self.push("</");
        self.push(element);
        self.push(">");
        self.end_line();
    }

    pub(super) fn end(&mut self, root: Root) {
        self.push("</");
        self.push(root.element());
        self.push(">");
        self.end_line();
    }

    /// How many bytes [`end`](Self::end) adds.
    pub(super) fn end_length(root: Root) -> u64 {
        u64::try_from("</>\n".len() + root.element().len()).unwrap_or(u64::MAX)
    }

    #[inline]
    fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    #[inline]
    fn end_line(&mut self) {
        self.text.push('\n');
    }

    /// A child with text that never needs escaping.
    #[inline]
    fn field(&mut self, start: &str, value: &str, end: &str) {
        self.push("    ");
        self.push(start);
        self.push(value);
        self.push(end);
        self.end_line();
    }

    fn metadata(&mut self, indent: &str, metadata: &Metadata) {
        self.push(indent);
        self.push("<rs:md");
        self.optional(" capability=\"", metadata.capability.as_ref().map(Capability::token));
        self.optional(" change=\"", metadata.change.map(Change::token));
        self.time(" datetime=\"", metadata.datetime);
        self.time(" at=\"", metadata.at);
        self.time(" completed=\"", metadata.completed);
        self.time(" from=\"", metadata.from);
        self.time(" until=\"", metadata.until);
        self.optional(" encoding=\"", metadata.encoding.as_deref());
        self.hashes(&metadata.hash);
        self.number(" length=\"", metadata.length);
        self.optional(" path=\"", metadata.path.as_deref());
        self.optional(" type=\"", metadata.media_type.as_deref());
        self.foreign(&metadata.foreign);
        self.push("/>");
        self.end_line();
    }

    fn link(&mut self, indent: &str, link: &Link) {
        self.push(indent);
        self.push("<rs:ln");
        self.attribute(" rel=\"", link.rel.as_str());
        self.attribute(" href=\"", &link.href);
        self.optional(" encoding=\"", link.encoding.as_deref());
        self.hashes(&link.hash);
        self.number(" length=\"", link.length);
        self.time(" modified=\"", link.modified);
        self.optional(" path=\"", link.path.as_deref());
        self.number(" pri=\"", link.pri.map(u64::from));
        self.optional(" type=\"", link.media_type.as_deref());
        self.optional(" profile=\"", link.profile.as_deref());
        self.foreign(&link.foreign);
        self.push("/>");
        self.end_line();
    }

    fn hashes(&mut self, hashes: &Hashes) {
        if !hashes.unknown().is_empty() {
            return self.attribute(" hash=\"", &hashes.to_string());
        }
        let mut gap = " hash=\"";
        for digest in hashes {
            self.push(gap);
            self.push(digest.algorithm().token());
            self.push(":");
            self.push(digest.hex().as_str());
            gap = " ";
        }
        if !hashes.is_empty() {
            self.push("\"");
        }
    }

    /// Each element declares the namespaces that it needs, since the root was written before they were known.
    fn foreign(&mut self, attributes: &[ForeignAttribute]) {
        for (number, attribute) in attributes.iter().enumerate() {
            let declared = attributes[..number].iter().any(|other| other.prefix == attribute.prefix);
            if !declared && attribute.namespace != XML_NAMESPACE {
                self.attribute(&format!(" xmlns:{}=\"", attribute.prefix), &attribute.namespace);
            }
            self.attribute(&format!(" {}:{}=\"", attribute.prefix, attribute.name), &attribute.value);
        }
    }

    /// The name of an attribute comes with the space before it and the `="` behind it, here and below.
    #[inline]
    fn optional(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.attribute(name, value);
        }
    }

    #[inline]
    fn time(&mut self, name: &str, value: Option<DateTime>) {
        let Some(value) = value else { return };
        self.push(name);
        self.push(value.text().as_str());
        self.push("\"");
    }

    #[inline]
    fn number(&mut self, name: &str, value: Option<u64>) {
        let Some(value) = value else { return };
        self.push(name);
        self.push(itoa::Buffer::new().format(value));
        self.push("\"");
    }

    #[inline]
    fn attribute(&mut self, name: &str, value: &str) {
        self.push(name);
        push_escaped(&mut self.text, value);
        self.push("\"");
    }
}
