//! `xmllint` with the grammar of `tests/schemas` and with the published schemas, and where the documents lie that it is shown.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use tempfile::TempDir;
use walkdir::{DirEntry, WalkDir};

/// Names a folder in which the documents stay, so that other validators can be shown them.
pub const DOCUMENTS: &str = "RESYNC_TEST_DOCUMENTS";

/// Names a folder with the published schemas, which are no part of this project: `sitemap.xsd`, `siteindex.xsd` and
/// `resourcesync-1.1.xsd`.
pub const SCHEMAS: &str = "RESYNC_TEST_SCHEMAS";

/// A folder for documents: below the one that [`DOCUMENTS`] names, else a temporary one.
#[derive(Debug)]
pub struct Documents {
    path: PathBuf,
    _temporary: Option<TempDir>,
}

impl Documents {
    /// The folder `name`, empty.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn new(name: &str) -> Self {
        let kept = env::var_os(DOCUMENTS).filter(|folder| !folder.is_empty());
        let temporary = kept.is_none().then(|| tempfile::tempdir().expect("a temporary folder can be made"));
        let root = temporary.as_ref().map(|folder| folder.path().to_owned());
        let path = root.or(kept.map(PathBuf::from)).expect("one of the two is there").join(name);
        if path.exists() {
            fs::remove_dir_all(&path).expect("what an earlier run left can be removed");
        }
        fs::create_dir_all(&path).expect("a folder can be made");
        Self { path, _temporary: temporary }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a document.
    ///
    /// # Panics
    /// When that fails.
    pub fn store(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path.join(name);
        fs::write(&path, bytes).expect("a document can be written");
        path
    }
}

/// The files below a folder that readers are to see, by name: neither state nor locks.
///
/// # Panics
/// When the folder cannot be read.
pub fn files_below(folder: &Path) -> Vec<PathBuf> {
    let is_private = |entry: &DirEntry| {
        let name = entry.file_name().to_string_lossy();
        name.starts_with('.') && name != ".well-known" && entry.depth() > 0
    };
    let entries = WalkDir::new(folder).sort_by_file_name().into_iter();
    let entries =
        entries.filter_entry(|entry| !is_private(entry)).map(|entry| entry.expect("it can be read"));
    entries.filter(|entry| entry.file_type().is_file()).map(DirEntry::into_path).collect()
}

/// The grammar of `tests/schemas`.
pub fn grammar() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../schemas/resourcesync.rng")
}

/// What `xmllint` has against these files; nothing when all are valid.
///
/// # Panics
/// When `xmllint` is not installed, or does not judge them all.
pub fn complaints(grammar: &Path, files: &[PathBuf]) -> String {
    judged("--relaxng", grammar, files)
}

/// The schemas in the folder that [`SCHEMAS`] names, as one.
#[derive(Debug)]
pub struct PublishedSchemas {
    folder: TempDir,
}

impl PublishedSchemas {
    /// `None` where no folder is named.
    ///
    /// # Panics
    /// When one of the schemas is not there.
    pub fn named() -> Option<Self> {
        let named = env::var_os(SCHEMAS).filter(|folder| !folder.is_empty())?;
        let place = |name: &str| {
            let path = fs::canonicalize(Path::new(&named).join(name));
            path.unwrap_or_else(|error| panic!("{SCHEMAS} has no {name}: {error}")).display().to_string()
        };
        let whole = format!(
            r#"<schema xmlns="http://www.w3.org/2001/XMLSchema" targetNamespace="http://www.sitemaps.org/schemas/sitemap/0.9">
<import namespace="http://www.openarchives.org/rs/terms/" schemaLocation="{}"/>
<include schemaLocation="{}"/><include schemaLocation="{}"/></schema>"#,
            place("resourcesync-1.1.xsd"),
            place("sitemap.xsd"),
            place("siteindex.xsd"),
        );
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        fs::write(folder.path().join("whole.xsd"), whole).expect("a schema can be written");
        Some(Self { folder })
    }

    /// What they have against these files; nothing when all are valid.
    pub fn complaints(&self, files: &[PathBuf]) -> String {
        judged("--schema", &self.folder.path().join("whole.xsd"), files)
    }

    /// What they have against these files in which they contradict the specification: `RS-028`, `RS-038`, `RS-046`.
    ///
    /// # Panics
    /// When they have anything else against them.
    pub fn documented(&self, files: &[PathBuf]) -> BTreeSet<&'static str> {
        let complaints = self.complaints(files);
        let errors = complaints.lines().filter(|line| line.contains("Schemas validity error"));
        errors
            .map(|line| match line {
                line if line.contains("md', attribute 'type': ")
                    || line.contains("ln', attribute 'type': ") =>
                {
                    "RS-038"
                }
                line if line.contains("urlset': Missing child element(s).") => "RS-046",
                line if line.ends_with("is not a valid value of the atomic type 'xs:dateTime'.") => "RS-028",
                line => panic!("the published schemas refuse: {line}"),
            })
            .collect()
    }
}

fn judged(language: &str, schema: &Path, files: &[PathBuf]) -> String {
    let output = Command::new("xmllint")
        .args(["--nonet", "--noout", language])
        .arg(schema)
        .args(files)
        .output()
        .expect("xmllint is installed: tests/run does it");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let judged =
        said.lines().filter(|line| line.ends_with(" validates") || line.ends_with(" fails to validate"));
    assert_eq!(judged.count(), files.len(), "{said}");
    said.lines().filter(|line| !line.ends_with(" validates")).flat_map(|line| [line, "\n"]).collect()
}
