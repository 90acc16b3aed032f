//! What the reader asks of the older forms: it shows each element and entry that it reads, and they become those of 1.1.

use std::io::BufRead;

use super::{Dialect, alpha, dlib, v1_0};
use crate::datetime::DateTime;
use crate::document::{Entry, Header, Root};
use crate::rules::Rule;
use crate::xml::field::Field;
use crate::xml::namespaces::Namespace;
use crate::xml::tokens::{Attribute, Tokens};
use crate::xml::{Limit, MAX_LINKS, MAX_TEXT, ReadError};

/// Finds out which form a document is written in, and turns it into 1.1 while it streams by.
#[derive(Debug)]
pub(in crate::xml) struct Translator {
    dialect: Dialect,
    /// When an older form says that the document was last modified.
    modified: Option<DateTime>,
    /// In a document that does not say since when it lists changes: the earliest change so far.
    since: Option<Since>,
    /// What the root said in the elements of the alpha draft; `None` when it has those of a later form.
    head: Option<alpha::Head>,
    /// What the entry said in the elements of the alpha draft.
    parts: alpha::Parts,
    /// The attribute that the alpha draft gave to `loc` and `lastmod`, of the one that was begun last.
    field_type: Option<String>,
}

/// The start of an interval that only the entries show.
#[derive(Clone, Copy, Debug, Default)]
struct Since(Option<DateTime>);

/// What became of an entry.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::xml) struct Translated {
    /// The entry showed which form the document is written in; the header may be another one now.
    pub(in crate::xml) is_recognised: bool,
    /// A Resource List of 1.1 would not have the entry.
    pub(in crate::xml) is_gone: bool,
}

impl Translator {
    pub(in crate::xml) fn new() -> Self {
        Self {
            dialect: Dialect::V1_1,
            modified: None,
            since: None,
            head: Some(alpha::Head::default()),
            parts: alpha::Parts::default(),
            field_type: None,
        }
    }

    /// The form as far as it is known.
    pub(in crate::xml) fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Takes an attribute of the root.
    pub(in crate::xml) fn root_attribute(&mut self, attribute: &Attribute<'_>) {
        if let Some(head) = &mut self.head
            && attribute.namespace == Namespace::Rs
            && attribute.name == "type"
        {
            head.set_type(&attribute.value);
        }
    }

    /// A field begins; its attributes follow.
    pub(in crate::xml) fn begin_field(&mut self) {
        self.field_type = None;
    }

    /// Takes an attribute of a field.
    pub(in crate::xml) fn field_attribute(&mut self, attribute: &Attribute<'_>) {
        if self.head.is_some()
            && attribute.namespace == Namespace::Rs
            && matches!(attribute.name, "type" | "protocol")
        {
            self.field_type = Some(attribute.value.to_string());
        }
    }

    /// The attribute of the field that was begun last.
    pub(in crate::xml) fn take_field_type(&mut self) -> Option<String> {
        self.field_type.take()
    }

    /// What a start tag means that 1.1 does not have; `None` when no older form has it either.
    pub(in crate::xml) fn open<R: BufRead>(
        &self,
        tokens: &mut Tokens<R>,
    ) -> Result<Option<Box<alpha::Child>>, ReadError> {
        if self.head.is_none() {
            return Ok(None);
        }
        Ok(alpha::Child::open(tokens)?.map(Box::new))
    }

    /// Looks at the tag of an `rs:md` or `rs:ln`, and at what was wrong with it. Gives whether it showed the form.
    pub(in crate::xml) fn tag(
        &mut self,
        namespace: Namespace,
        is_in_header: bool,
        found: &mut Vec<(Rule, String)>,
    ) -> bool {
        // It is the root that says what the document is.
        let is_recognised = namespace == Namespace::DLib && self.dialect == Dialect::V1_1 && is_in_header;
        if is_recognised {
            self.dialect = Dialect::DLib2013;
        } else if namespace == Namespace::DLib && self.dialect != Dialect::DLib2013 {
            let detail = "an element has the namespace of the D-Lib paper of 2013".to_owned();
            found.insert(0, (Rule::Dialect, detail));
        }
        if self.dialect == Dialect::V1_1 && found.iter().any(|(rule, _)| *rule == Rule::NotificationToken) {
            self.dialect = Dialect::Notification0_9;
        }
        is_recognised
    }

    /// The header has an `rs:md` or `rs:ln`, which the alpha draft did not know.
    pub(in crate::xml) fn see_current_header(&mut self) {
        self.head = None;
    }

    /// An entry has an `rs:md` or `rs:ln`: what looked like a Sitemap is none of the alpha draft either.
    pub(in crate::xml) fn see_current_entry(&mut self) {
        if self.dialect == Dialect::Sitemap && self.head.as_ref().is_some_and(|head| !head.is_alpha()) {
            self.head = None;
            self.parts = alpha::Parts::default();
        }
    }

    /// Takes a child of the root.
    pub(in crate::xml) fn header_child(
        &mut self,
        child: alpha::Child,
        report: &mut impl FnMut(Rule, String),
    ) -> Result<(), Limit> {
        let links = self.head.as_mut().map_or(0, |head| head.child(child, report));
        if links > MAX_LINKS { Err(Limit::Links) } else { Ok(()) }
    }

    /// The header was read. Gives whether only the first entry shows the form.
    pub(in crate::xml) fn header(&mut self, header: &mut Header) -> bool {
        if self.dialect == Dialect::DLib2013 {
            self.modified = dlib::header(header);
            self.find_interval(header);
        }
        if self.head.is_some() {
            self.dialect = Dialect::Sitemap;
        }
        self.head.is_some()
    }

    /// The first entry was read. Gives whether it showed the form.
    pub(in crate::xml) fn first_entry(&mut self, header: &mut Header) -> bool {
        let is_alpha = self.head.as_ref().is_some_and(alpha::Head::is_alpha) || self.parts.is_alpha();
        if is_alpha {
            self.become_alpha(header, self.parts.is_packed());
            self.find_interval(header);
        }
        is_alpha
    }

    /// Takes the document for one of the alpha draft; for a manifest only when its first entry is `packed`.
    fn become_alpha(&mut self, header: &mut Header, packed: bool) {
        if let Some(head) = &mut self.head {
            head.give(header, packed);
            self.modified = head.modified();
            self.dialect = Dialect::Alpha0_1;
        }
    }

    /// Finds the start of the interval in an older document about changes: an index was modified then, and the changes
    /// themselves show it when all are known (ALPHA-031).
    fn find_interval(&mut self, header: &mut Header) {
        if header.metadata.from.is_some() || !self.dialect.lists_changes(header) {
            return;
        }
        match header.root {
            Root::UrlSet => self.since = Some(Since::default()),
            Root::SitemapIndex => header.metadata.from = self.modified,
        }
    }

    /// Takes a field that was read.
    pub(in crate::xml) fn field(
        &mut self,
        field: Field,
        field_type: &str,
        entry: &Entry,
        report: &mut impl FnMut(Rule, String),
    ) {
        match field {
            Field::Lastmod => self.parts.modified(field_type, entry.lastmod, report),
            Field::Loc => self.parts.protocol(field_type),
            Field::ChangeFrequency | Field::Priority => {}
        }
    }

    /// Takes a child of an entry, with its text.
    pub(in crate::xml) fn entry_child(
        &mut self,
        child: alpha::Child,
        text: &str,
        report: &mut impl FnMut(Rule, String),
    ) -> Result<(), Limit> {
        if self.parts.child(child, text, report) > MAX_LINKS {
            return Err(Limit::Links);
        }
        if self.parts.held() > MAX_TEXT { Err(Limit::Text) } else { Ok(()) }
    }

    /// Makes an entry one of 1.1.
    pub(in crate::xml) fn entry(
        &mut self,
        header: &mut Header,
        entry: &mut Entry,
        is_first: bool,
    ) -> Translated {
        let mut translated = Translated::default();
        match self.dialect {
            Dialect::V1_1 if is_first && v1_0::is_first_entry(header, entry) => {
                self.dialect = Dialect::V1_0;
                translated.is_recognised = true;
            }
            Dialect::V1_1 | Dialect::V1_0 | Dialect::Notification0_9 => {}
            Dialect::DLib2013 => dlib::entry(header, entry),
            Dialect::Sitemap if !self.parts.is_alpha() => self.parts = alpha::Parts::default(),
            Dialect::Sitemap | Dialect::Alpha0_1 => {
                if self.dialect == Dialect::Sitemap {
                    self.become_alpha(header, false);
                    translated.is_recognised = true;
                }
                let is_change = self.head.as_ref().is_some_and(alpha::Head::lists_changes);
                translated.is_gone = !std::mem::take(&mut self.parts).give(entry, is_change);
            }
        }
        translated
    }

    /// An entry is part of the document.
    pub(in crate::xml) fn keep(&mut self, entry: &Entry) {
        if let Some(Since(earliest)) = &mut self.since {
            let datetime = entry.metadata.as_ref().and_then(|metadata| metadata.datetime);
            *earliest = (*earliest).into_iter().chain(datetime).min();
        }
    }

    /// The header as far as no entry can change it; `None` when none can.
    pub(in crate::xml) fn provisional_header(&self, header: &Header) -> Option<Header> {
        let mut header = header.clone();
        if self.since.is_some() {
            header.metadata.from = Some(DateTime::from_system_time(std::time::SystemTime::UNIX_EPOCH));
        }
        // Any entry may show that a Sitemap is one of the alpha draft.
        (self.since.is_some() || self.dialect == Dialect::Sitemap).then_some(header)
    }

    /// Everything was read, or as much as can be: the header gets what the entries showed.
    pub(in crate::xml) fn conclude(&mut self, header: &mut Header) {
        if let Some(Since(earliest)) = self.since.take() {
            header.metadata.from = earliest.or(self.modified);
        }
    }
}
