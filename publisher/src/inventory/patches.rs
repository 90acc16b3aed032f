//! JSON Patches from one version of a JSON file to the next (RS-174, RS-176, RFC 6902).
//!
//! The last version of each file is stored beside the inventory. A patch is made only between bytes whose digests are in the last and in the next
//! inventory. So after a crash a patch can be missing, but never wrong. None begins at, or leads to, bytes that are forgotten.

use std::{
    collections::HashSet,
    fs, io,
    path::{Path, PathBuf},
};

use resync_core::{
    build::{BuildError, Item, Known, path_of},
    digest::{Agreement, Algorithm, Digest, Hasher, Hashes},
    document::{Change, Link, Relation},
};
use serde_json::{Number, Value};

use crate::{helpers::files, settings::Settings, site::Site, state::FOLDER, versions::Forgotten};

/// The folder of the patches, under OUT and under the base URL.
pub(crate) const PATCH_FOLDER: &str = "resync/patches";

/// The media type of the patches (RS-176).
pub(crate) const PATCH_TYPE: &str = "application/json-patch+json";

/// Longer files get no patches.
const LARGEST: u64 = 1024 * 1024;

/// Makes patches, where the settings ask for them.
pub(super) struct Patches(Option<Work>);

struct Work {
    base: String,
    directory: PathBuf,
    versions: PathBuf,
    out: PathBuf,
    site: Site,
    /// The bytes of which nothing is stored.
    forgotten: HashSet<Digest>,
}

impl Patches {
    pub(super) fn of(settings: &Settings, out: &Path) -> Self {
        if !settings.json_patch {
            return Self::none();
        }
        match Forgotten::load(out) {
            Ok(forgotten) => Self(Some(Work {
                base: settings.base_url.to_string(),
                directory: settings.directory.clone(),
                versions: out.join(FOLDER).join("versions"),
                out: out.to_owned(),
                site: Site::of(settings),
                forgotten: forgotten.all(),
            })),
            Err(error) => {
                tracing::warn!(%error, "no JSON Patch is made, since nobody can tell what is forgotten");
                Self::none()
            }
        }
    }

    pub(super) fn none() -> Self {
        Self(None)
    }

    /// Whether the settings ask for them; then versions are stored even where no change is recorded.
    pub(super) fn are_wanted(&self) -> bool {
        self.0.is_some()
    }

    /// The change of a resource that exists, and what it is now, with its patch if there is one.
    pub(super) fn change(
        &mut self,
        before: Option<&Known>,
        after: &Item,
    ) -> Result<Option<(Change, Item)>, BuildError> {
        let change = match before {
            None => Change::Created,
            Some(before) if after.differs_from(&before.item) => Change::Updated,
            Some(_) => return Ok(None),
        };
        let mut item = after.clone();
        if let Some(work) = &self.0 {
            item.links.extend(work.patch(before, after)?);
        }
        Ok(Some((change, item)))
    }

    /// A resource was deleted.
    pub(super) fn forget(&mut self, item: &Item) {
        if let Some(work) = &self.0 {
            // A file that stays does no harm.
            fs::remove_file(work.version(item)).ok();
        }
    }
}

impl Work {
    /// Stores the new version, and makes a patch from the one before.
    fn patch(&self, before: Option<&Known>, after: &Item) -> Result<Option<Link>, BuildError> {
        let Some(path) = after.loc.strip_prefix(&self.base).and_then(path_of) else { return Ok(None) };
        let is_json = after.media_type.as_deref() == Some("application/json");
        if !is_json || after.length.is_none_or(|length| length > LARGEST) {
            return Ok(None);
        }
        let version = self.version(after);
        let known = fs::read(&version).ok().filter(|known| !self.is_forgotten(known)).unwrap_or_default();
        let Ok(now) = fs::read(self.directory.join(path)) else { return Ok(None) };
        if !is_of(&now, after) {
            return Ok(None);
        }
        if self.is_forgotten(&now) {
            files::remove_unsynced(&version).map_err(unwritable(&version))?;
            return Ok(None);
        }
        fs::create_dir_all(&self.versions).map_err(unwritable(&self.versions))?;
        fs::write(&version, &now).map_err(unwritable(&version))?;
        let known = before.filter(|before| is_of(&known, &before.item)).map(|_| known);
        let Some(patch) = known.and_then(|known| between(&known, &now)) else { return Ok(None) };
        let digest = Digest::of(Algorithm::Sha256, &patch);
        let name = name_of(&format!("{} {digest}", after.loc));
        let place = self.site.place(&format!("{PATCH_FOLDER}/{name}.json"));
        let path = self.out.join(&place.path);
        files::replace(&path, &patch).map_err(unwritable(&path))?;
        Ok(Some(Link {
            hash: digest.into(),
            length: u64::try_from(patch.len()).ok(),
            media_type: Some(PATCH_TYPE.to_owned()),
            ..Link::new(Relation::Patch, place.url)
        }))
    }

    fn is_forgotten(&self, bytes: &[u8]) -> bool {
        // Mostly nothing is, and then nothing is read twice.
        !self.forgotten.is_empty() && self.forgotten.contains(&Digest::of(Algorithm::Sha256, bytes))
    }

    fn version(&self, item: &Item) -> PathBuf {
        self.versions.join(name_of(&item.loc))
    }
}

fn unwritable(path: &Path) -> impl Fn(io::Error) -> BuildError + '_ {
    move |source| BuildError::Write { name: path.display().to_string(), source }
}

/// A file name for a text.
fn name_of(text: &str) -> String {
    Digest::of(Algorithm::Sha256, text.as_bytes()).to_string().replace("sha-256:", "")
}

/// The patch from one JSON text to another, if it is shorter than that text.
fn between(before: &[u8], after: &[u8]) -> Option<Vec<u8>> {
    let [old, new] = [before, after].map(|text| serde_json::from_slice::<Value>(text).ok());
    let difference = json_patch::diff(&old?, &new?);
    if difference.0.is_empty() || ![before, after].into_iter().all(are_numbers_exact) {
        return None;
    }
    let patch = serde_json::to_vec(&difference).ok()?;
    (patch.len() < after.len()).then_some(patch)
}

/// Whether every number in a text of JSON is the same once it was read; one with more digits than a double holds is not.
fn are_numbers_exact(text: &[u8]) -> bool {
    let is_of_a_number = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
    let mut rest = text;
    while let Some(first) = rest.first() {
        let length = match first {
            b'"' => length_of_string(rest),
            b'-' | b'0'..=b'9' => {
                let number = rest.iter().take_while(|byte| is_of_a_number(byte)).count();
                if !is_exact(&rest[..number]) {
                    return false;
                }
                number
            }
            _ => 1,
        };
        rest = rest.get(length..).unwrap_or_default();
    }
    true
}

/// With both quotes.
fn length_of_string(text: &[u8]) -> usize {
    let mut is_escaped = true;
    let is_end = |byte: &u8| {
        let is_end = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        is_end
    };
    text.iter().position(is_end).map_or(text.len(), |end| end + 1)
}

fn is_exact(number: &[u8]) -> bool {
    let read = serde_json::from_slice::<Number>(number).map(|number| number.to_string());
    read.is_ok_and(|read| {
        Decimal::of(number).is_some_and(|exact| Decimal::of(read.as_bytes()) == Some(exact))
    })
}

/// A number of JSON as it is written, without insignificant zeros.
#[derive(Debug, PartialEq, Eq)]
struct Decimal {
    is_negative: bool,
    digits: Vec<u8>,
    exponent: i64,
}

impl Decimal {
    fn of(number: &[u8]) -> Option<Self> {
        let (is_negative, number) = match number.strip_prefix(b"-") {
            Some(number) => (true, number),
            None => (false, number),
        };
        let end = number.iter().position(|byte| matches!(byte, b'e' | b'E')).unwrap_or(number.len());
        let (mantissa, power) = number.split_at(end);
        let power = std::str::from_utf8(power.get(1..).unwrap_or_default()).ok()?;
        let power: i64 = if power.is_empty() { 0 } else { power.parse().ok()? };
        let point = mantissa.iter().position(|byte| *byte == b'.').unwrap_or(mantissa.len());
        let fraction = mantissa.len().saturating_sub(point + 1);
        let all: Vec<u8> = mantissa.iter().copied().filter(u8::is_ascii_digit).collect();
        let Some(last) = all.iter().rposition(|digit| *digit != b'0') else {
            return Some(Self { is_negative, digits: Vec::new(), exponent: 0 });
        };
        let digits = all[..=last].iter().copied().skip_while(|digit| *digit == b'0').collect();
        let zeros = i64::try_from(all.len() - 1 - last).ok()?;
        let exponent = power.checked_sub(i64::try_from(fraction).ok()?)?.checked_add(zeros)?;
        Some(Self { is_negative, digits, exponent })
    }
}

/// Whether these are the bytes of the item's digests.
fn is_of(bytes: &[u8], item: &Item) -> bool {
    let mut hasher = Hasher::new(item.hashes.iter().map(Digest::algorithm));
    hasher.update(bytes);
    let hashes: Hashes = hasher.finish();
    item.hashes.compare(&hashes) == Agreement::Same
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rs174_a_patch_leads_from_one_version_to_the_next_and_is_worth_it() {
        let version =
            |rest: &str| format!("{{\"abstract\": \"{}\", {rest}}}", "Long. ".repeat(50)).into_bytes();
        let before = version(r#""authors": ["Ada"], "year": 2025"#);
        let after = version(r#""authors": ["Ada", "Bob"], "year": 2026"#);
        let patch = between(&before, &after).unwrap();
        let mut document = serde_json::from_slice(&before).unwrap();
        let patch: json_patch::Patch = serde_json::from_slice(&patch).unwrap();
        json_patch::patch(&mut document, &patch).unwrap();
        assert_eq!(document, serde_json::from_slice::<serde_json::Value>(&after).unwrap());
        assert_eq!(between(b"{\"a\": 1}", b"[1]"), None, "no shorter than the file");
        assert_eq!(between(b"no JSON", &after), None);
    }

    #[test]
    fn rs174_no_patch_is_made_from_numbers_that_are_read_as_others_and_none_that_changes_nothing() {
        let text = "Long. ".repeat(50);
        let version = |numbers: &str| format!("{{\"text\": \"{text}\", \"of\": [{numbers}]}}").into_bytes();
        for (before, after) in [
            ("1.00000000000000000001", "1.00000000000000000002"),
            ("1.00000000000000000001, 1", "1.00000000000000000002, 2"),
            ("123456789012345678901234567890, 1", "123456789012345678901234567890, 2"),
            ("1, 1e-400", "2, 1e-400"),
            ("1", "  1"),
        ] {
            assert_eq!(between(&version(before), &version(after)), None, "{before} → {after}");
        }
        for (before, after) in [
            ("1.50, 0.00, -0, 1E+2", "1.5, 0, -0.0, 100.0, 3"),
            ("\"1.00000000000000000001 \\\" 1e999 \\\\\", 1", "18446744073709551615, -9223372036854775808"),
        ] {
            assert!(between(&version(before), &version(after)).is_some(), "{before} → {after}");
        }
    }
}
