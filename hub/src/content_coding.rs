//! The coding of a body, which the hub neither asks for nor passes on.

use http::header::CONTENT_ENCODING;
use http::{HeaderMap, HeaderValue};

/// The `Content-Encoding`, if it is not `identity`.
pub(crate) fn content_coding(headers: &HeaderMap) -> Option<&HeaderValue> {
    let mut codings = headers.get_all(CONTENT_ENCODING).iter();
    codings.find(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_coded_by_anything_but_identity() {
        let coding = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for &value in values {
                headers.append(CONTENT_ENCODING, HeaderValue::from_static(value));
            }
            content_coding(&headers).cloned()
        };
        assert_eq!([coding(&[]), coding(&["Identity"])], [None, None]);
        assert_eq!(coding(&["identity", "gzip"]).unwrap(), "gzip");
    }
}
