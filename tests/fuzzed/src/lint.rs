//! Any bytes as every document, package and topic of a site: no panic, no limit passed, twice the same report, and no site
//! conforms whose first document cannot be read strictly.

use std::io::Cursor;

use resync_core::lint::{Check, Fetch, FetchFailure, Fetched, Method, PackageBytes, TopicAnswer};
use resync_core::websub::LinkHeader;
use resync_core::xml::{self, Mode, Options};

const START: &str = "https://source.example/.well-known/resourcesync";
const DOCUMENTS: usize = 8;
const REQUESTS: usize = 40;

struct Site<'a> {
    bytes: &'a [u8],
    asked: usize,
}

impl Fetch for Site<'_> {
    fn get(&mut self, url: &str) -> Result<Fetched, FetchFailure> {
        self.asked += 1;
        let content_type = Some("application/xml".to_owned());
        Ok(Fetched { bytes: self.bytes.to_vec(), content_type, last_url: url.to_owned() })
    }

    fn package(&mut self, _: &str) -> Result<Option<Box<dyn PackageBytes>>, FetchFailure> {
        self.asked += 1;
        Ok(Some(Box::new(Cursor::new(self.bytes.to_vec()))))
    }

    fn topic(&mut self, url: &str, _: Method) -> Result<Option<TopicAnswer>, FetchFailure> {
        self.asked += 1;
        let links = LinkHeader::parse([self.bytes]).push(url, "self");
        Ok(Some(TopicAnswer { content_type: None, links }))
    }
}

/// Runs the target over one input.
pub fn run(bytes: &[u8]) {
    let check = || {
        let mut site = Site { bytes, asked: 0 };
        let report = Check::default().documents(DOCUMENTS).requests(REQUESTS).run(&mut site, START);
        assert!(site.asked <= REQUESTS, "{} requests", site.asked);
        report
    };
    let report = check();
    assert!(report.documents.len() <= DOCUMENTS);
    assert_eq!(report.documents[0].url, START);
    assert!(report.to_string().contains(START));
    assert_eq!(check(), report);

    let strict = Options { mode: Mode::Strict, ..Options::default() };
    let is_flawless = report.documents[0].violations.error_count() == 0;
    assert!(!is_flawless || xml::read_with(bytes, strict).is_ok(), "{report}");
}
