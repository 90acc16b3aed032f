//! Documents with one thing wrong each.

use resync_core::document::{Capability as C, Document};
use resync_core::xml;

/// A document with one thing wrong, and the rule that alone is against it: in the grammar, and lifted.
pub(crate) struct Mutant {
    pub(crate) name: &'static str,
    pub(crate) text: String,
    pub(crate) rule: &'static str,
    pub(crate) lifted: &'static str,
}

/// What is wrong stands in the root.
pub(crate) fn of_roots(documents: &[Document]) -> Vec<Mutant> {
    let mutant = |name, kind: C, edit, rule, lifted| mutant(documents, name, &kind, edit, rule, lifted);
    vec![
        mutant(
            "rs010-no-capability",
            C::ResourceList,
            (" capability=\"resourcelist\"", ""),
            "<attribute name=\"capability\"><value>resourcelist</value></attribute>",
            "",
        ),
        mutant(
            "rs025-at-on-changes",
            C::ChangeList,
            (" from=", " at="),
            "<define name=\"interval\">\n    <attribute name=\"from\">",
            "<define name=\"interval\">\n    <attribute name=\"at\">",
        ),
        mutant(
            "rs027-offset",
            C::ResourceList,
            ("09:00:00Z", "09:00:00+01:00"),
            ")?Z</param>",
            ")?(Z|[+][0-9:]+)</param>",
        ),
        mutant(
            "rs028-date-only",
            C::ResourceList,
            ("T09:00:00Z", ""),
            r#"<data type="dateTime"><param name="pattern">[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]*[1-9])?Z</param></data>"#,
            r#"<choice><data type="dateTime"/><data type="date"/></choice>"#,
        ),
        mutant(
            "rs053-up",
            C::ResourceList,
            ("rel=\"up\"", "rel=\"via\""),
            "<attribute name=\"rel\"><value>up</value></attribute>",
            "<attribute name=\"rel\"><value>via</value></attribute>",
        ),
        mutant(
            "cn007-until",
            C::ChangeNotification,
            (" until=", " completed="),
            "</attribute>\n    <attribute name=\"until\">",
            "</attribute>\n    <attribute name=\"completed\">",
        ),
    ]
}

/// What is wrong stands in an entry.
pub(crate) fn of_entries(documents: &[Document]) -> Vec<Mutant> {
    let mutant = |name, kind: C, edit, rule, lifted| mutant(documents, name, &kind, edit, rule, lifted);
    vec![
        mutant(
            "rs033-change",
            C::ChangeList,
            ("\"updated\"", "\"Updated\""),
            "<attribute name=\"change\"><choice><value>created</value><value>updated</value>",
            "<attribute name=\"change\"><choice><value>created</value><value>Updated</value>",
        ),
        mutant("rs035-hash", C::ResourceList, ("sha-256:", "sha256:"), "|sha-256:", "|sha256:"),
        mutant(
            "rs036-length",
            C::ResourceList,
            ("length=\"", "length=\"-"),
            "<data type=\"nonNegativeInteger\"/>",
            "<data type=\"integer\"/>",
        ),
        mutant("rs040-path", C::ResourceDumpManifest, ("path=\"/", "path=\""), ">/.*[^/]<", ">.*[^/]<"),
        mutant(
            "rs041-pri",
            C::ResourceList,
            ("pri=\"1\"", "pri=\"0\""),
            "<param name=\"minInclusive\">1</param>",
            "<param name=\"minInclusive\">0</param>",
        ),
        mutant(
            "rs047-loc",
            C::ResourceList,
            ("<loc>https://herbarium.example", "<loc>"),
            r#"<param name="maxLength">2048</param>
        <param name="pattern">[A-Za-z][A-Za-z0-9+.\-]*:[^\s]+</param>"#,
            "",
        ),
        mutant(
            "rs081-capability",
            C::CapabilityList,
            ("\"changelist\"", "\"changes\""),
            "<value>resourcedump</value><value>changelist</value><value>changedump</value>",
            "<value>resourcedump</value><value>changes</value><value>changedump</value>",
        ),
        mutant(
            "rs144-path",
            C::ChangeDumpManifest,
            (" path=\"/moss\"", ""),
            "<ref name=\"made\"/><ref name=\"moment\"/><ref name=\"path\"/>",
            "<ref name=\"made\"/><ref name=\"moment\"/><optional><ref name=\"path\"/></optional>",
        ),
        mutant(
            "fn023-change",
            C::FrameworkNotification,
            (" change=\"updated\"", ""),
            "<attribute name=\"change\"><ref name=\"change-token\"/></attribute>",
            "<optional><attribute name=\"change\"><ref name=\"change-token\"/></attribute></optional>",
        ),
        mutant(
            "fn060-hub",
            C::CapabilityList,
            ("rel=\"hub\"", "rel=\"up\""),
            "<value>hub</value>",
            "<value>up</value>",
        ),
    ]
}

fn mutant(
    documents: &[Document],
    name: &'static str,
    kind: &C,
    (from, to): (&str, &str),
    rule: &'static str,
    lifted: &'static str,
) -> Mutant {
    let found = documents.iter().find(|document| document.capability() == kind);
    let text = String::from_utf8(xml::write(found.unwrap())).unwrap().replace(from, to);
    Mutant { name, text, rule, lifted }
}
