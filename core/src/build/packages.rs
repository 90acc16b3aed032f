//! The packages of one run of a dump, and when one ends and the next begins (RS-102, RS-103, RS-109).

use super::names::extension;
use super::settings::Settings;
use super::zip::{Packed, Packer, stamp};
use super::{BuildError, Sink};
use crate::datetime::DateTime;
use crate::digest::Hashes;
use crate::document::{Entry, Header};
use crate::xml::MAX_ENTRIES;

/// When one package ends and the next begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackageLimits {
    /// Most bitstreams of one package; 50,000 at most, since a manifest cannot be split (RS-109).
    pub bitstreams: usize,
    /// Most bytes of the bitstreams of one package, before compression; a longer bitstream has a package of its own.
    pub bytes: u64,
}

impl Default for PackageLimits {
    /// 50,000 bitstreams, 100 MiB.
    fn default() -> Self {
        Self { bitstreams: MAX_ENTRIES, bytes: 100 * 1024 * 1024 }
    }
}

impl PackageLimits {
    pub(super) fn entries(self) -> usize {
        self.bitstreams.clamp(1, MAX_ENTRIES)
    }
}

/// What both kinds of dump have in common.
#[derive(Clone, Debug)]
pub(super) struct Packing {
    pub(super) limits: PackageLimits,
    pub(super) has_copies: bool,
}

impl Packing {
    pub(super) const DEFAULT: Self = Self {
        limits: PackageLimits { bitstreams: MAX_ENTRIES, bytes: 100 * 1024 * 1024 },
        has_copies: true,
    };
}

/// Gives a generator with a field `packing` its methods.
macro_rules! packing {
    ($generator:ident) => {
        impl $generator {
            /// When one package ends and the next begins.
            pub fn package_limits(mut self, limits: PackageLimits) -> Self {
                self.packing.limits = limits;
                self
            }

            /// Whether a copy of each manifest is published beside its package (RS-103); it is, unless you say otherwise.
            pub fn manifest_copies(mut self, has_copies: bool) -> Self {
                self.packing.has_copies = has_copies;
                self
            }
        }
    };
}

pub(super) use packing;

/// The packages of one run, while they come in.
pub(super) struct Packages<'a, S: Sink> {
    settings: &'a Settings,
    packing: &'a Packing,
    stamp: String,
    packer: Option<Packer>,
    staged: Vec<S::Staged>,
    names: Vec<String>,
    ended: u64,
    bitstreams: u64,
}

impl<'a, S: Sink> Packages<'a, S> {
    pub(super) fn new(settings: &'a Settings, packing: &'a Packing, moment: DateTime) -> Self {
        let (staged, names) = (Vec::new(), Vec::new());
        Self { settings, packing, stamp: stamp(moment), packer: None, staged, names, ended: 0, bitstreams: 0 }
    }

    pub(super) fn takes(&self, entry: &Entry) -> Result<bool, BuildError> {
        self.packer.as_ref().map_or(Ok(true), |packer| packer.takes(entry))
    }

    /// The package that is open, or a new one.
    pub(super) fn packer(&mut self, manifest: impl FnOnce() -> Header) -> Result<&mut Packer, BuildError> {
        let packer = match self.packer.take() {
            Some(packer) => packer,
            None => Packer::new(manifest(), self.packing.limits)?,
        };
        Ok(self.packer.insert(packer))
    }

    /// Where the next bitstream lies: a number keeps every change of a resource apart (RS-145), and is a name everywhere.
    pub(super) fn next_path(&mut self, folder: &str, loc: &str) -> String {
        self.bitstreams += 1;
        let end = extension(loc).map(|extension| format!(".{extension}")).unwrap_or_default();
        format!("/{folder}/{:07}{end}", self.bitstreams)
    }

    /// Ends the open package, if there is one; gives its URL, length, digest and the URL of its manifest's copy.
    pub(super) fn end(&mut self, sink: &mut S, manifest: &Header) -> Result<Option<Done>, BuildError> {
        let Some(packer) = self.packer.take() else { return Ok(None) };
        self.ended += 1;
        let base = format!("{}-{}-{}", self.settings.stem, self.stamp, self.ended);
        let name = format!("{base}.zip");
        let copy = self.packing.has_copies.then(|| format!("{base}-manifest.xml"));
        let Packed { package, contents, length, hashes } =
            packer.stage(sink, &name, copy.as_deref(), manifest)?;
        self.staged.extend(contents);
        self.names.extend(copy.clone());
        self.staged.push(package);
        self.names.push(name.clone());
        let site = &self.settings.site;
        Ok(Some(Done { url: site.url(&name), length, hashes, contents: copy.map(|copy| site.url(&copy)) }))
    }

    pub(super) fn publish(self, sink: &mut S) -> Result<Vec<String>, BuildError> {
        for staged in self.staged {
            sink.publish(staged)?;
        }
        Ok(self.names)
    }
}

/// A package that ended, as the dump lists it.
pub(super) struct Done {
    pub(super) url: String,
    pub(super) length: u64,
    pub(super) hashes: Hashes,
    pub(super) contents: Option<String>,
}
