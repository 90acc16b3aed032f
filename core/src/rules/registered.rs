//! The link relations that IANA has registered (RS-057), as of 2025; a name registered later is not known here.

/// Sorted.
#[rustfmt::skip]
const RELATIONS: &[&str] = &[
    "about", "acl", "alternate", "amphtml", "api-catalog", "appendix", "apple-touch-icon",
    "apple-touch-startup-image", "archives", "author", "blocked-by", "bookmark", "c2pa-manifest",
    "canonical", "chapter", "cite-as", "collection", "compression-dictionary", "contents", "convertedfrom",
    "copyright", "create-form", "current", "deprecation", "describedby", "describes", "disclosure",
    "dns-prefetch", "duplicate", "edit", "edit-form", "edit-media", "enclosure", "external", "first",
    "geofeed", "glossary", "help", "hosts", "hub", "ice-server", "icon", "index", "intervalafter",
    "intervalbefore", "intervalcontains", "intervaldisjoint", "intervalduring", "intervalequals",
    "intervalfinishedby", "intervalfinishes", "intervalin", "intervalmeets", "intervalmetby",
    "intervaloverlappedby", "intervaloverlaps", "intervalstartedby", "intervalstarts", "item", "last",
    "latest-version", "license", "linkset", "lrdd", "manifest", "mask-icon", "me", "media-feed", "memento",
    "micropub", "modulepreload", "monitor", "monitor-group", "next", "next-archive", "nofollow", "noopener",
    "noreferrer", "opener", "openid2.local_id", "openid2.provider", "original", "p3pv1", "payment",
    "pingback", "preconnect", "predecessor-version", "prefetch", "preload", "prerender", "prev",
    "prev-archive", "preview", "previous", "privacy-policy", "profile", "publication", "rdap-active",
    "rdap-bottom", "rdap-down", "rdap-top", "rdap-up", "related", "replies", "restconf",
    "ruleinput", "search", "section", "self", "service", "service-desc", "service-doc", "service-meta",
    "sip-trunking-capability", "sponsored", "start", "status", "stylesheet", "subsection",
    "successor-version", "sunset", "tag", "terms-of-service", "timegate", "timemap", "type", "ugc", "up",
    "version-history", "via", "webmention", "working-copy", "working-copy-of",
];

/// Whether a relation is one of them.
pub(super) fn is_registered(relation: &str) -> bool {
    RELATIONS.binary_search(&relation).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Relation;

    #[test]
    fn rs057_names_are_found_by_their_order() {
        assert!(RELATIONS.is_sorted_by(|one, next| one < next));
    }

    #[test]
    fn rs057_rs058_what_the_specifications_use_is_registered_or_a_uri() {
        for relation in Relation::DEFINED {
            assert!(is_registered(relation.as_str()) || relation == Relation::Patch, "{relation}");
        }
        assert!(!is_registered("mirror") && !is_registered("Up") && !is_registered(""));
    }
}
