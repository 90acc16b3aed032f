//! A site with everything that `resync-source` writes: two sets, lists and dumps with indexes and archives, patches, and what its hub heard.

use std::{fs, path::PathBuf};

use resync_core::{document::Root, xml};
use resync_judge::files_below;

use crate::{
    configured::configured,
    support::{Hub, Place, run, text},
};

/// A document that was written or sent.
pub(crate) struct Written {
    /// Its set, `source` or `hub`; then its capability, and `index` where it is one: `articles/changelist index`.
    pub(crate) kind: String,
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

/// Publishes until there is one of each kind. What was sent lies outside of the site.
pub(crate) fn rich_site() -> (Place, Vec<Written>) {
    let (place, hub) = (Place::new(), Hub::start());
    let sent = place.collection().join("../sent");
    let images = place.collection().join("../images");
    fs::create_dir(&sent).unwrap();
    fs::create_dir(&images).unwrap();
    fs::write(images.join("one.png"), "png").unwrap();
    let config = configured(&place, "");
    // Lists that are closed soon and archived; lists that are closed soon and stay; and dumps of several packages.
    for (round, (entries, after)) in [[(2, "0s"); 4].as_slice(), &[(2, "never"); 2], &[(1_000, "never"); 2]]
        .concat()
        .into_iter()
        .enumerate()
    {
        configured(&place, &sets(&hub.url(), entries, after));
        place.put("a.txt", format!("alpha {round}"));
        place.put("b.json", format!(r#"{{"title": {round}, "body": "{}"}}"#, "x".repeat(300)));
        place.put(&format!("new{round}.txt"), "new");
        if round > 0 {
            place.remove(&format!("new{}.txt", round - 1));
        }
        run(&["publish", "--config", text(&config)]).succeeded();
    }
    for (number, heard) in hub.all_heard().into_iter().enumerate() {
        fs::write(sent.join(format!("{number:02}.xml")), heard.body).unwrap();
    }
    let files = files_below(&place.out()).into_iter().chain(files_below(&sent));
    let files = files.filter(|path| path.extension().is_none_or(|end| end == "xml"));
    let written = files.map(|path| {
        let text = fs::read_to_string(&path).unwrap();
        let document = xml::read(text.as_bytes()).unwrap().into_document().unwrap();
        let index = if document.root() == Root::SitemapIndex { " index" } else { "" };
        let folder = match path.strip_prefix(place.out()).map(|path| path.iter().next().unwrap()) {
            Ok(folder) if folder == ".well-known" => "source",
            Ok(set) => set.to_str().unwrap(),
            Err(_) => "hub",
        };
        Written { kind: format!("{folder}/{}{index}", document.capability()), path, text }
    });
    let written = written.collect();
    (place, written)
}

/// Dumps at every run, and Change Lists of so many entries, which are archived after this time.
pub(crate) fn rules(entries: u32, after: &str) -> String {
    format!(
        r#"
        [change_list]
        entries = {entries}
        [resource_list]
        keep = 3
        [resource_dump]
        every = "0s"
        keep = 2
        [change_dump]
        every = "0s"
        [archive]
        after = "{after}"
        "#
    )
}

fn sets(hub: &str, entries: u32, after: &str) -> String {
    let rules = rules(entries, after);
    format!(
        r#"
        out = "site"
        base_url = "http://source.example/"
        described_by = "http://source.example/about"
        hubs = "{hub}"
        {rules}
        [[set]]
        name = "articles"
        directory = "collection"
        json_patch = true
        hash = ["md5", "sha-256"]
        [[set.link]]
        rel = "duplicate"
        href = "http://mirror.example/{{path}}"
        pri = 1
        [[set.link]]
        rel = "alternate"
        href = "http://source.example/{{path}}.pdf"
        type = "application/pdf"
        [[set.link]]
        rel = "describedby"
        href = "http://source.example/{{path}}.meta"
        type = "application/xml"
        [[set]]
        name = "images"
        directory = "images"
        "#
    )
}
