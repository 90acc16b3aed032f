//! Whether a form comes from a page of this listener, by what browsers say of it.

use http::header::{HOST, ORIGIN};
use http::{HeaderMap, HeaderName, HeaderValue};

/// Browsers say where a form comes from. What does not is no browser, and cannot be tricked into sending our cookie. Pages without
/// referrers send no origin: `own` is theirs, as the browser knows it.
pub(super) fn is_from_here(headers: &HeaderMap, own: Option<&str>) -> bool {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let same_site = text(HeaderName::from_static("sec-fetch-site"))
        .is_none_or(|site| matches!(site, "same-origin" | "none"));
    let same_origin = match (headers.contains_key(ORIGIN), text(ORIGIN)) {
        (false, _) => true,
        (true, Some("null")) => own.is_some(),
        (true, Some(origin)) => {
            Some(origin) == own
                || text(HOST).is_some_and(|host| origin.split_once("://").is_some_and(|(_, of)| of == host))
        }
        (true, None) => false,
    };
    same_site && same_origin
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_of_another_site_is_recognised() {
        let from = |fields: &[(&'static str, &'static str)], own| {
            let headers = fields
                .iter()
                .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
            is_from_here(&headers.collect(), own)
        };
        let own = Some("https://hub.example");
        for fields in [
            &[][..],
            &[("host", "h:8081"), ("origin", "http://h:8081")],
            &[("host", "h:8081"), ("origin", "http://h:8081"), ("sec-fetch-site", "same-origin")],
        ] {
            assert!(from(fields, None) && from(fields, own), "{fields:?}");
        }
        for fields in [
            &[("host", "h"), ("origin", "http://evil.example")][..],
            &[("host", "h"), ("origin", "http://h"), ("sec-fetch-site", "cross-site")],
            &[("sec-fetch-site", "same-site")],
            &[("origin", "http://h")],
        ] {
            assert!(!from(fields, None) && !from(fields, own), "{fields:?}");
        }
        for of_own in ["https://hub.example", "null"] {
            let fields = [("host", "backend:8080"), ("origin", of_own)];
            assert!(from(&fields, own) && !from(&fields, None), "{of_own}");
        }
        assert!(!from(&[("origin", "null"), ("sec-fetch-site", "cross-site")], own));
    }
}
