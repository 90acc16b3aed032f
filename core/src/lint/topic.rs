//! What a channel's topic answers, held against what its Capability List says (FN-031, FN-062).

use url::Url;

use super::{Method, TopicAnswer};
use crate::media_type::essence;
use crate::rules::Rule;

/// How a topic is asked, and the name of it.
pub(super) const METHODS: [(Method, &str); 2] = [(Method::Get, "GET"), (Method::Head, "HEAD")];

/// What is wrong with an answer.
pub(super) fn flaws(answer: &TopicAnswer, topic: &str, listed: &[String]) -> Vec<(Rule, String)> {
    let mut flaws = Vec::new();
    let mut flaw = |rule, detail: String| flaws.push((rule, detail));
    match answer.links.first("self") {
        None => flaw(Rule::TopicLinks, "no link has rel self".to_owned()),
        Some(own) if !same(own, topic) => flaw(Rule::TopicLinks, format!("the link with rel self is {own}")),
        Some(_) => {}
    }
    let hubs: Vec<_> = answer.links.with_rel("hub").collect();
    if hubs.is_empty() {
        flaw(Rule::TopicLinks, "no link has rel hub".to_owned());
    } else if let Some(missing) = listed.iter().find(|hub| !hubs.iter().any(|named| same(named, hub))) {
        flaw(Rule::TopicHubs, format!("it does not name {missing}"));
    }
    match answer.content_type.as_deref().map(essence) {
        None => flaw(Rule::TopicContentType, "there is no Content-Type".to_owned()),
        Some(essence) if !essence.eq_ignore_ascii_case("application/xml") => {
            flaw(Rule::TopicContentType, format!("it is {essence:?}"));
        }
        Some(_) => {}
    }
    flaws
}

/// Whether two spellings name one thing.
fn same(one: &str, other: &str) -> bool {
    one == other || Url::parse(one).ok().zip(Url::parse(other).ok()).is_some_and(|(one, other)| one == other)
}
