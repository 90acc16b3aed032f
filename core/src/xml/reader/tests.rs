//! What the reader reads, tolerates, tells and refuses.

use super::*;
use crate::document::{
    Capability, Change, ForeignAttribute, FrameworkChange, FrameworkNotification, Relation,
};
use crate::xml::{
    Limits, MAX_ATTRIBUTES, MAX_BINDINGS, MAX_DEPTH, MAX_FOREIGN, MAX_LINKS, MAX_NAMESPACE, MAX_TEXT, Mode,
    read, read_with,
};

/// A urlset of which only the content is of interest; the content starts on line 2.
fn urlset(content: &str) -> Vec<u8> {
    format!(
        "<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9' \
         xmlns:rs='http://www.openarchives.org/rs/terms/'>\n{content}\n</urlset>"
    )
    .into_bytes()
}

/// A Change List with one entry of this content.
fn change(content: &str) -> Vec<u8> {
    urlset(&format!(
        "<rs:md capability='changelist' from='2013-01-01T00:00:00Z'/>\n<rs:ln rel='up' href='http://example.org/c.xml'/>\n\
         <url>{content}</url>"
    ))
}

const CHANGED: &str =
    "<loc>http://example.org/a</loc><rs:md change='updated' datetime='2013-01-02T00:00:00Z'/>";

fn rules(bytes: &[u8]) -> Vec<Rule> {
    read(bytes).unwrap().violations.iter().map(|violation| violation.rule).collect()
}

#[test]
fn fn_example_1_one_new_resource_list_told_with_an_up_link_before_the_metadata() {
    let bytes = urlset(
        "<rs:ln rel='up' href='http://data.example.org/set/capabilitylist.xml'/>
         <rs:md capability='framework-notification'/>
         <url><loc>http://data.example.org/other/resourcelist.xml</loc>
           <rs:md change='created' datetime='2013-01-03T00:07:22Z' capability='resourcelist'/></url>",
    );
    let read = read(&bytes).unwrap();
    assert!(read.violations.is_empty(), "{}", read.violations);
    let document = read.into_document().unwrap();
    let loc = "http://data.example.org/other/resourcelist.xml";
    let wanted = FrameworkChange::new(Change::Created, Capability::ResourceList, loc)
        .datetime("2013-01-03T00:07:22Z".parse().unwrap());
    assert_eq!(FrameworkNotification::changes(&document), Some(vec![wanted]));
    assert_eq!(document.link(&Relation::Up).unwrap().href, "http://data.example.org/set/capabilitylist.xml");
}

#[test]
fn fn_example_2_three_changes_at_once_one_of_them_under_an_index() {
    let bytes = urlset(
        "<rs:md capability='framework-notification'/>
         <url><loc>http://example.org/set/resourcelist.xml</loc><rs:md change='created' capability='resourcelist'/>
           <rs:ln rel='index' href='http://example.org/set/resourcelist-index.xml'/></url>
         <url><loc>http://example.org/set/resourcedump.xml</loc><rs:md change='created' capability='resourcedump'/></url>
         <url><loc>http://example.org/set/changelist.xml</loc><rs:md change='updated' capability='changelist'/></url>",
    );
    let read = read(&bytes).unwrap();
    assert!(read.violations.is_empty(), "{}", read.violations);
    let changes = FrameworkNotification::changes(&read.into_document().unwrap()).unwrap();
    let indexes: Vec<_> = changes.iter().map(|change| change.index.as_deref()).collect();
    assert_eq!(indexes, [Some("http://example.org/set/resourcelist-index.xml"), None, None]);
}

#[test]
fn fn_example_8_a_capability_list_with_a_channel() {
    let bytes = urlset(
        "<rs:ln rel='describedby' href='http://example.org/info.xml'/>
         <rs:ln rel='up' href='http://example.org/source_description.xml'/>
         <rs:md capability='capabilitylist'/>
         <url><loc>http://example.org/set/resourcelist.xml</loc><rs:md capability='resourcelist'/></url>
         <url><loc>http://example.org/set/changelist.xml</loc><rs:md capability='changelist'/></url>
         <url><loc>http://example.org/set/framework/</loc><rs:ln rel='hub' href='http://hub.example.net/websub/'/>
           <rs:md capability='framework-notification'/></url>",
    );
    let read = read(&bytes).unwrap();
    assert!(read.violations.is_empty(), "{}", read.violations);
    let document = read.into_document().unwrap();
    let channel = document.entries().last().unwrap();
    assert_eq!(channel.link(&Relation::Hub).unwrap().href, "http://hub.example.net/websub/");
}

#[test]
fn fn061_a_hub_link_inside_loc_is_read_as_the_entrys_with_a_warning() {
    let bytes = urlset(
        "<rs:md capability='capabilitylist'/><rs:ln rel='up' href='http://example.org/d.xml'/>
         <rs:ln rel='describedby' href='http://example.org/info.xml'/>
         <url><loc>http://example.org/framework/<rs:ln rel='hub' href='http://hub.example.net/'/></loc>
           <rs:md capability='framework-notification'/></url>",
    );
    assert_eq!(rules(&bytes), [Rule::HubInLoc]);
    let document = read(&bytes).unwrap().into_document().unwrap();
    assert_eq!(document.entries()[0].loc, "http://example.org/framework/");
    assert_eq!(document.entries()[0].links.len(), 1);
}

#[test]
fn every_attribute_and_element_of_the_model_is_read() {
    let bytes = urlset(
        "<rs:md capability='resourcedump-manifest' at='2013-01-03T09:00:00Z' completed='2013-01-03T09:04:00Z'/>
         <rs:ln rel='up' href='http://example.org/c.xml'/>
         <url><loc> http://example.org/a?b&amp;c<![CDATA[&d]]>&#x65; </loc><lastmod>2013-01-02</lastmod>
         <changefreq>daily</changefreq><priority>0.5</priority>
         <rs:md hash='md5:1584abdf8ebdc9802ac0c6a7402c03b6
                      x:y' length='8876' type='text/html' encoding='gzip' path='/a'
                xmlns:c='urn:c&amp;d' c:note='&lt;&#10;'/>
         <rs:ln rel='duplicate' href='http://mirror.example.org/a' pri='1' modified='2013-01-02T18:00:00Z' path='/b'
                profile='http://example.org/p' type='text/html' length='3' encoding='br' hash='md5:x'/></url>",
    );
    let read = read(&bytes).unwrap();
    assert!(read.violations.is_conforming(), "{}", read.violations);
    let entry = &read.document.entries[0];
    assert_eq!(entry.loc, "http://example.org/a?b&c&de");
    assert_eq!(entry.lastmod.unwrap().to_string(), "2013-01-02T00:00:00Z");
    let metadata = entry.metadata.as_ref().unwrap();
    assert_eq!(metadata.hash.to_string(), "md5:1584abdf8ebdc9802ac0c6a7402c03b6 x:y");
    assert_eq!((metadata.length, metadata.path.as_deref()), (Some(8876), Some("/a")));
    let note = &metadata.foreign[0];
    assert_eq!((note.namespace.as_str(), note.prefix.as_str(), note.value.as_str()), ("urn:c&d", "c", "<\n"));
    let link = &entry.links[0];
    assert_eq!((link.pri, link.profile.as_deref()), (Some(1), Some("http://example.org/p")));
    assert_eq!(link.hash.unknown(), ["md5:x"]);
}

#[test]
fn namespaces_decide_and_prefixes_do_not() {
    let bytes = br#"<s:urlset xmlns:s="http://www.sitemaps.org/schemas/sitemap/0.9">
        <md xmlns="http://www.openarchives.org/rs/terms/" capability="description"/>
        <s:url><s:loc>http://example.org/c.xml</s:loc><x:loc xmlns:x="urn:x">no</x:loc></s:url></s:urlset>"#;
    let read = read(bytes).unwrap();
    assert!(read.violations.is_conforming(), "{}", read.violations);
    assert_eq!(read.document.entries[0].loc, "http://example.org/c.xml");
}

#[test]
fn rs010_a_plain_sitemap_is_read_and_told() {
    let bytes = urlset("<url><loc>http://example.org/a</loc></url>");
    let read = read(&bytes).unwrap();
    assert_eq!(read.document.entries.len(), 1);
    assert_eq!(
        read.violations.errors().map(|violation| violation.rule).collect::<Vec<_>>(),
        [Rule::CapabilityMissing]
    );
}

#[test]
fn rs050_what_cannot_be_understood_is_named_and_left_out() {
    let cases = [
        ("<rs:md change='changed' datetime='2013-01-02T00:00:00Z'/>", Rule::ChangeValue),
        ("<rs:md change='updated' datetime='2013-01-02T00:00:00'/>", Rule::Datetime),
        ("<rs:md change='updated' datetime='2013-01-02'/>", Rule::DatetimePartial),
        ("<rs:md change='updated' length='-1'/>", Rule::Length),
        ("<rs:md change='updated' rs:length='1'/>", Rule::AttributePrefixed),
        ("<rs:md change='updated' size='1'/>", Rule::AttributeUnknown),
        ("<rs:ln href='http://example.org/b'/>", Rule::LinkIncomplete),
        ("<rs:ln rel='via'/>", Rule::LinkIncomplete),
        ("<rs:ln rel='via' href='http://example.org/b' pri='first'/>", Rule::Priority),
        ("<rs:md/><rs:md/>", Rule::Repeated),
        ("<loc>http://example.org/b</loc>", Rule::Repeated),
        ("<lastmod>yesterday</lastmod>", Rule::Datetime),
        ("<changefreq>sometimes</changefreq>", Rule::ChangeFrequency),
        ("<changefreq>daily</changefreq><lastmod>2013</lastmod>", Rule::ChildOrder),
        ("<rs:ln rel='via' href='http://example.org/b'/><lastmod>2013</lastmod>", Rule::ChildOrder),
        ("<rs:mdx/>", Rule::ElementUnknown),
        ("<caption>x</caption>", Rule::ElementUnknown),
        ("text", Rule::ElementUnknown),
    ];
    for (content, rule) in cases {
        let found = rules(&change(&format!("<loc>http://example.org/a</loc>{content}")));
        assert!(found.contains(&rule), "{content}: {found:?}");
    }
    assert_eq!(rules(&change(&format!("{CHANGED}<x:y xmlns:x='urn:x'><x:loc>z</x:loc></x:y>"))), []);
}

#[test]
fn rs050_an_entry_that_cannot_be_understood_is_left_out_and_counted() {
    let (good, loc) = ("<url><loc>http://example.org/good</loc></url>", "<loc>http://example.org/a</loc>");
    let refused = [
        "<loc>http://example.org/b</loc>",
        "<lastmod>2013</lastmod><lastmod>2013</lastmod>",
        "<rs:md/><rs:md/>",
        "<rs:md change='changed'/>",
        "<rs:md length='-1'/>",
        "<rs:md length='1.5'/>",
        "<rs:ln rel='via' href='http://example.org/b' pri='0.5'/>",
        "<rs:ln href='http://example.org/b'/>",
        "<rs:ln rel='via'/>",
        "<rs:ln rel='via' href='http://example.org/b' length='x'/>",
    ];
    let lived_with = ["<rs:md hash='md5:x'/>", "<caption/>", "<lastmod>yesterday</lastmod>"];
    for (contents, count) in [(&refused[..], 1), (&lived_with[..], 0)] {
        for content in contents {
            let bytes =
                urlset(&format!("<rs:md capability='resourcelist'/>{good}<url>{loc}{content}</url>{good}"));
            let mut reader = Reader::new(bytes.as_slice()).unwrap();
            let locs: Vec<_> = reader.by_ref().map(|entry| entry.unwrap().loc).collect();
            assert_eq!((locs.len(), reader.refused()), (3 - count, count), "{content}");
            assert!(reader.take_violations().error_count() >= count, "{content}");
            assert_eq!(read(&bytes).unwrap().document.entries.len(), locs.len());
        }
    }
}

#[test]
fn rs045_a_header_after_the_first_entry_is_told_and_left_out() {
    let bytes = urlset(
        "<rs:md capability='description'/><url><loc>http://example.org/c</loc></url>
         <rs:md capability='changelist'/><rs:ln rel='up' href='http://example.org/'/>",
    );
    let read = read(&bytes).unwrap();
    let late = read.violations.errors().filter(|violation| violation.rule == Rule::HeaderLate).count();
    assert_eq!(late, 2);
    assert_eq!(read.document.header.capability(), Some(&Capability::Description));
}

#[test]
fn rs002_a_sitemap_in_a_urlset_is_told() {
    let bytes =
        urlset("<rs:md capability='description'/><sitemap a=''><loc>http://example.org/c</loc></sitemap>");
    let found = rules(&bytes);
    assert!(found.contains(&Rule::EntryElement) && found.contains(&Rule::EntryAttributes), "{found:?}");
}

#[test]
fn cn017_the_old_token_is_read_as_change_notification_with_a_warning() {
    let bytes = urlset(
        "<rs:md capability='changelist-notification' from='2013-01-01T00:00:00Z' until='2013-01-02T00:00:00Z'/>",
    );
    let read = read(&bytes).unwrap();
    assert_eq!(read.violations.iter().next().unwrap().rule, Rule::NotificationToken);
    assert_eq!(*read.into_document().unwrap().capability(), Capability::ChangeNotification);
}

#[test]
fn violations_know_line_column_and_entry() {
    let bytes = urlset(
        "<rs:md capability='description'/>\n<!--\n\n-->\n<url>\n  <loc>http://example.org/c</loc>\n  \
         <rs:md length='x'/></url>\n  <url><loc>c</loc></url>",
    );
    let read = read(&bytes).unwrap();
    let places: Vec<_> = read
        .violations
        .errors()
        .map(|violation| {
            let position = violation.place.position.unwrap();
            (violation.rule, position.line, position.column, violation.place.entry)
        })
        .collect();
    assert_eq!(places, [(Rule::Length, 8, 3, Some(1)), (Rule::Loc, 9, 3, Some(2))]);
    let header = read.violations.iter().next().unwrap();
    assert_eq!((header.rule, header.place.position.unwrap().line), (Rule::ShapeAdvised, 2));
}

#[test]
fn rs051_a_dtd_is_refused_and_entities_are_not_expanded() {
    let bomb = b"<?xml version='1.0'?>\n <!DOCTYPE u [<!ENTITY a 'x'>]><u>&a;</u>";
    assert!(matches!(read(bomb), Err(ReadError::Dtd { position: Position { line: 2, column: 2 } })));
    for content in ["<url><loc>&a;</loc></url>", "<rs:md capability='&a;'/>"] {
        let error = read(&urlset(content)).unwrap_err();
        assert!(matches!(&error, ReadError::Entity { name, .. } if name == "a"), "{error}");
    }
    let escapes = change(&CHANGED.replace("/a<", "/&amp;&lt;&#x26;&#38;<"));
    assert_eq!(read(&escapes).unwrap().document.entries[0].loc, "http://example.org/&<&&");
}

#[test]
fn what_is_not_well_formed_is_refused_at_its_place() {
    let cases: [&[u8]; 14] = [
        b"",
        b"hello",
        b"<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'>",
        b"<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'><url></urlset>",
        b"<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'/><more/>",
        b"<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'/>more",
        b"<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'><rs:md/></urlset>",
        b"<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'><url a='1' a='2'/></urlset>",
        b"<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'><url a='<'/></urlset>",
        b"<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'><url a=1/></urlset>",
        b"<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'>&#0;</urlset>",
        b"<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'>\x01</urlset>",
        b"<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'>\xff</urlset>",
        b"<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'><!-- -- --></urlset>",
    ];
    for bytes in cases {
        let error = read(bytes).unwrap_err();
        assert!(
            matches!(
                error,
                ReadError::NotWellFormed { .. } | ReadError::EndTag { .. } | ReadError::Unclosed { .. }
            ),
            "{}: {error:?}",
            String::from_utf8_lossy(bytes)
        );
    }
}

#[test]
fn another_root_is_refused_with_its_name() {
    for bytes in
        [&b"<html/>"[..], b"<urlset/>", b"<feed xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'/>"]
    {
        assert!(
            matches!(read(bytes), Err(ReadError::UnknownRoot { .. })),
            "{}",
            String::from_utf8_lossy(bytes)
        );
    }
}

#[test]
fn rs010_a_second_root_metadata_is_refused() {
    let bytes = urlset("<rs:md capability='description'/>\n<rs:md capability='changelist'/>");
    assert!(matches!(
        read(&bytes),
        Err(ReadError::DuplicateMetadata { position: Position { line: 3, column: 1 } })
    ));
}

#[test]
fn only_utf8_is_read_and_a_byte_order_mark_is_passed_over() {
    let with_mark = [b"\xef\xbb\xbf".as_slice(), &change(CHANGED)].concat();
    assert!(read(&with_mark).unwrap().violations.is_empty());
    for bytes in [&b"\xff\xfe<\0"[..], b"<?xml version='1.0' encoding='ISO-8859-1'?><u/>"] {
        assert!(matches!(read(bytes), Err(ReadError::Encoding { .. })), "{bytes:?}");
    }
}

#[test]
fn rs051_every_limit_is_named_when_it_is_passed() {
    let reached = |bytes: &[u8]| match read(bytes) {
        Err(ReadError::Limit { limit, .. }) => Some(limit),
        _ => None,
    };
    let deep = |levels: usize| {
        change(&format!("{CHANGED}{}{}", "<x:a xmlns:x='urn:x'>".repeat(levels), "</x:a>".repeat(levels)))
    };
    assert_eq!(reached(&deep(MAX_DEPTH - 2)), None);
    assert_eq!(reached(&deep(MAX_DEPTH - 1)), Some(Limit::Depth));

    let wide = |count: usize| {
        let attributes: String =
            (0..count).flat_map(|number| [" a".to_owned(), number.to_string(), "=''".to_owned()]).collect();
        change(&format!("{CHANGED}<x:a xmlns:x='urn:x'{attributes}/>"))
    };
    assert_eq!(reached(&wide(MAX_ATTRIBUTES - 1)), None);
    assert_eq!(reached(&wide(MAX_ATTRIBUTES)), Some(Limit::Attributes));

    let linked = |count| {
        change(&format!("{CHANGED}{}", "<rs:ln rel='via' href='http://example.org/b'/>".repeat(count)))
    };
    assert_eq!(reached(&linked(MAX_LINKS)), None);
    assert_eq!(reached(&linked(MAX_LINKS + 1)), Some(Limit::Links));

    assert_eq!(reached(&change(&format!("<loc>{}</loc>", "a".repeat(MAX_TEXT + 20_000)))), Some(Limit::Text));
    assert_eq!(
        reached(&change(&format!("<loc>{}</loc>", "<![CDATA[aaaaaaaa]]>".repeat(MAX_TEXT / 8 + 1)))),
        Some(Limit::Text)
    );
    assert_eq!(reached(&change(&format!("{CHANGED}{}", " ".repeat(MAX_TEXT + 20_000)))), None);
    assert_eq!(reached(&change(&format!("<!--{}-->", "\n".repeat(MAX_TEXT + 20_000)))), Some(Limit::Text));
}

#[test]
fn foreign_attributes_do_not_multiply_the_uri_of_their_namespace() {
    let reached = |bytes: &[u8]| match read(bytes) {
        Err(ReadError::Limit { limit, .. }) => Some(limit),
        _ => None,
    };
    let declared = |length: usize| change(&format!("{CHANGED}<x:a xmlns:x='{}'/>", "u".repeat(length)));
    assert_eq!(reached(&declared(MAX_NAMESPACE)), None);
    assert_eq!(reached(&declared(MAX_NAMESPACE + 1)), Some(Limit::Namespace));

    let namespace = format!("xmlns:x='{}'", "u".repeat(MAX_NAMESPACE));
    let link = "<rs:ln rel='via' href='http://example.org/b' x:a=''/>";
    let fit = MAX_FOREIGN / (MAX_NAMESPACE + 2 + size_of::<ForeignAttribute>());
    let entry = |links: usize| format!("<url>{CHANGED}{}</url>", link.repeat(links));
    let list = |links: usize, entries: &str| {
        let head = link.repeat(links);
        let bytes = urlset(&format!("<rs:md capability='changelist'/>{head}{entries}"));
        String::from_utf8(bytes).unwrap().replacen("xmlns", &format!("{namespace} xmlns"), 1).into_bytes()
    };
    let full = entry(fit);
    assert_eq!(reached(&list(fit, &format!("{full}{full}"))), None);
    assert_eq!(reached(&list(fit + 1, "")), Some(Limit::Foreign));
    assert_eq!(reached(&list(0, &entry(fit + 1))), Some(Limit::Foreign));

    let attribute = |number: usize| format!(" x:a{number}=''");
    let attributes = (0..60).map(attribute).collect::<Vec<_>>().concat();
    let wide = format!("<url><loc>http://example.org/a</loc><rs:md change='updated'{attributes}/></url>");
    assert_eq!(reached(&list(0, &wide)), None);
    assert_eq!(reached(&list(0, &wide.repeat(100))), Some(Limit::Foreign));
}

#[test]
fn a_name_is_looked_for_among_few_declarations() {
    let reached = |content: &str| match read(&change(&format!("{CHANGED}{content}"))) {
        Err(ReadError::Limit { limit, .. }) => Some(limit),
        _ => None,
    };
    let declaration = |number: usize| format!(" xmlns:p{number}='urn:x'");
    let declared = (0..MAX_BINDINGS - 2).map(declaration).collect::<Vec<_>>().concat();
    let once = format!("<p0:a{declared}/>");
    assert_eq!(reached(&once.repeat(2)), None);
    assert_eq!(reached(&format!("<p0:a{declared}><b xmlns:q='urn:x'/></p0:a>")), Some(Limit::Bindings));
}

#[test]
fn rs042_the_limits_of_bytes_and_entries_can_be_set_and_are_exact() {
    let bytes = change(CHANGED);
    let size = u64::try_from(bytes.len()).unwrap();
    let drain = |limits| {
        Reader::with_options(bytes.as_slice(), Options { limits, ..Options::default() }).and_then(|reader| {
            let entries: Result<Vec<_>, _> = reader.collect();
            entries.map(|entries| entries.len())
        })
    };
    assert_eq!(drain(Limits { bytes: size, entries: 1 }).unwrap(), 1);
    let limit = |result: Result<usize, ReadError>| match result {
        Err(ReadError::Limit { limit, max, .. }) => Some((limit, max)),
        _ => None,
    };
    assert_eq!(limit(drain(Limits { bytes: size - 1, entries: 1 })), Some((Limit::Bytes, size - 1)));
    assert_eq!(limit(drain(Limits { bytes: size, entries: 0 })), Some((Limit::Entries, 0)));
}

#[test]
fn a_link_with_many_escaped_ampersands_is_read() {
    let query = "&amp;a=1".repeat(300);
    let bytes = change(&format!("{CHANGED}<rs:ln rel='via' href='http://example.org/?{query}'/>"));
    let read = read(&bytes).unwrap();
    assert_eq!(read.document.entries[0].links[0].href.matches('&').count(), 300);
}

#[test]
fn after_an_error_the_iterator_ends() {
    let bytes =
        urlset("<rs:md capability='description'/><url><loc>http://example.org/c</loc></url><url>&x;</url>");
    let mut reader = Reader::new(bytes.as_slice()).unwrap();
    assert!(reader.next().unwrap().is_ok());
    assert!(reader.next().unwrap().is_err());
    assert!(reader.next().is_none());
}

/// A Capability List with one entry of this content.
fn capability_list(content: &str) -> Vec<u8> {
    urlset(&format!(
        "<rs:md capability='capabilitylist'/><rs:ln rel='up' href='http://example.org/d.xml'/>\n<url>{content}</url>"
    ))
}

#[test]
fn rs050_the_strict_mode_ends_at_the_first_error_and_lives_with_warnings() {
    let strict = Options { mode: Mode::Strict, ..Options::default() };
    assert!(read_with(&change(CHANGED), strict).is_ok());
    let warned = change(&format!("{CHANGED}<caption/>"));
    assert!(!read_with(&warned, strict).unwrap().violations.is_empty());

    let entry = |rule| (change(&CHANGED.replace("updated", "altered")), rule);
    let header = |rule| (urlset("<rs:md capability='changelist' from='x'/>"), rule);
    for (bytes, rule) in [entry(Rule::ChangeValue), header(Rule::Datetime)] {
        let error = read_with(&bytes, strict).unwrap_err();
        assert!(matches!(&error, ReadError::Rule(violation) if violation.rule == rule), "{error}");
    }
    let missing = capability_list("<loc>http://example.org/changelist.xml</loc>");
    let mut reader = Reader::with_options(missing.as_slice(), strict).unwrap();
    assert!(
        matches!(reader.next(), Some(Err(ReadError::Rule(violation))) if violation.place.entry == Some(1))
    );
    assert!(reader.next().is_none());
}

#[test]
fn the_strict_mode_refuses_what_comes_after_the_last_entry() {
    let late = urlset(
        "<rs:md capability='description'/><url><loc>http://example.org/c</loc></url><rs:md capability='changelist'/>",
    );
    let mut reader =
        Reader::with_options(late.as_slice(), Options { mode: Mode::Strict, ..Options::default() }).unwrap();
    assert!(reader.next().unwrap().is_ok());
    assert!(matches!(reader.next(), Some(Err(ReadError::Rule(found))) if found.rule == Rule::HeaderLate));
    assert!(reader.next().is_none());
}

#[test]
fn the_strict_mode_finds_an_error_behind_any_number_of_warnings() {
    let warned = "<caption/>".repeat(crate::rules::MAX_VIOLATIONS + 1);
    let bytes = urlset(&format!(
        "<rs:md capability='description'/><url><loc>http://example.org/c</loc>{warned}</url><url><loc/></url>"
    ));
    let error = read_with(&bytes, Options { mode: Mode::Strict, ..Options::default() }).unwrap_err();
    assert!(matches!(&error, ReadError::Rule(found) if found.rule == Rule::Loc), "{error}");
}

#[test]
fn cn017_the_old_token_names_its_dialect() {
    let bytes = urlset(
        "<rs:md capability='changelist-notification' from='2013-01-01T00:00:00Z' until='2013-01-02T00:00:00Z'/>",
    );
    let read = read(&bytes).unwrap();
    assert_eq!(read.dialect, Dialect::Notification0_9);
    assert_eq!(read.violations.len(), 1);
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    std::io::Write::write_all(&mut encoder, bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn rs051_gzip_is_read_like_what_it_holds_in_one_member_or_several() {
    let bytes = change(CHANGED);
    let plain = read(&bytes).unwrap();
    assert_eq!(read(&gzip(&bytes)).unwrap(), plain);
    let (one, other) = bytes.split_at(bytes.len() / 2);
    assert_eq!(read(&[gzip(one), gzip(other)].concat()).unwrap(), plain);
    let slow = std::io::BufReader::with_capacity(1, std::io::Cursor::new(gzip(&bytes)));
    assert_eq!(Reader::new(slow).unwrap().count(), 1);
}

#[test]
fn rs051_damaged_gzip_has_a_name_and_gzip_is_opened_once() {
    let zipped = gzip(&change(CHANGED));
    for bytes in [&zipped[..zipped.len() - 9], &zipped[..5], b"\x1f\x8b\x08\0", b"\x1fab"] {
        let error = read(bytes).unwrap_err();
        assert!(matches!(error, ReadError::Gzip { .. }), "{error:?}");
    }
    assert!(matches!(read(&gzip(&zipped)), Err(ReadError::Encoding { .. })));
}

#[test]
fn rs051_gzip_is_refused_where_only_plain_documents_are_wanted() {
    let plain = change(CHANGED);
    assert_eq!(read_with(&plain, Options::PLAIN).unwrap(), read(&plain).unwrap());
    let error = read_with(&gzip(&plain), Options::PLAIN).unwrap_err();
    assert!(matches!(&error, ReadError::Encoding { found } if found == "gzip"), "{error:?}");
}

#[test]
fn rs051_gzip_that_grows_too_much_is_refused_by_ratio_or_by_size() {
    let spaces = " ".repeat(900);
    let bomb = gzip(&change(&format!("{CHANGED}{}", format!("<!--{spaces}-->").repeat(8_000))));
    assert!(matches!(read(&bomb), Err(ReadError::Limit { limit: Limit::Expansion, .. })));
    let small = gzip(&change(&format!("{CHANGED}{}", format!("<!--{spaces}-->").repeat(1_000))));
    assert!(read(&small).is_ok());
    let limits = Limits { bytes: 1_000, ..Limits::default() };
    let long = gzip(&change(&format!("{CHANGED}<!--{spaces}-->")));
    let options = Options { limits, ..Options::default() };
    let error =
        Reader::with_options(long.as_slice(), options).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    assert!(matches!(error, Err(ReadError::Limit { limit: Limit::Bytes, max: 1_000, .. })), "{error:?}");
}

#[test]
fn an_input_that_fails_is_no_damaged_gzip() {
    struct Broken;
    impl std::io::Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset))
        }
    }
    let zipped = gzip(&change(CHANGED));
    let input = std::io::Read::chain(&zipped[..zipped.len() / 2], Broken);
    let error = Reader::new(std::io::BufReader::new(input)).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let Err(ReadError::Io(cause)) = error else { panic!("{error:?}") };
    assert_eq!(cause.kind(), std::io::ErrorKind::ConnectionReset);
}
