//! Discovery against a Source made by hand.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use crate::support::{Source, client, document, entry, ok, status};
use resync_subscriber_kit::discover::{DiscoverError, channels, discover};
use resync_subscriber_kit::fetch::FetchError;

const HUB: &str = "https://hub.example/websub/";

async fn announced() -> Source {
    let source = Source::start().await;
    source.announce(Some(HUB));
    source.resource_list("/resourcelist.xml", &[]);
    source
}

#[tokio::test]
async fn rs160_from_every_document_and_from_the_base_the_same_set_is_found() {
    let source = announced().await;
    for path in ["", "/", "/.well-known/resourcesync", "/capabilitylist.xml", "/resourcelist.xml"] {
        let found =
            discover(&client(), &source.url(path)).await.unwrap_or_else(|error| panic!("{path}: {error}"));
        let set = found.choose(None).unwrap();
        assert_eq!(set.resource_list.as_ref().unwrap().as_str(), source.url("/resourcelist.xml"), "{path}");
        assert_eq!(set.name(), source.url("/capabilitylist.xml"), "{path}");
        let channel = set.framework_channel.as_ref().unwrap();
        assert_eq!(channel.topic.as_str(), source.url("/topic"), "{path}");
        assert_eq!(channel.hub().unwrap().as_str(), HUB, "{path}");
        assert_eq!(found.description.unwrap().as_str(), source.url("/.well-known/resourcesync"), "{path}");
    }
    assert!(!source.asked().iter().any(|path| path == "/topic"), "FN-063: the topic is no document");
}

#[tokio::test]
async fn of_a_capability_list_without_end_little_is_remembered() {
    let source = announced().await;
    let mut named: Vec<String> = (0..1000)
        .flat_map(|number| {
            let loc = source.url(&format!("/{number}"));
            [
                entry(&loc, r#"capability="changelist""#),
                entry(&loc, &format!(r#"capability="mine-{number}""#)),
            ]
        })
        .collect();
    named.push(entry(&source.url("/resourcelist.xml"), r#"capability="resourcelist""#));
    let root = r#"<rs:md capability="capabilitylist"/>"#;
    source.put("/capabilitylist.xml", document("urlset", root, &named).as_bytes());
    let found = discover(&client(), &source.url("/")).await.unwrap();
    let set = found.choose(None).unwrap();
    assert_eq!(set.capabilities.len(), 34, "two that are known, and 32 others");
    assert_eq!(set.capabilities[0].1.as_str(), source.url("/0"));
    assert_eq!(set.resource_list.as_ref().unwrap().as_str(), source.url("/resourcelist.xml"));
}

#[tokio::test]
async fn rs161_a_link_header_leads_to_the_capability_list_also_when_relative() {
    let source = announced().await;
    source.remove("/.well-known/resourcesync");
    source.raw(
        "/page.html",
        ok("Link: </capabilitylist.xml>; rel=\"resourcesync\"\r\n", b"<!doctype html><p>Hello"),
    );
    let found = discover(&client(), &source.url("/page.html")).await.unwrap();
    assert_eq!(found.choose(None).unwrap().name(), source.url("/capabilitylist.xml"));
}

#[tokio::test]
async fn rs164_with_nothing_else_a_sitemap_is_used() {
    let source = Source::start().await;
    source.put("/data/sitemap.xml", document("urlset", "", &[]).as_bytes());
    let found = discover(&client(), &source.url("/data/")).await.unwrap();
    let set = found.choose(None).unwrap();
    assert_eq!(set.resource_list.as_ref().unwrap().as_str(), source.url("/data/sitemap.xml"));
    let order = [
        "/data/",
        "/data/.well-known/resourcesync",
        "/.well-known/resourcesync",
        "/robots.txt",
        "/data/resourcelist.xml",
        "/data/sitemap.xml",
    ];
    assert_eq!(source.asked(), order);
}

#[tokio::test]
async fn of_a_site_that_is_served_elsewhere_than_its_documents_say_both_places_are_named() {
    let source = announced().await;
    for path in ["/.well-known/resourcesync", "/capabilitylist.xml"] {
        source.raw(&format!("/site{path}"), source.page(path));
        source.remove(path);
    }
    let (served, named) = (source.url("/site/"), source.url("/"));
    let said = discover(&client(), &served).await.unwrap_err().to_string();
    let place = format!("the site is at {served}, but its documents name {named}:");
    assert!(said.contains("/capabilitylist.xml: answers 404") && said.contains(&place), "{said}");
    source.remove("/site/capabilitylist.xml");
    let said = discover(&client(), &served).await.unwrap_err().to_string();
    assert!(said.contains("/capabilitylist.xml: answers 404") && !said.contains("the site is"), "{said}");
}

#[tokio::test]
async fn when_nothing_is_found_every_place_is_named() {
    let source = Source::start().await;
    let error = discover(&client(), &source.url("/")).await.unwrap_err();
    assert!(matches!(error, DiscoverError::NothingFound { .. }));
    let text = error.to_string();
    for place in ["/.well-known/resourcesync", "/resourcelist.xml", "/sitemap.xml", "404"] {
        assert!(text.contains(place), "{text}");
    }
}

#[tokio::test]
async fn rs164_several_sets_are_named_and_an_unreadable_one_does_not_hide_the_others() {
    let source = announced().await;
    let lists = ["/capabilitylist.xml", "/gone.xml"];
    let entries = lists.map(|path| entry(&source.url(path), r#"capability="capabilitylist""#));
    let description = document("urlset", r#"<rs:md capability="description"/>"#, &entries);
    source.put("/.well-known/resourcesync", description.as_bytes());
    let found = discover(&client(), &source.url("/")).await.unwrap();
    assert_eq!((found.sets.len(), found.unreadable.len()), (1, 1));
    assert!(found.unreadable[0].reason.contains("404"));
}

#[tokio::test]
async fn cn019_while_a_set_cannot_be_read_the_channels_of_the_others_do_not_stand_for_all() {
    let source = announced().await;
    let lists = ["/capabilitylist.xml", "/other.xml"];
    let entries = lists.map(|path| entry(&source.url(path), r#"capability="capabilitylist""#));
    let description = document("urlset", r#"<rs:md capability="description"/>"#, &entries);
    source.put("/.well-known/resourcesync", description.as_bytes());
    source.raw("/other.xml", status("503 Service Unavailable", ""));
    let error = channels(&client(), &source.url("/")).await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("/other.xml"), "{error}");
    source.remove("/other.xml");
    let found = channels(&client(), &source.url("/")).await.unwrap();
    assert_eq!(found.len(), 1, "one that is gone is none to wait for");
}

#[tokio::test]
async fn a_list_that_became_a_page_is_not_replaced_by_another_set_of_its_host() {
    let source = announced().await;
    source.raw("/b.xml", ok("Content-Type: text/html\r\n", b"<!doctype html><p>Not found"));
    let error = discover(&client(), &source.url("/b.xml")).await.unwrap_err();
    assert!(matches!(&error, DiscoverError::NothingFound { .. }), "{error}");
    assert!(error.to_string().contains("not a ResourceSync document"), "{error}");
    assert_eq!(source.asked(), ["/b.xml"]);
}

#[tokio::test]
async fn rs075_a_description_index_is_followed() {
    let source = announced().await;
    source.raw("/inner.xml", {
        let list = entry(&source.url("/capabilitylist.xml"), r#"capability="capabilitylist""#);
        ok("", document("urlset", r#"<rs:md capability="description"/>"#, &[list]).as_bytes())
    });
    let part = format!("<sitemap><loc>{}</loc></sitemap>", source.url("/inner.xml"));
    let index = document("sitemapindex", r#"<rs:md capability="description"/>"#, &[part]);
    source.put("/.well-known/resourcesync", index.as_bytes());
    let found = discover(&client(), &source.url("/")).await.unwrap();
    assert_eq!(found.choose(None).unwrap().name(), source.url("/capabilitylist.xml"));
}

#[tokio::test]
async fn rs047_relative_uris_are_relative_to_their_document() {
    let source = Source::start().await;
    let md = r#"<rs:md capability="capabilitylist"/>"#;
    let list = entry("lists/rl.xml", r#"capability="resourcelist""#);
    source.put("/data/cl.xml", document("urlset", md, &[list]).as_bytes());
    let found = discover(&client(), &source.url("/data/cl.xml")).await.unwrap();
    let list = found.sets[0].resource_list.as_ref().unwrap();
    assert_eq!(list.as_str(), source.url("/data/lists/rl.xml"));
}

#[tokio::test]
async fn a_redirect_loop_is_named() {
    let source = Source::start().await;
    source.raw("/a", status("302 Found", "Location: /b\r\n"));
    source.raw("/b", status("301 Moved Permanently", "Location: /a\r\n"));
    let error = discover(&client(), &source.url("/a")).await.unwrap_err();
    assert!(matches!(error, DiscoverError::Fetch(FetchError::TooManyRedirects { .. })), "{error}");
}

#[tokio::test]
async fn a_source_that_is_away_is_named_and_not_searched_further() {
    let address = resync_harness::free_address();
    let error = discover(&client(), &format!("http://{address}/")).await.unwrap_err();
    assert!(matches!(error, DiscoverError::Fetch(FetchError::Network { .. })), "{error}");
}

#[tokio::test]
async fn an_endless_document_is_cut_off_at_the_limit() {
    let source = Source::start().await;
    source.raw("/", format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 10_u64 << 30).into_bytes());
    let error = discover(&client(), &source.url("/")).await.unwrap_err();
    assert!(matches!(error, DiscoverError::Fetch(FetchError::TooLarge { .. })), "{error}");
}

#[tokio::test]
async fn rs161_a_link_in_a_page_leads_to_the_capability_list() {
    let source = announced().await;
    source.remove("/.well-known/resourcesync");
    source
        .put("/page.html", br#"<!doctype html><link rel="resourcesync" href="capabilitylist.xml"><p>Hello"#);
    let found = discover(&client(), &source.url("/page.html")).await.unwrap();
    assert_eq!(found.choose(None).unwrap().name(), source.url("/capabilitylist.xml"));
}

#[tokio::test]
async fn rs160_rs163_the_resource_lists_among_the_sitemaps_of_robots_txt_lead_to_their_sets() {
    let source = announced().await;
    source.remove("/.well-known/resourcesync");
    source.remove("/resourcelist.xml");
    source.resource_list("/lists/rl.xml", &[]);
    source.put("/plain.xml", document("urlset", "", &[]).as_bytes());
    let robots =
        ["/plain.xml", "/gone.xml", "/lists/rl.xml"].map(|path| format!("Sitemap: {}\n", source.url(path)));
    source.put("/robots.txt", format!("User-agent: *\n{}", robots.concat()).as_bytes());
    let found = discover(&client(), &source.url("/")).await.unwrap();
    let set = found.choose(None).unwrap();
    assert_eq!(set.name(), source.url("/capabilitylist.xml"));
    assert_eq!(set.resource_list.as_ref().unwrap().as_str(), source.url("/lists/rl.xml"));
    assert!(set.framework_channel.is_some());
}

#[tokio::test]
async fn rs164_a_source_whose_description_is_away_for_a_moment_is_looked_for_nowhere_else() {
    let source = announced().await;
    source.raw("/.well-known/resourcesync", status("503 Service Unavailable", ""));
    source.put("/sitemap.xml", document("urlset", "", &[]).as_bytes());
    source.put("/robots.txt", format!("Sitemap: {}\n", source.url("/sitemap.xml")).as_bytes());
    let error = discover(&client(), &source.url("/")).await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("503"), "{error}");
}

#[tokio::test]
async fn rs164_the_one_set_that_can_be_read_is_not_taken_for_one_that_cannot() {
    let source = announced().await;
    let lists = ["/capabilitylist.xml", "/away.xml"];
    let entries = lists.map(|path| entry(&source.url(path), r#"capability="capabilitylist""#));
    let description = document("urlset", r#"<rs:md capability="description"/>"#, &entries);
    source.put("/.well-known/resourcesync", description.as_bytes());
    source.raw("/away.xml", status("503 Service Unavailable", ""));
    let found = discover(&client(), &source.url("/")).await.unwrap();
    let error = found.choose(None).unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("/away.xml"), "{error}");
    assert!(found.choose(Some("capabilitylist.xml")).is_ok());

    // A list that is asked for is the one that is meant.
    source.remove("/capabilitylist.xml");
    let found = discover(&client(), &source.url("/resourcelist.xml")).await.unwrap();
    assert_eq!(found.choose(None).unwrap().name(), source.url("/resourcelist.xml"));
}

#[tokio::test]
async fn a_document_that_is_away_or_gone_is_not_replaced_by_what_else_the_host_has() {
    let source = announced().await;
    for path in ["/other.xml", "/other"] {
        source.raw(path, status("503 Service Unavailable", ""));
        let error = discover(&client(), &source.url(path)).await.unwrap_err();
        assert!(error.is_transient(), "{path}: {error}");
    }
    source.remove("/other.xml");
    let error = discover(&client(), &source.url("/other.xml")).await.unwrap_err();
    assert!(matches!(error, DiscoverError::NothingFound { .. }) && !error.is_transient(), "{error}");
}

#[tokio::test]
async fn rs165_a_resourcesync_link_leads_to_a_capability_list_and_never_to_a_source_description() {
    let source = announced().await;
    let description = "/.well-known/resourcesync";
    let page = |targets: &[&str]| {
        let link = |target: &&str| format!("Link: <{target}>; rel=\"resourcesync\"\r\n");
        let links: String = targets.iter().map(link).collect();
        source.raw("/page.html", ok(&links, b"<!doctype html><p>Hello"));
    };
    page(&[description]);
    let error = discover(&client(), &source.url("/page.html")).await.unwrap_err();
    let said = error.to_string();
    assert!(matches!(error, DiscoverError::NoReadableSet { .. }), "{said}");
    assert!(said.contains(description) && said.contains("not a Capability List"), "{said}");
    assert_eq!(source.asked(), ["/page.html", description], "it is not read for its sets");

    page(&[description, "/capabilitylist.xml"]);
    let found = discover(&client(), &source.url("/page.html")).await.unwrap();
    assert_eq!((found.sets.len(), found.unreadable.len()), (1, 1));
    assert_eq!(found.sets[0].name(), source.url("/capabilitylist.xml"));
}
