//! Links that the resources of a set have in common, made from templates (RS-170 to RS-183).

use std::path::{Path, PathBuf};

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use resync_core::{
    build::{BuildError, Event, Item, path_of},
    datetime::DateTime,
    document::{Capability, Change, Entry, Header, Link, Relation, Root},
    rules::{Checker, Rule},
};
use serde::{Deserialize, Serialize};
use url::Url;

use crate::settings::Settings;

/// What stands for a part of the resource's URL in a template.
const PARTS: [&str; 5] = ["path", "stem", "name", "lastmod", "timestamp"];

/// A link that each resource gets, or those whose paths match.
///
/// In the target, `{path}` stands for the resource's URL below that of the set, `{stem}` for the same without the extension, and `{name}` for its
/// last part; `{lastmod}` for when it was last modified, as the lists write it, and `{timestamp}` for the same in the 14 digits of web archives. A
/// resource of which that is not known gets no link that needs it.
///
/// ```
/// use resync_publisher::links::LinkTemplate;
///
/// let mirror = LinkTemplate::new("duplicate", "https://mirror.example.org/{path}")?.pri(1)?;
/// let metadata = LinkTemplate::new("describedby", "https://example.org/meta/{stem}.xml")?.only(["*.pdf".to_owned()])?;
/// # let _ = (mirror, metadata);
/// # Ok::<(), resync_publisher::links::LinkError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkTemplate {
    rel: String,
    href: String,
    #[serde(default)]
    pri: Option<u32>,
    #[serde(default)]
    media_type: Option<String>,
    #[serde(default)]
    only: Vec<String>,
    #[serde(default)]
    sidecar: bool,
    #[serde(default)]
    modified: bool,
}

/// Why a template cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// Not a relation of resources.
    #[error(
        "`{0}` is not a relation between resources; use duplicate, alternate, canonical, describedby, describes, memento, timegate, timemap, collection, via, profile, or a URI"
    )]
    Relation(String),
    /// The target is no absolute URL, whatever is filled in.
    #[error("`{0}` is not an absolute URL; write it as https://example.org/{{path}}")]
    Target(String),
    /// Braces around something else.
    #[error("`{{{0}}}` is unknown; use {{path}}, {{stem}}, {{name}}, {{lastmod}} or {{timestamp}}")]
    Part(String),
    /// Out of range (RS-041).
    #[error("pri must be a number from 1 to 999999")]
    Priority,
    /// A pattern that is none.
    #[error("{0}")]
    Pattern(String),
}

/// A URL that breaks no rule.
const SAMPLE: &str = "http://example.org/x";

/// Whether a link breaks a rule in a list.
fn breaks(rule: Rule, rel: &Relation, href: &str) -> bool {
    let entry = Entry { links: vec![Link::new(rel.clone(), href)], ..Entry::new(SAMPLE) };
    let mut checker = Checker::new(&Header::new(Root::UrlSet, Capability::ResourceList));
    checker.entry(&entry);
    checker.violations().iter().any(|violation| violation.rule == rule)
}

impl LinkTemplate {
    /// A link of every resource.
    pub fn new(rel: &str, href: &str) -> Result<Self, LinkError> {
        let relation = Relation::from(rel);
        let relates = match &relation {
            Relation::Other(uri) => {
                Url::parse(uri).is_ok() && !breaks(Rule::RelationShape, &relation, SAMPLE)
            }
            // A patch is made between two versions, and no template knows them.
            Relation::Up
            | Relation::Index
            | Relation::Archives
            | Relation::Contents
            | Relation::Hub
            | Relation::Patch => false,
            _ => true,
        };
        if !relates {
            return Err(LinkError::Relation(rel.to_owned()));
        }
        let mut filled = href.to_owned();
        for part in PARTS {
            filled = filled.replace(&format!("{{{part}}}"), "x");
        }
        if let Some((_, rest)) = filled.split_once('{') {
            return Err(LinkError::Part(rest.split('}').next().unwrap_or_default().to_owned()));
        }
        if Url::parse(&filled).is_err() || breaks(Rule::LinkTarget, &relation, &filled) {
            return Err(LinkError::Target(href.to_owned()));
        }
        let (rel, href) = (rel.to_owned(), href.to_owned());
        Ok(Self { rel, href, pri: None, media_type: None, only: Vec::new(), sidecar: false, modified: false })
    }

    /// Preference among links of the same relation, 1 (first) to 999999.
    pub fn pri(mut self, pri: u32) -> Result<Self, LinkError> {
        if !(1..=999_999).contains(&pri) {
            return Err(LinkError::Priority);
        }
        self.pri = Some(pri);
        Ok(self)
    }

    /// The media type of the targets.
    #[must_use]
    pub fn media_type(mut self, media_type: impl Into<String>) -> Self {
        self.media_type = Some(media_type.into());
        self
    }

    /// Only resources whose paths match one of these patterns, as `.gitignore` has them, get the link.
    pub fn only(mut self, patterns: impl IntoIterator<Item = String>) -> Result<Self, LinkError> {
        self.only = patterns.into_iter().collect();
        self.patterns()?;
        Ok(self)
    }

    /// Only resources whose target is a file of the set, too, get the link.
    #[must_use]
    pub fn sidecar(mut self) -> Self {
        self.sidecar = true;
        self
    }

    /// The link says when the resource was last modified, which is the time of a memento (RS-178) and of the original that a `via` link leads to
    /// (RS-180).
    #[must_use]
    pub fn modified(mut self) -> Self {
        self.modified = true;
        self
    }

    fn patterns(&self) -> Result<Option<Gitignore>, LinkError> {
        if self.only.is_empty() {
            return Ok(None);
        }
        let wrong = |error: ignore::Error| LinkError::Pattern(error.to_string());
        let mut patterns = GitignoreBuilder::new("");
        for pattern in &self.only {
            patterns.add_line(None, pattern).map_err(wrong)?;
        }
        patterns.build().map(Some).map_err(wrong)
    }

    /// The link of the resource at a path below the URL of the set; none where it needs a time that is not known.
    fn of(&self, path: &str, lastmod: Option<DateTime>) -> Option<Link> {
        let name = path.rsplit('/').next().unwrap_or(path);
        let stem =
            name.rfind('.').filter(|dot| *dot > 0).map_or(path, |dot| &path[..path.len() - name.len() + dot]);
        let mut href = self.href.replace("{path}", path).replace("{stem}", stem).replace("{name}", name);
        if self.modified || href.contains("{lastmod}") || href.contains("{timestamp}") {
            let text = lastmod?.truncate_to_seconds().to_string();
            let digits: String = text.chars().filter(char::is_ascii_digit).collect();
            href = href.replace("{lastmod}", &lastmod?.to_string()).replace("{timestamp}", &digits);
        }
        Some(Link {
            pri: self.pri,
            media_type: self.media_type.clone(),
            modified: lastmod.filter(|_| self.modified),
            ..Link::new(Relation::from(self.rel.as_str()), href)
        })
    }
}

/// The templates of a set, at work.
pub(crate) struct Linker {
    base: String,
    directory: PathBuf,
    templates: Vec<(LinkTemplate, Option<Gitignore>)>,
}

impl Linker {
    /// Those of these settings. Patterns were checked when the templates were made.
    pub(crate) fn of(settings: &Settings) -> Self {
        let base = settings.base_url.to_string();
        let with_patterns = |template: &LinkTemplate| (template.clone(), template.patterns().ok().flatten());
        let (directory, links) = (settings.directory.clone(), &settings.links);
        Self { base, directory, templates: links.iter().map(with_patterns).collect() }
    }

    pub(crate) fn item(&self, mut item: Item) -> Item {
        if self.templates.is_empty() {
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
        let links =
            links.filter_map(|(template, _)| Some((template.sidecar, template.of(path, item.lastmod)?)));
        let links = links.filter(|(is_sidecar, link)| !is_sidecar || self.is_there(&link.href));
        item.links.extend(links.map(|(_, link)| link));
        item
    }

    /// Whether a URL is that of a file.
    fn is_there(&self, url: &str) -> bool {
        let path = url.strip_prefix(&self.base).and_then(path_of);
        path.is_some_and(|path| self.directory.join(path).is_file())
    }

    /// A deletion has no links.
    pub(crate) fn event(&self, event: Result<Event, BuildError>) -> Result<Event, BuildError> {
        event.map(|event| match event.change {
            Change::Deleted => event,
            Change::Created | Change::Updated => Event { item: self.item(event.item), ..event },
        })
    }
}

#[cfg(test)]
mod tests {
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
    fn templates_that_cannot_be_are_refused_by_cause() {
        let refused = |rel, href| LinkTemplate::new(rel, href).unwrap_err();
        for rel in
            ["up", "hub", "http://www.openarchives.org/rs/terms/patch", "mirror", "http://example.org/my rel"]
        {
            assert_eq!(refused(rel, "http://example.org/"), LinkError::Relation(rel.to_owned()));
        }
        for href in ["{path}", "http://example.org/a b/{path}"] {
            assert_eq!(refused("via", href), LinkError::Target(href.to_owned()));
        }
        assert_eq!(refused("via", "http://example.org/{id}"), LinkError::Part("id".to_owned()));
        let fine = LinkTemplate::new("via", "http://example.org/").unwrap();
        assert_eq!(fine.clone().pri(0).unwrap_err(), LinkError::Priority);
        assert!(matches!(fine.only(["[z-a]".to_owned()]), Err(LinkError::Pattern(_))));
    }
}
