//! What the prefixes of names stand for, element by element.

use std::borrow::Cow;

use super::error::Fault;
use super::{
    DLIB_NAMESPACE, RS_NAMESPACE, SITEMAP_NAMESPACE, XHTML_NAMESPACE, XML_NAMESPACE, XMLNS_NAMESPACE,
};

/// The namespaces that mean something here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Space {
    None,
    Sitemap,
    Rs,
    /// What [`Space::Rs`] was in the D-Lib paper (DL-005).
    DLib,
    /// Where the alpha draft took links and metadata from (ALPHA-001).
    Xhtml,
    Foreign,
}

impl Space {
    fn of(namespace: &str) -> Self {
        match namespace {
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
#[derive(Debug, Default)]
pub(super) struct Namespaces {
    /// Inner ones come last.
    bindings: Vec<Binding>,
}

#[derive(Debug)]
struct Binding {
    prefix: String,
    namespace: String,
    space: Space,
    /// The depth of the element that declares it.
    depth: usize,
}

impl Namespaces {
    /// Takes a declaration of the element at this depth; the prefix is empty for the default namespace.
    pub(super) fn declare(
        &mut self,
        prefix: &str,
        namespace: Cow<'_, str>,
        depth: usize,
    ) -> Result<(), Fault> {
        match (prefix, &*namespace) {
            ("xml", XML_NAMESPACE) => return Ok(()),
            ("xml" | "xmlns", _) | (_, XML_NAMESPACE | XMLNS_NAMESPACE) => {
                let reason = "the prefixes xml and xmlns and their namespaces belong together";
                return Err(Fault::Form(reason));
            }
            ("", _) => {}
            (_, "") => return Err(Fault::Form("a prefix cannot stand for no namespace")),
            _ => {}
        }
        let (prefix, space) = (prefix.to_owned(), Space::of(&namespace));
        self.bindings.push(Binding { prefix, namespace: namespace.into_owned(), space, depth });
        Ok(())
    }

    /// Forgets what the element at this depth declared.
    pub(super) fn leave(&mut self, depth: usize) {
        while self.bindings.last().is_some_and(|binding| binding.depth >= depth) {
            self.bindings.pop();
        }
    }

    /// What a prefix stands for. The default namespace has the empty prefix.
    pub(super) fn resolve(&self, prefix: &str) -> Result<(Space, &str), Fault> {
        match self.bindings.iter().rev().find(|binding| same(&binding.prefix, prefix)) {
            Some(binding) => Ok((binding.space, &binding.namespace)),
            None if prefix.is_empty() => Ok((Space::None, "")),
            None if prefix == "xml" => Ok((Space::Foreign, XML_NAMESPACE)),
            None => Err(Fault::Prefix(prefix.to_owned())),
        }
    }
}

/// Equality of short names: byte by byte, since a call that compares many at once waits for those just written.
#[inline]
pub(super) fn same(one: &str, other: &str) -> bool {
    one.len() == other.len() && one.bytes().zip(other.bytes()).all(|(one, other)| one == other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inner_declarations_hide_outer_ones_until_their_element_ends() {
        let mut namespaces = Namespaces::default();
        namespaces.declare("", SITEMAP_NAMESPACE.into(), 1).unwrap();
        namespaces.declare("", "".into(), 2).unwrap();
        namespaces.declare("rs", RS_NAMESPACE.into(), 2).unwrap();
        assert_eq!(namespaces.resolve("").unwrap(), (Space::None, ""));
        assert_eq!(namespaces.resolve("rs").unwrap(), (Space::Rs, RS_NAMESPACE));
        namespaces.leave(2);
        assert_eq!(namespaces.resolve("").unwrap(), (Space::Sitemap, SITEMAP_NAMESPACE));
        assert!(namespaces.resolve("rs").is_err());
    }

    #[test]
    fn what_xml_reserves_cannot_be_declared_otherwise() {
        let mut namespaces = Namespaces::default();
        assert_eq!(namespaces.resolve("xml").unwrap(), (Space::Foreign, XML_NAMESPACE));
        assert!(namespaces.declare("xml", XML_NAMESPACE.into(), 1).is_ok());
        for (prefix, namespace) in
            [("xml", "urn:x"), ("xmlns", "urn:x"), ("a", XML_NAMESPACE), ("", XMLNS_NAMESPACE), ("a", "")]
        {
            assert!(namespaces.declare(prefix, namespace.into(), 1).is_err(), "{prefix} {namespace}");
        }
    }
}
