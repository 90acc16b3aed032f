//! TimeGates, TimeMaps and mementos that entries link to: as they should be, and then one thing wrong at a time.

use super::super::versions::TRIED;
use super::*;

const ORIGINAL: &str = "http://example.org/a.html";
const GATE: &str = "http://archive.example/http://example.org/a.html";
const MAP: &str = "http://archive.example/timemap/link/http://example.org/a.html";
const MEMENTO: &str = "http://archive.example/20130101000000/http://example.org/a.html";
const DATE: &str = "Tue, 01 Jan 2013 00:00:00 GMT";

/// A Source whose only resource links to an archive.
struct Archive {
    web: Web,
    answers: HashMap<&'static str, VersionAnswer>,
    asked: Vec<String>,
}

impl Fetch for Archive {
    fn get(&mut self, url: &str) -> Result<Fetched, FetchFailure> {
        self.web.get(url)
    }

    fn version(&mut self, url: &str, method: Method) -> Result<Option<VersionAnswer>, FetchFailure> {
        self.asked.push(format!("{method:?} {url}"));
        self.answers.get(url).cloned().map(Some).ok_or_else(|| FetchFailure::new("no way leads there"))
    }
}

impl Archive {
    fn new() -> Self {
        let mut web = web();
        let links = format!(
            r#"<rs:ln rel="timegate" href="{GATE}"/><rs:ln rel="timemap" href="{MAP}"/><rs:ln rel="memento" href="{MEMENTO}"/></url>"#
        );
        web.edit(LIST, "</url>", &links);
        let links = LinkHeader::default().push(ORIGINAL, "original");
        let gate = VersionAnswer {
            status: 302,
            location: Some(MEMENTO.to_owned()),
            vary: vec!["Accept-Encoding, Accept-Datetime".to_owned()],
            links: links.clone(),
            ..VersionAnswer::default()
        };
        let map = VersionAnswer {
            status: 200,
            content_type: Some("application/link-format; charset=utf-8".to_owned()),
            body: time_map().into_bytes(),
            is_whole: true,
            ..VersionAnswer::default()
        };
        let memento = VersionAnswer {
            status: 200,
            memento_datetime: Some(DATE.to_owned()),
            links,
            ..VersionAnswer::default()
        };
        Self {
            web,
            answers: HashMap::from([(GATE, gate), (MAP, map), (MEMENTO, memento)]),
            asked: Vec::new(),
        }
    }

    /// With an answer that is otherwise.
    fn with(url: &'static str, change: impl FnOnce(&mut VersionAnswer)) -> Self {
        let mut archive = Self::new();
        change(archive.answers.get_mut(url).unwrap());
        archive
    }

    /// With another TimeMap.
    fn with_map(from: &str, to: &str) -> Self {
        let text = time_map();
        assert!(text.contains(from), "{from} in {text}");
        Self::with(MAP, |map| map.body = text.replacen(from, to, 1).into_bytes())
    }

    /// What is found about versions.
    fn told(mut self) -> Vec<(Rule, String)> {
        let report = check(&mut self, SOURCE);
        let found = report.documents.iter().flat_map(|document| document.violations.iter());
        let about_versions = found.filter(|violation| violation.rule.code().starts_with("MEM-"));
        about_versions.map(|violation| (violation.rule, violation.detail.clone())).collect()
    }
}

fn time_map() -> String {
    format!(
        "<{ORIGINAL}>; rel=\"original\",\n<{GATE}>; rel=\"timegate\",\n\
         <{MAP}>; rel=\"self\"; type=\"application/link-format\"; from=\"{DATE}\"; until=\"{DATE}\",\n\
         <{MEMENTO}>; rel=\"memento\"; datetime=\"{DATE}\"\n"
    )
}

/// Each of these is one flaw, told with such words, once for each way of asking.
fn expect(rule: Rule, times: usize, cases: Vec<(Archive, &str)>) {
    for (archive, words) in cases {
        let told = archive.told();
        assert_eq!(told.len(), times, "{words}: {told:?}");
        assert!(
            told.iter().all(|(found, detail)| *found == rule && detail.contains(words)),
            "{words}: {told:?}"
        );
    }
}

#[test]
fn mem022_mem028_mem033_an_archive_with_everything_in_order_has_no_flaw() {
    assert_eq!(Archive::new().told(), []);
    let negotiates_itself = Archive::with(GATE, |gate| {
        (gate.status, gate.location, gate.memento_datetime) = (200, None, Some(DATE.to_owned()));
    });
    assert_eq!(negotiates_itself.told(), []);
    assert_eq!(Archive::with(MEMENTO, |memento| memento.status = 410).told(), [], "it is no longer kept");
}

#[test]
fn mem022_mem023_a_time_gate_leads_to_a_memento_by_302_and_says_what_that_depends_on() {
    let cases = vec![
        (Archive::with(GATE, |gate| gate.status = 303), "it answers 303"),
        (Archive::with(GATE, |gate| gate.status = 404), "it answers 404"),
        (Archive::with(GATE, |gate| gate.status = 200), "is no memento"),
        (Archive::with(GATE, |gate| gate.location = None), "no Location"),
        (Archive::with(GATE, |gate| gate.vary = vec!["accept".to_owned()]), "Vary"),
        (Archive::with(GATE, |gate| gate.memento_datetime = Some(DATE.to_owned())), "only a memento has"),
        (Archive::with(GATE, |gate| gate.links = LinkHeader::default()), "no link has rel original"),
        (
            Archive::with(GATE, |gate| gate.links = LinkHeader::default().push(LIST, "original")),
            "its original is",
        ),
    ];
    expect(Rule::TimeGateAnswer, 2, cases);
}

#[test]
fn mem028_a_memento_has_its_date_and_names_its_original() {
    let cases = vec![
        (Archive::with(MEMENTO, |memento| memento.status = 404), "it answers 404"),
        (Archive::with(MEMENTO, |memento| memento.memento_datetime = None), "no Memento-Datetime"),
        (Archive::with(MEMENTO, |memento| memento.memento_datetime = Some("2013".to_owned())), "\"2013\""),
        (Archive::with(MEMENTO, |memento| memento.links = LinkHeader::default()), "rel original"),
    ];
    expect(Rule::MementoAnswer, 1, cases);
}

#[test]
fn mem033_a_time_map_names_what_it_is_of_and_its_mementos_ascending() {
    let second = format!("\"{DATE}\"\n");
    let earlier =
        format!("\"{DATE}\",\n<{GATE}>; rel=\"memento\"; datetime=\"Mon, 31 Dec 2012 00:00:00 GMT\"\n");
    let cases = vec![
        (Archive::with(MAP, |map| map.status = 500), "it answers 500"),
        (Archive::with(MAP, |map| map.content_type = Some("text/html".to_owned())), "text/html"),
        (Archive::with_map(ORIGINAL, LIST), "original"),
        (Archive::with_map("rel=\"timegate\"", "rel=\"up\""), "rel timegate"),
        (Archive::with_map("rel=\"self\"", "rel=\"up\""), "rel self"),
        (Archive::with_map("; type=\"application/link-format\"", ""), "no type"),
        (Archive::with_map("rel=\"memento\"", "rel=\"up\""), "lists no memento"),
        (Archive::with_map("; datetime=", "; date="), "no datetime"),
        (Archive::with_map(MEMENTO, "/20130101000000"), "no absolute URI"),
        (Archive::with_map(&second, &earlier), "do not ascend"),
    ];
    expect(Rule::TimeMapAnswer, 1, cases);
    let beginning = Archive::with(MAP, |map| (map.body, map.is_whole) = (b"<a".to_vec(), false));
    assert_eq!(beginning.told(), [], "what was not read is not missed");
}

#[test]
fn links_to_versions_are_tried_once_in_a_document_and_a_few_times_in_a_site() {
    let mut archive = Archive::new();
    check(&mut archive, SOURCE);
    assert_eq!(
        archive.asked,
        [format!("Get {GATE}"), format!("Head {GATE}"), format!("Get {MAP}"), format!("Get {MEMENTO}")]
    );

    let list = |number: usize| format!("http://example.org/list-{number}.xml");
    let many = 3 * TRIED;
    let mut archive = Archive::new();
    let text = String::from_utf8(archive.web.documents[LIST].clone()).unwrap();
    let lists = (0..many).map(list).collect::<Vec<_>>();
    for url in &lists {
        archive.web.documents.insert(url.clone(), text.clone().into_bytes());
    }
    Check::default().run_all(&mut archive, lists.iter().map(String::as_str), []);
    assert_eq!(archive.asked.len(), 4 * TRIED);
}

#[test]
fn where_nobody_answers_for_versions_their_rules_are_said_to_be_not_judged() {
    struct Documents(Archive);
    impl Fetch for Documents {
        fn get(&mut self, url: &str) -> Result<Fetched, FetchFailure> {
            self.0.get(url)
        }
    }
    let report = check(&mut Documents(Archive::new()), SOURCE);
    assert_eq!(report.versions_skipped, 4);
    assert!(report.unjudged().contains(&Rule::TimeGateAnswer), "{report}");
    assert!(!check(&mut Archive::new(), SOURCE).unjudged().contains(&Rule::TimeMapAnswer));
}
