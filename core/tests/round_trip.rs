//! Reader and writer prove each other: what a typed constructor builds comes back equal, and no bytes do harm.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use proptest::collection::{btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use resync_core::datetime::DateTime;
use resync_core::digest::{Algorithm, Digest, Hashes};
use resync_core::document::{
    Capability, CapabilityList, Change, ChangeFrequency, ChangeNotification, Document, ForeignAttribute,
    FrameworkChange, FrameworkNotification, Link, Relation, Resource, ResourceChange, ResourceList,
    ResourceListIndex, SourceDescription,
};
use resync_core::xml::{self, Reader, Writer};

proptest! {
    #[test]
    fn any_document_that_can_be_built_comes_back_equal(document in document()) {
        let bytes = xml::write(&document);
        let read = xml::read(&bytes).unwrap();
        prop_assert!(read.violations.is_conforming(), "{}", read.violations);
        prop_assert_eq!(read.into_document().unwrap(), document);
    }

    #[test]
    fn streaming_gives_the_same_bytes_and_entries(document in document()) {
        let bytes = xml::write(&document);
        let mut writer = Writer::new(Vec::new(), document.header()).unwrap();
        for entry in document.entries() {
            writer.entry(entry).unwrap();
        }
        prop_assert_eq!(&writer.finish().unwrap(), &bytes);
        let reader = Reader::new(bytes.as_slice()).unwrap();
        prop_assert_eq!(reader.header(), document.header());
        let entries: Vec<_> = reader.map(Result::unwrap).collect();
        prop_assert_eq!(entries.as_slice(), document.entries());
    }

    #[test]
    fn no_bytes_panic(bytes in vec(any::<u8>(), 0..400)) {
        survive(&bytes)?;
    }

    #[test]
    fn no_markup_panics(pieces in vec(piece(), 0..60), closed in any::<bool>()) {
        let end = if closed { "</urlset>" } else { "" };
        survive(format!("{OPEN}{}{end}", pieces.concat()).as_bytes())?;
    }

    #[test]
    fn no_damaged_document_panics(document in document(), at in any::<Index>(), cut in 0..40_usize, put in vec(any::<u8>(), 0..6)) {
        let mut bytes = xml::write(&document);
        let start = at.index(bytes.len());
        let end = (start + cut).min(bytes.len());
        bytes.splice(start..end, put);
        survive(&bytes)?;
    }

    #[test]
    fn a_datetime_comes_back_equal_and_keeps_its_order(one in datetime(), other in datetime()) {
        prop_assert_eq!(one.to_string().parse(), Ok(one));
        prop_assert_eq!(DateTime::from_system_time(one.to_system_time()), one);
        if one < other {
            prop_assert!(one.unix_millis() <= other.unix_millis());
        }
    }

    #[test]
    fn no_text_panics_a_value(text in "\\PC{0,60}|[0-9TZ:.+-]{0,40}|(md5|sha-1|sha-256):[0-9a-fA-F]{0,70}") {
        if let Ok(datetime) = text.parse::<DateTime>() {
            prop_assert_eq!(datetime.to_string().parse(), Ok(datetime));
        }
        let hashes = Hashes::parse(&text);
        prop_assert_eq!(Hashes::parse(&hashes.to_string()), hashes);
    }
}

/// Reads hostile bytes; what they hold of a conforming document must come back when it is written again.
fn survive(bytes: &[u8]) -> Result<(), TestCaseError> {
    if let Ok(document) = xml::read(bytes).map_err(drop).and_then(|read| read.into_document().map_err(drop)) {
        let again = xml::read(&xml::write(&document)).unwrap().into_document();
        prop_assert_eq!(again.unwrap(), document);
    }
    Ok(())
}

const OPEN: &str = "<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9' \
                    xmlns:rs='http://www.openarchives.org/rs/terms/' xmlns:x='urn:x'>";

/// Pieces of markup that come together to documents, good and bad.
fn piece() -> impl Strategy<Value = String> {
    let known = select(vec![
        "<rs:md capability='description'/>",
        "<rs:md capability='changelist' from='2013-01-01T00:00:00Z' x:y='&#10;' rs:z=''/>",
        "<rs:ln rel='up' href='http://example.org/'/>",
        "<rs:ln rel='up' pri='x' length='-1' modified='2013'/>",
        "<rs:ln>",
        "<url>",
        "</url>",
        "<url><loc>http://example.org/a</loc>",
        "<loc>",
        "</loc>",
        "<lastmod>2013-01-01</lastmod>",
        "<changefreq>daily</changefreq>",
        "<x:y>",
        "</x:y>",
        "<rs:md change='updated' datetime='2013-01-01T00:00:00Z' path='/a' hash='md5:x' length='1'/>",
        "<rs:md",
        " a='1'",
        "/>",
        "<!-- c -->",
        "<![CDATA[ ]]>",
        "<?p i?>",
        "&amp;",
        "&#x41;",
        "&x;",
        "</urlset>",
        "\n",
    ]);
    prop_oneof![9 => known.prop_map(str::to_owned), 1 => "\\PC{0,8}"]
}

fn document() -> impl Strategy<Value = Document> {
    prop_oneof![
        source_description(),
        capability_list(),
        resource_list(),
        resource_list_index(),
        change_notification(),
        framework_notification(),
    ]
}

fn source_description() -> impl Strategy<Value = Document> {
    (option::of(uri()), vec((uri(), option::of(uri())), 0..5)).prop_map(|(about, lists)| {
        let mut description = SourceDescription::new();
        if let Some(about) = about {
            description = description.described_by(about);
        }
        for (loc, about) in lists {
            description = match about {
                Some(about) => description.capability_list_described_by(loc, about),
                None => description.capability_list(loc),
            };
        }
        description.build().unwrap()
    })
}

fn capability_list() -> impl Strategy<Value = Document> {
    (
        uri(),
        option::of(uri()),
        btree_set(document_capability(), 0..6),
        option::of((uri(), vec(uri(), 1..3))),
        uri(),
    )
        .prop_map(|(up, about, capabilities, channel, loc)| {
            let mut list = CapabilityList::new(up);
            if let Some(about) = about {
                list = list.described_by(about);
            }
            for capability in capabilities {
                list = list.capability(capability, loc.clone());
            }
            if let Some((topic, hubs)) = channel {
                list = list.channel(Capability::FrameworkNotification, topic.clone(), hubs.clone());
                list = list.channel(Capability::ChangeNotification, topic, hubs);
            }
            list.build().unwrap()
        })
}

fn resource_list() -> impl Strategy<Value = Document> {
    (interval(), any::<bool>(), uri(), option::of(uri()), option::of(uri()), vec(resource(), 0..5)).prop_map(
        |((at, completed), ended, up, index, archives, resources)| {
            let mut list = ResourceList::new(at, up);
            if ended {
                list = list.completed(completed);
            }
            if let Some(index) = index {
                list = list.index(index);
            }
            if let Some(archives) = archives {
                list = list.archives(archives);
            }
            resources.into_iter().fold(list, ResourceList::resource).build().unwrap()
        },
    )
}

fn resource_list_index() -> impl Strategy<Value = Document> {
    let part = (uri(), interval(), any::<bool>(), any::<bool>());
    (interval(), uri(), vec(part, 0..5)).prop_map(|((at, completed), up, parts)| {
        let mut index = ResourceListIndex::new(at, up).completed(completed);
        for (loc, (at, completed), started, ended) in parts {
            index = index.list(loc, started.then_some(at), ended.then_some(completed));
        }
        index.build().unwrap()
    })
}

fn change_notification() -> impl Strategy<Value = Document> {
    (btree_set(datetime(), 2..8), option::of(uri()), vec(change(), 8)).prop_map(|(times, up, changes)| {
        let (from, until) = ends(&times);
        let mut notification = ChangeNotification::new(from, until);
        if let Some(up) = up {
            notification = notification.up(up);
        }
        // Times are in order, and every second change has none.
        for (number, (change, time)) in changes.into_iter().zip(times).enumerate() {
            notification = notification.change(if number % 2 == 0 { change.datetime(time) } else { change });
        }
        notification.build().unwrap()
    })
}

fn framework_notification() -> impl Strategy<Value = Document> {
    let change =
        (select(Change::ALL.to_vec()), document_capability(), uri(), option::of(uri()), any::<bool>());
    (btree_set(datetime(), 2..6), any::<bool>(), option::of(uri()), vec(change, 0..5)).prop_map(
        |(times, bounded, up, changes)| {
            let (from, until) = ends(&times);
            let mut notification = FrameworkNotification::new();
            if bounded {
                notification = notification.interval(from, until);
            }
            if let Some(up) = up {
                notification = notification.up(up);
            }
            for (number, (change, capability, loc, index, dated)) in changes.into_iter().enumerate() {
                let index = index.filter(|index| capability != Capability::CapabilityList && *index != loc);
                let datetime = if dated { times.iter().nth(number).copied() } else { None };
                let change =
                    FrameworkChange { datetime, index, ..FrameworkChange::new(change, capability, loc) };
                notification = notification.change(change);
            }
            notification.build().unwrap()
        },
    )
}

fn resource() -> impl Strategy<Value = Resource> {
    let first = (uri(), option::of(datetime()), option::of(select(ChangeFrequency::ALL.to_vec())));
    let second =
        (hashes(), option::of(any::<u64>()), option::of(text()), option::of(text()), vec(link(), 0..3));
    (first, second).prop_map(|((loc, lastmod, frequency), (hashes, length, media_type, encoding, links))| {
        let mut resource = Resource::new(loc);
        if let Some(lastmod) = lastmod {
            resource = resource.lastmod(lastmod);
        }
        if let Some(frequency) = frequency {
            resource = resource.changefreq(frequency);
        }
        if !hashes.is_empty() {
            resource = resource.hashes(hashes);
        }
        if let Some(length) = length {
            resource = resource.length(length);
        }
        if let Some(media_type) = media_type {
            resource = resource.media_type(media_type);
        }
        if let Some(encoding) = encoding {
            resource = resource.encoding(encoding);
        }
        links.into_iter().fold(resource, Resource::link)
    })
}

fn change() -> impl Strategy<Value = ResourceChange> {
    let parts = (select(Change::ALL.to_vec()), uri(), option::of(datetime()), hashes(), any::<u64>(), text());
    (parts, vec(link(), 0..2)).prop_map(|((change, loc, lastmod, hashes, length, media_type), links)| {
        let mut told = ResourceChange::new(change, loc);
        if let Some(lastmod) = lastmod {
            told = told.lastmod(lastmod);
        }
        if change != Change::Deleted {
            told = told.hashes(hashes).length(length).media_type(media_type);
        }
        links.into_iter().fold(told, ResourceChange::link)
    })
}

fn link() -> impl Strategy<Value = Link> {
    let first = (relation(), uri(), hashes(), option::of(any::<u64>()), option::of(datetime()));
    let second =
        (option::of(1..=999_999_u32), text(), option::of(text()), option::of(text()), vec(text(), 0..3));
    (first, second).prop_map(
        |((rel, href, hash, length, modified), (pri, media_type, encoding, profile, values))| {
            let foreign = values.into_iter().enumerate().map(|(number, value)| ForeignAttribute {
                namespace: format!("urn:{}&'\"", number / 2),
                prefix: format!("p{}", number / 2),
                name: format!("é{number}"),
                value,
            });
            Link {
                hash,
                length,
                modified,
                pri,
                media_type: Some(media_type),
                encoding,
                profile,
                foreign: foreign.collect(),
                ..Link::new(rel, href)
            }
        },
    )
}

fn relation() -> impl Strategy<Value = Relation> {
    prop_oneof![
        select(Relation::DEFINED.to_vec()),
        "[a-z][a-z0-9.-]{0,12}".prop_map(|name| Relation::from(name.as_str())),
        uri().prop_map(|uri| Relation::from(uri.as_str())),
    ]
}

/// What a Capability List may list once and a Framework Notification may tell of.
fn document_capability() -> impl Strategy<Value = Capability> {
    let defined = Capability::DEFINED.into_iter().filter(|capability| !capability.is_notification());
    prop_oneof![
        3 => select(defined.collect::<Vec<_>>()),
        1 => text().prop_map(|token| Capability::from(format!("x{token}").as_str())),
    ]
}

fn uri() -> impl Strategy<Value = String> {
    "(https?|ftp)://[a-z]{1,8}\\.example/[!#-;=?-~\u{a1}-\u{fffc}\u{10000}-\u{10ffff}]{0,30}"
}

/// Anything that XML can carry, line ends and markup included.
fn text() -> impl Strategy<Value = String> {
    "[\t\n\r -\u{d7ff}\u{e000}-\u{fffd}\u{10000}-\u{10ffff}]{0,12}|[ \t\n\r&<>\"']{0,6}"
}

fn hashes() -> impl Strategy<Value = Hashes> {
    prop_oneof![
        vec((select(Algorithm::ALL.to_vec()), any::<u8>()), 0..4).prop_map(|digests| digests
            .into_iter()
            .map(|(algorithm, seed)| Digest::of(algorithm, &[seed]))
            .collect()),
        text().prop_map(|text| Hashes::parse(&text)),
    ]
}

/// Any instant from 1900 to 9999, often with a fraction.
fn datetime() -> impl Strategy<Value = DateTime> {
    let nanos = prop_oneof![Just(0), Just(500_000_000), 0..1_000_000_000_u32];
    (0..253_000_000_000_u64, nanos, 0..2_208_988_800_u64).prop_map(|(seconds, nanos, before)| {
        let epoch = SystemTime::UNIX_EPOCH - Duration::from_secs(before);
        DateTime::from_system_time(epoch + Duration::new(seconds, nanos))
    })
}

/// Two instants, the earlier first.
fn interval() -> impl Strategy<Value = (DateTime, DateTime)> {
    (datetime(), datetime()).prop_map(|(one, other)| (one.min(other), one.max(other)))
}

fn ends(times: &BTreeSet<DateTime>) -> (DateTime, DateTime) {
    (*times.first().unwrap(), *times.last().unwrap())
}
