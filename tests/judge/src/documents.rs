//! `xmllint` with the grammar of `tests/schemas` and with the published schemas, and where the documents lie that it is shown.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, iter};

use tempfile::TempDir;
use walkdir::{DirEntry, WalkDir};
use zip::ZipArchive;

/// Names a folder in which the documents stay, so that other validators can be shown them.
pub const DOCUMENTS: &str = "RESYNC_TEST_DOCUMENTS";

/// Names a folder with the published schemas, which are no part of this project: `sitemap.xsd`, `siteindex.xsd` and
/// `resourcesync-1.1.xsd`. Where nothing is named it is `../shared/schemas`, if that is there; an empty name stands for none.
pub const SCHEMAS: &str = "RESYNC_TEST_SCHEMAS";

/// Where the published schemas are looked for, from the root of the project.
const BESIDE: &str = "../shared/schemas";

/// A requirement, and whether the schema says this line because of it.
type Contradiction = (&'static str, fn(&str) -> bool);

/// In which way the published schemas contradict the specifications: the requirement, and what they say then.
const CONTRADICTIONS: &[Contradiction] = &[
    // The schema has no dots, pluses and parameters in media types.
    ("RS-038", |line| line.contains("md', attribute 'type': ") || line.contains("ln', attribute 'type': ")),
    // A list of which nothing is left is a list all the same.
    ("RS-046", |line| {
        line.contains("urlset': Missing child element(s).")
            || line.contains("sitemapindex': Missing child element(s).")
    }),
    // The schema has datetimes with seconds only, the text the other W3C forms, too.
    ("RS-028", |line| line.ends_with("is not a valid value of the atomic type 'xs:dateTime'.")),
];

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

/// The documents below a folder, and the manifests in packages, by their paths there.
///
/// # Panics
/// When one cannot be read.
pub fn documents_below(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let documents = files_below(folder).into_iter().filter_map(|path| {
        let name = path.strip_prefix(folder).expect("it is below").display().to_string();
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        let bytes = match extension {
            "xml" => fs::read(&path).expect("it can be read"),
            "zip" => {
                // What is no archive is none of a dump that was published: tests lay such things in the way.
                let mut package = ZipArchive::new(opened(&path)).ok()?;
                let mut bytes = Vec::new();
                let mut manifest = package.by_name("manifest.xml").expect("a package has a manifest");
                manifest.read_to_end(&mut bytes).expect("a manifest can be unpacked");
                bytes
            }
            _ if name.ends_with(".well-known/resourcesync") => fs::read(&path).expect("it can be read"),
            _ => return None,
        };
        Some((name, bytes))
    });
    documents.collect()
}

fn opened(path: &Path) -> io::BufReader<File> {
    io::BufReader::new(File::open(path).expect("it can be read"))
}

/// All judges see documents that a product wrote: the grammar, and the published schemas where they are. `test` is how the name of
/// their folder in [`DOCUMENTS`] begins.
///
/// # Panics
/// As [`judge`].
pub fn written<N: AsRef<str>, B: AsRef<[u8]>>(test: &str, documents: impl IntoIterator<Item = (N, B)>) {
    let (_folder, files) = laid_down(test, documents);
    judge(&files);
}

/// The same for documents in files.
///
/// # Panics
/// When one of them refuses one, for another reason than a known contradiction between schema and specification.
pub fn judge(files: &[PathBuf]) {
    if files.is_empty() {
        return;
    }
    let complaints = complaints(&grammar(), files);
    assert_eq!(complaints, "", "{}", shown(&complaints));
    if let Some(schemas) = PublishedSchemas::found() {
        schemas.documented(files);
    }
}

/// The published schemas see a document that a test made by hand, where they are. The grammar does not: it asks for what a good
/// writer does.
///
/// # Panics
/// When they refuse it, for another reason than a known contradiction between schema and specification.
pub fn fixture(test: &str, document: impl AsRef<[u8]>) {
    if let Some(schemas) = PublishedSchemas::found() {
        let (_folder, files) = laid_down(test, iter::once(("fixture.xml", document)));
        schemas.documented(&files);
    }
}

fn laid_down<N: AsRef<str>, B: AsRef<[u8]>>(
    test: &str,
    documents: impl IntoIterator<Item = (N, B)>,
) -> (Documents, Vec<PathBuf>) {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let folder = Documents::new(&format!("{test}-{}-{number}", process::id()));
    let files = documents.into_iter().enumerate().map(|(number, (name, bytes))| {
        folder.store(&format!("{number}-{}.xml", name.as_ref().replace('/', "-")), bytes.as_ref())
    });
    let files = files.collect();
    (folder, files)
}

/// The published schemas, as one.
#[derive(Debug)]
pub struct PublishedSchemas {
    folder: TempDir,
}

impl PublishedSchemas {
    /// Those in the folder that [`SCHEMAS`] names, or beside the project; `None` where there are none.
    ///
    /// # Panics
    /// When one of the schemas is not there.
    pub fn found() -> Option<Self> {
        let named = match env::var_os(SCHEMAS) {
            Some(named) => Some(PathBuf::from(named)).filter(|folder| !folder.as_os_str().is_empty()),
            None => Some(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(BESIDE))
                .filter(|folder| folder.is_dir()),
        }?;
        let place = |name: &str| {
            let path = fs::canonicalize(named.join(name));
            path.unwrap_or_else(|error| panic!("{} has no {name}: {error}", named.display()))
                .display()
                .to_string()
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

    /// In what they contradict the specification, of what is in these files: `RS-028`, `RS-038`, `RS-046`.
    ///
    /// # Panics
    /// When they have anything else against them.
    pub fn documented(&self, files: &[PathBuf]) -> BTreeSet<&'static str> {
        let complaints = self.complaints(files);
        let errors = complaints.lines().filter(|line| line.contains("Schemas validity error"));
        let known =
            |line: &str| CONTRADICTIONS.iter().find(|(_, is_of)| is_of(line)).map(|(number, _)| *number);
        errors
            .map(|line| {
                known(line).unwrap_or_else(|| panic!("the published schemas refuse: {line}\n{}", shown(line)))
            })
            .collect()
    }
}

/// The beginning of the file that a complaint is about, for whoever has to find out what is wrong with it.
fn shown(complaint: &str) -> String {
    let path = complaint.split(':').next().unwrap_or_default();
    fs::read_to_string(path).unwrap_or_default().chars().take(2_000).collect()
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
