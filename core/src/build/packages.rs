//! The packages of one run of a dump, and when one ends and the next begins (RS-102, RS-103, RS-109).

use super::generation::{Generation, MANIFEST_COPY, PACKAGE};
use super::names::extension;
use super::package_limits::PackageLimits;
use super::ready::Ready;
use super::scratch::Scratch;
use super::settings::Settings;
use super::zip::{Packed, Packer};
use super::{BuildError, Sink};
use crate::digest::Hashes;
use crate::document::{Entry, Header};

/// Gives a generator with a field `packages` its method.
macro_rules! packing {
    ($generator:ident) => {
        impl $generator {
            /// When one package ends and the next begins.
            pub fn package_limits(mut self, limits: PackageLimits) -> Self {
                self.packages = limits;
                self
            }
        }
    };
}

pub(super) use packing;

/// The packages of one run, while they come in.
pub(super) struct Packages<'a, S: Sink> {
    settings: &'a Settings,
    limits: PackageLimits,
    generation: Generation,
    scratch: Scratch,
    packer: Option<Packer>,
    ready: Ready<S>,
    ended: u64,
    bitstreams: u64,
}

impl<'a, S: Sink> Packages<'a, S> {
    /// Packages with the names of a generation; `sink` is where they will go.
    pub(super) fn new(
        settings: &'a Settings,
        limits: PackageLimits,
        generation: Generation,
        sink: &S,
    ) -> Self {
        Self {
            settings,
            limits,
            generation,
            scratch: Scratch::of(sink),
            packer: None,
            ready: Ready::new(),
            ended: 0,
            bitstreams: 0,
        }
    }

    pub(super) fn takes(&self, entry: &Entry) -> Result<bool, BuildError> {
        self.packer.as_ref().map_or(Ok(true), |packer| packer.takes(entry))
    }

    /// Whether one more entry fits at all, whatever was asked for: a manifest cannot be split.
    pub(super) fn has_room(&self, entry: &Entry) -> Result<bool, BuildError> {
        self.packer.as_ref().map_or(Ok(true), |packer| packer.has_room(entry))
    }

    /// The package that is open, or a new one.
    pub(super) fn packer(&mut self, manifest: impl FnOnce() -> Header) -> Result<&mut Packer, BuildError> {
        let packer = match self.packer.take() {
            Some(packer) => packer,
            None => Packer::new(manifest(), self.limits, self.scratch.clone())?,
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
        let name = self.generation.name(self.ended, PACKAGE);
        let copy = self.generation.name(self.ended, MANIFEST_COPY);
        let Packed { package, contents, length, hashes } = packer.stage(sink, &name, &copy, manifest)?;
        let url = |name: &str| self.settings.site.url(name);
        let done = Done { url: url(&name), length, hashes, contents: url(&copy) };
        self.ready.push(copy, contents);
        self.ready.push(name, package);
        Ok(Some(done))
    }

    /// What is to be published before anything that leads to it.
    pub(super) fn into_ready(self) -> Ready<S> {
        self.ready
    }
}

/// A package that ended, as the dump lists it.
pub(super) struct Done {
    pub(super) url: String,
    pub(super) length: u64,
    pub(super) hashes: Hashes,
    pub(super) contents: String,
}
