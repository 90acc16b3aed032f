//! `tests/advisories.toml`, the list of advisories about our crates, and a checkout of the database that it is made from.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use semver::{Version, VersionReq};
use serde::{Deserialize, Deserializer};
use walkdir::WalkDir;

use super::tree::Crate;

/// A line of the list.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Advisory {
    pub(super) id: String,
    #[serde(rename = "crate")]
    pub(super) name: String,
    #[serde(flatten)]
    pub(super) versions: Versions,
    /// What is wrong with the others.
    pub(super) about: String,
}

/// Which versions are well.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub(super) struct Versions {
    #[serde(default, deserialize_with = "requirements")]
    patched: Vec<VersionReq>,
    #[serde(default, deserialize_with = "requirements")]
    unaffected: Vec<VersionReq>,
}

fn requirements<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<VersionReq>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    texts.iter().map(|text| text.parse()).collect::<Result<_, _>>().map_err(serde::de::Error::custom)
}

impl Advisory {
    pub(super) fn concerns(&self, it: &Crate) -> bool {
        self.name == it.name && self.versions.are_affected(&it.version)
    }
}

impl Versions {
    fn are_affected(&self, version: &Version) -> bool {
        !self.patched.iter().chain(&self.unaffected).any(|well| well.matches(version))
    }
}

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/advisories.toml");
/// Between these the file names the crates that were compared with the database.
const COMPARED: [&str; 2] = ["\ncompared = \"\"\"\n", "\"\"\"\n"];

pub(super) fn list() -> Vec<Advisory> {
    #[derive(Deserialize)]
    struct List {
        advisories: Vec<Advisory>,
    }
    toml::from_str::<List>(&file()).unwrap().advisories
}

/// Those of these crates that were never compared with the database.
pub(super) fn not_compared<'c>(crates: &[&'c Crate]) -> BTreeSet<&'c str> {
    let text = file();
    let (_, compared, _) = parts(&text);
    let compared: BTreeSet<_> = compared.split_whitespace().collect();
    names(crates).into_iter().filter(|name| !compared.contains(name)).collect()
}

/// Writes down that these crates were compared with the database, and no others.
pub(super) fn write_compared(crates: &[&Crate]) {
    let text = file();
    let (before, _, after) = parts(&text);
    let names: Vec<_> = names(crates).into_iter().collect();
    let lines = names.chunk_by(|one, other| one.as_bytes()[0] == other.as_bytes()[0]);
    let compared: String = lines.map(|line| line.join(" ") + "\n").collect();
    let [begin, end] = COMPARED;
    fs::write(FILE, [before, begin, &compared, end, after].concat()).unwrap();
}

fn file() -> String {
    fs::read_to_string(FILE).unwrap()
}

/// What stands before the names of the crates that were compared, these, and what stands after them.
fn parts(text: &str) -> (&str, &str, &str) {
    let [begin, end] = COMPARED;
    let (before, rest) = text.split_once(begin).unwrap();
    let (compared, after) = rest.split_once(end).unwrap();
    (before, compared, after)
}

/// Of crates from elsewhere: those of this repository are in no database.
fn names<'c>(crates: &[&'c Crate]) -> BTreeSet<&'c str> {
    crates.iter().filter(|it| it.source.is_some()).map(|it| it.name.as_str()).collect()
}

/// What the list would have to say otherwise to agree with the database in `folder` about these crates.
pub(super) fn news(folder: &Path, list: &[Advisory], crates: &[&Crate]) -> Vec<String> {
    let listed: BTreeMap<_, _> = list.iter().map(|advisory| (advisory.id.as_str(), advisory)).collect();
    let names: BTreeSet<_> = crates.iter().map(|it| it.name.as_str()).collect();
    let mut news = Vec::new();
    for name in names {
        for entry in WalkDir::new(folder.join("crates").join(name)).sort_by_file_name().into_iter().flatten()
        {
            let file = entry.file_name().to_string_lossy();
            if file.starts_with("RUSTSEC-") && file.ends_with(".md") {
                let text = fs::read_to_string(entry.path()).unwrap();
                let found = Entry::read(&text).unwrap_or_else(|| panic!("{}", entry.path().display()));
                news.extend(found.news(listed.get(found.advisory.id.as_str()).copied(), crates));
            }
        }
    }
    news
}

/// A file of the database: a block of TOML, and then prose whose heading is the title.
#[derive(Deserialize)]
struct Entry {
    advisory: About,
    versions: Versions,
    #[serde(default)]
    title: String,
}

#[derive(Deserialize)]
struct About {
    id: String,
    package: String,
    withdrawn: Option<String>,
}

impl Entry {
    fn read(text: &str) -> Option<Self> {
        let (toml, prose) = text.split_once("```toml")?.1.split_once("\n```")?;
        let title = prose.lines().find_map(|line| line.strip_prefix("# "))?;
        let entry: Self = toml::from_str(toml).ok()?;
        Some(Self { title: title.to_owned(), ..entry })
    }

    fn news(&self, listed: Option<&Advisory>, crates: &[&Crate]) -> Option<String> {
        let About { id, package, withdrawn } = &self.advisory;
        match (listed, withdrawn) {
            (None, Some(_)) => None,
            (Some(_), Some(day)) => {
                Some(format!("{id} of {package} was withdrawn on {day}: remove its line"))
            }
            (Some(listed), None) if listed.versions == self.versions => None,
            (Some(_), None) => Some(format!("{id} speaks of other versions by now:\n{}", self.line())),
            (None, None) => {
                let affected: Vec<_> = crates
                    .iter()
                    .filter(|it| it.name == *package && self.versions.are_affected(&it.version))
                    .map(|it| it.version.to_string())
                    .collect();
                let concerns = if affected.is_empty() {
                    "concerns no version that we have".to_owned()
                } else {
                    format!("CONCERNS {package} {}", affected.join(", "))
                };
                Some(format!("{id} is new and {concerns}:\n{}", self.line()))
            }
        }
    }

    /// For the list, but that the title is the database's.
    fn line(&self) -> String {
        let About { id, package, .. } = &self.advisory;
        let quoted =
            |all: &[VersionReq]| all.iter().map(|one| format!("\"{one}\"")).collect::<Vec<_>>().join(", ");
        let Versions { patched, unaffected } = &self.versions;
        let mut line =
            format!("    {{ id = \"{id}\", crate = \"{package}\", patched = [{}]", quoted(patched));
        if !unaffected.is_empty() {
            let _ = write!(line, ", unaffected = [{}]", quoted(unaffected));
        }
        line + &format!(", about = {:?} }},", self.title)
    }
}
