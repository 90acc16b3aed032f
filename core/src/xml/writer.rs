//! Documents to XML: UTF-8, one element a line, children in the order of RS-045, nothing that breaks a rule.

use std::fmt::{Display, Write as _};
use std::io;

use super::characters::push_escaped;
use super::{MAX_BYTES, RS_NAMESPACE, SITEMAP_NAMESPACE, WriteError, XML_NAMESPACE};
use crate::digest::Hashes;
use crate::document::{Capability, Document, Entry, ForeignAttribute, Header, Link, Metadata, Root};
use crate::rules::{Checker, Place, Rule, Violations};

/// How much is gathered before the output is asked to take it.
const GATHERED: usize = 64 * 1024;

/// A whole document as bytes.
///
/// A document of more than [`MAX_BYTES`] is written, too, although no reader has to take it (RS-042); a [`Writer`]
/// stops there.
pub fn write(document: &Document) -> Vec<u8> {
    let mut out = String::new();
    push_header(&mut out, document.header());
    for entry in document.entries() {
        push_entry(&mut out, document.root(), entry);
    }
    push_end(&mut out, document.root());
    out.into_bytes()
}

/// Writes a document entry by entry, and refuses what would break a rule.
///
/// Bytes are gathered, so the output needs no buffer of its own.
///
/// ```
/// use resync_core::document::{Capability, Entry, Header, Root};
/// use resync_core::xml::{WriteError, Writer};
///
/// let header = Header::new(Root::UrlSet, Capability::Description);
/// let mut writer = Writer::new(Vec::new(), &header)?;
/// writer.entry(&Entry::new("https://example.org/capabilitylist.xml"))?;
/// assert!(matches!(writer.entry(&Entry::new("capabilitylist.xml")), Err(WriteError::Violations(_))));
/// let bytes = writer.finish()?;
/// assert!(bytes.starts_with(b"<?xml"));
/// # Ok::<(), WriteError>(())
/// ```
#[derive(Debug)]
pub struct Writer<W: io::Write> {
    out: W,
    root: Root,
    checker: Checker,
    gathered: String,
    /// Bytes of all that was written and gathered.
    bytes: u64,
    entries: usize,
}

impl<W: io::Write> Writer<W> {
    /// Writes what stands before the first entry.
    pub fn new(out: W, header: &Header) -> Result<Self, WriteError> {
        let checker = Checker::new(header);
        if !checker.violations().is_conforming() {
            return Err(WriteError::Violations(checker.finish()));
        }
        let mut gathered = String::new();
        push_header(&mut gathered, header);
        let bytes = length(&gathered);
        Ok(Self { out, root: header.root, checker, gathered, bytes, entries: 0 })
    }

    /// Writes the next entry. One that is refused leaves no trace in the output, and others may follow.
    pub fn entry(&mut self, entry: &Entry) -> Result<(), WriteError> {
        self.checker.entry(entry, None);
        let violations = self.checker.take_violations();
        if !violations.is_conforming() {
            return Err(WriteError::Violations(violations));
        }
        let before = self.gathered.len();
        push_entry(&mut self.gathered, self.root, entry);
        let added = length(&self.gathered[before..]);
        if self.bytes + added + length(&end(self.root)) > MAX_BYTES {
            self.gathered.truncate(before);
            return Err(WriteError::Violations(self.too_large()));
        }
        self.bytes += added;
        self.entries += 1;
        if self.gathered.len() >= GATHERED { self.hand_over() } else { Ok(()) }
    }

    /// How many bytes the document has so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Ends the document, flushes the output and gives it back.
    pub fn finish(mut self) -> Result<W, WriteError> {
        push_end(&mut self.gathered, self.root);
        self.hand_over()?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn hand_over(&mut self) -> Result<(), WriteError> {
        self.out.write_all(self.gathered.as_bytes())?;
        self.gathered.clear();
        Ok(())
    }

    fn too_large(&self) -> Violations {
        let mut violations = Violations::default();
        let place = Place { position: None, entry: Some(self.entries + 1) };
        violations.push(
            Rule::TooLarge,
            place,
            format!("it would pass {MAX_BYTES} bytes; split the document"),
        );
        violations
    }
}

fn length(text: &str) -> u64 {
    u64::try_from(text.len()).unwrap_or(u64::MAX)
}

fn end(root: Root) -> String {
    format!("</{}>\n", root.element())
}

fn push_end(out: &mut String, root: Root) {
    out.push_str(&end(root));
}

fn push_header(out: &mut String, header: &Header) {
    out.push_str("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<");
    out.push_str(header.root.element());
    push_attribute(out, "xmlns", SITEMAP_NAMESPACE);
    push_attribute(out, "xmlns:rs", RS_NAMESPACE);
    out.push_str(">\n");
    push_metadata(out, "  ", &header.metadata);
    for link in &header.links {
        push_link(out, "  ", link);
    }
}

fn push_entry(out: &mut String, root: Root, entry: &Entry) {
    let element = root.entry_element();
    out.push_str("  <");
    out.push_str(element);
    out.push_str(">\n    <loc>");
    push_escaped(out, &entry.loc);
    out.push_str("</loc>\n");
    push_field(out, "lastmod", entry.lastmod);
    push_field(out, "changefreq", entry.changefreq);
    if let Some(metadata) = &entry.metadata {
        push_metadata(out, "    ", metadata);
    }
    for link in &entry.links {
        push_link(out, "    ", link);
    }
    out.push_str("  </");
    out.push_str(element);
    out.push_str(">\n");
}

fn push_field(out: &mut String, name: &str, value: Option<impl Display>) {
    if let Some(value) = value {
        push_display(out, format_args!("    <{name}>{value}</{name}>\n"));
    }
}

fn push_metadata(out: &mut String, indent: &str, metadata: &Metadata) {
    out.push_str(indent);
    out.push_str("<rs:md");
    push_text(out, "capability", metadata.capability.as_ref().map(Capability::token));
    push_value(out, "change", metadata.change);
    push_value(out, "datetime", metadata.datetime);
    push_value(out, "at", metadata.at);
    push_value(out, "completed", metadata.completed);
    push_value(out, "from", metadata.from);
    push_value(out, "until", metadata.until);
    push_text(out, "encoding", metadata.encoding.as_deref());
    push_hashes(out, &metadata.hash);
    push_value(out, "length", metadata.length);
    push_text(out, "path", metadata.path.as_deref());
    push_text(out, "type", metadata.media_type.as_deref());
    push_foreign(out, &metadata.foreign);
    out.push_str("/>\n");
}

fn push_link(out: &mut String, indent: &str, link: &Link) {
    out.push_str(indent);
    out.push_str("<rs:ln");
    push_attribute(out, "rel", link.rel.as_str());
    push_attribute(out, "href", &link.href);
    push_text(out, "encoding", link.encoding.as_deref());
    push_hashes(out, &link.hash);
    push_value(out, "length", link.length);
    push_value(out, "modified", link.modified);
    push_text(out, "path", link.path.as_deref());
    push_value(out, "pri", link.pri);
    push_text(out, "type", link.media_type.as_deref());
    push_text(out, "profile", link.profile.as_deref());
    push_foreign(out, &link.foreign);
    out.push_str("/>\n");
}

fn push_hashes(out: &mut String, hashes: &Hashes) {
    if hashes.unknown().is_empty() {
        push_value(out, "hash", Some(hashes).filter(|hashes| !hashes.is_empty()));
    } else {
        push_attribute(out, "hash", &hashes.to_string());
    }
}

/// Each element declares the namespaces that it needs, since the root was written before they were known.
fn push_foreign(out: &mut String, attributes: &[ForeignAttribute]) {
    for (number, attribute) in attributes.iter().enumerate() {
        let declared = attributes[..number].iter().any(|other| other.prefix == attribute.prefix);
        if !declared && attribute.namespace != XML_NAMESPACE {
            push_attribute(out, &format!("xmlns:{}", attribute.prefix), &attribute.namespace);
        }
        push_attribute(out, &format!("{}:{}", attribute.prefix, attribute.name), &attribute.value);
    }
}

fn push_text(out: &mut String, name: &str, value: Option<&str>) {
    if let Some(value) = value {
        push_attribute(out, name, value);
    }
}

/// For values whose text never needs escaping.
fn push_value(out: &mut String, name: &str, value: Option<impl Display>) {
    if let Some(value) = value {
        push_display(out, format_args!(" {name}=\"{value}\""));
    }
}

fn push_attribute(out: &mut String, name: &str, value: &str) {
    out.push(' ');
    out.push_str(name);
    out.push_str("=\"");
    push_escaped(out, value);
    out.push('"');
}

fn push_display(out: &mut String, value: impl Display) {
    write!(out, "{value}").expect("a String takes any text");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{
        Capability, Change, FrameworkChange, FrameworkNotification, Resource, ResourceList,
    };

    #[test]
    fn rs045_rs027_children_come_in_the_order_of_the_schema_and_times_in_utc() {
        let at = "2013-01-03T10:00:00+01:00".parse().unwrap();
        let list = ResourceList::new(at, "http://example.org/capabilitylist.xml")
            .resource(
                Resource::new("http://example.org/a?b&c")
                    .lastmod(at)
                    .length(4)
                    .media_type("text/html")
                    .hashes(Hashes::parse("md5:1584ABDF8EBDC9802AC0C6A7402C03B6"))
                    .link(Link {
                        pri: Some(1),
                        ..Link::new(crate::document::Relation::Duplicate, "http://m.example.org/\"a\"")
                    }),
            )
            .resource(Resource::new("http://example.org/b"));
        let wanted = r#"<?xml version="1.0" encoding="UTF-8"?>
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">
  <rs:md capability="resourcelist" at="2013-01-03T09:00:00Z"/>
  <rs:ln rel="up" href="http://example.org/capabilitylist.xml"/>
  <url>
    <loc>http://example.org/a?b&amp;c</loc>
    <lastmod>2013-01-03T09:00:00Z</lastmod>
    <rs:md hash="md5:1584abdf8ebdc9802ac0c6a7402c03b6" length="4" type="text/html"/>
    <rs:ln rel="duplicate" href="http://m.example.org/&quot;a&quot;" pri="1"/>
  </url>
  <url>
    <loc>http://example.org/b</loc>
  </url>
</urlset>
"#;
        assert_eq!(String::from_utf8(write(&list.build().unwrap())).unwrap(), wanted);
    }

    #[test]
    fn a_streamed_document_has_the_same_bytes_as_a_whole_one() {
        let change = FrameworkChange::new(
            Change::Updated,
            Capability::ChangeList,
            "http://example.org/changelist.xml",
        );
        let document = FrameworkNotification::new().change(change).build().unwrap();
        let mut writer = Writer::new(Vec::new(), document.header()).unwrap();
        for entry in document.entries() {
            writer.entry(entry).unwrap();
        }
        assert_eq!(writer.finish().unwrap(), write(&document));
    }

    #[test]
    fn a_header_that_breaks_a_rule_is_not_written() {
        let header = Header::new(Root::UrlSet, Capability::ResourceList);
        let Err(WriteError::Violations(violations)) = Writer::new(Vec::new(), &header) else {
            panic!("the header was accepted")
        };
        let rules: Vec<_> = violations.errors().map(|violation| violation.rule).collect();
        assert_eq!(rules, [Rule::TimeMissing, Rule::UpMissing]);
    }

    #[test]
    fn a_refused_entry_leaves_no_trace_and_others_may_follow() {
        let header = Header::new(Root::UrlSet, Capability::Description);
        let entry = |loc: &str| Entry::new(loc);
        let mut writer = Writer::new(Vec::new(), &header).unwrap();
        assert!(matches!(writer.entry(&entry("nowhere")), Err(WriteError::Violations(_))));
        writer.entry(&entry("http://example.org/c.xml")).unwrap();
        let text = String::from_utf8(writer.finish().unwrap()).unwrap();
        assert!(!text.contains("nowhere") && text.contains("<loc>http://example.org/c.xml</loc>"));
    }

    #[test]
    fn rs042_a_document_does_not_grow_past_its_byte_limit() {
        let mut entry = Entry::new("http://example.org/a");
        entry.links.push(Link::new(
            crate::document::Relation::Via,
            format!("http://example.org/{}", "a".repeat(1 << 20)),
        ));
        let mut writer =
            Writer::new(io::sink(), &Header::new(Root::UrlSet, Capability::from("any"))).unwrap();
        let refused = (0..60).find_map(|_| writer.entry(&entry).err()).unwrap();
        assert!(
            matches!(&refused, WriteError::Violations(found) if found.iter().any(|violation| violation.rule == Rule::TooLarge))
        );
        assert!(writer.bytes() <= MAX_BYTES && writer.bytes() > MAX_BYTES - (2 << 20));
    }
}
