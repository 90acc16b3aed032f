//! Templates of links that the resources of a set get (RS-170 to RS-183).

use std::path::Path;

use ignore::gitignore::Gitignore;
use resync_core::{
    datetime::DateTime,
    document::{Capability, Entry, Header, Link, Relation, Root},
    rules::{Checker, Rule},
};
use serde::{Deserialize, Serialize};
use url::Url;

use super::matcher;

/// The placeholders of a template.
const PARTS: [&str; 5] = ["path", "stem", "name", "lastmod", "timestamp"];

/// A link that each resource gets, or those whose paths match.
///
/// In the target, `{path}` stands for the resource's URL below that of the set, `{stem}` for the same without the extension, and `{name}` for its
/// last part. `{lastmod}` stands for when it was last modified, as the lists write it, and `{timestamp}` for the same in the 14 digits of web archives. A
/// resource without that time gets no link that needs it.
///
/// ```
/// use resync_publisher::settings::LinkTemplate;
///
/// let mirror = LinkTemplate::new("duplicate", "https://mirror.example.org/{path}")?.pri(1)?;
/// let metadata = LinkTemplate::new("describedby", "https://example.org/meta/{stem}.xml")?.only(["*.pdf".to_owned()])?;
/// # let _ = (mirror, metadata);
/// # Ok::<(), resync_publisher::settings::LinkError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkTemplate {
    rel: String,
    href: String,
    pri: Option<u32>,
    media_type: Option<String>,
    only: Vec<String>,
    sidecar: bool,
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
    /// A pattern that is not valid.
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

/// Whether an entry may have this link.
pub(crate) fn is_target(rel: &Relation, href: &str) -> bool {
    Url::parse(href).is_ok() && !breaks(Rule::LinkTarget, rel, href)
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

    /// Which paths get the link; `None` for all.
    pub(crate) fn patterns(&self) -> Result<Option<Gitignore>, LinkError> {
        if self.only.is_empty() {
            return Ok(None);
        }
        let patterns = matcher(Path::new(""), &self.only);
        patterns.map(Some).map_err(|error| LinkError::Pattern(error.to_string()))
    }

    /// Whether only resources whose target is a file of the set get the link.
    pub(crate) fn is_sidecar(&self) -> bool {
        self.sidecar
    }

    /// The link of the resource at a path below the URL of the set; `None` if it needs a time that is not known.
    pub(crate) fn link(&self, path: &str, lastmod: Option<DateTime>) -> Option<Link> {
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

#[cfg(test)]
mod tests {
    use super::*;

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
