//! Prefixes of topics: an origin and a folder each.

use resync_core::websub::TopicUrl;

/// Topics that begin like one of these.
#[derive(Clone, Debug, Default)]
pub struct Prefixes(Vec<TopicUrl>);

/// The prefix is no URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the topic prefix {0:?} is not an http or https URL without query and fragment: write for example https://library.example/ or https://library.example/set1/"
)]
pub struct NoPrefix(pub String);

impl Prefixes {
    /// Reads prefixes.
    ///
    /// # Errors
    /// [`NoPrefix`] for the first that is none: a query or a fragment would promise a narrowness that a folder does not have.
    pub fn parse(prefixes: &[String]) -> Result<Self, NoPrefix> {
        let parse = |prefix: &String| {
            let url = TopicUrl::parse(prefix).ok();
            let plain = url.filter(|url| url.url().query().is_none() && url.url().fragment().is_none());
            plain.ok_or_else(|| NoPrefix(prefix.clone()))
        };
        prefixes.iter().map(parse).collect::<Result<_, _>>().map(Self)
    }

    /// Whether the topic lies below one of them.
    pub fn cover(&self, topic: &TopicUrl) -> bool {
        self.0.iter().any(|prefix| within(prefix, topic))
    }
}

/// Whether a topic lies below a prefix: on the same origin, and in the same folder or deeper. Comparing characters would let
/// `https://library.example` speak for `https://library.example.evil.example`.
fn within(prefix: &TopicUrl, topic: &TopicUrl) -> bool {
    let (prefix, topic) = (prefix.url(), topic.url());
    let folder = prefix.path().strip_suffix('/').unwrap_or(prefix.path());
    let rest = topic.path().strip_prefix(folder);
    topic.origin() == prefix.origin() && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_an_origin_and_a_folder_not_a_row_of_characters() {
        let within = |prefix: &str, url: &str| {
            Prefixes::parse(&[prefix.to_owned()]).unwrap().cover(&url.parse().unwrap())
        };
        assert!(within("http://source.example", "http://source.example/any/topic"));
        assert!(within("http://source.example/set1", "http://SOURCE.example:80/set1/framework/"));
        assert!(within("http://source.example/set1/", "http://source.example/set1/framework/"));
        assert!(!within("http://source.example", "http://source.example.evil.example/"));
        assert!(!within("http://source.example/set1", "http://source.example/set10/"));
        assert!(!within("http://source.example/", "https://source.example/"));
        assert!(!within("http://source.example/", "http://source.example:8080/"));
        assert!(!within("http://source.example/set1/", "http://source.example/set1/../set2/"));
    }
}
