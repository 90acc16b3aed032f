//! Links of resources, made from the templates of their set, to their versions, and to where a copy has them from.

use std::{
    path::{Path, PathBuf},
    sync::OnceLock,
};

use ignore::gitignore::Gitignore;
use resync_core::{
    build::{BuildError, Event, Item, path_of},
    document::{Change, Link, Relation},
    origins::{Origin, Origins},
};

use super::writing::RecordedChange;
use crate::{
    settings::{LinkTemplate, Settings, is_target},
    versions::VersionLinks,
};

/// Adds the links of a set's templates to its resources, and those to where their versions are.
pub(crate) struct Linker {
    base: String,
    directory: PathBuf,
    templates: Vec<(LinkTemplate, Option<Gitignore>)>,
    versions: Option<VersionLinks>,
    /// From where the files came, if the directory is a copy of another Source's. Read for the first resource: most runs link none, and
    /// the record of a copy is as long as the copy.
    origins: OnceLock<Option<Origins>>,
}

impl Linker {
    /// With the templates of these settings. Patterns were checked when the templates were made.
    pub(crate) fn of(settings: &Settings) -> Self {
        let base = settings.base_url.to_string();
        let with_patterns = |template: &LinkTemplate| (template.clone(), template.patterns().ok().flatten());
        let (directory, links) = (settings.directory.clone(), &settings.links);
        let templates = links.iter().map(with_patterns).collect();
        // Records are no copy: without a folder, that of the process would be looked at.
        let origins = if settings.has_files() { OnceLock::new() } else { OnceLock::from(None) };
        Self { base, directory, templates, versions: VersionLinks::of(settings), origins }
    }

    /// A resource with its links. Where it has none of their relations, they lead to its versions, too (MEM-035).
    pub(crate) fn item(&self, item: Item) -> Item {
        let mut item = self.with_templates(item);
        let versions = self.versions.as_ref().filter(|versions| versions.applies(&item.loc));
        for link in versions.into_iter().flat_map(|versions| versions.negotiation(&item.loc)) {
            if item.links.iter().all(|known| known.rel != link.rel) {
                item.links.push(link);
            }
        }
        item
    }

    fn with_templates(&self, mut item: Item) -> Item {
        if self.templates.is_empty() && self.origins().is_none() {
            return item;
        }
        let Some(path) = item.loc.strip_prefix(&self.base) else { return item };
        let file = path_of(path);
        let applies = |patterns: &Option<Gitignore>| match (patterns, &file) {
            (None, _) => true,
            (Some(patterns), Some(file)) => {
                patterns.matched_path_or_any_parents(Path::new(file), false).is_ignore()
            }
            (Some(_), None) => false,
        };
        let links = self.templates.iter().filter(|(_, patterns)| applies(patterns));
        let links = links
            .filter_map(|(template, _)| Some((template.is_sidecar(), template.link(path, item.lastmod)?)));
        let links = links.filter(|(is_sidecar, link)| !is_sidecar || self.is_there(&link.href));
        item.links.extend(links.map(|(_, link)| link));
        if let Some(origin) = file.and_then(|file| self.origin(Path::new(&file), &item)) {
            inherit(&mut item.links, origin);
        }
        item
    }

    fn origins(&self) -> Option<&Origins> {
        let open = || {
            Origins::open(&self.directory).unwrap_or_else(|error| {
                tracing::warn!(%error, directory = %self.directory.display(), "cannot read from where the files of this copy came");
                None
            })
        };
        self.origins.get_or_init(open).as_ref()
    }

    /// From where a resource came, if its file is still the one that came from there (RS-180).
    fn origin(&self, file: &Path, item: &Item) -> Option<Origin> {
        let found = self.origins()?.find(file).unwrap_or_else(|error| {
            tracing::warn!(%error, file = %file.display(), "cannot read from where a file came");
            None
        });
        found.filter(|origin| origin.is_of(item.length, &item.hashes))
    }

    /// Whether a URL is that of a file.
    fn is_there(&self, url: &str) -> bool {
        let path = url.strip_prefix(&self.base).and_then(path_of);
        path.is_some_and(|path| self.directory.join(path).is_file())
    }

    /// A recorded change with its links, of which the one to its version comes before those of the templates.
    pub(crate) fn recorded(&self, recorded: Result<RecordedChange, BuildError>) -> Result<Event, BuildError> {
        let RecordedChange { mut event, memento } = recorded?;
        if let (Some(versions), Some(memento)) = (&self.versions, memento) {
            let link = versions.memento(&event, memento);
            event.item.links.push(link);
        }
        self.event(Ok(event))
    }

    /// A change with its links; a deletion has none. Where a template leads to a memento elsewhere, the link to our own goes (MEM-035).
    pub(crate) fn event(&self, event: Result<Event, BuildError>) -> Result<Event, BuildError> {
        let mut event = event?;
        if event.change == Change::Deleted {
            return Ok(event);
        }
        event.item = self.with_templates(event.item);
        if let Some(versions) = &self.versions {
            let links = &mut event.item.links;
            if links.iter().any(|link| link.rel == Relation::Memento && !versions.is_memento(link)) {
                links.retain(|link| !versions.is_memento(link));
            }
        }
        Ok(event)
    }

    /// About how many bytes the link from a change to its version takes; 0 where no versions are kept.
    pub(super) fn length_of_version(&self, item: &Item) -> usize {
        self.versions.as_ref().map_or(0, |versions| versions.length(item))
    }
}

/// Adds the link to the original, and those of the original that hold for its copy too (RS-183). What a template says goes before.
fn inherit(links: &mut Vec<Link>, origin: Origin) {
    let Origin { uri, modified, length, hashes, media_type, links: inherited, .. } = origin;
    let via = Link { modified, length, hash: hashes, media_type, ..Link::new(Relation::Via, uri) };
    let inherited = inherited.into_iter().map(|(rel, href)| Link::new(Relation::from(rel.as_str()), href));
    let known: Vec<Relation> = links.iter().map(|link| link.rel.clone()).collect();
    let new = [via].into_iter().chain(inherited);
    links.extend(new.filter(|link| !known.contains(&link.rel) && is_target(&link.rel, &link.href)));
}

#[cfg(test)]
mod tests {
    use resync_core::datetime::DateTime;

    use super::*;
    use crate::settings::BaseUrl;

    fn links(templates: impl IntoIterator<Item = LinkTemplate>, name: &str) -> Vec<(String, String)> {
        let base_url = BaseUrl::parse("http://example.org/c/").unwrap();
        let mut settings = Settings::new("/data", base_url);
        settings.links = templates.into_iter().collect();
        let item = Linker::of(&settings).item(Item::new(format!("http://example.org/c/{name}")));
        item.links.into_iter().map(|link| (link.rel.as_str().to_owned(), link.href)).collect()
    }

    #[test]
    fn rs171_rs177_links_are_made_of_the_parts_of_a_url() {
        let new = |rel, href| LinkTemplate::new(rel, href).unwrap();
        let templates = || {
            [
                new("duplicate", "ftp://mirror.example/{path}"),
                new("describedby", "http://example.org/m/{stem}.xml"),
                new("collection", "http://example.org/c/"),
                new("http://example.org/terms/seal", "http://example.org/seal?{name}"),
            ]
        };
        let expected = |path: &str, stem: &str, name: &str| {
            [
                ("duplicate", format!("ftp://mirror.example/{path}")),
                ("describedby", format!("http://example.org/m/{stem}.xml")),
                ("collection", "http://example.org/c/".to_owned()),
                ("http://example.org/terms/seal", format!("http://example.org/seal?{name}")),
            ]
            .map(|(rel, href)| (rel.to_owned(), href))
        };
        assert_eq!(
            links(templates(), "a.b/x%20y.tar.gz"),
            expected("a.b/x%20y.tar.gz", "a.b/x%20y.tar", "x%20y.tar.gz")
        );
        assert_eq!(links(templates(), "a.b/LICENCE"), expected("a.b/LICENCE", "a.b/LICENCE", "LICENCE"));
    }

    #[test]
    fn only_what_matches_gets_the_link() {
        let template = || LinkTemplate::new("canonical", "http://example.org/{stem}").unwrap();
        let pdf = || [template().only(["*.pdf".to_owned(), "/papers/".to_owned()]).unwrap()];
        assert_eq!(links(pdf(), "deep/a%20b.pdf").len(), 1);
        assert_eq!(links(pdf(), "papers/a.txt").len(), 1);
        assert_eq!(links(pdf(), "a.txt"), []);
    }

    #[test]
    fn rs177_a_sidecar_is_linked_where_it_is_there() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("a b.xml"), "<meta/>").unwrap();
        let mut settings = Settings::new(place.path(), BaseUrl::parse("http://example.org/").unwrap());
        settings.links =
            [LinkTemplate::new("describedby", "http://example.org/{stem}.xml").unwrap().sidecar()].into();
        let linker = Linker::of(&settings);
        let links = |name: &str| linker.item(Item::new(format!("http://example.org/{name}"))).links;
        assert_eq!(links("a%20b.pdf")[0].href, "http://example.org/a%20b.xml");
        assert_eq!(links("c.pdf"), []);
    }

    #[test]
    fn rs178_rs180_a_memento_has_the_time_of_its_version_in_its_uri_and_in_its_date() {
        let mut settings = Settings::new("/data", BaseUrl::parse("http://example.org/").unwrap());
        let new = |rel, href| LinkTemplate::new(rel, href).unwrap().modified();
        settings.links = vec![
            new("memento", "http://archive.example/{timestamp}/http://example.org/{path}"),
            new("via", "http://origin.example/{path}?of={lastmod}"),
            LinkTemplate::new("timegate", "http://archive.example/{path}").unwrap(),
        ];
        let linker = Linker::of(&settings);
        let lastmod: DateTime = "2026-01-03T12:30:05.25Z".parse().unwrap();
        let known = linker.item(Item { lastmod: Some(lastmod), ..Item::new("http://example.org/a") }).links;
        let hrefs: Vec<_> = known.iter().map(|link| (link.href.as_str(), link.modified)).collect();
        let expected = [
            ("http://archive.example/20260103123005/http://example.org/a", Some(lastmod)),
            ("http://origin.example/a?of=2026-01-03T12:30:05.25Z", Some(lastmod)),
            ("http://archive.example/a", None),
        ];
        assert_eq!(hrefs, expected);
        let unknown = linker.item(Item::new("http://example.org/a")).links;
        assert_eq!(unknown.len(), 1, "only the link that needs no time");
    }

    #[test]
    fn of_records_nobody_looks_from_where_they_came() {
        let linker = Linker::of(&Settings::new("", BaseUrl::parse("http://example.org/").unwrap()));
        assert!(linker.origins.get().is_some_and(Option::is_none));
    }

    #[test]
    fn rs180_rs181_rs183_a_copy_names_the_original_of_each_file_that_is_still_as_it_came() {
        let copy = tempfile::tempdir().unwrap();
        let folder = copy.path().join(resync_core::origins::FOLDER);
        std::fs::create_dir(&folder).unwrap();
        let origin = |path: &str, uri: &str| {
            let item = Item::default().content(b"as it came");
            Origin {
                path: resync_core::origins::name(path.as_ref()),
                uri: uri.to_owned(),
                modified: "2026-01-03T12:30:05Z".parse().ok(),
                length: item.length,
                hashes: item.hashes,
                media_type: None,
                links: vec![("collection".to_owned(), "http://origin.example/c".to_owned())],
            }
        };
        let mut record = Vec::new();
        for (path, uri) in
            [("a b", "http://origin.example/x"), ("bad", "no URI"), ("told", "http://origin.example/y")]
        {
            resync_core::origins::write(&mut record, &origin(path, uri)).unwrap();
        }
        std::fs::write(folder.join(resync_core::origins::FILE), record).unwrap();
        let mut settings = Settings::new(copy.path(), BaseUrl::parse("http://example.org/").unwrap());
        let via = LinkTemplate::new("via", "http://first.example/{path}").unwrap();
        settings.links = [via.only(["told".to_owned()]).unwrap()].into();
        let linker = Linker::of(&settings);
        let links = |path: &str, bytes: &[u8]| {
            let item = Item::new(format!("http://example.org/{path}")).content(bytes);
            let links = linker.item(item).links.into_iter();
            links.map(|link| (link.rel.as_str().to_owned(), link.href)).collect::<Vec<_>>()
        };
        let link = |rel: &str, href: &str| (rel.to_owned(), href.to_owned());
        let collection = || link("collection", "http://origin.example/c");
        assert_eq!(links("a%20b", b"as it came"), [link("via", "http://origin.example/x"), collection()]);
        assert_eq!(links("a%20b", b"edited here"), [], "nobody else has it");
        assert_eq!(links("own", b"as it came"), [], "it came from nowhere");
        assert_eq!(links("bad", b"as it came"), [collection()], "no document may have such a link");
        assert_eq!(links("told", b"as it came"), [link("via", "http://first.example/told"), collection()]);
    }
}
