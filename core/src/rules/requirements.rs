//! The numbered requirements that rules cite, beside the rules: a judge for their numbers, sections and severities.

use std::collections::HashSet;

use super::{Rule, Severity};

/// How a requirement is worded.
#[derive(Clone, Copy, PartialEq)]
enum Level {
    Must,
    Should,
    /// A definition, a permission, or a conclusion of ours.
    Free,
}
use Level::{Free, Must, Should};

/// Number, level, where it is written, and words one of which stands in each rule about it.
#[rustfmt::skip]
const REQUIREMENTS: &[(&str, Level, &str, &str)] = &[
    ("RS-002", Free, "C4, C7", "entries"),
    ("RS-007", Must, "C1.3, C9", "the same resources"),
    ("RS-010", Must, "C7", "capability"),
    ("RS-011", Free, "C7", "tokens"),
    ("RS-013", Free, "C6.1, C7", "sitemapindex"),
    ("RS-015", Must, "C7", "no namespace prefix"),
    ("RS-016", Free, "C7, XSD", "namespace"),
    ("RS-017", Free, "C7", "root's rs:md"),
    ("RS-019", Free, "C7, XSD", "href"),
    ("RS-021", Free, "C7", "snapshot"),
    ("RS-022", Free, "C7", "interval"),
    ("RS-023", Free, "C7, C12.1", "open"),
    ("RS-026", Free, "C7", "W3C"),
    ("RS-028", Free, "XSD, SM", "second"),
    ("RS-030", Must, "C7", "within"),
    ("RS-031", Free, "C7, C12.1", "lastmod"),
    ("RS-032", Free, "C7, SM", "changefreq"),
    ("RS-033", Free, "C7, XSD", "created, updated, deleted"),
    ("RS-034", Free, "C7", "a colon"),
    ("RS-035", Free, "C7", "base64"),
    ("RS-036", Free, "C7, XSD", "length"),
    ("RS-037", Should, "C7", "media type"),
    ("RS-040", Free, "C7, C11.2, C13.2, XSD", "path"),
    ("RS-041", Free, "C7, XSD", "999999"),
    ("RS-042", Free, "C7", "50,000"),
    ("RS-044", Free, "sitemaps.org", "not another index"),
    ("RS-045", Free, "SM", "come"),
    ("RS-047", Free, "SM", "loc"),
    ("RS-048", Free, "C8 to C13", "no attributes"),
    ("RS-049", Should, "C8, C9, AR3.1", "lastmod"),
    ("RS-050", Free, "C7, SM", "at most one|form of|no other"),
    ("RS-052", Free, "HTTP", "served"),
    ("RS-053", Must, "C6.2, C9 to C13, AR2.2", "up"),
    ("RS-054", Should, "C6.2, C10.1 to C13.1, AR3 to AR6", "index"),
    ("RS-055", Free, "C6.2, C8, C9", "loc|lists"),
    ("RS-057", Must, "C7, C14.1", "registered"),
    ("RS-058", Free, "C7, C14", "relation stands"),
    ("RS-060", Must, "C App A", "time"),
    ("RS-061", Must, "C8 to C13, C9", "kind|hub links"),
    ("RS-070", Must, "C6.1, C8", "lists every Capability List"),
    ("RS-082", Must, "C9", "one entry per capability"),
    ("RS-083", Should, "C9", "no index of Capability Lists"),
    ("RS-091", Should, "C10.1", "one entry per resource"),
    ("RS-095", Free, "C10.2, C11.1", "snapshot of a whole"),
    ("RS-101", Should, "C11.1, C11.2, C13.1", "ZIP|one format"),
    ("RS-102", Should, "C7, C11.1", "length and the digests that the dump says"),
    ("RS-103", Free, "C11.1, C13.1", "contents link"),
    ("RS-104", Must, "C11.2, C13.2", "manifest.xml at its top"),
    ("RS-110", Free, "C7, C11.2, C13.2", "path|bitstream"),
    ("RS-111", Free, "C11.2, C13.2", "a manifest names is in the package"),
    ("RS-121", Must, "C12.1", "Change List come oldest"),
    ("RS-125", Must, "C12.2", "Change List Index|until"),
    ("RS-127", Free, "C12.2", "of an index"),
    ("RS-129", Free, "C12.1", "deleted"),
    ("RS-141", Should, "C13.1", "packages of a Change Dump"),
    ("RS-143", Must, "C13.2", "Change Dump Manifest come oldest"),
    ("RS-146", Must, "C14.4", "patch in a Change Dump Manifest"),
    ("RS-147", Must, "C13.1", "Change Dump Index"),
    ("RS-171", Free, "C14.2", "mirror"),
    ("RS-172", Free, "C14.3", "alternate"),
    ("RS-174", Free, "C14.4", "patch"),
    ("RS-178", Free, "C14.6", "timegate|memento"),
    ("RS-181", Should, "C14.8", "via"),
    ("AR-004", Free, "AR2.2", "archives link"),
    ("AR-009", Must, "AR5, AR6", "change archive"),
    ("AR-016", Free, "AR5, AR6", "closed"),
    ("CN-006", Must, "CN3", "urlset"),
    ("CN-007", Must, "CN3", "from and until"),
    ("CN-008", Must, "CN3", "before it ends"),
    ("CN-011", Must, "CN3", "loc and change"),
    ("CN-012", Must, "CN3", "oldest first"),
    ("CN-017", Free, "CN log", "changelist-notification"),
    ("CN-019", Must, "CN5", "hub"),
    ("FN-005", Must, "FN2, FN3", "index"),
    ("FN-006", Must, "FN2, FN3", "index"),
    ("FN-007", Free, "FN2", "only one"),
    ("FN-010", Free, "FN2.1", "changes in this way"),
    ("FN-020", Must, "FN3", "urlset"),
    ("FN-023", Must, "FN3", "loc, change and capability"),
    ("FN-024", Free, "FN3", "lists documents"),
    ("FN-026", Free, "FN3", "up link"),
    ("FN-031", Must, "FN4.1, CN4.1", "topic"),
    ("FN-060", Must, "FN5", "hub"),
    ("FN-061", Free, "FN5, CN5, SM", "child of url"),
    ("FN-062", Free, "FN5, CN5", "hubs"),
    ("MEM-022", Must, "R 4.2.1, R 2.1", "302"),
    ("MEM-028", Must, "R 2.1.1, R 4.2.1", "Memento-Datetime"),
    ("MEM-033", Must, "R 5", "link-format"),
    ("IN-001", Free, "C4", "read as one"),
    ("IN-002", Free, "C6.1, C6.2, C10.2, AR3.1, C App A", "fetched|each of them once|times of an entry"),
    ("SM-001", Free, "SM", "0.0 to 1.0"),
    ("XML-001", Free, "XML 1.0, 2.2", "characters"),
];

fn requirement(code: &str) -> (Level, &'static str, &'static str) {
    let (_, level, sections, words) = REQUIREMENTS
        .iter()
        .find(|(number, ..)| *number == code)
        .unwrap_or_else(|| panic!("{code} is no requirement that is known here"));
    (*level, sections, words)
}

#[test]
fn every_rule_says_what_its_requirement_says_and_where() {
    for &rule in Rule::ALL {
        let (_, sections, words) = requirement(rule.code());
        let known: HashSet<_> = sections.split(", ").collect();
        assert!(rule.section().split(", ").all(|section| known.contains(section)), "{rule:?}: {sections}");
        assert!(words.split('|').any(|word| rule.sentence().contains(word)), "{rule:?} says no {words:?}");
        assert!(!rule.sentence().ends_with('.'), "{rule:?}");
    }
}

#[test]
fn every_requirement_has_a_rule_and_its_place() {
    let cited: HashSet<_> = Rule::ALL.iter().map(|rule| rule.code()).collect();
    let known: HashSet<_> = REQUIREMENTS.iter().map(|(number, ..)| *number).collect();
    assert_eq!(cited, known);
    assert_eq!(known.len(), REQUIREMENTS.len(), "a number stands twice");
}

#[test]
fn no_two_rules_say_the_same() {
    let sentences: HashSet<_> = Rule::ALL.iter().map(|rule| rule.sentence()).collect();
    assert_eq!(sentences.len(), Rule::ALL.len());
}

/// What is wrong beyond the advice: an index link that goes astray, an index that the matrix RS-061 has no row for, and a
/// package that is not what is said of it.
const MORE_THAN_ADVICE: [Rule; 4] =
    [Rule::IndexLinkTarget, Rule::CapabilityListIndex, Rule::PackageUnreadable, Rule::PackageDiffers];

#[test]
fn a_must_can_be_an_error_and_advice_is_a_warning() {
    for &(number, level, ..) in REQUIREMENTS {
        let rules = || Rule::ALL.iter().filter(move |rule| rule.code() == number);
        let is_error = |rule: &&Rule| rule.severity() == Severity::Error;
        match level {
            Must => assert!(rules().any(|rule| is_error(&rule)), "{number} has no error"),
            Should => {
                for rule in rules().filter(is_error) {
                    assert!(MORE_THAN_ADVICE.contains(rule), "{rule:?} is an error, {number} is advice");
                }
            }
            Free => {}
        }
    }
}
