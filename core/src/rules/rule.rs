//! The rules by name: code, severity, source and what each asks.

/// How much a broken rule matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The document does not conform; it is not written, and reading it is a guess.
    Error,
    /// Advice is not followed, or something is said that a Destination can ignore.
    Warning,
}

macro_rules! rules {
    ($($name:ident $code:literal $severity:ident $section:literal $sentence:literal;)*) => {
        /// A requirement that a document can break.
        ///
        /// Several rules may share a [`code`](Self::code), which names the numbered requirement; the variant says
        /// which part of it is broken, and how much that matters.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Rule {
            $(#[doc = concat!($code, ": ", $sentence, ".")] $name,)*
        }

        impl Rule {
            /// Every rule.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The stable number of the requirement, such as `RS-060`.
            pub const fn code(self) -> &'static str {
                match self { $(Self::$name => $code,)* }
            }

            /// What is required.
            pub const fn sentence(self) -> &'static str {
                match self { $(Self::$name => $sentence,)* }
            }

            /// How much breaking it matters.
            pub const fn severity(self) -> Severity {
                match self { $(Self::$name => Severity::$severity,)* }
            }

            /// The specification and section it comes from: `C` core 1.1, `CN` Change Notification 1.0.1, `FN`
            /// Framework Notification 1.0.1, `AR` Archives 0.9.1, `XSD` the ResourceSync schema, `SM` the sitemap schemas.
            pub const fn section(self) -> &'static str {
                match self { $(Self::$name => $section,)* }
            }
        }
    };
}

rules! {
    EntryElement "RS-002" Error "C4, C7" "a urlset has url entries and a sitemapindex has sitemap entries";
    CapabilityMissing "RS-010" Error "C7" "the root has one rs:md, which names the document's capability";
    CapabilityUnknown "RS-011" Warning "C7" "a capability is one of the tokens that the specifications define";
    AttributePrefixed "RS-015" Error "C7" "the attributes of ResourceSync carry no namespace prefix";
    AttributeUnknown "RS-016" Warning "C7, XSD" "an attribute of another community carries a namespace prefix";
    AttributeForeign "RS-016" Error "C7, XSD" "a foreign attribute has a namespace, prefix and name that can be written once";
    RootAttribute "RS-017" Warning "C7" "the root's rs:md speaks of the document, not of a representation";
    LinkIncomplete "RS-019" Error "C7" "a rs:ln has rel and href";
    LinkTarget "RS-019" Warning "C7" "the href of a rs:ln is an absolute URI";
    SnapshotReversed "RS-021" Error "C7" "a snapshot is not completed before it starts";
    IntervalReversed "RS-022" Error "C7" "an interval does not end before it starts";
    Datetime "RS-026" Error "C7" "a datetime has a W3C form, with a zone when it has a time";
    DatetimePartial "RS-028" Warning "XSD" "the datetimes of rs:md and rs:ln are written down to the second";
    DatetimeOutside "RS-030" Error "C7" "the datetime of a change lies within the document's from and until";
    ChangeFrequency "RS-032" Warning "C7, SM" "changefreq is one of always, hourly, daily, weekly, monthly, yearly, never";
    ChangeValue "RS-033" Error "C7, XSD" "change is one of created, updated, deleted";
    HashUnknown "RS-035" Warning "C7" "a hash is md5, sha-1 or sha-256, a colon, and the digest in hexadecimal";
    Length "RS-036" Error "C7, XSD" "length is a whole number of bytes";
    MediaType "RS-037" Warning "C7" "type is a media type, such as text/html";
    PathShape "RS-040" Error "C7, XSD" "a path starts with a slash and does not end with one";
    PathPlace "RS-040" Error "C7" "path stands only in the manifests of dumps";
    PathUnsafe "RS-110" Error "C11.2" "a path stays inside its package";
    Priority "RS-041" Error "C7, XSD" "pri is a whole number from 1 to 999999";
    TooLarge "RS-042" Error "C7" "a document has at most 50,000 entries and 52,428,800 bytes";
    ChildOrder "RS-045" Warning "SM" "an entry's loc, lastmod, changefreq and priority come in this order, before rs:md and rs:ln";
    HeaderLate "RS-045" Error "SM" "the root's rs:md and rs:ln come before the first entry";
    Loc "RS-047" Error "SM" "every entry has one loc, an absolute URI of 12 to 2048 characters";
    EntryAttributes "RS-048" Warning "C8 to C13" "url and sitemap elements carry no attributes";
    Repeated "RS-050" Error "C7, SM" "an entry has at most one loc, lastmod, changefreq and rs:md";
    ElementUnknown "RS-050" Warning "C7, SM" "the sitemap and ResourceSync namespaces have no other elements";
    UpMissing "RS-053" Error "C6.2, C9 to C13" "the document points up, to its Capability List or Source Description";
    RelationShape "RS-057" Error "C7, C14.1" "a relation is a registered lower-case name or an absolute URI";
    RelationPlace "RS-058" Warning "C7, C14" "a link relation stands where the specifications foresee it";
    TimeMissing "RS-060" Error "C App A" "the document or entry has the times that its kind must have";
    TimeAdvised "RS-060" Warning "C App A" "the document or entry has the times that its kind should have";
    TimeForbidden "RS-060" Error "C App A" "the document or entry has no time that its kind must not have";
    TimeUnforeseen "RS-060" Warning "C App A" "the document or entry has no time that is not defined for its kind";
    ShapeRoot "RS-061" Error "C8 to C13" "this kind of document cannot be an index";
    ShapeMissing "RS-061" Error "C8 to C13" "an entry has the attributes that its kind of document must have";
    ShapeAdvised "RS-061" Warning "C8 to C13" "a document or entry has what its kind should have";
    ShapeForbidden "RS-061" Error "C8 to C13" "an entry has no attribute that its kind of document must not have";
    ShapeUnforeseen "RS-061" Warning "C8 to C13" "a document or entry has only what is foreseen for its kind";
    CapabilityRepeated "RS-082" Error "C9" "a Capability List has at most one entry per capability";
    CapabilityListIndex "RS-083" Error "C9" "there is no index of Capability Lists";
    ChangeOrder "RS-121" Error "C12.1, C12.2, C13.2" "changes come oldest first";
    DumpOrder "RS-141" Warning "C13.1" "the packages of a Change Dump come oldest first";
    OpenBeforeLast "RS-127" Warning "C12.2" "only the last document of an index is open";
    DeletedRepresentation "RS-129" Warning "C12.1" "what is deleted has no hash, length or type";
    PatchPath "RS-146" Error "C14.4" "a patch in a Change Dump Manifest has a path";
    PatchType "RS-174" Error "C14.4" "a patch link has a type";
    PatchPlace "RS-174" Warning "C14.4" "a patch link stands only in Change Lists and Change Dump Manifests";
    TimeGateAttributes "RS-178" Warning "C14.6" "a timegate link has only rel and href";
    ArchiveOrder "AR-009" Error "AR5, AR6" "the documents of a change archive come oldest first";
    NotificationRoot "CN-006" Error "CN3" "a Change Notification is a urlset";
    NotificationInterval "CN-007" Error "CN3" "a Change Notification has from and until";
    NotificationEntry "CN-011" Error "CN3" "each entry of a Change Notification has loc and change";
    NotificationOrder "CN-012" Error "CN3" "the changes of a Change Notification come oldest first";
    NotificationToken "CN-017" Warning "CN log" "the token is change-notification; changelist-notification is the one of 0.9 and 1.0";
    NotificationTokenWritten "CN-017" Error "CN log" "the token changelist-notification is not written any more";
    NotificationHub "CN-019" Error "CN5" "the channel of Change Notifications names its hub by a rs:ln with rel hub";
    FrameworkIndex "FN-005" Error "FN2, FN3" "a Framework Notification never tells of an index";
    FrameworkIndexLink "FN-006" Error "FN2, FN3" "a changed document names the one index that it lies under";
    FrameworkChange "FN-010" Warning "FN2.1" "a document of this kind changes in this way";
    FrameworkRoot "FN-020" Error "FN3" "a Framework Notification is a urlset";
    FrameworkEntry "FN-023" Error "FN3" "each entry of a Framework Notification has loc, change and capability";
    FrameworkCapability "FN-024" Warning "FN3" "a Framework Notification tells of documents";
    FrameworkHub "FN-060" Error "FN5" "the channel of Framework Notifications names its hub by a rs:ln with rel hub";
    HubPlace "FN-060" Error "FN5, CN5" "in a Capability List, hub links stand only in entries of notification capabilities";
    HubInLoc "FN-061" Warning "FN5, CN5, SM" "the hub link is a child of url, since loc holds only text";
    Characters "XML-001" Error "XML 1.0, 2.2" "text has only characters that XML can carry";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_has_a_numbered_code_a_sentence_and_a_source() {
        for rule in Rule::ALL {
            let (family, number) = rule.code().split_once('-').unwrap();
            assert!(["RS", "AR", "CN", "FN", "XML"].contains(&family), "{rule:?}");
            assert!(number.len() == 3 && number.bytes().all(|byte| byte.is_ascii_digit()), "{rule:?}");
            assert!(!rule.sentence().is_empty() && !rule.sentence().ends_with('.'), "{rule:?}");
            assert!(!rule.section().is_empty(), "{rule:?}");
        }
    }
}
