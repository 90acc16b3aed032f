//! The alpha draft 0.1 of August 2012: Sitemaps, Change Sets and manifests, with elements where today there are
//! attributes, and links of XHTML (ALPHA-001 to ALPHA-031).

use std::io::BufRead;

use crate::datetime::DateTime;
use crate::digest::Hashes;
use crate::document::{Capability, Change, Entry, ForeignAttribute, Header, Link, Metadata, Relation, Root};
use crate::rules::Rule;
use crate::xml::namespaces::Namespace;
use crate::xml::tokens::Tokens;
use crate::xml::{ReadError, XHTML_NAMESPACE};

/// What the root's `rs:type` says of a Change Set (ALPHA-003).
const CHANGE_SET: &str = "changeset";
/// When the document was last modified (ALPHA-002).
const MODIFIED: &str = "DCTERMS.modified";
/// What a resource is about (ALPHA-011).
const SUBJECTS: [&str; 2] = ["DCTERMS.subject", "DC.subject"];
/// All that the draft defined relations with.
const RELATIONS: &str = "http://www.openarchives.org/rs/";
const MIRROR: &str = "http://www.openarchives.org/rs/mirror";
const PARTIAL: &str = "http://www.openarchives.org/rs/partial";
/// The relation that a subject has today, since those of the draft are no registered names.
const SUBJECT_RELATION: &str = "http://purl.org/dc/terms/subject";
/// The attribute that a subject without URI becomes.
const SUBJECT_NAMESPACE: &str = "http://purl.org/dc/elements/1.1/";

/// A child of the root or of an entry that only the draft has.
#[derive(Debug, PartialEq)]
pub(in crate::xml) enum Child {
    /// `rs:fixity`, with its `type`.
    Fixity(String),
    Size,
    MimeType,
    ContentEncoding,
    Path,
    Expires,
    Meta {
        name: String,
        content: String,
    },
    Link(OldLink),
}

impl Child {
    /// What such a start tag means; `None` for a tag that the draft does not have either.
    pub(super) fn open<R: BufRead>(tokens: &mut Tokens<R>) -> Result<Option<Self>, ReadError> {
        let mut child = match (tokens.namespace(), tokens.name()) {
            (Namespace::Rs, "fixity") => Self::Fixity(String::new()),
            (Namespace::Rs, "size") => Self::Size,
            (Namespace::Rs, "mimetype") => Self::MimeType,
            (Namespace::Rs, "contentencoding") => Self::ContentEncoding,
            (Namespace::Rs, "path") => Self::Path,
            (Namespace::Sitemap, "expires") => Self::Expires,
            (Namespace::Xhtml, "meta") => Self::Meta { name: String::new(), content: String::new() },
            (Namespace::Xhtml, "link") => Self::Link(OldLink::default()),
            _ => return Ok(None),
        };
        tokens.attributes(|attribute| child.set(attribute.namespace, attribute.name, &attribute.value))?;
        if let Self::Link(link) = &child {
            tokens.count_growth(link.copies())?;
        }
        Ok(Some(child))
    }

    fn set(&mut self, namespace: Namespace, attribute: &str, value: &str) {
        let target = match (self, namespace, attribute) {
            (Self::Fixity(algorithm), Namespace::None, "type") => algorithm,
            (Self::Meta { name, .. }, Namespace::None, "name") => name,
            (Self::Meta { content, .. }, Namespace::None, "content") => content,
            (Self::Link(link), Namespace::None, "rel") => &mut link.rel,
            (Self::Link(link), Namespace::None, "href") => &mut link.href,
            (Self::Link(link), Namespace::None, "title") => &mut link.title,
            (Self::Link(link), Namespace::None, "type") => &mut link.media_type,
            (Self::Link(link), Namespace::Rs, "protocol") => &mut link.protocol,
            (Self::Link(link), Namespace::Rs, "pubsubnode") => &mut link.node,
            _ => return,
        };
        value.trim_ascii().clone_into(target);
    }

    /// Whether a plain Sitemap would not have it in an entry. `xhtml:link` it may have, for its languages.
    fn is_alpha(&self) -> bool {
        match self {
            Self::Link(link) => link.is_alpha(),
            Self::Meta { name, .. } => name == MODIFIED || SUBJECTS.contains(&name.as_str()),
            _ => true,
        }
    }
}

/// `xhtml:link`; what is missing is empty.
#[derive(Debug, Default, PartialEq)]
pub(in crate::xml) struct OldLink {
    rel: String,
    href: String,
    title: String,
    media_type: String,
    protocol: String,
    /// The node of an XMPP service.
    node: String,
}

impl OldLink {
    fn is_alpha(&self) -> bool {
        let drafted = |rel: &str| rel.starts_with(RELATIONS) || SUBJECTS.contains(&rel);
        !self.protocol.is_empty() || self.rel.split_ascii_whitespace().any(drafted)
    }

    /// How many bytes the links take that it becomes beyond the first.
    fn copies(&self) -> usize {
        let texts = [&self.href, &self.title, &self.media_type, &self.protocol, &self.node];
        let each = size_of::<Link>() + texts.map(String::len).iter().sum::<usize>();
        self.rel.split_ascii_whitespace().skip(1).count().saturating_mul(each)
    }

    /// One link for each relation (ALPHA-031), those that were replaced by their successors.
    fn links(self) -> Vec<Link> {
        let tokens: Vec<&str> = self.rel.split_ascii_whitespace().collect();
        let relations: Vec<Relation> = if tokens.contains(&MIRROR) {
            vec![Relation::Duplicate]
        } else if tokens.contains(&"memento") {
            vec![Relation::Memento]
        } else if tokens.is_empty() && !self.protocol.is_empty() {
            // A service to subscribe at: how it is related is told by its protocol alone (ALPHA-023, ALPHA-024).
            vec![Relation::from(self.protocol.as_str())]
        } else {
            tokens.into_iter().map(relation).collect()
        };
        if self.href.is_empty() {
            return Vec::new();
        }
        let subscribes = self.rel.is_empty();
        let link = |rel| Link {
            media_type: filled(&self.media_type),
            profile: filled(&self.protocol).filter(|_| !subscribes),
            foreign: filled(&self.title).map(title).into_iter().collect(),
            ..Link::new(rel, self.target())
        };
        relations.into_iter().map(link).collect()
    }

    /// The URI, for a node of XMPP in the form that XEP-0060 gives it.
    fn target(&self) -> String {
        if self.node.is_empty() { self.href.clone() } else { format!("{}?;node={}", self.href, self.node) }
    }
}

fn relation(token: &str) -> Relation {
    match token {
        PARTIAL => Relation::Patch,
        subject if SUBJECTS.contains(&subject) => Relation::from(SUBJECT_RELATION),
        other => Relation::from(other),
    }
}

fn title(value: String) -> ForeignAttribute {
    ForeignAttribute {
        namespace: XHTML_NAMESPACE.to_owned(),
        prefix: "xhtml".to_owned(),
        name: "title".to_owned(),
        value,
    }
}

fn filled(text: &str) -> Option<String> {
    Some(text).filter(|text| !text.is_empty()).map(str::to_owned)
}

/// What the root of a document without `rs:md` and `rs:ln` says.
#[derive(Debug, Default)]
pub(super) struct Head {
    is_alpha: bool,
    changes: bool,
    modified: Option<DateTime>,
    links: Vec<Link>,
}

impl Head {
    /// Takes the root's `rs:type`.
    pub(super) fn set_type(&mut self, kind: &str) {
        self.is_alpha = true;
        self.changes = kind.trim_ascii() == CHANGE_SET;
    }

    /// Takes a child of the root; gives the number of links so far.
    pub(super) fn child(&mut self, child: Child, report: &mut impl FnMut(Rule, String)) -> usize {
        self.is_alpha |= child.is_alpha();
        match child {
            Child::Meta { name, content } if name == MODIFIED => {
                self.modified = datetime(MODIFIED, &content, report);
            }
            Child::Link(link) => self.links.extend(link.links()),
            _ => {}
        }
        self.links.len()
    }

    /// Whether the root alone shows that this is the draft's.
    pub(super) fn is_alpha(&self) -> bool {
        self.is_alpha
    }

    /// Turns the header into one of 1.1 (ALPHA-002, ALPHA-004, ALPHA-015, ALPHA-019); `packed` when entries have a path.
    ///
    /// Whether a Change Set is closed cannot be seen, so that it is taken to be open.
    pub(super) fn give(&mut self, header: &mut Header, packed: bool) {
        let capability = match (self.changes, packed && header.root == Root::UrlSet) {
            (true, false) => Capability::ChangeList,
            (true, true) => Capability::ChangeDumpManifest,
            (false, false) => Capability::ResourceList,
            (false, true) => Capability::ResourceDumpManifest,
        };
        header.metadata.capability = Some(capability);
        if !self.changes {
            header.metadata.at = self.modified;
        }
        header.links.append(&mut self.links);
    }

    /// When the document was last modified.
    pub(super) fn modified(&self) -> Option<DateTime> {
        self.modified
    }

    /// Whether entries are changes.
    pub(super) fn lists_changes(&self) -> bool {
        self.changes
    }
}

/// What the draft's elements say of one entry, until it is known that the document is the draft's.
#[derive(Debug, Default)]
pub(super) struct Parts {
    is_alpha: bool,
    change: Option<Change>,
    /// When the change was.
    moment: Option<DateTime>,
    /// As today's `hash` has them.
    hashes: String,
    metadata: Metadata,
    subjects: String,
    links: Vec<Link>,
}

impl Parts {
    /// Takes the `rs:type` of `lastmod` (ALPHA-005).
    pub(super) fn modified(
        &mut self,
        kind: &str,
        lastmod: Option<DateTime>,
        report: &mut impl FnMut(Rule, String),
    ) {
        match kind.trim_ascii().parse() {
            Ok(change) => self.changed(change, lastmod, report),
            Err(_) => report(Rule::ChangeValue, format!("the type of lastmod is {kind:?}")),
        }
    }

    /// Takes the `rs:protocol` of `loc` (ALPHA-018).
    pub(super) fn protocol(&mut self, protocol: &str) {
        self.is_alpha = true;
        self.links.push(Link::new(Relation::Profile, protocol.trim_ascii()));
    }

    /// Takes a child of the entry, with its text; gives the number of links so far.
    pub(super) fn child(&mut self, child: Child, text: &str, report: &mut impl FnMut(Rule, String)) -> usize {
        self.is_alpha |= child.is_alpha();
        let metadata = &mut self.metadata;
        match child {
            Child::Fixity(algorithm) => push(&mut self.hashes, " ", &format!("{algorithm}:{text}")),
            Child::Size => match text.parse() {
                Ok(length) => metadata.length = Some(length),
                Err(_) => report(Rule::Length, format!("size is {text:?}")),
            },
            Child::MimeType => metadata.media_type = filled(text),
            Child::ContentEncoding => metadata.encoding = filled(text),
            Child::Path => metadata.path = filled(text).map(rooted),
            Child::Expires => {
                let moment = datetime("expires", text, report);
                self.changed(Change::Deleted, moment, report);
            }
            Child::Meta { name, content } if SUBJECTS.contains(&name.as_str()) => {
                push(&mut self.subjects, "; ", &content);
            }
            Child::Meta { .. } => {}
            Child::Link(link) => self.links.extend(link.links()),
        }
        self.links.len()
    }

    /// How many bytes are held that repeated elements add to.
    pub(super) fn held(&self) -> usize {
        self.hashes.len().max(self.subjects.len())
    }

    /// Whether a plain Sitemap would not have this.
    pub(super) fn is_alpha(&self) -> bool {
        self.is_alpha
    }

    /// Whether the resource lies in a package.
    pub(super) fn is_packed(&self) -> bool {
        self.metadata.path.is_some()
    }

    /// Adds what was said to the entry; gives `false` when a list of what is there names what is gone (ALPHA-006).
    pub(super) fn give(self, entry: &mut Entry, changes: bool) -> bool {
        let mut metadata = self.metadata;
        if changes {
            metadata.change = self.change;
            metadata.datetime = self.moment;
        }
        metadata.hash = Hashes::parse(&self.hashes);
        if !self.subjects.is_empty() {
            metadata.foreign.push(ForeignAttribute {
                namespace: SUBJECT_NAMESPACE.to_owned(),
                prefix: "dc".to_owned(),
                name: "subject".to_owned(),
                value: self.subjects,
            });
        }
        if metadata != Metadata::default() {
            entry.metadata = Some(metadata);
        }
        entry.links.extend(self.links);
        changes || self.change != Some(Change::Deleted)
    }

    fn changed(&mut self, change: Change, moment: Option<DateTime>, report: &mut impl FnMut(Rule, String)) {
        self.is_alpha = true;
        if self.change.is_some() {
            report(Rule::Repeated, format!("that the resource is {change} comes after another change of it"));
            return;
        }
        self.change = Some(change);
        self.moment = moment;
    }
}

/// From the top of the package, as a path is written today (ALPHA-010).
fn rooted(path: String) -> String {
    if path.starts_with('/') { path } else { format!("/{path}") }
}

fn push(target: &mut String, gap: &str, text: &str) {
    if !target.is_empty() {
        target.push_str(gap);
    }
    target.push_str(text);
}

fn datetime(name: &str, text: &str, report: &mut impl FnMut(Rule, String)) -> Option<DateTime> {
    text.parse().map_err(|error| report(Rule::Datetime, format!("{name} is {text:?}: {error}"))).ok()
}

#[cfg(test)]
mod tests;
