//! Appending parameters to a callback without touching what is already in it (section 5.1.1).

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::CallbackUrl;

/// Everything but RFC 3986's unreserved characters.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The callback with `parameters` after its own query, which is kept byte for byte (W-078, W-079, D-02).
///
/// Names and values are percent-encoded; a space becomes `%20`. A fragment stays last.
///
/// ```
/// use resync_core::websub::{CallbackUrl, append_query};
///
/// let callback = CallbackUrl::parse("https://destination.example/cb?a=%20+&a=")?;
/// assert_eq!(
///     append_query(&callback, &[("hub.mode", "denied"), ("hub.reason", "not here")]),
///     "https://destination.example/cb?a=%20+&a=&hub.mode=denied&hub.reason=not%20here"
/// );
/// # Ok::<(), resync_core::websub::UrlError>(())
/// ```
pub fn append_query(callback: &CallbackUrl, parameters: &[(&str, &str)]) -> String {
    let (base, fragment) = match callback.as_str().find('#') {
        Some(start) => callback.as_str().split_at(start),
        None => (callback.as_str(), ""),
    };
    let mut url = base.to_owned();
    let mut separator = match base.split_once('?') {
        None => "?",
        Some((_, "")) => "",
        Some(_) => "&",
    };
    for (name, value) in parameters {
        url.push_str(separator);
        url.extend(utf8_percent_encode(name, ESCAPED));
        url.push('=');
        url.extend(utf8_percent_encode(value, ESCAPED));
        separator = "&";
    }
    url.push_str(fragment);
    url
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use url::form_urlencoded;

    use super::*;

    fn appended(callback: &str) -> String {
        append_query(&CallbackUrl::parse(callback).unwrap(), &[("hub.mode", "subscribe"), ("hub.x", "1")])
    }

    #[test]
    fn d02_without_a_query_a_question_mark_is_added() {
        assert_eq!(appended("https://d.example/cb"), "https://d.example/cb?hub.mode=subscribe&hub.x=1");
        assert_eq!(appended("https://d.example"), "https://d.example?hub.mode=subscribe&hub.x=1");
    }

    #[test]
    fn d02_an_empty_query_is_filled_directly() {
        assert_eq!(appended("https://d.example/cb?"), "https://d.example/cb?hub.mode=subscribe&hub.x=1");
    }

    #[test]
    fn d02_a_fragment_stays_last() {
        assert_eq!(
            appended("https://d.example/cb#a?b"),
            "https://d.example/cb?hub.mode=subscribe&hub.x=1#a?b"
        );
        assert_eq!(
            appended("https://d.example/cb?q#f"),
            "https://d.example/cb?q&hub.mode=subscribe&hub.x=1#f"
        );
    }

    #[test]
    fn b04_w078_the_callbacks_own_query_comes_first_and_survives_byte_for_byte() {
        for query in ["foo=bar&red=fish&hub.mode=x", "a=%20+%2F&a=&b&&=c", "x=%7e~%C3%BC", "a?b=c?d", "&"] {
            let callback = format!("https://d.example/cb?{query}");
            assert_eq!(appended(&callback), format!("{callback}&hub.mode=subscribe&hub.x=1"));
        }
    }

    #[test]
    fn w079_a_parameter_of_the_same_name_is_not_overwritten() {
        assert_eq!(
            appended("https://d.example/cb?hub.mode=mine"),
            "https://d.example/cb?hub.mode=mine&hub.mode=subscribe&hub.x=1"
        );
    }

    #[test]
    fn nothing_to_append_changes_nothing() {
        for callback in ["https://d.example/cb", "https://d.example/cb?", "https://d.example/cb?a#f"] {
            assert_eq!(append_query(&CallbackUrl::parse(callback).unwrap(), &[]), callback);
        }
    }

    proptest! {
        #[test]
        fn w078_any_query_is_kept_and_any_value_comes_back(
            query in "[a-zA-Z0-9%+&=?/:@!$'()*,;._~-]{1,60}",
            value in "\\PC{0,60}",
        ) {
            let callback = format!("https://d.example/cb?{query}");
            let url = append_query(&CallbackUrl::parse(&callback).unwrap(), &[("hub.topic", &value)]);
            let rest = url.strip_prefix(&format!("{callback}&")).expect("the callback comes first");
            prop_assert!(rest.bytes().all(|b| b.is_ascii_graphic()));
            let pairs: Vec<_> = form_urlencoded::parse(rest.as_bytes()).into_owned().collect();
            prop_assert_eq!(pairs, [("hub.topic".to_owned(), value)]);
        }

        #[test]
        fn w080_w190_an_http_library_can_send_every_callback_exactly_as_written(
            text in "https?://([a-z0-9.-]{1,10}|\\[::1\\]|10\\.0\\.0\\.1)(:[0-9]{0,5})?([/?#]\\PC{0,20})?|https?://\\PC{0,20}",
        ) {
            if let Ok(callback) = CallbackUrl::parse(&text) {
                let uri: http::Uri = callback.as_str().parse().expect("what is accepted can be requested");
                let (_, rest) = callback.as_str().split_once("://").unwrap();
                let target = rest.find(['/', '?', '#']).map_or("", |start| &rest[start..]);
                let target = target.split('#').next().unwrap_or_default();
                let slash = if target.starts_with('/') { "" } else { "/" };
                // An http::Uri keeps a query after an empty path as it is; it is sent with a slash before it.
                let sent = uri.path_and_query().expect("an absolute URI has a path").as_str();
                prop_assert!(sent == format!("{slash}{target}") || sent == target, "{sent} {target}");
            }
        }
    }
}
