//! Patches: make the new version of a file from the previous one (RS-174…RS-176).
//!
//! Only JSON Patch (RFC 6902) is supported. The result must have the listed hash, so it does not matter whether the local file is
//! the version that the patch was made for. The layout of the file is kept, since the hash is of its bytes.

use std::collections::HashMap;
use std::sync::Mutex;

use json_patch::{Patch, PatchOperation};
use resync_common::locks::lock;
use resync_core::document::{Change, Entry, Link, Relation};
use resync_core::media_type::essence;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::ser::{PrettyFormatter, Serializer};
use url::Url;

use super::local::Facts;
use crate::fetch::led_to;
use crate::sync::reading::packages::BitstreamPath;

/// The longest file that is patched, and the sum of its patches, in bytes: all are in memory.
pub(crate) const MAX_PATCHED: u64 = 1 << 20;

/// How deep a document may be, so that the stack suffices.
const MAX_DEPTH: usize = 128;

/// How many values a document, or all its patches, may have: a value needs much more memory than its text.
const MAX_VALUES: usize = 100_000;

/// How many values all operations may touch, if each touches the whole document.
const MAX_WORK: usize = 200_000_000;

/// How many patches in a row are tried; with more, the resource is fetched.
const MAX_CHAIN: usize = 16;

/// For how many resources one run keeps patches, and how many bytes of URLs.
const MAX_CHAINS: usize = 10_000;
const MAX_CHAINS_BYTES: usize = 8 << 20;

/// How many copies one patch may make; each may double the document.
const MAX_COPIES: usize = 16;

const TYPES: [&str; 2] = ["application/json-patch+json", "application/json-patch"];

/// The location of a patch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PatchLink {
    pub(crate) url: String,
    /// Its place in a package.
    pub(crate) packed: Option<BitstreamPath>,
    pub(crate) facts: Facts,
}

impl PatchLink {
    fn of(entry: &Entry, document: &Url, package: Option<u32>) -> Option<Self> {
        let mut links: Vec<&Link> =
            entry.links_with(&Relation::Patch).filter(|link| is_known(link)).collect();
        links.sort_by_key(|link| link.pri.unwrap_or(u32::MAX));
        let link = *links.first()?;
        let url = led_to(document, &link.href)?;
        let packed = package.zip(link.path.clone());
        let packed = packed.map(|(package, path)| BitstreamPath { package, path });
        // For packages, only patches inside are used.
        (package.is_none() || packed.is_some()).then(|| Self {
            url: url.into(),
            packed,
            facts: Facts::of_link(link),
        })
    }

    /// About how many bytes of memory it takes.
    fn weight(&self) -> usize {
        self.url.len() + self.packed.as_ref().map_or(0, |packed| packed.path.len())
    }

    /// The link in the manifest.
    pub(crate) fn link(&self) -> Link {
        let path = self.packed.as_ref().map(|packed| packed.path.clone());
        let Facts { length, hashes, .. } = self.facts.clone();
        Link { path, length, hash: hashes, ..Link::new(Relation::Patch, self.url.clone()) }
    }
}

fn is_known(link: &Link) -> bool {
    let essence = link.media_type.as_deref().map(essence);
    essence.is_some_and(|essence| TYPES.iter().any(|known| essence.eq_ignore_ascii_case(known)))
}

/// Consecutive patches by resource.
#[derive(Debug, Default)]
pub(crate) struct PatchChains {
    by_resource: HashMap<Url, Vec<PatchLink>>,
    bytes: usize,
}

impl PatchChains {
    /// Adds the next change of a resource; returns the patches that lead to it, oldest first.
    pub(crate) fn next(&mut self, url: &Url, entry: &Entry, package: Option<u32>) -> Vec<PatchLink> {
        let patch = (entry.change() == Some(Change::Updated)).then(|| PatchLink::of(entry, url, package));
        let Some(patch) = patch.flatten() else {
            self.forget(url);
            return Vec::new();
        };
        if !self.by_resource.contains_key(url) {
            if self.by_resource.len() >= MAX_CHAINS {
                return vec![patch];
            }
            self.bytes += url.as_str().len();
        }
        let chain = self.by_resource.entry(url.clone()).or_default();
        if chain.len() >= MAX_CHAIN {
            self.bytes -= chain.remove(0).weight();
        }
        self.bytes += patch.weight();
        chain.push(patch);
        let all = chain.clone();
        // Its chain begins again, which is harmless: the result is checked.
        if self.bytes > MAX_CHAINS_BYTES {
            self.forget(url);
        }
        all
    }

    fn forget(&mut self, url: &Url) {
        let chain = self.by_resource.remove(url);
        let weight = |chain: Vec<PatchLink>| chain.iter().map(PatchLink::weight).sum::<usize>();
        self.bytes -= chain.map_or(0, |chain| url.as_str().len() + weight(chain));
    }
}

/// The new version, if one of the patches and all after it lead to a version that `is_right`. One at a time per process, since it
/// takes memory.
pub(crate) fn apply(old: &[u8], patches: &[Vec<u8>], is_right: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = lock(&ONE_AT_A_TIME);
    let (values, of_patches) =
        (most_values(old), patches.iter().map(|patch| most_values(patch)).sum::<usize>());
    if values > MAX_VALUES || of_patches > MAX_VALUES {
        return None;
    }
    let document: Value = serde_json::from_slice(old).ok()?;
    let layout = Layout::of(old, &document)?;
    let patches: Vec<Patch> =
        patches.iter().map(|patch| serde_json::from_slice(patch).ok()).collect::<Option<_>>()?;
    let mut work = MAX_WORK;
    let versions = (0..patches.len()).filter_map(|first| {
        let mut version = Version { document: document.clone(), values, work: &mut work };
        patches[first..].iter().try_for_each(|patch| version.apply(patch))?;
        layout.write(&version.document)
    });
    versions.into_iter().find(|version| is_right(version))
}

/// An upper bound of the number of values, without parsing: each comes after one of these characters.
fn most_values(text: &[u8]) -> usize {
    1 + text.iter().filter(|byte| matches!(byte, b'[' | b',' | b':')).count()
}

/// A document that is being patched.
struct Version<'w> {
    document: Value,
    /// An upper bound of its values.
    values: usize,
    /// The work that is left for all versions.
    work: &'w mut usize,
}

impl Version<'_> {
    /// `None` if it cannot be applied, or the document becomes too large.
    fn apply(&mut self, patch: &Patch) -> Option<()> {
        let is_copy = |operation: &PatchOperation| matches!(operation, PatchOperation::Copy(_));
        if patch.0.iter().filter(|operation| is_copy(operation)).count() > MAX_COPIES {
            return None;
        }
        for operation in &patch.0 {
            self.admit(operation)?;
            json_patch::patch(&mut self.document, std::slice::from_ref(operation)).ok()?;
            let is_too_long = || Some(serde_json::to_vec(&self.document).ok()?.len() as u64 > MAX_PATCHED);
            if is_copy(operation) && is_too_long()? {
                return None;
            }
        }
        Some(())
    }

    /// `None` if the document would become too deep or too large.
    fn admit(&mut self, operation: &PatchOperation) -> Option<()> {
        *self.work = self.work.checked_sub(self.values)?;
        let at = |pointer: &str| self.document.pointer(pointer);
        let (value, is_new) = match operation {
            PatchOperation::Add(add) => (&add.value, true),
            PatchOperation::Replace(replace) => (&replace.value, true),
            PatchOperation::Copy(copy) => (at(copy.from.as_str())?, true),
            PatchOperation::Move(moved) => (at(moved.from.as_str())?, false),
            PatchOperation::Remove(_) | PatchOperation::Test(_) => return Some(()),
        };
        let Extent { depth, values } = Extent::of(value);
        // Each step of a pointer begins with a slash; in names it is `~1`.
        let above = operation.path().as_str().matches('/').count();
        self.values += if is_new { values } else { 0 };
        (above + depth <= MAX_DEPTH && self.values <= MAX_VALUES).then_some(())
    }
}

/// The depth of a value, and the number of values in it, itself included.
struct Extent {
    depth: usize,
    values: usize,
}

impl Extent {
    /// For a document of limited depth.
    fn of(value: &Value) -> Self {
        let sum = |found: Self, inner: &Value| {
            let inner = Self::of(inner);
            Self { depth: found.depth.max(inner.depth + 1), values: found.values + inner.values }
        };
        let one = Self { depth: 0, values: 1 };
        match value {
            Value::Array(inner) => inner.iter().fold(Self { depth: 1, ..one }, sum),
            Value::Object(inner) => inner.values().fold(Self { depth: 1, ..one }, sum),
            _ => one,
        }
    }
}

/// The layout of a JSON file.
#[derive(Clone, Debug)]
struct Layout {
    /// `None` for a single line.
    indent: Option<&'static [u8]>,
    end: &'static [u8],
}

impl Layout {
    /// The layout of the file; `None` if writing the value does not give the same bytes.
    fn of(file: &[u8], value: &Value) -> Option<Self> {
        let indents = [None, Some(b"  ".as_slice()), Some(b"    "), Some(b"\t")];
        let ends = [b"".as_slice(), b"\n", b"\r\n"];
        let layouts = indents.into_iter().flat_map(|indent| ends.map(|end| Self { indent, end }));
        layouts.into_iter().find(|layout| layout.write(value).is_some_and(|written| written == file))
    }

    fn write(&self, value: &Value) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        match self.indent {
            None => serde_json::to_writer(&mut out, value).ok()?,
            Some(indent) => {
                let formatter = PrettyFormatter::with_indent(indent);
                value.serialize(&mut Serializer::with_formatter(&mut out, formatter)).ok()?;
            }
        }
        out.extend_from_slice(self.end);
        Some(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use resync_core::document::Metadata;

    const ONE: &str = r#"{"a":1,"list":["x"]}"#;

    fn patched(old: &str, patches: &[&str], new: &str) -> bool {
        let patches: Vec<Vec<u8>> = patches.iter().map(|patch| patch.as_bytes().to_vec()).collect();
        apply(old.as_bytes(), &patches, |bytes| bytes == new.as_bytes()).is_some()
    }

    #[test]
    fn rs174_a_patch_makes_the_new_version_of_the_old_one_in_its_layout() {
        let add = r#"[{"op":"add","path":"/list/-","value":"y"}]"#;
        assert!(patched(ONE, &[add], r#"{"a":1,"list":["x","y"]}"#));
        let pretty = "{\n  \"a\": 1,\n  \"list\": [\n    \"x\"\n  ]\n}\n";
        assert!(patched(pretty, &[add], "{\n  \"a\": 1,\n  \"list\": [\n    \"x\",\n    \"y\"\n  ]\n}\n"));
        assert!(!patched("{ \"a\":1 }", &[add], "{ \"a\":2 }"), "of a layout that nobody knows");
    }

    #[test]
    fn rs198_patches_follow_one_another_and_begin_where_the_copy_is() {
        let one = r#"[{"op":"replace","path":"/a","value":2}]"#;
        let two = r#"[{"op":"test","path":"/a","value":2},{"op":"replace","path":"/a","value":3}]"#;
        let new = r#"{"a":3,"list":["x"]}"#;
        assert!(patched(ONE, &[one, two], new));
        assert!(patched(r#"{"a":2,"list":["x"]}"#, &[r#"[{"op":"remove","path":"/gone"}]"#, two], new));
        assert!(!patched(ONE, &[two], new), "it is not made for this version");
    }

    #[test]
    fn rs175_a_patch_that_is_none_or_a_bomb_makes_nothing() {
        let copy = r#"{"op":"copy","from":"","path":"/b"}"#;
        let bomb = format!("[{}]", vec![copy; 17].join(","));
        let big = format!("[{}]", [copy; 16].join(","));
        let large = format!(r#"{{"a":"{}"}}"#, "x".repeat(1 << 20));
        for (old, patch) in [(ONE, bomb.as_str()), (large.as_str(), big.as_str()), (ONE, "{}"), (ONE, "<x/>")]
        {
            let made = apply(old.as_bytes(), &[patch.as_bytes().to_vec()], |_| true);
            assert!(made.is_none(), "{patch:.60}");
        }
    }

    /// A document of so many arrays in one another.
    fn nested(depth: usize) -> String {
        format!("{}{}", "[".repeat(depth), "]".repeat(depth))
    }

    fn is_applied(old: &str, operations: &[String]) -> bool {
        let patch = format!("[{}]", operations.join(","));
        apply(old.as_bytes(), &[patch.into_bytes()], |_| true).is_some()
    }

    #[test]
    fn rs175_a_patch_that_makes_a_document_too_deep_is_refused_before_it_does() {
        let old = nested(100);
        let deepest = "/0".repeat(99);
        let add =
            |path: &str, depth| format!(r#"{{"op":"add","path":"{path}/-","value":{}}}"#, nested(depth));
        let copy = |from: &str| format!(r#"{{"op":"copy","from":"{from}","path":"{deepest}/-"}}"#);
        let moved = |from: &str, to: &str| format!(r#"{{"op":"move","from":"{from}","path":"{to}"}}"#);
        assert!(is_applied(&old, &[add(&deepest, 20)]));
        assert!(!is_applied(&old, &[add(&deepest, 30)]));
        assert!(!is_applied(&old, &[copy("")]));
        assert!(is_applied(&old, &[copy(&"/0".repeat(80))]));
        assert!(!is_applied(&old, &[copy(&"/0".repeat(60))]));
        let beside = [add("", 50), moved("/1", &format!("{deepest}/-"))];
        assert!(is_applied(&old, &beside[..1]) && !is_applied(&old, &beside));
        let replace = format!(r#"{{"op":"replace","path":"/0{deepest}","value":{}}}"#, nested(60));
        assert!(!is_applied(&nested(101), &[replace]));
    }

    #[test]
    fn rs175_a_patch_of_more_values_or_work_than_is_worth_it_is_refused() {
        let many = |count: usize| format!("[{}]", vec!["0"; count].join(","));
        let first = |count| vec![r#"{"op":"add","path":"/0","value":1}"#.to_owned(); count];
        assert!(is_applied(&many(50_000), &first(10)));
        assert!(!is_applied(&many(150_000), &first(1)), "values of the file");
        assert!(!is_applied(&many(50_000), &first(10_000)), "work");
        let add = format!(r#"{{"op":"add","path":"/-","value":{}}}"#, many(150_000));
        assert!(!is_applied("[]", &[add]), "values of the patch");
        let copy = r#"{"op":"copy","from":"","path":"/-"}"#.to_owned();
        assert!(is_applied(&many(40_000), std::slice::from_ref(&copy)));
        assert!(!is_applied(&many(40_000), &[copy.clone(), copy]), "values after copies");
    }

    #[test]
    fn patches_are_remembered_up_to_so_many_bytes() {
        let mut chains = PatchChains::default();
        let long = |number: usize| format!("http://a.example/{number}{}", "x".repeat(3_900));
        let updated = |number: usize| {
            let patch = Link::new(Relation::Patch, long(number));
            let patch = Link { media_type: Some(TYPES[0].to_owned()), ..patch };
            let metadata = Metadata { change: Some(Change::Updated), ..Metadata::default() };
            Entry { links: vec![patch], ..Entry::with_metadata(long(number), metadata) }
        };
        for number in 0..2_000 {
            let url = Url::parse(&long(number)).unwrap();
            assert_eq!(chains.next(&url, &updated(number), None).len(), 1);
        }
        let weighed = |(url, chain): (&Url, &Vec<PatchLink>)| {
            url.as_str().len() + chain.iter().map(PatchLink::weight).sum::<usize>()
        };
        let bytes: usize = chains.by_resource.iter().map(weighed).sum();
        assert_eq!(bytes, chains.bytes);
        assert!(bytes <= MAX_CHAINS_BYTES && bytes > MAX_CHAINS_BYTES * 9 / 10, "{bytes}");
        let first = Url::parse(&long(0)).unwrap();
        assert_eq!(chains.next(&first, &updated(0), None).len(), 2, "what is remembered goes on");
    }

    #[test]
    fn rs174_a_version_that_is_told_whole_ends_a_chain_of_patches() {
        let url = Url::parse("http://a.example/x").unwrap();
        let entry = |change, media_type: Option<&str>| {
            let metadata = resync_core::document::Metadata { change: Some(change), ..Default::default() };
            let link =
                |one: &str| Link { media_type: Some(one.to_owned()), ..Link::new(Relation::Patch, "/p") };
            Entry {
                links: media_type.map(link).into_iter().collect(),
                ..Entry::with_metadata(url.as_str(), metadata)
            }
        };
        let known = Some("application/json-patch+json; charset=utf-8");
        let mut chains = PatchChains::default();
        let mut after = |entry: &Entry| chains.next(&url, entry, None).len();
        assert_eq!(after(&entry(Change::Updated, known)), 1);
        assert_eq!(after(&entry(Change::Updated, Some("application/json-patch"))), 2);
        assert_eq!(after(&entry(Change::Updated, Some("application/patch-ops-error+xml"))), 0, "RS-175");
        assert_eq!(after(&entry(Change::Updated, known)), 1);
        assert_eq!(after(&entry(Change::Created, known)), 0);
        for _ in 0..20 {
            assert!(after(&entry(Change::Updated, known)) <= MAX_CHAIN);
        }
        assert_eq!(chains.next(&url, &entry(Change::Updated, known), Some(1)).len(), 0, "not in the package");
    }
}
