//! What other documents say so that a Source is found: robots.txt, HTTP and HTML (RS-160 to RS-165).

use std::fmt::Write as _;

use url::Url;

/// The lines of a robots.txt that announce Resource Lists, or their indexes (RS-162). A [`Url`] cannot hold a line break.
///
/// ```
/// let list = "https://example.org/resync/resourcelist.xml".parse()?;
/// let lines = resync_core::build::robots_txt([&list]);
/// assert_eq!(lines, "Sitemap: https://example.org/resync/resourcelist.xml\n");
/// # Ok::<(), url::ParseError>(())
/// ```
pub fn robots_txt<'a>(resource_lists: impl IntoIterator<Item = &'a Url>) -> String {
    resource_lists.into_iter().fold(String::new(), |mut lines, url| {
        writeln!(lines, "Sitemap: {url}").expect("a String takes any text");
        lines
    })
}

/// The value of a `Link` header on a resource that the Capability List covers (RS-161); never the Source Description (RS-165).
///
/// ```
/// let list = "https://example.org/resync/capabilitylist.xml".parse()?;
/// let header = resync_core::build::discovery_header(&list);
/// assert_eq!(header, "<https://example.org/resync/capabilitylist.xml>; rel=\"resourcesync\"");
/// # Ok::<(), url::ParseError>(())
/// ```
pub fn discovery_header(capability_list: &Url) -> String {
    format!("<{}>; rel=\"resourcesync\"", capability_list.as_str().replace('>', "%3E"))
}

/// The element for the head of an HTML page that the Capability List covers (RS-161).
///
/// ```
/// let list = "https://example.org/list?set=a&b=\"c\"".parse()?;
/// let element = resync_core::build::discovery_html(&list);
/// assert_eq!(element, "<link rel=\"resourcesync\" href=\"https://example.org/list?set=a&amp;b=%22c%22\">");
/// # Ok::<(), url::ParseError>(())
/// ```
pub fn discovery_html(capability_list: &Url) -> String {
    let href = capability_list.as_str().replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;");
    format!("<link rel=\"resourcesync\" href=\"{href}\">")
}
