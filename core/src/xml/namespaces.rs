//! What the prefixes of names stand for, element by element.
//!
//! `quick-xml` resolves them. It is given each declaration one by one, since it would take their values as written, with
//! references unresolved, and lets a default namespace be one that XML reserves.

use quick_xml::name::{self, NamespaceError, NamespaceResolver, PrefixDeclaration, QName, ResolveResult};

use super::error::Fault;
use super::{
    DLIB_NAMESPACE, Limit, MAX_BINDINGS, MAX_NAMESPACE, RS_NAMESPACE, SITEMAP_NAMESPACE, XHTML_NAMESPACE,
    XML_NAMESPACE, XMLNS_NAMESPACE,
};

/// The namespaces that mean something here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Namespace {
    None,
    Sitemap,
    Rs,
    /// What [`Namespace::Rs`] was in the D-Lib paper (DL-005).
    DLib,
    /// Where the alpha draft took links and metadata from (ALPHA-001).
    Xhtml,
    Foreign,
}

impl Namespace {
    #[inline]
    fn of(uri: &str) -> Self {
        match uri {
            "" => Self::None,
            SITEMAP_NAMESPACE => Self::Sitemap,
            RS_NAMESPACE => Self::Rs,
            DLIB_NAMESPACE => Self::DLib,
            XHTML_NAMESPACE => Self::Xhtml,
            _ => Self::Foreign,
        }
    }
}

/// The declarations in scope.
#[derive(Debug)]
pub(super) struct Namespaces(NamespaceResolver);

impl Default for Namespaces {
    fn default() -> Self {
        let mut resolver = NamespaceResolver::default();
        resolver.set_max_namespace_bindings(MAX_BINDINGS);
        Self(resolver)
    }
}

impl Namespaces {
    /// Takes a declaration of the element at this depth; the prefix is empty for the default namespace.
    pub(super) fn declare(&mut self, prefix: &str, uri: &str, depth: usize) -> Result<(), Fault> {
        if uri.len() > MAX_NAMESPACE {
            return Err(Fault::Limit(Limit::Namespace));
        }
        let declaration = match (prefix, uri) {
            ("", XML_NAMESPACE | XMLNS_NAMESPACE) => return Err(RESERVED),
            ("", _) => PrefixDeclaration::Default,
            ("xml" | "xmlns", _) => PrefixDeclaration::Named(prefix),
            (_, "") => return Err(Fault::Form("a prefix cannot stand for no namespace")),
            _ => PrefixDeclaration::Named(prefix),
        };
        self.0.set_level(level(depth));
        self.0.add(declaration, name::Namespace(uri)).map_err(|error| match error {
            NamespaceError::TooManyBindings(_) => Fault::Limit(Limit::Bindings),
            _ => RESERVED,
        })
    }

    /// Forgets what the element at this depth declared.
    pub(super) fn leave(&mut self, depth: usize) {
        self.0.set_level(level(depth.saturating_sub(1)));
    }

    /// The namespace of an element or of an attribute with a prefix, and its URI.
    #[inline]
    pub(super) fn resolve(&self, name: &str) -> Result<(Namespace, &str), Fault> {
        match self.0.resolve_element(QName(name)).0 {
            ResolveResult::Unbound => Ok((Namespace::None, "")),
            // Only declarations may have the prefix `xmlns`, and none of them is asked about here.
            ResolveResult::Bound(name::Namespace(XMLNS_NAMESPACE)) => Err(Fault::Prefix("xmlns".to_owned())),
            ResolveResult::Bound(name::Namespace(uri)) => Ok((Namespace::of(uri), uri)),
            ResolveResult::Unknown(prefix) => Err(Fault::Prefix(prefix)),
        }
    }
}

const RESERVED: Fault = Fault::Form("the prefixes xml and xmlns and their namespaces belong together");

fn level(depth: usize) -> u16 {
    u16::try_from(depth).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inner_declarations_hide_outer_ones_until_their_element_ends() {
        let mut namespaces = Namespaces::default();
        namespaces.declare("", SITEMAP_NAMESPACE, 1).unwrap();
        namespaces.declare("", "", 2).unwrap();
        namespaces.declare("rs", RS_NAMESPACE, 2).unwrap();
        assert_eq!(namespaces.resolve("a").unwrap(), (Namespace::None, ""));
        assert_eq!(namespaces.resolve("rs:a").unwrap(), (Namespace::Rs, RS_NAMESPACE));
        namespaces.leave(2);
        assert_eq!(namespaces.resolve("a").unwrap(), (Namespace::Sitemap, SITEMAP_NAMESPACE));
        assert!(namespaces.resolve("rs:a").is_err());
    }

    #[test]
    fn what_xml_reserves_cannot_be_declared_otherwise() {
        let mut namespaces = Namespaces::default();
        assert_eq!(namespaces.resolve("xml:a").unwrap(), (Namespace::Foreign, XML_NAMESPACE));
        assert!(namespaces.declare("xml", XML_NAMESPACE, 1).is_ok());
        for (prefix, namespace) in
            [("xml", "urn:x"), ("xmlns", "urn:x"), ("a", XML_NAMESPACE), ("", XMLNS_NAMESPACE), ("a", "")]
        {
            assert!(namespaces.declare(prefix, namespace, 1).is_err(), "{prefix} {namespace}");
        }
    }
}
