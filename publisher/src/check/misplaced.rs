//! Documents or resources that are served elsewhere than the documents say: one cause, which is named instead of everything that follows from it.
//!
//! Where the first document is found and the next is not, that is looked for beside the first. Of the first Resource List that has a few resources, a few of them are asked for.
//! A base URL or a page leads to the Source Description of its site.

use resync_core::{
    document::{Capability, Root},
    lint::{Fetch, FetchFailure, Fetched, Method, PackageBytes, TopicAnswer, VersionAnswer},
    misplaced::{Bases, SOURCE_DESCRIPTION, folder_of, places},
    xml::Reader,
};
use url::Url;

/// How many missing documents are looked for, before one is found.
const MISSING: usize = 3;

/// Ends a check at once whose documents or resources are not where the documents say.
pub(super) struct Misplaced<'a, F> {
    fetch: &'a mut F,
    /// The first document.
    start: Option<Url>,
    /// How many more missing documents are looked for.
    searches: usize,
    /// Whether resources are still to be asked for.
    asks: bool,
    /// What a URL has answered before it was asked for.
    answered: Option<(String, Result<Fetched, FetchFailure>)>,
}

impl<'a, F: Fetch> Misplaced<'a, F> {
    pub(super) fn new(fetch: &'a mut F) -> Self {
        Self { fetch, start: None, searches: MISSING, asks: true, answered: None }
    }

    /// The Source Description of the site, if this URL is its base URL or a page of it.
    pub(super) fn description_instead_of(&mut self, url: &Url) -> Option<Url> {
        let answer = self.fetch.get(url.as_str());
        if is_page(url, &answer) {
            if let Some((found, description)) = self.first(source_descriptions(url)) {
                self.answered = Some((found.to_string(), Ok(description)));
                return Some(found);
            }
            self.searches = 0;
        }
        self.answered = Some((url.to_string(), answer));
        None
    }

    /// Why the check ends with this answer.
    fn reason(&mut self, url: &str, answer: &Result<Fetched, FetchFailure>) -> Option<String> {
        if self.fetch.end().is_some() {
            return None;
        }
        match answer.as_ref().ok().filter(|found| is_document(found)) {
            Some(found) if self.start.is_none() => {
                self.start = Url::parse(&found.last_url).ok();
                None
            }
            Some(found) => {
                self.searches = 0;
                self.without_resources(found)
            }
            None if self.searches > 0 => {
                self.searches -= 1;
                let is_start_broken =
                    self.start.is_none() && answer.as_ref().is_err_and(|why| !is_absent(why));
                let url = Url::parse(url).ok().filter(|_| !is_start_broken)?;
                self.elsewhere(&url)
            }
            None => None,
        }
    }

    /// Where the missing document is.
    fn elsewhere(&mut self, url: &Url) -> Option<String> {
        let Some(start) = self.start.clone() else {
            self.searches = 0;
            let (found, _) = self.first(source_descriptions(url))?;
            return Some(format!("{url} is no ResourceSync document; the Source Description is {found}"));
        };
        let (found, _) = self.first(places(&start, url))?;
        let Bases { served, named } = Bases::of(&found, url);
        Some(format!(
            "the site is at {served}, but its documents name {named}, where {url} is missing; build it with the base URL {served}, or serve it at {named}"
        ))
    }

    /// The first of these URLs that has a document, and that.
    fn first(&mut self, urls: Vec<Url>) -> Option<(Url, Fetched)> {
        urls.into_iter().find_map(|url| {
            let found = self.fetch.get(url.as_str()).ok().filter(is_document)?;
            Some((url, found))
        })
    }

    /// Whether none of a few resources of a Resource List is there.
    fn without_resources(&mut self, found: &Fetched) -> Option<String> {
        let reader = Reader::new(found.bytes.as_slice()).ok()?;
        let header = reader.header();
        let is_list = header.root == Root::UrlSet && header.capability() == Some(&Capability::ResourceList);
        if !is_list || !self.asks {
            return None;
        }
        let urls: Vec<_> = reader.filter_map(Result::ok).map(|entry| entry.loc).collect();
        let sample = sample(&urls)?;
        self.asks = false;
        for url in sample {
            self.absence(url, Method::Head)?;
        }
        // A server may know GET only.
        let mut missing = None;
        for url in sample {
            let absent = self.absence(url, Method::Get)?;
            missing.get_or_insert(format!("{url}: {absent}"));
        }
        missing.map(|missing| {
            format!(
                "the documents are served and the resources are not ({missing}); serve the files under these URLs too, or build with the base URL under which they are"
            )
        })
    }

    /// What a server answers that has no such resource.
    fn absence(&mut self, url: &str, method: Method) -> Option<FetchFailure> {
        self.fetch.topic(url, method).err().filter(is_absent)
    }
}

impl<F: Fetch> Fetch for Misplaced<'_, F> {
    fn get(&mut self, url: &str) -> Result<Fetched, FetchFailure> {
        let answered = self.answered.take_if(|(asked, _)| asked.as_str() == url);
        let answer = answered.map_or_else(|| self.fetch.get(url), |(_, answer)| answer);
        self.reason(url, &answer).map_or(answer, |reason| Err(FetchFailure::last(reason)))
    }

    fn package(&mut self, url: &str) -> Result<Option<Box<dyn PackageBytes>>, FetchFailure> {
        self.fetch.package(url)
    }

    fn ahead(&mut self, documents: usize) {
        self.fetch.ahead(documents);
    }

    fn end(&mut self) -> Option<FetchFailure> {
        self.fetch.end()
    }

    fn topic(&mut self, url: &str, method: Method) -> Result<Option<TopicAnswer>, FetchFailure> {
        self.fetch.topic(url, method)
    }

    fn version(&mut self, url: &str, method: Method) -> Result<Option<VersionAnswer>, FetchFailure> {
        self.fetch.version(url, method)
    }
}

/// The first URL, one from the middle and the last. Neighbours may have been deleted together since the list was written, which only a Change List tells. Of
/// one or two resources that is likely for all, so they prove nothing.
fn sample(urls: &[String]) -> Option<[&str; 3]> {
    match urls {
        [first, between @ .., last] if !between.is_empty() => {
            Some([first, &between[between.len() / 2], last])
        }
        _ => None,
    }
}

/// Whether nothing is there.
fn is_absent(failure: &FetchFailure) -> bool {
    matches!(failure.status(), Some(404 | 410))
}

/// Whether no document can be meant: a page for browsers, nothing at all, or a folder with something else. A damaged document is one.
fn is_page(url: &Url, answer: &Result<Fetched, FetchFailure>) -> bool {
    let is_folder = url.path().ends_with('/');
    match answer {
        Ok(found) => {
            let read = Reader::new(found.bytes.as_slice());
            read.is_err_and(|error| is_folder || error.is_html())
        }
        Err(failure) => is_absent(failure) || (is_folder && failure.status().is_some()),
    }
}

fn is_document(found: &Fetched) -> bool {
    Reader::new(found.bytes.as_slice()).is_ok()
}

/// Where the Source Description of a site may be whose base URL, perhaps without its final slash, or a page is given: in its own
/// folder, before that of the host.
fn source_descriptions(url: &Url) -> Vec<Url> {
    let below = format!("./{SOURCE_DESCRIPTION}");
    let of_host = format!("/{SOURCE_DESCRIPTION}");
    let known = [folder_of(url).join(&below), url.join(&below), url.join(&of_host)];
    let mut places = Vec::new();
    for place in known.into_iter().flatten() {
        if place != *url && !places.contains(&place) {
            places.push(place);
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn not_found() -> FetchFailure {
        FetchFailure::answered(404, "404 Not Found")
    }

    /// These URLs have documents, and answer GET only if they end with `?get`.
    struct Web(BTreeSet<&'static str>);

    impl Fetch for Web {
        fn get(&mut self, url: &str) -> Result<Fetched, FetchFailure> {
            if !self.0.contains(url) {
                return Err(not_found());
            }
            let bytes = br#"<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"/>"#.to_vec();
            Ok(Fetched { bytes, content_type: None, last_url: url.to_owned() })
        }

        fn topic(&mut self, url: &str, method: Method) -> Result<Option<TopicAnswer>, FetchFailure> {
            if method == Method::Head && url.ends_with("?get") {
                return Err(not_found());
            }
            self.get(url).map(|_| Some(TopicAnswer::default()))
        }
    }

    /// What the last of these requests answers.
    fn asked<const N: usize>(documents: [&'static str; N], urls: &[&str]) -> Result<(), String> {
        let mut web = Web(documents.into());
        let mut misplaced = Misplaced::new(&mut web);
        let mut answer = Ok(());
        for url in urls {
            answer = misplaced.get(url).map(drop).map_err(|failure| failure.to_string());
        }
        answer
    }

    #[test]
    fn a_site_that_is_served_elsewhere_than_its_documents_say_is_found() {
        let cases = [
            (
                "http://h/.well-known/resourcesync",
                "http://h/x/resync/c.xml",
                "http://h/resync/c.xml",
                "http://h/",
                "http://h/x/",
            ),
            (
                "http://h/y/.well-known/resourcesync",
                "https://lib/resync/c.xml",
                "http://h/y/resync/c.xml",
                "http://h/y/",
                "https://lib/",
            ),
            (
                "http://h/y/resync/c.xml",
                "http://h/resync/l.xml",
                "http://h/y/resync/l.xml",
                "http://h/y/",
                "http://h/",
            ),
        ];
        for (start, link, place, served, named) in cases {
            let said = asked([start, place], &[start, link]).unwrap_err();
            assert!(
                said.starts_with(&format!("the site is at {served}, but its documents name {named}, where")),
                "{said}"
            );
            assert!(
                said.ends_with(&format!("build it with the base URL {served}, or serve it at {named}")),
                "{said}"
            );
        }
    }

    #[test]
    fn what_is_missing_everywhere_or_after_another_document_is_only_missing() {
        let [start, list, other] =
            ["http://h/.well-known/resourcesync", "http://h/x/c.xml", "http://h/x/l.xml"];
        assert_eq!(asked([start], &[start, list]).unwrap_err(), "404 Not Found");
        assert_eq!(
            asked([start, list, "http://h/l.xml"], &[start, list, other]).unwrap_err(),
            "404 Not Found"
        );
    }

    #[test]
    fn resources_that_are_missing_are_noticed_unless_one_of_a_few_is_there() {
        let text = |number: usize| {
            let entries = (0..number).map(|number| format!("<url><loc>http://h/{number}?get</loc></url>"));
            format!(
                r#"<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/"><rs:md capability="resourcelist" at="2026-01-01T00:00:00Z"/>{}</urlset>"#,
                entries.collect::<String>()
            )
        };
        let mut nothing = Web(BTreeSet::new());
        let list = |number| Fetched {
            bytes: text(number).into_bytes(),
            content_type: None,
            last_url: "http://h/".to_owned(),
        };
        let missing = Misplaced::new(&mut nothing).without_resources(&list(3)).unwrap();
        assert!(
            missing.starts_with(
                "the documents are served and the resources are not (http://h/0?get: 404 Not Found)"
            ),
            "{missing}"
        );
        for few in 0..3 {
            assert_eq!(Misplaced::new(&mut nothing).without_resources(&list(few)), None);
        }
        for there in ["http://h/0?get", "http://h/5?get", "http://h/9?get"] {
            let mut one = Web(BTreeSet::from([there]));
            assert_eq!(Misplaced::new(&mut one).without_resources(&list(10)), None, "{there}");
        }
    }

    #[test]
    fn a_page_leads_to_the_source_description_and_a_damaged_document_does_not() {
        let url = Url::parse("http://h/x").unwrap();
        let folder = Url::parse("http://h/x/").unwrap();
        let sent = |text: &str| {
            Ok(Fetched { bytes: text.into(), content_type: None, last_url: "http://h/x".to_owned() })
        };
        let forbidden = Err(FetchFailure::answered(403, "403 Forbidden"));
        assert!(is_page(&url, &sent("<!doctype html><p>")) && is_page(&url, &sent("<html>")));
        assert!(is_page(&url, &Err(not_found())) && is_page(&folder, &forbidden));
        assert!(is_page(&folder, &sent("{}")) && is_page(&folder, &sent("")));
        assert!(!is_page(&url, &sent("<urlset")) && !is_page(&url, &sent("{}")));
        assert!(!is_page(&url, &forbidden));
        for reason in ["cannot connect", "404 Not Found, says a name server"] {
            assert!(!is_page(&folder, &Err(FetchFailure::new(reason))), "no server has answered: {reason}");
        }
        let document = r#"<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"/>"#;
        assert!(!is_page(&folder, &sent(document)));
    }

    #[test]
    fn a_base_url_without_its_final_slash_leads_to_its_own_site_before_that_of_the_host() {
        let (own, of_host) = ("http://h/x/.well-known/resourcesync", "http://h/.well-known/resourcesync");
        let found = |documents: &[&'static str], page: &str| {
            let mut web = Web(documents.iter().copied().collect());
            Misplaced::new(&mut web).description_instead_of(&Url::parse(page).unwrap()).map(String::from)
        };
        for page in ["http://h/x", "http://h/x/", "http://h/x/about.html"] {
            assert_eq!(found(&[own, of_host], page).as_deref(), Some(own), "{page}");
            assert_eq!(found(&[of_host], page).as_deref(), Some(of_host), "{page}");
            assert_eq!(found(&[], page), None, "{page}");
        }
        let dotted = "http://h/x/v1.2/.well-known/resourcesync";
        assert_eq!(found(&[dotted, own, of_host], "http://h/x/v1.2").as_deref(), Some(dotted));
    }

    #[test]
    fn what_a_url_has_answered_is_not_asked_for_again() {
        let description = "http://h/x/.well-known/resourcesync";
        for (given, found) in [("http://h/x/", Some(description)), (description, None)] {
            let mut web = Web([description].into());
            let mut misplaced = Misplaced::new(&mut web);
            let instead = misplaced.description_instead_of(&Url::parse(given).unwrap());
            assert_eq!(instead.as_ref().map(Url::as_str), found);
            misplaced.fetch.0.clear();
            misplaced.get(description).unwrap();
            misplaced.get(description).unwrap_err();
        }
    }

    #[test]
    fn of_a_url_without_document_the_source_description_is_named() {
        let description = "http://h/x/.well-known/resourcesync";
        let said = asked([description], &["http://h/x/"]).unwrap_err();
        assert_eq!(
            said,
            format!("http://h/x/ is no ResourceSync document; the Source Description is {description}")
        );
        assert_eq!(asked([], &["http://h/x/"]).unwrap_err(), "404 Not Found");
    }
}
