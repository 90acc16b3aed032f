//! The rules by name: code, severity, source and what each asks.

use std::fmt;

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
        #[non_exhaustive]
        pub enum Rule {
            $(#[doc = concat!($code, ": ", $sentence, ".")] $name,)*
        }

        impl fmt::Display for Rule {
            /// Code and name, such as `RS-060 TimeForbidden`.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{} {}", self.code(), self.name())
            }
        }

        impl Rule {
            /// Every rule.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The stable number of the requirement, such as `RS-060`.
            pub const fn code(self) -> &'static str {
                match self { $(Self::$name => $code,)* }
            }

            /// The variant's name, unique where the code is not.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
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
            /// Framework Notification 1.0.1, `AR` Archives 0.9.1, `R` RFC 7089, `XSD` the ResourceSync schema, `SM` the sitemap schemas.
            pub const fn section(self) -> &'static str {
                match self { $(Self::$name => $section,)* }
            }
        }
    };
}

rules! {
    EntryElement "RS-002" Error "C4, C7" "a urlset has url entries and a sitemapindex has sitemap entries";
    SetsDiffer "RS-007" Error "C1.3, C9" "a Resource List and a Resource Dump of the same moment hold the same resources";
    CapabilityMissing "RS-010" Error "C7" "the root has one rs:md, which names the document's capability";
    CapabilityUnknown "RS-011" Warning "C7" "a capability is one of the tokens that the specifications define";
    IndexAsUrlset "RS-013" Error "C6.1, C7" "an index is a sitemapindex";
    AttributePrefixed "RS-015" Error "C7" "the attributes of ResourceSync carry no namespace prefix";
    AttributeUnknown "RS-016" Warning "C7, XSD" "an attribute of another community carries a namespace prefix";
    AttributeForeign "RS-016" Error "C7, XSD" "a foreign attribute has a namespace, prefix and name that can be written once";
    RootAttribute "RS-017" Warning "C7" "the root's rs:md describes the document, not a representation";
    LinkIncomplete "RS-019" Error "C7" "a rs:ln has rel and href";
    LinkTarget "RS-019" Warning "C7" "the href of a rs:ln is an absolute URI";
    SnapshotReversed "RS-021" Error "C7" "a snapshot is not completed before it starts";
    IntervalReversed "RS-022" Error "C7" "an interval does not end before it starts";
    IntervalOutside "RS-022" Warning "C7" "the interval of a whole covers the intervals of its parts";
    OpenUnderClosed "RS-023" Warning "C7, C12.1" "an index that is closed lists no open document";
    Datetime "RS-026" Error "C7" "a datetime has a W3C form, with a zone when it has a time";
    DatetimePartial "RS-028" Warning "XSD" "the datetimes of rs:md and rs:ln are written down to the second";
    DatetimeOutside "RS-030" Error "C7" "the datetime of a change lies within the document's from and until";
    LastmodForDatetime "RS-031" Warning "C7, C12.1" "the moment of a change is its datetime; lastmod is something else";
    ChangeFrequency "RS-032" Warning "C7, SM" "changefreq is one of always, hourly, daily, weekly, monthly, yearly, never";
    ChangeValue "RS-033" Error "C7, XSD" "change is one of created, updated, deleted";
    HashUnknown "RS-034" Warning "C7" "a hash is md5, sha-1 or sha-256, a colon, and the digest in hexadecimal";
    HashBase64 "RS-035" Warning "C7" "a digest is written in hexadecimal, not in base64";
    Length "RS-036" Error "C7, XSD" "length is a whole number of bytes";
    MediaType "RS-037" Warning "C7" "type is a media type, such as text/html";
    PathShape "RS-040" Error "C7, XSD" "a path starts with a slash and does not end with one";
    PathPlace "RS-040" Error "C7" "path stands only in the manifests of dumps";
    Priority "RS-041" Error "C7, XSD" "pri is a whole number from 1 to 999999";
    TooLarge "RS-042" Error "C7" "a document has at most 50,000 entries and 52,428,800 bytes";
    IndexNested "RS-044" Error "sitemaps.org" "an index lists documents, not another index";
    ChildOrder "RS-045" Warning "SM" "an entry's loc, lastmod, changefreq and priority come in this order, before rs:md and rs:ln";
    HeaderLate "RS-045" Error "SM" "the root's rs:md and rs:ln come before the first entry";
    Loc "RS-047" Error "SM" "every entry has one loc, an absolute URI of 12 to 2048 characters";
    EntryAttributes "RS-048" Warning "C8 to C13" "url and sitemap elements carry no attributes";
    LastmodOnPointer "RS-049" Warning "C8, C9, AR3.1" "what points at documents has no lastmod, unless each change of the document renews it";
    Repeated "RS-050" Error "C7, SM" "an entry has at most one loc, lastmod, changefreq and rs:md";
    Dialect "RS-050" Warning "C7" "the document is written in the form of ResourceSync 1.1";
    ElementUnknown "RS-050" Warning "C7, SM" "the sitemap and ResourceSync namespaces have no other elements";
    ContentTypeMissing "RS-052" Warning "HTTP" "a document is served with a Content-Type";
    ContentTypeWrong "RS-052" Warning "HTTP" "a document is served as application/xml, or as gzip";
    UpMissing "RS-053" Error "C6.2, C9 to C13" "the document points up, to its Capability List or Source Description";
    UpIsIndex "RS-053" Error "C6.2" "the up link goes to the Capability List, never to the index";
    UpTarget "RS-053" Error "C6.2, C9 to C13" "the up link of a Capability List goes to the Source Description, and every other one to the Capability List";
    HeadLinkRepeated "RS-053" Warning "C6.2, AR2.2" "the root has one up, one index and one archives link at most";
    IndexLinkMissing "RS-054" Warning "C10.1 to C13.1, AR3 to AR6" "a document under an index points at it by a link with rel index";
    IndexLinkTarget "RS-054" Error "C10.1 to C13.1" "the index link goes to an index that lists the document";
    EntryTarget "RS-055" Error "C6.2, C8, C9" "the document at loc is what the entry says, or the index of such documents";
    DocumentUnlisted "RS-055" Warning "C6.2, C9" "the Capability List that a document points up to lists it, or its index";
    RelationShape "RS-057" Error "C7, C14.1" "a relation is a registered lower-case name or an absolute URI";
    RelationUnregistered "RS-057" Warning "C7, C14.1" "a relation that is no URI is registered with IANA";
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
    HubPlace "RS-061" Error "C9" "in a Capability List, hub links stand only in entries of notification capabilities";
    CapabilityListUnlisted "RS-070" Error "C6.1, C8" "the Source Description lists every Capability List that points up to it";
    CapabilityRepeated "RS-082" Error "C9" "a Capability List has at most one entry per capability";
    CapabilityListIndex "RS-083" Error "C9" "there is no index of Capability Lists";
    ResourceRepeated "RS-091" Warning "C10.1" "a Resource List has one entry per resource";
    SnapshotOutside "RS-095" Warning "C10.2, C11.1" "the snapshot of a whole covers the snapshots of its parts";
    PackageFormat "RS-101" Warning "C11.1" "packages are ZIP files";
    PackageUnreadable "RS-101" Error "C11.2" "a package of type application/zip is a ZIP archive that can be read";
    PackageDiffers "RS-102" Error "C7, C11.1" "a package has the length and the digests that the dump says";
    PackageMixed "RS-101" Warning "C11.1, C13.1" "the packages of a dump have one format";
    ContentsType "RS-103" Warning "C11.1, C13.1" "a contents link has the type application/xml";
    ContentsRepeated "RS-103" Warning "C11.1, C13.1" "a package has one contents link";
    ContentsDiffer "RS-103" Error "C11.1, C13.1" "the manifest that a contents link goes to is equal in content to the one in the package";
    PackageManifest "RS-104" Error "C11.2, C13.2" "a package has a manifest, manifest.xml at its top";
    BitstreamDiffers "RS-110" Error "C7, C11.2" "a bitstream has the length and the digests that the manifest says";
    BitstreamUnsafe "RS-110" Error "C11.2" "a bitstream is a plain file that can be unpacked without harm";
    PathUnsafe "RS-110" Error "C11.2" "a path stays inside its package";
    PathRepeated "RS-110" Error "C11.2, C13.2" "each entry of a manifest has a path of its own";
    BitstreamMissing "RS-111" Error "C11.2, C13.2" "what a manifest names is in the package";
    ChangeOrder "RS-121" Error "C12.1" "the changes of a Change List come oldest first";
    IndexOrder "RS-125" Error "C12.2" "the documents of a Change List Index come oldest first";
    UntilMissing "RS-125" Error "C12.2" "the entry of a closed document has until";
    UntilOnOpen "RS-125" Error "C12.2" "the entry of an open document has no until";
    BoundaryGap "RS-127" Warning "C12.2" "a document of an index starts where the one before it ends";
    OpenBeforeLast "RS-127" Warning "C12.2" "only the last document of an index is open";
    DeletedRepresentation "RS-129" Warning "C12.1" "what is deleted has no hash, length or type";
    DumpOrder "RS-141" Warning "C13.1" "the packages of a Change Dump come oldest first";
    ManifestOrder "RS-143" Error "C13.2" "the changes of a Change Dump Manifest come oldest first";
    PatchPath "RS-146" Error "C14.4" "a patch in a Change Dump Manifest has a path";
    DumpIndexOrder "RS-147" Error "C13.1" "the documents of a Change Dump Index come oldest first";
    MirrorRepeats "RS-171" Warning "C14.2" "a mirror does not say again what the resource's rs:md says";
    AlternateType "RS-172" Warning "C14.3" "an alternate link has a type";
    PatchType "RS-174" Error "C14.4" "a patch link has a type";
    PatchPlace "RS-174" Warning "C14.4" "a patch link stands only in Change Lists and Change Dump Manifests";
    PatchChange "RS-174" Warning "C14.4" "a patch makes a new version of what was there before: the change is updated";
    TimeGateAttributes "RS-178" Warning "C14.6" "a timegate link has only rel and href";
    MementoRepeated "RS-178" Warning "C14.6" "an entry has one memento link";
    ViaRepeated "RS-181" Warning "C14.8" "an entry has one via link, to the original Source";
    ArchivesTarget "AR-004" Error "AR2.2" "the archives link goes to the archive of this kind of document";
    ArchiveOrder "AR-009" Error "AR5, AR6" "the documents of a change archive come oldest first";
    ArchivedOpen "AR-016" Warning "AR5, AR6" "an archive holds documents that are closed";
    NotificationRoot "CN-006" Error "CN3" "a Change Notification is a urlset";
    NotificationInterval "CN-007" Error "CN3" "a Change Notification has from and until";
    NotificationChain "CN-008" Error "CN3" "each Change Notification starts where the one before it ends";
    NotificationEntry "CN-011" Error "CN3" "each entry of a Change Notification has loc and change";
    NotificationOrder "CN-012" Error "CN3" "the changes of a Change Notification come oldest first";
    NotificationToken "CN-017" Warning "CN log" "the token is change-notification; changelist-notification is the one of 0.9 and 1.0";
    NotificationTokenWritten "CN-017" Error "CN log" "the token changelist-notification is not written any more";
    NotificationHub "CN-019" Error "CN5" "the channel of Change Notifications names its hub by a rs:ln with rel hub";
    FrameworkIndex "FN-005" Error "FN2, FN3" "a Framework Notification never lists an index";
    FrameworkIndexLink "FN-006" Error "FN2, FN3" "a changed document names the one index that it lies under";
    FrameworkIndexRepeated "FN-007" Warning "FN2" "of several new documents under an index only one is listed";
    FrameworkChange "FN-010" Warning "FN2.1" "a document of this kind changes in this way";
    FrameworkRoot "FN-020" Error "FN3" "a Framework Notification is a urlset";
    FrameworkEntry "FN-023" Error "FN3" "each entry of a Framework Notification has loc, change and capability";
    FrameworkCapability "FN-024" Warning "FN3" "a Framework Notification lists documents";
    FrameworkUp "FN-026" Warning "FN3" "what a notification with an up link lists lies right below that link";
    TopicUnreachable "FN-031" Error "FN4.1, CN4.1" "the topic of a channel answers GET and HEAD";
    TopicLinks "FN-031" Error "FN4.1, CN4.1" "a topic is served with a link to itself, rel self, and one to its hub, rel hub";
    TopicContentType "FN-031" Error "FN4.1, CN4.1" "a topic is served as application/xml";
    FrameworkHub "FN-060" Error "FN5" "the channel of Framework Notifications names its hub by a rs:ln with rel hub";
    HubInLoc "FN-061" Warning "FN5, CN5, SM" "the hub link is a child of url, since loc holds only text";
    TopicHubs "FN-062" Warning "FN5, CN5" "a topic names the hubs that its Capability List names";
    TimeGateAnswer "MEM-022" Error "R 4.2.1, R 2.1" "a TimeGate answers GET and HEAD with 302, Location, Vary for accept-datetime and a link to the original, and is no memento";
    MementoAnswer "MEM-028" Error "R 2.1.1, R 4.2.1" "a memento is served with Memento-Datetime and a link to its original";
    TimeMapAnswer "MEM-033" Error "R 5" "a TimeMap is served as application/link-format with its original, its TimeGate, itself and each memento by its datetime";
    Unreadable "IN-001" Error "C4" "what a link names a ResourceSync document can be read as one";
    Unreachable "IN-002" Error "C6.2" "a document that is linked to can be fetched";
    EntryRepeated "IN-002" Warning "C6.1, C10.2, AR3.1" "what points at documents lists each of them once";
    EntryTimes "IN-002" Warning "C App A" "the times of an entry are those of the document it points at";
    EntryPriority "SM-001" Warning "SM" "priority is a number from 0.0 to 1.0";
    Characters "XML-001" Error "XML 1.0, 2.2" "text has only characters that XML can carry";
}
