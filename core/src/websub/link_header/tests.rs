//! Tests of [`LinkHeader`].

use proptest::prelude::*;

use super::*;

/// Each link as `target rel,rel name=value…`.
fn read(fields: &[&str]) -> Vec<String> {
    let shown = |link: &LinkValue| {
        let params = link.params.iter().map(|(name, value)| format!(" {name}={value}"));
        format!("{} {}{}", link.target, link.rels.join(","), params.collect::<String>())
    };
    LinkHeader::parse(fields).iter().map(shown).collect()
}

#[test]
fn h08_several_links_are_written_as_one_header_that_the_strictest_reader_splits() {
    let header = LinkHeader::default()
        .push("https://hub.example/hub", "hub")
        .push("https://other.example/", "hub")
        .push("https://blog.example/feed", "self")
        .to_string();
    assert_eq!(
        header,
        r#"<https://hub.example/hub>; rel="hub", <https://other.example/>; rel="hub", <https://blog.example/feed>; rel="self""#
    );
    for value in header.split(", ") {
        let (target, rel) = value.split_once("; ").unwrap();
        assert!(target.starts_with('<') && target.ends_with('>'));
        assert!(rel.starts_with("rel="));
    }
}

#[test]
fn h08_a_target_cannot_break_out_of_its_brackets() {
    let header =
        LinkHeader::default().push("https://s.example/a>; rel=\"hub\", <\r\nX: \u{fc}", "self").to_string();
    assert_eq!(header, "<https://s.example/a%3E;%20rel=%22hub%22,%20%3C%0D%0AX:%20%C3%BC>; rel=\"self\"");
    assert!(LinkHeader::default().push("https://s.example/", " \r\n\"").is_empty());
}

#[test]
fn a_parameter_that_cannot_be_written_is_left_out() {
    let header = LinkHeader::default()
        .param("type", "text/html")
        .push("u", "alternate")
        .param("type", "text/html")
        .param("a name", "x")
        .param("title", "a\r\nX: b")
        .param("title", "a \"b\"");
    assert_eq!(header.to_string(), r#"<u>; rel="alternate"; type="text/html"; title="a \"b\"""#);
    let link = header.iter().next().unwrap();
    assert_eq!((link.param("title"), link.param("media")), (Some("a \"b\""), None));
}

#[test]
fn d12_the_order_of_hubs_is_kept() {
    let header = LinkHeader::parse([
        "<http://b.example/>; rel=hub, <http://s.example/>; rel=self",
        "<http://a.example/>; rel=hub",
    ]);
    assert_eq!(header.with_rel("hub").collect::<Vec<_>>(), ["http://b.example/", "http://a.example/"]);
    assert_eq!(header.first("SELF"), Some("http://s.example/"));
    assert_eq!(header.first("up"), None);
}

#[test]
fn what_the_world_writes_is_read() {
    let cases = [
        (r#"<u>; rel="hub""#, vec!["u hub"]),
        ("<u>;rel=hub", vec!["u hub"]),
        ("<u> ; rel = hub", vec!["u hub"]),
        ("  < u > \t;\trel='hub'  ", vec!["u hub"]),
        ("<u>; REL=Hub", vec!["u hub"]),
        (r#"<u>; rel="self  Canonical""#, vec!["u self,canonical"]),
        (r#"<u>; rel="hub"; rel="self""#, vec!["u hub"]),
        (
            r#"<u>; title="a, b; <c>; rel=\"x\""; rel="hub", <v>; rel=self"#,
            vec![r#"u hub title=a, b; <c>; rel="x""#, "v self"],
        ),
        ("<http://s.example/a,b;c?d=1>; rel=self", vec!["http://s.example/a,b;c?d=1 self"]),
        (r#"<u>; rel="hub",, ,<v>; rel="self","#, vec!["u hub", "v self"]),
        (r#"<u>; rel="hub" <v>; rel="self""#, vec!["u hub", "v self"]),
        (r#"<u>; rel="hub"; <v>; rel="self""#, vec!["u hub", "v self"]),
        ("<>; rel=self", vec![" self"]),
        ("<u>; rel=hub; Type=text/html; crossorigin", vec!["u hub type=text/html crossorigin="]),
        (r#"<u>; type="text/html" rel="hub""#, vec!["u hub type=text/html"]),
        (r#"<u>; rel="hub"#, vec!["u hub"]),
        (r#"<u>; rel=hub", <v>; rel=self"#, vec!["u hub", "v self"]),
    ];
    for (field, expected) in cases {
        assert_eq!(read(&[field]), expected, "{field}");
    }
}

#[test]
fn a_missing_semicolon_before_rel_is_forgiven() {
    assert_eq!(
        read(&[r#"<https://hub.example/> rel="hub", <u> rel=self"#]),
        ["https://hub.example/ hub", "u self"]
    );
}

#[test]
fn what_cannot_be_read_is_skipped_and_the_rest_is_not() {
    let cases = [
        ("", vec![]),
        ("https://hub.example/; rel=hub", vec![]),
        ("<u>", vec![]),
        ("<u>; rel=", vec![]),
        (r#"<u>; rel="""#, vec![]),
        ("<u>; title=x, <v>; rel=hub", vec!["v hub"]),
        ("junk, more; rel=x, <v>; rel=hub", vec!["v hub"]),
        ("<u; rel=hub, <v>; rel=self", vec!["v self"]),
        ("<u>; junk<v>; rel=self", vec!["v self"]),
        ("<v>; rel=self, <u; rel=hub", vec!["v self"]),
        ("<u>; =x; ;;rel=hub", vec!["u hub"]),
        ("<u>; title=\"a\nb\"; rel=hub", vec!["u hub"]),
        ("<u>; t\"x=1; rel=hub", vec!["u hub"]),
    ];
    for (field, expected) in cases {
        assert_eq!(read(&[field]), expected, "{field}");
    }
    assert_eq!(LinkHeader::parse([b"<\xff\xfe>; rel=hub"]).first("hub"), Some("%EF%BF%BD%EF%BF%BD"));
}

#[test]
fn at_most_256_links_are_read() {
    let field = "<u>;rel=a,".repeat(1000);
    assert_eq!(LinkHeader::parse([&field, &field]).iter().count(), MAX_LINKS);
}

#[test]
fn w034_relative_targets_are_resolved_and_absolute_ones_left_alone() {
    let base = Url::parse("https://s.example/d|r/page?q").unwrap();
    let found = LinkHeader::default()
        .push("/feed.json", "self")
        .push("https://hub.example", "hub")
        .push("next", "next")
        .push("//cdn.example/x|y", "other")
        .push("http://[", "broken")
        .resolve(&base);
    assert_eq!(
        found.to_string(),
        "<https://s.example/feed.json>; rel=\"self\", <https://hub.example>; rel=\"hub\", \
         <https://s.example/d%7Cr/next>; rel=\"next\", <https://cdn.example/x%7Cy>; rel=\"other\""
    );
}

fn headers() -> impl Strategy<Value = LinkHeader> {
    prop::collection::vec(("\\PC{0,20}", "[a-zA-Z:/. ]{0,12}"), 0..6).prop_map(|links| {
        links.into_iter().fold(LinkHeader::default(), |header, (target, rel)| header.push(target, rel))
    })
}

fn bounded(header: &LinkHeader, input: usize) -> bool {
    let size = |link: &LinkValue| {
        let params = link.params.iter().map(|(name, value)| name.len() + value.len());
        link.target.len() + link.rels.iter().map(String::len).sum::<usize>() + params.sum::<usize>()
    };
    // A byte that is not UTF-8 becomes a replacement character of three bytes, each percent-encoded.
    header.iter().map(size).sum::<usize>() <= 9 * input
}

proptest! {
    #[test]
    fn printing_then_parsing_gives_what_was_pushed(header in headers()) {
        let text = header.to_string();
        prop_assert!(text.bytes().all(|b| b.is_ascii_graphic() || b == b' '));
        prop_assert_eq!(LinkHeader::parse([text]), header);
    }

    #[test]
    fn any_field_stays_bounded_and_what_was_read_can_be_written(
        field in "([<>;,=\"'\\\\ a-z]|rel=|hub|; rel=\"self\"|title=|ü|\\x00){0,60}",
    ) {
        let header = LinkHeader::parse([&field]);
        prop_assert!(bounded(&header, field.len()));
        let text = header.to_string();
        prop_assert!(text.bytes().all(|b| b.is_ascii_graphic() || b == b' '));
        prop_assert_eq!(LinkHeader::parse([text]), header);
    }

    #[test]
    fn no_bytes_make_parsing_panic(fields in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..4)) {
        let header = LinkHeader::parse(&fields);
        prop_assert!(bounded(&header, fields.iter().map(Vec::len).sum()));
        prop_assert_eq!(LinkHeader::parse([header.to_string()]), header);
    }

    #[test]
    fn w034_resolving_leaves_only_absolute_targets(header in headers()) {
        let base = Url::parse("https://s.example/dir/page").unwrap();
        let resolved = header.resolve(&base);
        for link in &resolved {
            prop_assert!(Url::parse(&link.target).is_ok());
        }
        prop_assert_eq!(LinkHeader::parse([resolved.to_string()]), resolved);
    }
}
