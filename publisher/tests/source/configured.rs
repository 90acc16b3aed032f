//! `source.toml`: `init`, several sets of resources with documents and channels of their own, and what is wrong with a file.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpListener,
    path::{Path, PathBuf},
    process::Stdio,
    sync::mpsc::channel,
    thread,
    time::Duration,
};

use resync_core::{
    document::{Capability, Change, Document, Entry, Link, Relation},
    package::Package,
    xml,
};

use crate::{
    notifying::{everything_created, told, until_end_of_document},
    support::{ACCEPTED, BASE, Heard, Hub, Place, Run, Server, program, run, text},
};

/// A place whose folder holds a `source.toml`.
pub(crate) fn configured(place: &Place, content: &str) -> PathBuf {
    let path = place.collection().parent().unwrap().join("source.toml");
    fs::write(&path, content).unwrap();
    path
}

/// One set at this URL, the collection, with more lines.
pub(crate) fn one_set(base: &str, more: &str) -> String {
    format!("out = \"site\"\nbase_url = \"{base}\"\ndirectory = \"collection\"\n{more}")
}

/// Two sets of one site, with these hubs.
pub(crate) fn two_sets(hub: &str) -> String {
    format!(
        r#"
        out = "site"
        base_url = "http://source.example/"
        hubs = [{hub}]
        [[set]]
        name = "articles"
        directory = "collection"
        ignore = ["*.xml"]
        [[set]]
        name = "images"
        directory = "images"
        base_url = "http://images.example/"
        hash = "md5"
        "#
    )
}

/// The folder of the second set, with one file.
pub(crate) fn with_images(place: &Place) {
    let images = place.collection().parent().unwrap().join("images");
    fs::create_dir(&images).unwrap();
    fs::write(images.join("one.png"), "png").unwrap();
}

fn document(place: &Place, path: &str) -> Document {
    xml::read(&fs::read(place.out().join(path)).unwrap()).unwrap().into_document().unwrap()
}

fn locs(document: &Document) -> Vec<&str> {
    document.entries().iter().map(|entry| entry.loc.as_str()).collect()
}

/// The next Framework Notifications of both sets, which are told at once.
fn next_of_both(hub: &Hub) -> [Heard; 2] {
    let mut heard = [hub.next(), hub.next()];
    heard.sort_by_key(|heard| !heard.headers["link"].contains("/articles/resync/framework/>"));
    heard
}

#[test]
fn init_writes_a_file_from_which_everything_else_works() {
    let place = Place::new();
    let folder = place.collection().parent().unwrap().to_owned();
    let here = |arguments: &[&str]| Run::from(program(arguments).current_dir(&folder).output().unwrap());
    here(&["build"]).failed_with(2, "resync-source init");
    here(&["init", "collection"]).failed_with(2, "--base-url URL");
    let hub = Hub::start();
    here(&["init", "collection", "--base-url", "http://source.example/", "--hub", &hub.url()]).succeeded();
    here(&["init", "x", "--base-url", "http://source.example/"]).failed_with(1, "exists already");
    let published = here(&["publish"]).succeeded();
    assert!(
        published.out.contains("2 resources, 9 B → ") && published.out.contains("1 notification"),
        "{}",
        published.out
    );
    assert!(here(&["status"]).succeeded().out.contains("up to date"));
    assert!(here(&["notify"]).succeeded().out.contains("nothing to send"));
    let list = document(&place, "resync/resourcelist.xml");
    assert_eq!(locs(&list), ["http://source.example/a.txt", "http://source.example/sub/b%20c.xml"]);
}

#[test]
fn rs070_rs080_each_set_has_its_capability_list_and_the_source_description_leads_to_all() {
    let place = Place::new();
    with_images(&place);
    let config = configured(&place, &two_sets(""));
    let run = run(&["build", "--config", text(&config)]).succeeded();
    assert!(
        run.out.starts_with("articles: 1 resource") && run.out.contains("\nimages: 1 resource"),
        "{}",
        run.out
    );
    let description = document(&place, ".well-known/resourcesync");
    let lists =
        ["articles", "images"].map(|set| format!("http://source.example/{set}/resync/capabilitylist.xml"));
    assert_eq!(locs(&description), lists);
    let articles = document(&place, "articles/resync/resourcelist.xml");
    assert_eq!(locs(&articles), ["http://source.example/articles/a.txt"], "what is ignored is no resource");
    let images = document(&place, "images/resync/resourcelist.xml");
    assert_eq!(locs(&images), ["http://images.example/one.png"]);
    let hash = images.entries()[0].metadata.as_ref().unwrap().hash.to_string();
    assert!(hash.starts_with("md5:"), "{hash}");
    crate::support::run(&["check", text(&place.out())]).succeeded();
    let left = place.out().join(".well-known/.resync-left.tmp");
    fs::write(&left, "of a killed run").unwrap();
    let again = crate::support::run(&["build", "--config", text(&config)]).succeeded();
    assert_eq!(again.out.matches("nothing changed").count(), 2, "{}", again.out);
    assert!(!left.exists());
}

#[test]
fn several_sets_are_built_at_once() {
    let place = Place::new();
    with_images(&place);
    let config = configured(&place, &two_sets(""));
    run(&["build", "--config", text(&config)]).succeeded();
    // Somebody else works on both.
    let locks = ["articles", "images"].map(|set| {
        let lock = fs::File::open(place.out().join(set).join(".resync-source/lock")).unwrap();
        lock.lock().unwrap();
        lock
    });
    let mut child = program(&["build", "--config", text(&config)])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (says, said) = channel();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let listening = thread::spawn(move || lines.for_each(|line| drop(says.send(line.unwrap()))));
    for _ in &locks {
        let line = said.recv_timeout(Duration::from_secs(20)).expect("each set waits for its own lock");
        assert!(line.contains("which works on this site"), "{line}");
    }
    drop(locks);
    assert!(child.wait().unwrap().success());
    listening.join().unwrap();
}

#[test]
fn rs056_the_source_and_each_set_are_described_where_that_is_told_and_then_check_advises_nothing() {
    let place = Place::new();
    with_images(&place);
    let described = |page: &str| {
        let sets = two_sets("")
            .replace("name = \"images\"", &format!("name = \"images\"\ndescribed_by = \"{page}\""));
        configured(&place, &format!("described_by = \"http://source.example/about\"\n{sets}"))
    };
    let config = described("http://images.example/about");
    run(&["build", "--config", text(&config)]).succeeded();
    let described_by = |links: &[Link]| {
        links.iter().find(|link| link.rel == Relation::DescribedBy).map(|link| link.href.clone())
    };
    let pages = |document: &Document| {
        let entries = document.entries().iter().map(|entry| described_by(&entry.links));
        std::iter::once(described_by(&document.header().links)).chain(entries).flatten().collect::<Vec<_>>()
    };
    let (source, images) = ("http://source.example/about", "http://images.example/about");
    assert_eq!(pages(&document(&place, ".well-known/resourcesync")), [source, source, images]);
    assert_eq!(pages(&document(&place, "articles/resync/capabilitylist.xml")), [source]);
    assert_eq!(pages(&document(&place, "images/resync/capabilitylist.xml")), [images]);
    let checked = crate::support::run(&["check", text(&place.out())]).succeeded();
    assert!(!checked.out.contains("warning"), "{}", checked.out);
    described("http://images.example/other");
    let again = run(&["build", "--config", text(&config)]).succeeded();
    assert!(
        again.out.contains("images: 1 resource, 3 B → Capability List, Source Description written"),
        "{}",
        again.out
    );
}

#[test]
fn fn002_fn004_cn002_each_set_has_its_channels_and_a_new_set_is_told_on_all_of_them() {
    let (place, hub) = (Place::new(), Hub::start());
    with_images(&place);
    let quoted = format!("\"{}\"", hub.url());
    let both = two_sets(&quoted);
    let first = both.split("[[set]]").take(2).collect::<Vec<_>>().join("[[set]]");
    let config = configured(&place, &first);
    let publish = || run(&["publish", "--config", text(&config)]).succeeded();
    publish();
    assert!(hub.next().headers["link"].contains("articles/resync/framework/>; rel=\"self\""));
    configured(&place, &both);
    publish();
    let [articles, images] = next_of_both(&hub);
    assert!(articles.headers["link"].contains("/articles/resync/framework/>; rel=\"self\""));
    assert_eq!(told(&articles), [(Change::Updated, Capability::Description)]);
    assert!(images.headers["link"].contains("/images/resync/framework/>; rel=\"self\""));
    assert_eq!(told(&images).len(), 4);
    place.put("a.txt", "changed");
    publish();
    let changes = hub.next_of_any();
    assert!(changes.headers["link"].contains("/articles/resync/changes/>; rel=\"self\""), "{changes:?}");
    assert!(changes.headers["link"].contains("/articles/resync/capabilitylist.xml>; rel=\"resourcesync\""));
    hub.next();
    hub.heard_nothing_more();
}

#[test]
fn cn003_a_resource_of_two_sets_is_told_on_the_channels_of_both() {
    let (place, hub) = (Place::new(), Hub::start());
    let set = |name: &str| {
        format!("[[set]]\nname = \"{name}\"\ndirectory = \"collection\"\nbase_url = \"{BASE}/\"\n")
    };
    let site = format!("out = \"site\"\nbase_url = \"http://source.example/\"\nhubs = [\"{}\"]\n", hub.url());
    let config = configured(&place, &[site, set("texts"), set("all")].concat());
    let publish = || run(&["publish", "--config", text(&config)]).succeeded();
    publish();
    place.put("a.txt", "changed");
    publish();
    let mut channels = Vec::new();
    while channels.len() < 2 {
        let heard = hub.next_of_any();
        if heard.is_of_changes() {
            assert!(heard.body.contains(&format!("<loc>{BASE}/a.txt</loc>")), "{}", heard.body);
            channels.push(heard.headers["link"].contains("/texts/resync/changes/>; rel=\"self\""));
        }
    }
    channels.sort_unstable();
    assert_eq!(channels, [false, true], "that of each set");
}

#[test]
fn a_set_that_cannot_be_built_keeps_no_other_from_being_published_and_told() {
    let (place, hub) = (Place::new(), Hub::start());
    // The folder of the images is not there.
    let config = configured(&place, &two_sets(&format!("\"{}\"", hub.url())));
    let publish = |more: &[&str]| run(&[&["publish", "--config", text(&config)], more].concat());
    let first = publish(&[]).failed_with(1, "1 of 2 sets could not be built");
    assert!(first.err.contains("resync-source: images: cannot open the collection"), "{}", first.err);
    assert!(
        first.out.starts_with("articles: 1 resource") && first.out.contains("hub accepted"),
        "{}",
        first.out
    );
    assert_eq!(locs(&document(&place, ".well-known/resourcesync")).len(), 1);
    assert!(hub.next().headers["link"].contains("/articles/resync/framework/>; rel=\"self\""));
    with_images(&place);
    publish(&[]).succeeded();
    hub.next();
    hub.next();
    fs::remove_dir_all(place.collection().parent().unwrap().join("images")).unwrap();
    place.put("a.txt", "changed");
    let second = publish(&["--json"]).failed_with(1, "1 of 2 sets could not be built");
    let said: serde_json::Value = serde_json::from_str(&second.out).unwrap();
    assert_eq!(said["sets"][0]["updated"], 1);
    assert_eq!(said["sets"][1]["set"], "images");
    assert!(said["sets"][1]["error"].as_str().unwrap().contains("images"), "{said}");
    assert!(hub.next_of_any().is_of_changes());
}

#[test]
fn a_set_whose_hub_is_slow_keeps_no_other_waiting() {
    let (place, quick) = (Place::new(), Hub::start());
    with_images(&place);
    let slow = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("\"http://{}/websub/\"", slow.local_addr().unwrap());
    let config = configured(&place, &format!("{}hubs = \"{}\"\n", two_sets(&url), quick.url()));
    run(&["build", "--config", text(&config)]).succeeded();
    let child = program(&["notify", "--config", text(&config)]).stdout(Stdio::piped()).spawn().unwrap();
    let (mut stream, _) = slow.accept().unwrap();
    until_end_of_document(&mut stream);
    assert_eq!(told(&quick.next()), everything_created(), "the slow one has not answered yet");
    stream.write_all(ACCEPTED.as_bytes()).unwrap();
    let said = Run::from(child.wait_with_output().unwrap()).succeeded().out;
    assert!(said.starts_with("articles: 1 notification") && said.contains("\nimages: 1 "), "{said}");
}

#[test]
fn a_token_without_url_is_refused_where_the_sets_have_different_hubs() {
    let (place, one, other) = (Place::new(), Hub::start(), Hub::start());
    with_images(&place);
    let images = format!("hubs = [\"{}\"]\nname = \"images\"", other.url());
    let content = two_sets(&format!("\"{}\"", one.url())).replace("name = \"images\"", &images);
    let config = configured(&place, &content);
    run(&["build", "--config", text(&config)]).succeeded();
    for command in ["notify", "publish", "watch"] {
        run(&[command, "--config", text(&config), "--token", "s3cret"]).failed_with(64, "there are 2 hubs");
    }
    one.heard_nothing_more();
    other.heard_nothing_more();
    let named = format!("{}=s3cret", one.url());
    let notified = run(&["notify", "--config", text(&config), "--token", &named]).succeeded();
    assert_eq!(notified.err, "", "the token is one of the site, though not of each set");
    assert_eq!(one.next().headers["authorization"], "Bearer s3cret");
    assert!(!other.next().headers.contains_key("authorization"));
    let strange = ["notify", "--config", text(&config), "--token", "http://gone.example/=s3cret"];
    let said = run(&strange).succeeded().err;
    assert_eq!(said.matches("ignored a token").count(), 1, "{said}");
}

#[test]
fn rs070_fn010_a_set_that_leaves_the_configuration_is_told_of_as_deleted_and_then_forgotten() {
    let (place, hub) = (Place::new(), Hub::start());
    with_images(&place);
    let both = two_sets(&format!("\"{}\"", hub.url()));
    let config = configured(&place, &both);
    let publish = || run(&["publish", "--config", text(&config)]).succeeded();
    publish();
    hub.next();
    hub.next();
    configured(&place, &both.split("[[set]]").take(2).collect::<Vec<_>>().join("[[set]]"));
    publish();
    assert_eq!(locs(&document(&place, ".well-known/resourcesync")).len(), 1);
    assert!(!place.out().join("images/resync").exists());
    let [articles, images] = next_of_both(&hub);
    assert_eq!(told(&articles), [(Change::Updated, Capability::Description)]);
    assert!(images.headers["link"].contains("/images/resync/framework/>; rel=\"self\""));
    let expected =
        [(Change::Updated, Capability::Description), (Change::Deleted, Capability::CapabilityList)];
    assert_eq!(told(&images), expected);
    publish();
    assert!(!place.out().join("images").exists());
    hub.heard_nothing_more();
    configured(&place, &both);
    publish();
    let [articles, images] = next_of_both(&hub);
    assert_eq!(told(&articles), [(Change::Updated, Capability::Description)]);
    assert_eq!(told(&images).len(), 4, "it is a new one");
}

#[test]
fn a_second_configuration_of_a_site_is_refused_before_it_removes_a_set_until_it_takes_the_site_over() {
    let place = Place::new();
    with_images(&place);
    let both = two_sets("");
    let one = configured(&place, &both);
    let other = one.with_file_name("other.toml");
    fs::write(&other, both.split("[[set]]").take(2).collect::<Vec<_>>().join("[[set]]")).unwrap();
    let build = |config: &Path, more: &[&str]| run(&[&["build", "--config", text(config)], more].concat());
    build(&one, &[]).succeeded();
    let images = place.out().join("images");
    build(&other, &[]).failed_with(64, "--take-over");
    assert!(images.exists(), "nothing was removed");
    build(&one, &[]).succeeded();
    build(&other, &["--take-over"]).succeeded();
    assert!(!images.exists());
    build(&other, &[]).succeeded();
    build(&one, &[]).succeeded();
    assert!(images.exists(), "it names all sets, and more");
    fs::remove_file(&one).unwrap();
    build(&other, &[]).failed_with(64, "source.toml");
    assert!(images.exists(), "a file that is not to be seen may be in use elsewhere");
}

#[test]
fn rs070_fn004_a_set_that_has_left_is_led_to_no_more_though_the_others_cannot_be_built() {
    let (place, hub) = (Place::new(), Hub::start());
    with_images(&place);
    let both = two_sets(&format!("\"{}\"", hub.url()));
    let config = configured(&place, &both);
    let publish = || run(&["publish", "--config", text(&config)]);
    publish().succeeded();
    hub.next();
    hub.next();
    configured(&place, &both.split("[[set]]").take(2).collect::<Vec<_>>().join("[[set]]"));
    let (collection, aside) = (place.collection(), place.collection().with_file_name("aside"));
    fs::rename(&collection, &aside).unwrap();
    publish().failed_with(1, "cannot open the collection");
    assert_eq!(locs(&document(&place, ".well-known/resourcesync")).len(), 1);
    assert_eq!(told(&hub.next()), [(Change::Updated, Capability::Description)]);
    fs::rename(&aside, &collection).unwrap();
    publish().succeeded();
    assert!(!place.out().join("images/resync").exists());
}

#[test]
fn rs070_a_site_of_one_set_becomes_one_of_several_and_again_one_of_one() {
    let (place, hub) = (Place::new(), Hub::start());
    with_images(&place);
    let quoted = format!("\"{}\"", hub.url());
    let one = one_set("http://source.example/", &format!("hubs = [{quoted}]\n"));
    let (two, mut heard) = (two_sets(&quoted), Vec::new());
    for (content, notifications) in [(&one, 1), (&two, 3), (&one, 3)] {
        let config = configured(&place, content);
        run(&["publish", "--config", text(&config)]).succeeded();
        for _ in 0..notifications {
            heard.push(told(&hub.next()));
        }
        run(&["publish", "--config", text(&config)]).succeeded();
        run(&["check", text(&place.out())]).succeeded();
        hub.heard_nothing_more();
    }
    let is_deleted = |changes: &&Vec<_>| changes.contains(&(Change::Deleted, Capability::CapabilityList));
    assert_eq!(heard.iter().filter(is_deleted).count(), 3);
}

#[test]
fn the_damaged_state_of_one_set_is_named_and_stops_no_other() {
    let (place, hub) = (Place::new(), Hub::start());
    with_images(&place);
    let config = configured(&place, &two_sets(&format!("\"{}\"", hub.url())));
    let run = |arguments: &[&str]| run(&[arguments, &["--config", text(&config)]].concat());
    run(&["publish"]).succeeded();
    hub.next();
    hub.next();
    let description = fs::read(place.out().join(".well-known/resourcesync")).unwrap();
    let state = place.out().join("images/.resync-source/state.json");
    let whole = fs::read(&state).unwrap();
    fs::write(&state, &whole[..whole.len() / 2]).unwrap();
    let named = format!("resync-source: images: `{}` is damaged", state.display());

    place.put("a.txt", "changed");
    let built = run(&["build"]).failed_with(1, "1 of 2 sets could not be built");
    assert!(built.out.starts_with("articles: 1 resource, 7 B: 1 updated"), "{}", built.out);
    assert!(
        built.err.contains(&named) && built.err.contains("move it away and build again"),
        "{}",
        built.err
    );
    let now = fs::read(place.out().join(".well-known/resourcesync")).unwrap();
    assert_eq!(now, description, "nobody takes the set for gone");
    let notified = run(&["notify"]).failed_with(1, "1 of 2 sets could not be announced to hubs");
    assert!(notified.err.contains(&named), "{}", notified.err);
    assert!(notified.out.starts_with("articles: 2 notifications"), "{}", notified.out);
    assert!(hub.next_of_any().is_of_changes());
    hub.next();
    let status = run(&["status"]).failed_with(1, "1 of 2 sets cannot be read");
    assert!(status.err.contains(&named) && status.out.contains("up to date"), "{}", status.out);
    let status = run(&["status", "--json"]).failed_with(1, "1 of 2 sets");
    let status: serde_json::Value = serde_json::from_str(&status.out).unwrap();
    assert_eq!((&status[0]["set"], &status[1]["set"]), (&"articles".into(), &"images".into()));
    assert!(status[1]["error"].as_str().unwrap().contains("state.json"), "{status}");
    crate::support::run(&["check", text(&place.out()), "--base-url", "http://source.example/"]).succeeded();
    let server = crate::support::Server::start(&place);
    assert_eq!(server.get("/articles/a.txt").status, 200);
    assert_eq!(server.get("/one.png").status, 500, "it may be there");

    fs::remove_file(&state).unwrap();
    let rebuilt = run(&["publish"]).succeeded();
    assert!(rebuilt.out.contains("images: 1 resource, 3 B → Resource List, Change List"), "{}", rebuilt.out);
    assert_eq!(told(&hub.next()).len(), 4, "notified of every document");
    assert_eq!(server.get("/one.png").status, 200);
    crate::support::run(&["check", text(&place.out())]).succeeded();
}

#[test]
fn a_set_that_is_to_leave_and_whose_state_is_damaged_is_named_and_stops_no_other() {
    let place = Place::new();
    with_images(&place);
    let both = two_sets("");
    let config = configured(&place, &both);
    let build = |config: &Path| run(&["build", "--config", text(config)]);
    build(&config).succeeded();
    let images = place.out().join("images");
    fs::write(images.join(".resync-source/state.json"), "{").unwrap();
    let one = both.split("[[set]]").take(2).collect::<Vec<_>>().join("[[set]]");
    configured(&place, &one);
    place.put("a.txt", "changed");
    let built = build(&config).failed_with(
        1,
        "resync-source: images: cannot remove this set, which the configuration no longer lists",
    );
    assert!(built.out.starts_with("articles: 1 resource, 7 B: 1 updated"), "{}", built.out);
    assert!(images.join("resync/resourcelist.xml").exists());
    let other = config.with_file_name("other.toml");
    fs::write(&other, one).unwrap();
    build(&other).failed_with(64, "--take-over");
    fs::remove_dir_all(&images).unwrap();
    build(&config).succeeded();
    assert_eq!(locs(&document(&place, ".well-known/resourcesync")).len(), 1);
}

#[test]
fn all_sets_of_a_site_are_served() {
    let place = Place::new();
    with_images(&place);
    let config = configured(&place, &two_sets("\"http://hub.example/\""));
    run(&["build", "--config", text(&config)]).succeeded();
    let server = crate::support::Server::start(&place);
    for path in [
        "/.well-known/resourcesync",
        "/articles/resync/capabilitylist.xml",
        "/images/resync/resourcelist.xml",
        "/articles/resync/changelist-1.xml",
        "/articles/a.txt",
        "/one.png",
        "/images/resync/framework/",
        "/articles/resync/changes/",
    ] {
        assert_eq!(server.get(path).status, 200, "{path}");
    }
    assert_eq!(server.get("/articles/sub/b%20c.xml").status, 404, "what is ignored is not served");
    let links = server.get("/articles/a.txt");
    assert!(links.header("link").contains("/articles/resync/capabilitylist.xml>"), "{:?}", links.headers);
}

#[test]
fn a_set_that_leaves_the_configuration_is_no_longer_served_by_a_server_that_knew_it() {
    for is_asked_meanwhile in [true, false] {
        let (place, hub) = (Place::new(), Hub::start());
        with_images(&place);
        let both = two_sets(&format!("\"{}\"", hub.url()));
        let config = configured(&place, &both);
        run(&["publish", "--config", text(&config)]).succeeded();
        let server = Server::start(&place);
        assert_eq!(server.get("/one.png").status, 200);
        configured(&place, &both.split("[[set]]").take(2).collect::<Vec<_>>().join("[[set]]"));
        run(&["build", "--config", text(&config)]).succeeded();
        if is_asked_meanwhile {
            assert_eq!(server.get("/one.png").status, 404, "its hub is still to be notified");
        }
        for _ in 0..2 {
            run(&["publish", "--config", text(&config)]).succeeded();
        }
        assert!(!place.out().join("images").exists());
        for (path, status) in
            [("/one.png", 404), ("/articles/a.txt", 200), ("/.well-known/resourcesync", 200)]
        {
            assert_eq!(server.get(path).status, status, "{path}");
        }
    }
}

/// A link of each relation that a file can ask for, its other keys, and where it leads from `sub/b%20c.xml`.
const LINKS: [(&str, &str, &str); 12] = [
    ("duplicate", "href = 'https://mirror.example/{path}'\npri = 1", "https://mirror.example/sub/b%20c.xml"),
    (
        "alternate",
        "href = 'http://source.example/{path}.html'\ntype = 'text/html'",
        "http://source.example/sub/b%20c.xml.html",
    ),
    (
        "canonical",
        "href = 'http://source.example/{stem}'\nonly = ['*.xml']",
        "http://source.example/sub/b%20c",
    ),
    ("describedby", "href = 'http://source.example/about/{name}'", "http://source.example/about/b%20c.xml"),
    ("describes", "href = 'http://source.example/of/{stem}'", "http://source.example/of/sub/b%20c"),
    (
        "memento",
        "href = 'http://archive.example/{timestamp}/{path}'\nmodified = true",
        "http://archive.example/{timestamp}/sub/b%20c.xml",
    ),
    ("timegate", "href = 'http://archive.example/{path}'", "http://archive.example/sub/b%20c.xml"),
    ("timemap", "href = 'http://archive.example/map/{path}'", "http://archive.example/map/sub/b%20c.xml"),
    ("collection", "href = 'http://source.example/all'", "http://source.example/all"),
    ("via", "href = 'http://origin.example/{path}'\nmodified = true", "http://origin.example/sub/b%20c.xml"),
    ("profile", "href = 'http://source.example/profile'", "http://source.example/profile"),
    (
        "http://source.example/terms/seal",
        "href = 'http://seal.example/{name}'",
        "http://seal.example/b%20c.xml",
    ),
];

/// The entry of `sub/b%20c.xml`, once it is certain that its links are those.
fn linked(document: &Document) -> Entry {
    let entry = document.entries().iter().find(|entry| entry.loc.ends_with("/sub/b%20c.xml")).unwrap();
    let lastmod = entry.lastmod.unwrap();
    let timestamp = lastmod.truncate_to_seconds().to_string().replace(|c: char| !c.is_ascii_digit(), "");
    let expected = LINKS.map(|(rel, keys, href)| Link {
        pri: keys.contains("pri").then_some(1),
        media_type: keys.contains("type").then(|| "text/html".to_owned()),
        modified: keys.contains("modified").then_some(lastmod),
        ..Link::new(Relation::from(rel), href.replace("{timestamp}", &timestamp))
    });
    assert_eq!(entry.links, expected, "{}", document.capability());
    entry.clone()
}

#[test]
fn rs171_to_rs180_links_of_every_relation_stand_in_each_list_notification_and_resource_dump() {
    let (place, hub) = (Place::new(), Hub::start());
    let links = LINKS.map(|(rel, keys, _)| format!("[[link]]\nrel = '{rel}'\n{keys}\n")).concat();
    let more = format!("hubs = [\"{}\"]\n{links}", hub.url());
    let config = configured(&place, &one_set("http://source.example/", &more));
    let publish = || run(&["publish", "--config", text(&config)]).succeeded();
    publish();
    let list = document(&place, "resync/resourcelist.xml");
    linked(&list);
    let of_text = list.entries()[0].links.iter().map(|link| link.rel.as_str());
    let without_canonical = LINKS.iter().map(|(rel, ..)| *rel).filter(|rel| *rel != "canonical");
    assert!(of_text.eq(without_canonical), "{:?}", list.entries()[0]);

    place.put("sub/b c.xml", "<changed/>");
    place.remove("a.txt");
    publish();
    let heard = hub.next_of_any();
    let heard = if heard.is_of_changes() { heard } else { hub.next_of_any() };
    let told = xml::read(heard.body.as_bytes()).unwrap().into_document().unwrap();
    let changes = document(&place, "resync/changelist-1.xml");
    assert_eq!((told.entries()[0].links.len(), changes.entries()[0].links.len()), (0, 0), "it is deleted");
    run(&["dump", "--config", text(&config)]).succeeded();
    let dump = document(&place, "resync/resourcedump.xml");
    let package = dump.entries()[0].loc.strip_prefix("http://source.example/").unwrap();
    let mut package = Package::open(fs::File::open(place.out().join(package)).unwrap()).unwrap();
    let manifest = xml::read(&package.manifest().unwrap()).unwrap().into_document().unwrap();
    let list = document(&place, "resync/resourcelist.xml");
    let lastmods = [told, changes, list, manifest].map(|document| linked(&document).lastmod);
    assert!(lastmods.iter().all(|lastmod| *lastmod == lastmods[0]), "{lastmods:?}");
    run(&["check", text(&place.out())]).succeeded();
}

#[test]
fn rs146_rs174_a_changed_json_file_comes_with_a_patch_in_the_list_and_in_the_dump_and_not_in_the_notification()
 {
    let (place, hub) = (Place::new(), Hub::start());
    let more = format!("hubs = [\"{}\"]\njson_patch = true\n", hub.url());
    let config = configured(&place, &one_set(&format!("{BASE}/"), &more));
    let publish = || run(&["publish", "--config", text(&config)]).succeeded();
    let version = |title: &str| format!("{{\"title\": \"{title}\", \"text\": \"{}\"}}", "long ".repeat(100));
    place.put("data.json", version("one"));
    publish();
    hub.next();
    place.put("data.json", version("two"));
    place.put("a.txt", "no JSON");
    publish();
    let list = document(&place, "resync/changelist-1.xml");
    let patch_of = |entry: &resync_core::document::Entry| entry.link(&Relation::Patch).cloned();
    assert_eq!(patch_of(&list.entries()[0]), None);
    let link = patch_of(&list.entries()[1]).unwrap();
    assert_eq!(link.media_type.as_deref(), Some("application/json-patch+json"));
    let path = link.href.strip_prefix(&format!("{BASE}/")).unwrap();
    let patch = fs::read(place.out().join(path)).unwrap();
    assert_eq!(patch, br#"[{"op":"replace","path":"/title","value":"two"}]"#);
    assert_eq!(link.length, Some(patch.len() as u64));
    let heard = [hub.next_of_any(), hub.next_of_any()];
    let told = heard.iter().find(|heard| heard.is_of_changes()).unwrap();
    assert!(!told.body.contains("patch"), "{}", told.body);
    let server = Server::start(&place);
    let answer = server.get(&format!("/data/{path}"));
    assert_eq!(
        (answer.body, answer.headers["content-type"].as_str()),
        (patch.clone(), "application/json-patch+json")
    );

    run(&["dump", "--changes", "--config", text(&config)]).succeeded();
    let dump = document(&place, "resync/changedump-1.xml");
    let package = place.out().join(dump.entries()[0].loc.strip_prefix(&format!("{BASE}/")).unwrap());
    let mut package = zip::ZipArchive::new(fs::File::open(package).unwrap()).unwrap();
    let mut member = |name: &str| {
        let mut bytes = Vec::new();
        package.by_name(name).unwrap().read_to_end(&mut bytes).unwrap();
        bytes
    };
    let manifest = xml::read(&member("manifest.xml")).unwrap().into_document().unwrap();
    let packed = patch_of(&manifest.entries()[1]).unwrap();
    assert_eq!(member(packed.path.unwrap().trim_start_matches('/')), patch);
    run(&["check", text(&place.out())]).succeeded();
}

#[test]
fn rs174_no_patch_begins_at_a_version_that_a_killed_run_has_stored_and_no_list_tells() {
    let place = Place::new();
    let config = configured(&place, &one_set(&format!("{BASE}/"), "json_patch = true\n"));
    let version = |title: &str| format!("{{\"title\": \"{title}\", \"text\": \"{}\"}}", "long ".repeat(100));
    let has_patch_after = |title: &str| {
        place.put("data.json", version(title));
        run(&["publish", "--config", text(&config)]).succeeded();
        let list = document(&place, "resync/changelist-1.xml");
        list.entries().last().is_some_and(|entry| entry.link(&Relation::Patch).is_some())
    };
    assert!(!has_patch_after("one"));
    for stored in fs::read_dir(place.out().join(".resync-source/versions")).unwrap() {
        fs::write(stored.unwrap().path(), version("two, as a run found it that was killed")).unwrap();
    }
    assert!(!has_patch_after("three"), "a Destination has the first one");
    assert!(has_patch_after("four"));
}

#[test]
fn the_folder_of_the_site_that_is_given_goes_before_the_one_in_the_file_and_the_rest_stays() {
    let place = Place::new();
    with_images(&place);
    let config = configured(&place, &two_sets(""));
    let elsewhere = place.out().with_file_name("elsewhere");
    run(&["build", "--config", text(&config), "--out", text(&elsewhere)]).succeeded();
    assert!(elsewhere.join("articles/resync/resourcelist.xml").exists() && !place.out().exists());
    let status = run(&["status", "--config", text(&config), "--out", text(&elsewhere)]).succeeded();
    assert!(status.out.contains("http://images.example/"), "{}", status.out);
}

#[test]
fn check_looks_at_the_site_of_the_configuration_where_nothing_is_named() {
    let place = Place::new();
    with_images(&place);
    let config = configured(&place, &two_sets(""));
    run(&["build", "--config", text(&config)]).succeeded();
    run(&["check", "--config", text(&config)]).succeeded();
    fs::write(place.out().join("articles/resync/resourcelist.xml"), "<oops/>").unwrap();
    let here = program(&["check"]).current_dir(config.parent().unwrap()).output().unwrap();
    Run::from(here).failed_with(1, "rules are broken");
    let nowhere = program(&["check"]).current_dir(place.collection()).output().unwrap();
    Run::from(nowhere).failed_with(2, "no site given");
}

#[test]
fn what_is_wrong_with_a_file_is_named_at_once() {
    let place = Place::new();
    let config =
        configured(&place, "outt = \"site\"\nbase_url = \"http://source.example/\"\ndirectory = 1\n");
    let run = run(&["build", "--config", text(&config)]).failed_with(64, "did you mean out?");
    assert!(run.err.contains("line 3, column 13: directory must be text in quotes"), "{}", run.err);
    assert!(!place.out().exists());
}

#[test]
fn a_configuration_is_called_by_its_name_also_where_it_is_missing() {
    let place = Place::new();
    let content = one_set(BASE, "");
    let other = configured(&place, &content).with_file_name("other.toml");
    run(&["build", "--config", text(&other)]).failed_with(64, "other.toml");
    fs::write(&other, content).unwrap();
    let published = run(&["publish", "--config", text(&other)]).succeeded();
    let status = run(&["status", "--config", text(&other)]).succeeded();
    for said in [published.out, status.out] {
        assert!(said.contains("other.toml") && !said.contains("source.toml"), "{said}");
    }
    fs::write(&other, "out = ").unwrap();
    run(&["status", "--config", text(&other)])
        .failed_with(64, "other.toml, line 1, column 7: not valid TOML");
}
