//! Media types as a `Content-Type` writes them (RFC 9110, section 8.3), and which of them are XML.

/// The media type without its parameters, as it is written.
pub fn essence(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or_default().trim_ascii()
}

/// Whether it is XML that does not say of which kind (RFC 7303): so ResourceSync documents are sent.
pub fn is_generic_xml(content_type: impl AsRef<[u8]>) -> bool {
    let name = name(content_type.as_ref());
    [b"application/xml".as_slice(), b"text/xml"].iter().any(|generic| name.eq_ignore_ascii_case(generic))
}

/// Whether it is XML of whatever kind, as `application/atom+xml` is: its name ends in `xml`.
pub fn is_any_xml(content_type: impl AsRef<[u8]>) -> bool {
    name(content_type.as_ref()).last_chunk::<3>().is_some_and(|end| end.eq_ignore_ascii_case(b"xml"))
}

/// [`essence`] of what may be no text, as parameters may be none.
fn name(content_type: &[u8]) -> &[u8] {
    content_type.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_media_type_ends_before_its_parameters() {
        assert_eq!(essence(" text/HTML ; charset=utf-8; x=y"), "text/HTML");
        assert_eq!([essence(""), essence(";a"), essence("text/plain")], ["", "", "text/plain"]);
    }

    #[test]
    fn a_feed_is_xml_but_not_generic_xml() {
        let judged = |text: &str| (is_generic_xml(text), is_any_xml(text));
        for generic in ["application/xml", "Text/XML; charset=utf-8", "application/xml ;q"] {
            assert_eq!(judged(generic), (true, true), "{generic}");
        }
        for feed in ["application/atom+xml", "application/RSS+XML;x=y"] {
            assert_eq!(judged(feed), (false, true), "{feed}");
        }
        assert!(is_generic_xml(b"text/xml; of=\xff") && !is_any_xml(b"text/xml\xff"));
        for other in ["", "ml", "text/html", "application/json; of=xml", "application/xml-dtd"] {
            assert_eq!(judged(other), (false, false), "{other}");
        }
    }
}
