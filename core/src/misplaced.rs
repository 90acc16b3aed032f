//! Where a document is whose site is served elsewhere than its documents say, and which folder is meant by the URL of a site.

use std::path::Path;

use url::Url;

/// Where a Source Description is looked for, below the root of a host or the base URL of a site (RS-071).
pub const SOURCE_DESCRIPTION: &str = ".well-known/resourcesync";

/// How many places a missing document may have.
const MAX_PLACES: usize = 12;

/// The base URLs of a site: where it is served, and where its documents say that it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bases {
    /// Where it is served.
    pub served: String,
    /// What its documents name.
    pub named: String,
}

impl Bases {
    /// By one document: where it was found, and where it is missing.
    #[must_use]
    pub fn of(found: &Url, missing: &Url) -> Self {
        let (of_found, of_missing) = (segments(found), segments(missing));
        let pairs = of_found.iter().rev().zip(of_missing.iter().rev());
        let shared = pairs.take_while(|(one, other)| one == other).count();
        let base = |url: &Url, segments: &[&str]| {
            let folder = segments[..segments.len() - shared].iter().map(|segment| format!("{segment}/"));
            format!("{}/{}", url.origin().ascii_serialization(), folder.collect::<String>())
        };
        Self { served: base(found, &of_found), named: base(missing, &of_missing) }
    }
}

/// Where a missing document may be, if its site is where the document at `start` is, which links to it: in the folder of that
/// document, or in the one above, such as that of `.well-known`.
#[must_use]
pub fn places(start: &Url, missing: &Url) -> Vec<Url> {
    let segments = segments(missing);
    let ends: Vec<_> = (0..segments.len()).rev().map(|first| segments[first..].join("/")).collect();
    let places = [".", ".."].iter().flat_map(|folder| ends.iter().map(move |end| format!("{folder}/{end}")));
    let places = places.filter_map(|place| start.join(&place).ok()).filter(|place| place != missing);
    places.take(MAX_PLACES).collect()
}

/// The folder of a document; of a Source Description, the one above `.well-known`.
#[must_use]
pub fn base_of(document: &Url) -> Url {
    let folder = if is_source_description(document) { "../" } else { "./" };
    document.join(folder).unwrap_or_else(|_| document.clone())
}

/// The folder that is meant by the URL of a site: `http://host/v1.2` is the same as `http://host/v1.2/`. If it is the URL of a document,
/// [that document's](base_of).
#[must_use]
pub fn folder_of(site: &Url) -> Url {
    let mut folder = base_of(site);
    let is_document = names_a_document(site) || is_source_description(site) || site.query().is_some();
    if !is_document && !site.path().ends_with('/') {
        folder.set_path(&format!("{}/", site.path()));
    }
    folder
}

/// Whether the URL has the name of a list, and not of a folder or page.
#[must_use]
pub fn names_a_document(url: &Url) -> bool {
    let extension = Path::new(url.path()).extension();
    extension.is_some_and(|extension| extension.eq_ignore_ascii_case("xml"))
}

fn is_source_description(url: &Url) -> bool {
    url.path().ends_with(SOURCE_DESCRIPTION)
}

fn segments(url: &Url) -> Vec<&str> {
    url.path_segments().map_or(Vec::new(), Iterator::collect)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_may_be_in_the_folder_of_the_one_that_links_to_it_or_above_and_shows_both_bases() {
        let url = |text: &str| Url::parse(text).unwrap();
        let (start, missing) =
            (url("http://h/y/.well-known/resourcesync"), url("https://lib/x/resync/c.xml"));
        let found = url("http://h/y/resync/c.xml");
        assert!(places(&start, &missing).contains(&found));
        let Bases { served, named } = Bases::of(&found, &missing);
        assert_eq!((served.as_str(), named.as_str()), ("http://h/y/", "https://lib/x/"));
        assert!(!places(&start, &found).contains(&found), "where it is missing");
        assert_eq!(places(&start, &url(&format!("http://h/{}", "a/".repeat(100)))).len(), MAX_PLACES);
    }

    #[test]
    fn the_url_of_a_site_is_that_of_a_folder_also_without_its_final_slash_or_with_a_dot() {
        let folder = |text: &str| folder_of(&Url::parse(text).unwrap()).to_string();
        for (site, expected) in [
            ("http://h", "http://h/"),
            ("http://h/x/", "http://h/x/"),
            ("http://h/x", "http://h/x/"),
            ("http://h/x/v1.2", "http://h/x/v1.2/"),
            ("http://h/x/list.XML", "http://h/x/"),
            ("http://h/x/page?id=1", "http://h/x/"),
            ("http://h/x/.well-known/resourcesync", "http://h/x/"),
        ] {
            assert_eq!(folder(site), expected, "{site}");
        }
    }
}
