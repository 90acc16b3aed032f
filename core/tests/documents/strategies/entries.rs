//! Any entry and any link.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use resync_core::datetime::DateTime;
use resync_core::digest::Hashes;
use resync_core::document::{
    Bitstream, Change, ChangeFrequency, ChangePackage, ForeignAttribute, Link, Mirror, Package, PackedChange,
    Priority, Related, Relation, Resource, ResourceChange,
};

use super::maybe;
use super::values::{datetime, hashes, interval, path, text, uri};

/// What is said of a representation.
type Described = (Hashes, Option<u64>, Option<String>, Option<String>);
/// When and how often something changes, and how important it is.
type Expected = (Option<DateTime>, Option<ChangeFrequency>, Option<Priority>);

macro_rules! describe {
    ($entry:expr, $described:expr) => {{
        let (hashes, length, media_type, encoding) = $described;
        let mut entry = $entry.hashes(hashes);
        if let Some(length) = length {
            entry = entry.length(length);
        }
        if let Some(media_type) = media_type {
            entry = entry.media_type(media_type);
        }
        if let Some(encoding) = encoding {
            entry = entry.encoding(encoding);
        }
        entry
    }};
}

pub(super) fn resource() -> impl Strategy<Value = Resource> {
    (uri(), expected(), described(), foreign(), vec(link(), 0..3)).prop_map(
        |(loc, (lastmod, frequency, priority), described, foreign, links)| {
            let mut resource = maybe(Resource::new(loc), lastmod, Resource::lastmod);
            resource = maybe(resource, frequency, Resource::changefreq);
            resource = maybe(resource, priority, Resource::priority);
            resource = describe!(resource, described);
            resource = foreign.into_iter().fold(resource, Resource::foreign);
            links.into_iter().fold(resource, Resource::link)
        },
    )
}

/// A change without its datetime.
pub(super) fn change() -> impl Strategy<Value = ResourceChange> {
    let first = (select(Change::ALL.to_vec()), uri(), expected(), described());
    (first, foreign(), vec(link(), 0..2), any::<bool>()).prop_map(
        |((change, loc, (lastmod, frequency, priority), described), foreign, links, patched)| {
            let mut told = maybe(ResourceChange::new(change, loc.clone()), lastmod, ResourceChange::lastmod);
            told = maybe(told, frequency, ResourceChange::changefreq);
            told = maybe(told, priority, ResourceChange::priority);
            told = describe!(told, described);
            if patched {
                told = told.patch(Link::patch(loc, "application/json-patch+json").length(1));
            }
            told = foreign.into_iter().fold(told, ResourceChange::foreign);
            links.into_iter().fold(told, ResourceChange::link)
        },
    )
}

pub(super) fn package() -> impl Strategy<Value = Package> {
    let times = (interval(), any::<bool>(), any::<bool>());
    (uri(), text(), any::<u64>(), times, hashes(), option::of(uri()), option::of(datetime())).prop_map(
        |(loc, media_type, length, ((at, completed), started, ended), hashes, contents, lastmod)| {
            let mut package = Package::new(loc, media_type, length).hashes(hashes);
            package = maybe(package, started.then_some(at), Package::at);
            package = maybe(package, ended.then_some(completed), Package::completed);
            package = maybe(package, lastmod, Package::lastmod);
            maybe(package, contents, Package::contents)
        },
    )
}

/// A package without its interval.
pub(super) fn change_package() -> impl Strategy<Value = ChangePackage> {
    (uri(), any::<u64>(), hashes(), option::of(uri()), foreign()).prop_map(
        |(loc, length, hashes, contents, foreign)| {
            let package =
                maybe(ChangePackage::zip(loc, length).hashes(hashes), contents, ChangePackage::contents);
            foreign.into_iter().fold(package, ChangePackage::foreign)
        },
    )
}

/// A bitstream whose path ends with this number.
pub(super) fn bitstream(number: usize) -> impl Strategy<Value = Bitstream> {
    (uri(), path(), expected(), described(), vec(related(), 0..2), foreign()).prop_map(
        move |(loc, path, (lastmod, frequency, _), described, links, foreign)| {
            let mut bitstream =
                maybe(Bitstream::new(loc, format!("{path}{number}")), lastmod, Bitstream::lastmod);
            bitstream = maybe(bitstream, frequency, Bitstream::changefreq);
            bitstream = describe!(bitstream, described);
            for link in links {
                bitstream = bitstream.link(link.clone()).packed_link(link, path.clone());
            }
            foreign.into_iter().fold(bitstream, Bitstream::foreign)
        },
    )
}

/// A packed change without its datetime, whose path ends with this number.
pub(super) fn packed_change(number: usize) -> impl Strategy<Value = PackedChange> {
    let first = (select(Change::ALL.to_vec()), uri(), path(), expected(), described());
    (first, vec(related(), 0..2), any::<bool>()).prop_map(
        move |((change, loc, path, (lastmod, frequency, _), described), links, patched)| {
            let patch = Link::patch(loc.clone(), "application/json-patch+json");
            let here = format!("{path}{number}");
            let mut packed = match change {
                Change::Created => PackedChange::created(loc, here),
                Change::Updated => PackedChange::updated(loc, here),
                Change::Deleted => PackedChange::deleted(loc),
            };
            packed = maybe(packed, lastmod, PackedChange::lastmod);
            packed = maybe(packed, frequency, PackedChange::changefreq);
            packed = describe!(packed, described);
            for link in links {
                packed = packed.link(link.clone()).packed_link(link, path.clone());
            }
            if patched { packed.patch(patch, path) } else { packed }
        },
    )
}

fn expected() -> impl Strategy<Value = Expected> {
    let priority = (0..=1000_u16).prop_map(|thousandths| Priority::from_thousandths(thousandths).unwrap());
    (option::of(datetime()), option::of(select(ChangeFrequency::ALL.to_vec())), option::of(priority))
}

fn described() -> impl Strategy<Value = Described> {
    (hashes(), option::of(any::<u64>()), option::of(text()), option::of(text()))
}

fn foreign() -> impl Strategy<Value = Vec<ForeignAttribute>> {
    vec(text(), 0..3).prop_map(|values| {
        let attribute = |(number, value)| ForeignAttribute {
            namespace: format!("urn:{}&'\"", number / 2),
            prefix: format!("p{}", number / 2),
            name: format!("é{number}"),
            value,
        };
        values.into_iter().enumerate().map(attribute).collect()
    })
}

/// Any link by its named constructor, but for patches, which go their own way.
fn related() -> impl Strategy<Value = Link> {
    let parts = (uri(), option::of(1..=999_999_u32), option::of(datetime()), described(), option::of(text()));
    (0..11_u8, parts).prop_map(|(kind, (href, pri, modified, described, profile))| {
        let related = match kind {
            0 => {
                return maybe(maybe(Link::mirror(href), pri, Mirror::pri), modified, Mirror::modified).into();
            }
            1 => return Link::profile(href),
            2 => return Link::timegate(href),
            3 => return Link::collection(href),
            4 => Link::alternate(href),
            5 => Link::canonical(href),
            6 => Link::described_by(href),
            7 => Link::describes(href),
            8 => Link::memento(href),
            9 => Link::timemap(href),
            _ => Link::via(href),
        };
        let related = maybe(maybe(related, pri, Related::pri), modified, Related::modified);
        maybe(describe!(related, described), profile, Related::with_profile).into()
    })
}

/// Any link at all, with whatever attributes.
fn link() -> impl Strategy<Value = Link> {
    let first = (relation(), uri(), hashes(), option::of(any::<u64>()), option::of(datetime()));
    let second = (option::of(1..=999_999_u32), text(), option::of(text()), option::of(text()), foreign());
    (first, second).prop_map(
        |((rel, href, hash, length, modified), (pri, media_type, encoding, profile, foreign))| Link {
            hash,
            length,
            modified,
            pri,
            media_type: Some(media_type),
            encoding,
            profile,
            foreign,
            ..Link::new(rel, href)
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
