//! Everything that `resync-source` wrote and sent is free of findings; and with one thing wrong, `check` names the rule that is broken, and
//! no other. The table says what is made wrong in which document.

use std::{collections::BTreeSet, fs, path::Path};

use resync_core::rules::Rule;
use serde_json::Value;

use crate::{
    rich_site::{Written, rich_site},
    support::{run, text},
};
use Edit::{
    After, Alike, All, Between, Cut, Drop, DropLast, First, Last, Set, SetLast, Swap, Twice, Without,
};

/// What is made wrong in the text of a document. Where it cannot be done, the next document of the kind is taken.
#[derive(Clone, Copy, Debug)]
enum Edit {
    /// The first of these becomes that.
    First(&'static str, &'static str),
    Last(&'static str, &'static str),
    All(&'static str, &'static str),
    /// What stands between the first two of these becomes that.
    Between(&'static str, &'static str, &'static str),
    /// The first piece that begins and ends so is left out.
    Cut(&'static str, &'static str),
    /// The first attribute of this name has that value.
    Set(&'static str, &'static str),
    SetLast(&'static str, &'static str),
    /// The first attribute of this name is left out.
    Drop(&'static str),
    DropLast(&'static str),
    /// The last attribute of the second name has the value of the first one of the first.
    Alike(&'static str, &'static str),
    /// Only what follows this is edited.
    After(&'static str, &'static Edit),
    /// Two entries change places.
    Swap(usize, usize),
    /// The first entry stands there twice.
    Twice,
    /// This entry is left out.
    Without(usize),
}

/// The kind of the document, what is wrong with it in words, how it is made so, and the rules that are broken then.
type Row = (&'static str, &'static str, &'static [Edit], &'static [&'static str]);

const AS_INDEX: &[Edit] =
    &[All("urlset", "sitemapindex"), All("<url>", "<sitemap>"), All("</url>", "</sitemap>")];
const AN_UP_LINK: Edit = Cut("<rs:ln rel=\"up\"", "/>");
const LONG_AGO: &str = "2001-01-01T00:00:00Z";
const PATCH: &str = "rel=\"http://www.openarchives.org/rs/terms/patch\"";

/// Each document alone.
#[rustfmt::skip]
const ALONE: &[Row] = &[
    ("articles/resourcelist", "its entries are those of an index", &[All("<url>", "<sitemap>"), All("</url>", "</sitemap>")], &["RS-002 EntryElement"]),
    ("articles/resourcelist", "it names no capability", &[Drop("capability")], &["RS-010 CapabilityMissing"]),
    ("articles/changelist", "it names no capability", &[Drop("capability")], &["RS-010 CapabilityMissing"]),
    ("articles/capabilitylist", "it names no capability", &[Drop("capability")], &["RS-010 CapabilityMissing"]),
    ("hub/framework-notification", "it names no capability", &[Drop("capability")], &["RS-010 CapabilityMissing"]),
    ("articles/resourcelist", "it names a capability of its own", &[Set("capability", "resources")], &["RS-011 CapabilityUnknown"]),
    ("articles/resourcelist", "an attribute has a prefix", &[First(" length=\"", " rs:length=\"")], &["RS-015 AttributePrefixed"]),
    ("articles/resourcelist", "an attribute of its own has no prefix", &[First(" length=\"", " size=\"1\" length=\"")], &["RS-016 AttributeUnknown"]),
    ("articles/resourcelist", "the root has a length", &[First(" capability=\"", " length=\"7\" capability=\"")], &["RS-017 RootAttribute"]),
    ("articles/resourcelist", "a link leads nowhere", &[After("rel=\"duplicate\"", &Drop("href"))], &["RS-019 LinkIncomplete"]),
    ("articles/resourcelist", "a link is relative", &[First("http://mirror.example/", "mirror/")], &["RS-019 LinkTarget"]),
    ("articles/resourcelist", "it is completed before it starts", &[Set("completed", LONG_AGO)], &["RS-021 SnapshotReversed"]),
    ("articles/changedump-archive", "an interval ends before it starts", &[Set("until", LONG_AGO)], &["RS-022 IntervalReversed"]),
    ("articles/changedump index", "it starts after what it lists", &[Set("from", "2999-01-01T00:00:00Z")], &["RS-022 IntervalOutside"]),
    ("articles/changelist index", "it is closed and lists an open one", &[First("\"changelist\"", "\"changelist\" until=\"2999-01-01T00:00:00Z\"")], &["RS-023 OpenUnderClosed"]),
    ("hub/framework-notification", "a time is a word", &[Set("datetime", "yesterday")], &["RS-026 Datetime"]),
    ("articles/resourcelist", "a lastmod is a word", &[Between("<lastmod>", "</lastmod>", "yesterday")], &["RS-026 Datetime"]),
    ("articles/resourcelist", "its moment is a day", &[Set("at", "2026-01-01")], &["RS-028 DatetimePartial"]),
    ("articles/changelist", "a change lies outside of it", &[Set("datetime", LONG_AGO)], &["RS-030 DatetimeOutside"]),
    ("articles/changedump-manifest", "a change lies outside of it", &[Set("datetime", LONG_AGO)], &["RS-030 DatetimeOutside"]),
    ("hub/change-notification", "a change lies outside of it", &[Set("datetime", LONG_AGO)], &["RS-030 DatetimeOutside"]),
    ("articles/changelist", "only lastmod says when", &[Drop("datetime"), Between("<lastmod>", "</lastmod>", LONG_AGO)], &["RS-031 LastmodForDatetime"]),
    ("articles/resourcelist", "it changes often", &[First("</lastmod>", "</lastmod><changefreq>often</changefreq>")], &["RS-032 ChangeFrequency"]),
    ("articles/changelist", "a change is no such", &[Set("change", "changed")], &["RS-033 ChangeValue"]),
    ("articles/changedump-manifest", "a change is no such", &[Set("change", "changed")], &["RS-033 ChangeValue"]),
    ("articles/resourcelist", "a digest is of another kind", &[First("sha-256:", "sha-3:")], &["RS-034 HashUnknown"]),
    ("articles/resourcelist", "a digest is in base64", &[Set("hash", "md5:XrY7u+Ae7tCTyyK7j1rNww==")], &["RS-035 HashBase64"]),
    ("articles/resourcelist", "a length is broken", &[Set("length", "1.5")], &["RS-036 Length"]),
    ("articles/resourcelist", "a type is half a type", &[Set("type", "text")], &["RS-037 MediaType"]),
    ("articles/resourcedump-manifest", "a path is relative", &[First("path=\"/", "path=\"")], &["RS-040 PathShape"]),
    ("articles/resourcelist", "a path stands there", &[First(" length=\"", " path=\"/a\" length=\"")], &["RS-040 PathPlace"]),
    ("articles/resourcelist", "a preference is none", &[Set("pri", "0")], &["RS-041 Priority"]),
    ("articles/resourcelist", "changefreq comes before lastmod", &[First("<lastmod>", "<changefreq>daily</changefreq><lastmod>")], &["RS-045 ChildOrder"]),
    ("articles/resourcelist", "a link of the root comes late", &[Cut("<rs:ln rel=\"archives\"", "/>"), First("</url>", "</url><rs:ln rel=\"archives\" href=\"http://source.example/archive.xml\"/>")], &["RS-045 HeaderLate"]),
    ("articles/resourcelist", "an entry has no loc", &[Cut("<loc>", "</loc>")], &["RS-047 Loc"]),
    ("articles/capabilitylist", "a loc is relative", &[First("<loc>http://source.example/", "<loc>/")], &["RS-047 Loc"]),
    ("articles/resourcelist", "an entry has an attribute", &[First("<url>", "<url id=\"1\">")], &["RS-048 EntryAttributes"]),
    ("articles/capabilitylist", "an entry has lastmod", &[First("</loc>", "</loc><lastmod>2026-01-01T00:00:00Z</lastmod>")], &["RS-049 LastmodOnPointer"]),
    ("source/description", "an entry has lastmod", &[First("</loc>", "</loc><lastmod>2026-01-01T00:00:00Z</lastmod>")], &["RS-049 LastmodOnPointer"]),
    ("articles/resourcelist", "an entry is described twice", &[First("<rs:ln rel=\"duplicate\"", "<rs:md length=\"7\"/><rs:ln rel=\"duplicate\"")], &["RS-050 Repeated"]),
    ("articles/resourcelist", "an element is its own", &[First("<rs:ln rel=\"duplicate\"", "<rs:size>7</rs:size><rs:ln rel=\"duplicate\"")], &["RS-050 ElementUnknown"]),
    ("articles/capabilitylist", "it does not point up", &[AN_UP_LINK], &["RS-053 UpMissing"]),
    ("articles/resourcelist", "it does not point up", &[AN_UP_LINK], &["RS-053 UpMissing"]),
    ("articles/resourcelist-archive", "it does not point up", &[AN_UP_LINK], &["RS-053 UpMissing"]),
    ("articles/resourcedump", "it does not point up", &[AN_UP_LINK], &["RS-053 UpMissing"]),
    ("articles/resourcedump-manifest", "it does not point up", &[AN_UP_LINK], &["RS-053 UpMissing"]),
    ("articles/resourcedump-archive", "it does not point up", &[AN_UP_LINK], &["RS-053 UpMissing"]),
    ("articles/changelist", "it does not point up", &[AN_UP_LINK], &["RS-053 UpMissing"]),
    ("articles/changelist index", "it does not point up", &[AN_UP_LINK], &["RS-053 UpMissing"]),
    ("articles/changelist-archive", "it does not point up", &[AN_UP_LINK], &["RS-053 UpMissing"]),
    ("articles/changedump", "it does not point up", &[AN_UP_LINK], &["RS-053 UpMissing"]),
    ("articles/changedump index", "it does not point up", &[AN_UP_LINK], &["RS-053 UpMissing"]),
    ("articles/changedump-manifest", "it does not point up", &[AN_UP_LINK], &["RS-053 UpMissing"]),
    ("articles/changedump-archive", "it does not point up", &[AN_UP_LINK], &["RS-053 UpMissing"]),
    ("articles/resourcelist", "it points up twice", &[First("<rs:ln rel=\"up\"", "<rs:ln rel=\"up\" href=\"http://source.example/articles/resync/capabilitylist.xml\"/><rs:ln rel=\"up\"")], &["RS-053 HeadLinkRepeated"]),
    ("articles/resourcelist", "a relation is in upper case", &[First("\"duplicate\"", "\"Duplicate\"")], &["RS-057 RelationShape"]),
    ("articles/resourcelist", "a relation is its own", &[First("\"duplicate\"", "\"copy\"")], &["RS-057 RelationUnregistered"]),
    ("articles/resourcelist", "a resource has contents", &[First("\"describedby\"", "\"contents\"")], &["RS-058 RelationPlace"]),
    ("articles/resourcelist", "it has no moment", &[Drop("at")], &["RS-060 TimeMissing"]),
    ("articles/resourcedump", "it has no moment", &[Drop("at")], &["RS-060 TimeMissing"]),
    ("articles/resourcedump-manifest", "it has no moment", &[Drop("at")], &["RS-060 TimeMissing"]),
    ("articles/changelist", "it has no beginning", &[Drop("from")], &["RS-060 TimeMissing"]),
    ("articles/changelist index", "it has no beginning", &[Drop("from")], &["RS-060 TimeMissing"]),
    ("articles/changedump", "it has no beginning", &[Drop("from")], &["RS-060 TimeMissing"]),
    ("articles/changedump index", "it has no beginning", &[Drop("from")], &["RS-060 TimeMissing"]),
    ("articles/changedump-manifest", "it has no beginning", &[Drop("from")], &["RS-060 TimeMissing"]),
    ("articles/changedump", "a package has no beginning", &[DropLast("from")], &["RS-060 TimeAdvised"]),
    ("articles/changelist", "it has a moment", &[First(" from=\"", " at=\"2026-01-01T00:00:00Z\" from=\"")], &["RS-060 TimeForbidden"]),
    ("articles/resourcelist", "it has a beginning", &[First(" at=\"", " from=\"2026-01-01T00:00:00Z\" at=\"")], &["RS-060 TimeForbidden"]),
    ("articles/changelist-archive", "it has a moment", &[First(" capability=\"", " at=\"2026-01-01T00:00:00Z\" capability=\"")], &["RS-060 TimeUnforeseen"]),
    ("articles/resourcedump-manifest", "it is an index", AS_INDEX, &["RS-061 ShapeRoot"]),
    ("articles/changedump-manifest", "it is an index", AS_INDEX, &["RS-061 ShapeRoot"]),
    ("articles/changelist", "an entry says nothing of a change", &[Drop("change")], &["RS-061 ShapeMissing"]),
    ("articles/resourcedump-manifest", "an entry has no path", &[Drop("path")], &["RS-061 ShapeMissing"]),
    ("articles/changedump-manifest", "an entry has no path", &[Drop("path")], &["RS-061 ShapeMissing"]),
    ("articles/capabilitylist", "an entry names no capability", &[DropLast("capability")], &["RS-061 ShapeMissing"]),
    ("source/description", "it is not described", &[Cut("<rs:ln rel=\"describedby\"", "/>")], &["RS-061 ShapeAdvised"]),
    ("articles/resourcedump", "a package has no length", &[Drop("length")], &["RS-061 ShapeAdvised"]),
    ("articles/resourcelist", "an entry is a change", &[First(" length=\"", " change=\"updated\" length=\"")], &["RS-061 ShapeForbidden"]),
    ("articles/resourcelist", "an entry is a document", &[First(" length=\"", " capability=\"resourcelist\" length=\"")], &["RS-061 ShapeUnforeseen"]),
    ("articles/capabilitylist", "a list has a hub", &[First("<rs:md capability=\"resourcelist\"/>", "<rs:md capability=\"resourcelist\"/><rs:ln rel=\"hub\" href=\"http://hub.example/\"/>")], &["RS-061 HubPlace"]),
    ("articles/capabilitylist", "it lists a capability twice", &[Twice], &["RS-082 CapabilityRepeated"]),
    ("articles/capabilitylist", "it is an index", AS_INDEX, &["RS-083 CapabilityListIndex"]),
    ("articles/resourcelist", "it lists a resource twice", &[Twice], &["RS-091 ResourceRepeated"]),
    ("articles/resourcedump", "a package is older than the dump", &[SetLast("at", LONG_AGO)], &["RS-095 SnapshotOutside"]),
    ("articles/resourcedump", "a package is no ZIP file", &[All("application/zip", "application/gzip")], &["RS-101 PackageFormat"]),
    ("articles/resourcedump", "the contents are text", &[First("application/xml", "text/xml")], &["RS-103 ContentsType"]),
    ("articles/changedump", "a package has two manifests", &[First("<rs:ln rel=\"contents\"", "<rs:ln rel=\"contents\" href=\"http://source.example/x.xml\" type=\"application/xml\"/><rs:ln rel=\"contents\"")], &["RS-103 ContentsRepeated"]),
    ("articles/resourcedump-manifest", "a path leaves the package", &[First("path=\"/", "path=\"/../")], &["RS-110 PathUnsafe"]),
    ("articles/changedump-manifest", "a path leaves the package", &[First("path=\"/", "path=\"/../")], &["RS-110 PathUnsafe"]),
    ("articles/resourcedump-manifest", "two have one path", &[Alike("path", "path")], &["RS-110 PathRepeated"]),
    ("articles/changelist", "the last change is older than those before it", &[Alike("from", "datetime")], &["RS-121 ChangeOrder"]),
    ("articles/changelist index", "an older list comes later", &[Swap(1, 2)], &["RS-125 IndexOrder", "RS-127 BoundaryGap"]),
    ("articles/changelist index", "a list is left out", &[Without(1)], &["RS-127 BoundaryGap"]),
    ("articles/changelist index", "one before the last is open", &[Drop("until")], &["RS-127 OpenBeforeLast"]),
    ("articles/changelist", "what is deleted has a length", &[First(" change=\"deleted\"", " change=\"deleted\" length=\"7\"")], &["RS-129 DeletedRepresentation"]),
    ("articles/changedump", "an older package comes later", &[Swap(0, 1)], &["RS-141 DumpOrder"]),
    ("articles/changedump-manifest", "the last change is older than those before it", &[Alike("from", "datetime")], &["RS-143 ManifestOrder"]),
    ("articles/changedump-manifest", "a patch has no path", &[After(PATCH, &Drop("path"))], &["RS-146 PatchPath"]),
    ("articles/changedump index", "an older dump comes later", &[Swap(0, 1)], &["RS-127 OpenBeforeLast", "RS-147 DumpIndexOrder"]),
    ("articles/resourcelist", "a mirror says the type again", &[First(" pri=\"1\"", " pri=\"1\" type=\"text/plain\"")], &["RS-171 MirrorRepeats"]),
    ("articles/resourcelist", "an alternate has no type", &[First(" type=\"application/pdf\"", "")], &["RS-172 AlternateType"]),
    ("articles/changelist", "a patch has no type", &[First(" type=\"application/json-patch+json\"", "")], &["RS-174 PatchType"]),
    ("articles/resourcelist", "a patch stands there", &[First("rel=\"alternate\"", PATCH)], &["RS-174 PatchPlace"]),
    ("hub/change-notification", "a patch stands there", &[First("rel=\"alternate\"", PATCH)], &["RS-174 PatchPlace"]),
    ("articles/changelist", "what is created has a patch", &[First(PATCH, PATCH), All("\"updated\"", "\"created\"")], &["RS-174 PatchChange"]),
    ("articles/resourcelist", "a timegate has a type", &[First("rel=\"alternate\"", "rel=\"timegate\"")], &["RS-178 TimeGateAttributes"]),
    ("articles/resourcelist", "a resource has two mementos", &[First("rel=\"alternate\"", "rel=\"memento\""), First("rel=\"describedby\"", "rel=\"memento\"")], &["RS-178 MementoRepeated"]),
    ("articles/resourcelist", "a resource has two origins", &[First("rel=\"alternate\"", "rel=\"via\""), First("rel=\"describedby\"", "rel=\"via\"")], &["RS-181 ViaRepeated"]),
    ("articles/changelist-archive", "an older list comes later", &[Swap(0, 1)], &["AR-009 ArchiveOrder"]),
    ("articles/changelist-archive", "it holds an open one", &[Drop("until")], &["AR-016 ArchivedOpen"]),
    ("articles/changedump-archive", "it holds an open one", &[Drop("until")], &["AR-016 ArchivedOpen"]),
    ("hub/change-notification", "it is an index", AS_INDEX, &["CN-006 NotificationRoot"]),
    ("hub/change-notification", "it has no beginning", &[Drop("from")], &["CN-007 NotificationInterval"]),
    ("hub/change-notification", "it has no end", &[Drop("until")], &["CN-007 NotificationInterval"]),
    ("hub/change-notification", "an entry says nothing of a change", &[Drop("change")], &["CN-011 NotificationEntry"]),
    ("hub/change-notification", "the last change is older than those before it", &[Alike("from", "datetime")], &["CN-012 NotificationOrder"]),
    ("hub/change-notification", "its token is of before", &[Set("capability", "changelist-notification")], &["CN-017 NotificationToken"]),
    ("articles/capabilitylist", "the channel of changes has no hub", &[After("\"change-notification\"/>", &Cut("<rs:ln", "/>"))], &["CN-019 NotificationHub"]),
    ("hub/framework-notification", "it lists an index", &[First("</urlset>", "<url><loc>http://source.example/i.xml</loc><rs:md capability=\"changelist\" change=\"updated\"/><rs:ln rel=\"index\" href=\"http://source.example/i.xml\"/></url></urlset>")], &["FN-005 FrameworkIndex"]),
    ("hub/framework-notification", "a list lies under two indexes", &[First("<rs:ln rel=\"index\"", "<rs:ln rel=\"index\" href=\"http://source.example/x.xml\"/><rs:ln rel=\"index\"")], &["FN-006 FrameworkIndexLink"]),
    ("hub/framework-notification", "of one index two new ones are listed", &[First("</urlset>", "<url><loc>http://source.example/1.xml</loc><rs:md capability=\"changelist\" change=\"created\"/><rs:ln rel=\"index\" href=\"http://source.example/i.xml\"/></url><url><loc>http://source.example/2.xml</loc><rs:md capability=\"changelist\" change=\"created\"/><rs:ln rel=\"index\" href=\"http://source.example/i.xml\"/></url></urlset>")], &["FN-007 FrameworkIndexRepeated"]),
    ("hub/framework-notification", "the only Resource List is deleted", &[After("\"resourcelist\"", &Set("change", "deleted"))], &["FN-010 FrameworkChange"]),
    ("hub/framework-notification", "it is an index", AS_INDEX, &["FN-020 FrameworkRoot"]),
    ("hub/framework-notification", "an entry says nothing of a change", &[Drop("change")], &["FN-023 FrameworkEntry"]),
    ("hub/framework-notification", "an entry names no capability", &[DropLast("capability")], &["FN-023 FrameworkEntry"]),
    ("hub/framework-notification", "it lists a notification", &[SetLast("capability", "change-notification")], &["FN-024 FrameworkCapability"]),
    ("hub/framework-notification", "it points up to what lies far above", &[First("\"framework-notification\"/>", "\"framework-notification\"/><rs:ln rel=\"up\" href=\"http://source.example/\"/>")], &["FN-026 FrameworkUp"]),
    ("articles/capabilitylist", "the channel of documents has no hub", &[After("\"framework-notification\"/>", &Cut("<rs:ln", "/>"))], &["FN-060 FrameworkHub"]),
    ("articles/capabilitylist", "a hub stands in a loc", &[First("/changes/</loc>", "/changes/<rs:ln rel=\"hub\" href=\"http://hub.example/\"/></loc>")], &["FN-061 HubInLoc"]),
    ("articles/resourcelist", "a priority is too high", &[First("</lastmod>", "</lastmod><priority>1.1</priority>")], &["SM-001 EntryPriority"]),
    ("articles/resourcelist", "its end is missing", &[Last("</urlset>", "")], &["IN-001 Unreadable"]),
    ("articles/changelist index", "it lists a list twice", &[Twice], &["IN-002 EntryRepeated"]),
    ("source/description", "it lists a Capability List twice", &[Twice], &["IN-002 EntryRepeated"]),
];

/// Each document within the site.
#[rustfmt::skip]
const TOGETHER: &[Row] = &[
    ("images/resourcelist", "it lists one less than the dump of its moment", &[Without(0)], &["RS-007 SetsDiffer"]),
    ("articles/changelist index", "it lists an index", &[Between("<loc>", "</loc>", "http://source.example/articles/resync/changedump.xml")], &["RS-044 IndexNested"]),
    ("articles/resourcelist", "it points up to the Source Description", &[After("\"up\"", &Set("href", "http://source.example/.well-known/resourcesync"))], &["RS-053 UpTarget"]),
    ("articles/capabilitylist", "it points up to a list", &[After("\"up\"", &Set("href", "http://source.example/articles/resync/resourcelist.xml"))], &["RS-053 UpTarget"]),
    ("articles/changelist", "it points up to the index", &[After("\"up\"", &Set("href", "http://source.example/articles/resync/changelist.xml"))], &["RS-053 UpIsIndex"]),
    ("articles/changelist", "it does not point to its index", &[Cut("<rs:ln rel=\"index\"", "/>")], &["RS-054 IndexLinkMissing"]),
    ("articles/changelist", "it points to another index", &[After("\"index\"", &Set("href", "http://source.example/articles/resync/changedump.xml"))], &["RS-054 IndexLinkTarget"]),
    ("articles/capabilitylist", "what a list is called is another", &[First("\"resourcelist\"/>", "\"\"/>"), First("\"changelist\"/>", "\"resourcelist\"/>"), First("\"\"/>", "\"changelist\"/>")], &["RS-055 EntryTarget"]),
    ("articles/capabilitylist", "an archive is not listed", &[Without(2)], &["RS-055 DocumentUnlisted"]),
    ("articles/resourcedump", "a package is shorter", &[Set("length", "7")], &["RS-102 PackageDiffers"]),
    ("articles/resourcedump", "a package has another digest", &[Between("sha-256:", "\"", "38eb67ac5b6cf4d42b20bfbd96f61782a7b9dd910cb498e10e5c7c8e7271d186")], &["RS-102 PackageDiffers"]),
    ("articles/changedump", "a package is shorter", &[Set("length", "7")], &["RS-102 PackageDiffers"]),
    ("articles/resourcedump-manifest", "it is not the one in the package", &[First("a.txt<", "aa.txt<")], &["RS-103 ContentsDiffer"]),
    ("articles/changedump-manifest", "it is not the one in the package", &[Without(0)], &["RS-103 ContentsDiffer"]),
    ("articles/changelist index", "an open list has an end", &[Last(" from=\"", " until=\"2999-01-01T00:00:00Z\" from=\"")], &["RS-125 UntilOnOpen"]),
    ("articles/changelist index", "a closed list has no end", &[Drop("until")], &["RS-125 UntilMissing", "RS-127 OpenBeforeLast"]),
    ("articles/resourcelist", "its archive is one of changes", &[After("\"archives\"", &Set("href", "http://source.example/articles/resync/changelist-archive.xml"))], &["AR-004 ArchivesTarget"]),
    ("articles/changelist", "its end is missing", &[Last("</urlset>", "")], &["IN-001 Unreadable"]),
    ("articles/changelist index", "a list is nowhere", &[After("<sitemap>", &First("changelist-", "changelist-x"))], &["IN-002 Unreachable"]),
    ("articles/resourcelist-archive", "a list is nowhere", &[After("<url>", &First("resourcelist-", "resourcelist-x"))], &["IN-002 Unreachable"]),
    ("articles/resourcedump", "a package is nowhere", &[First("-1.zip", "-9.zip")], &["IN-002 Unreachable"]),
    ("articles/resourcedump", "a manifest is nowhere", &[First("-manifest.xml", "-manifesto.xml")], &["IN-002 Unreachable"]),
    ("articles/resourcelist-archive", "a list was completed at another time", &[Set("completed", "2999-01-01T00:00:00Z")], &["IN-002 EntryTimes"]),
];

/// What no row breaks, and why.
#[rustfmt::skip]
const ELSEWHERE: &[(&str, &[&str])] = &[
    ("a writer refuses it, and no reader can find it", &["AttributeForeign", "NotificationTokenWritten", "Characters"]),
    ("it is about the bytes of packages: `checking` breaks them", &["PackageUnreadable", "PackageManifest", "BitstreamDiffers", "BitstreamUnsafe", "BitstreamMissing"]),
    ("it is about servers: `checking` has one", &["ContentTypeMissing", "ContentTypeWrong", "TopicUnreachable", "TopicLinks", "TopicContentType", "TopicHubs", "TimeGateAnswer", "MementoAnswer", "TimeMapAnswer"]),
    ("it is about several notifications: `checking` shows them", &["NotificationChain"]),
    ("it takes another document, or much: core's tests break it", &["CapabilityListUnlisted", "IndexAsUrlset", "TooLarge", "PackageMixed", "Dialect"]),
];

#[test]
fn nothing_is_found_in_all_that_the_source_wrote_and_what_is_made_wrong_in_it_is_named_by_its_rule_and_no_other()
 {
    let (place, written) = rich_site();
    assert_eq!(broken(&place.out()), BTreeSet::new());
    for Written { path, kind, .. } in &written {
        assert_eq!(broken(path), BTreeSet::new(), "{kind}: {}", path.display());
    }
    let file = place.collection().join("../broken.xml");
    let alone = ALONE.iter().map(|row| {
        let (_, text) = edited(row, &mut written.iter());
        fs::write(&file, text).unwrap();
        (row, broken(&file))
    });
    let together = TOGETHER.iter().map(|row| {
        let (document, text) = edited(row, &mut written.iter().rev());
        fs::write(&document.path, text).unwrap();
        let found = broken(&place.out());
        fs::write(&document.path, &document.text).unwrap();
        (row, found)
    });
    let wrong: Vec<_> = alone
        .chain(together)
        .filter(|((.., rules), found)| !found.iter().eq(*rules))
        .map(|((kind, words, _, rules), found)| format!("{kind}: {words}: {found:?} instead of {rules:?}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_rule_is_broken_by_a_row_or_it_is_said_why_not() {
    let rows = ALONE.iter().chain(TOGETHER).flat_map(|(.., rules)| *rules);
    let names = rows.map(|rule| rule.split_once(' ').unwrap().1);
    let named: BTreeSet<_> = names.chain(ELSEWHERE.iter().flat_map(|(_, names)| *names).copied()).collect();
    assert_eq!(named, Rule::ALL.iter().map(|rule| rule.name()).collect::<BTreeSet<_>>());
}

/// The rules that are broken in a document or a site.
fn broken(path: &Path) -> BTreeSet<String> {
    let found: Value = serde_json::from_str(&run(&["check", text(path), "--json"]).out).unwrap();
    let documents = found["documents"].as_array().unwrap().iter();
    let violations = documents.flat_map(|document| document["violations"].as_array().unwrap());
    violations
        .map(|one| format!("{} {}", one["code"].as_str().unwrap(), one["rule"].as_str().unwrap()))
        .collect()
}

/// The first document in which the row can be done, and what becomes of it.
fn edited<'a>(
    (kind, words, edits, _): &Row,
    written: &mut dyn Iterator<Item = &'a Written>,
) -> (&'a Written, String) {
    let mut of_kind = written.filter(|document| document.kind == *kind);
    let edit = |document: &'a Written| {
        let edit = |text: String, edit: &Edit| edit.on(&text);
        let text = edits.iter().try_fold(document.text.clone(), edit)?;
        (text != document.text).then_some((document, text))
    };
    of_kind.find_map(edit).unwrap_or_else(|| panic!("{kind}: {words}: there is no such document"))
}

impl Edit {
    fn on(&self, text: &str) -> Option<String> {
        let put =
            |(begin, end): (usize, usize), new: &str| format!("{}{new}{}", &text[..begin], &text[end..]);
        Some(match *self {
            First(from, to) => text.contains(from).then(|| text.replacen(from, to, 1))?,
            Last(from, to) => text.rfind(from).map(|at| put((at, at + from.len()), to))?,
            All(from, to) => text.contains(from).then(|| text.replace(from, to))?,
            Between(begin, end, to) => put(inside(text, text.find(begin)?, begin, end)?, to),
            Cut(begin, end) => {
                let start = text.find(begin)?;
                put((start, inside(text, start, begin, end)?.1 + end.len()), "")
            }
            Set(name, to) => put(value(text, name, false)?, to),
            SetLast(name, to) => put(value(text, name, true)?, to),
            Drop(name) => put(attribute(name, value(text, name, false)?), ""),
            DropLast(name) => put(attribute(name, value(text, name, true)?), ""),
            Alike(from, to) => {
                let (begin, end) = value(text, from, false)?;
                put(value(text, to, true)?, &text[begin..end])
            }
            After(begin, edit) => {
                let (before, after) = text.split_at(text.find(begin)? + begin.len());
                format!("{before}{}", edit.on(after)?)
            }
            Swap(one, other) => {
                let entries = entries(text);
                let ((a, b), (c, d)) = (*entries.get(one)?, *entries.get(other)?);
                [&text[..a], &text[c..d], &text[b..c], &text[a..b], &text[d..]].concat()
            }
            Twice => {
                let &(begin, end) = entries(text).first()?;
                put((end, end), &text[begin..end])
            }
            Without(entry) => put(*entries(text).get(entry)?, ""),
        })
    }
}

/// What stands between these two, of which the first one is at `start`.
fn inside(text: &str, start: usize, begin: &str, end: &str) -> Option<(usize, usize)> {
    let from = start + begin.len();
    Some((from, from + text[from..].find(end)?))
}

/// Where the value of the first or last attribute of this name is.
fn value(text: &str, name: &str, is_last: bool) -> Option<(usize, usize)> {
    let begin = format!(" {name}=\"");
    let start = if is_last { text.rfind(&begin) } else { text.find(&begin) };
    inside(text, start?, &begin, "\"")
}

/// The attribute with this name whose value is there.
fn attribute(name: &str, (begin, end): (usize, usize)) -> (usize, usize) {
    (begin - " =\"".len() - name.len(), end + 1)
}

fn entries(text: &str) -> Vec<(usize, usize)> {
    let (begin, end) =
        if text.contains("<urlset") { ("<url>", "</url>") } else { ("<sitemap>", "</sitemap>") };
    let ends: Vec<_> = text.match_indices(end).map(|(at, _)| at + end.len()).collect();
    text.match_indices(begin).map(|(at, _)| at).zip(ends).collect()
}
