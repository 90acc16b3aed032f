//! A package of a dump unpacked, by the code that Destinations unpack it with, and compared with what the dump and the manifest say.

use std::collections::HashSet;
use std::io;

use super::reading::PackageListing;
use super::{FetchFailure, PackageBytes};
use crate::digest::{Agreement, Digest, Hasher};
use crate::document::{Entry, Link};
use crate::package::{Package, PackageError, PackageReadLimits};
use crate::rules::Rule;

/// Most flaws of the bitstreams of one package that are reported.
const MAX_FLAWS: usize = 1_000;

/// What was found in a package.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The manifest; none where the package is refused as a whole.
    pub(super) manifest: Option<Vec<u8>>,
    pub(super) of_package: Vec<(Rule, String)>,
    /// By the number of the manifest's entry.
    pub(super) of_bitstreams: Vec<(usize, Rule, String)>,
    /// How many bytes were uncompressed.
    pub(super) taken: u64,
    /// Not every bitstream was looked at, since that would have been too much.
    pub(super) is_cut_off: bool,
    /// Why the check must end.
    pub(super) end: Option<FetchFailure>,
}

/// Looks at every byte of a package, and keeps none but the manifest's. At most `budget` bytes are uncompressed; `end` is asked before each
/// bitstream.
pub(super) fn examine(
    mut bytes: Box<dyn PackageBytes>,
    said: &PackageListing,
    budget: u64,
    end: &mut dyn FnMut() -> Option<FetchFailure>,
) -> Found {
    let mut found = Found::default();
    if let Err(error) = measure(&mut *bytes, said, &mut found.of_package) {
        found.of_package.push((Rule::Unreachable, format!("it cannot be read: {error}")));
        return found;
    }
    match unpack(bytes, budget, &mut found, end) {
        Ok(()) => {}
        // It is the budget of all packages that has come to its end.
        Err(PackageError::TooMuch { limit }) if limit < PackageReadLimits::default().bytes => {
            found.is_cut_off = true;
        }
        Err(error) => found.of_package.push((rule(&error), error.to_string())),
    }
    found
}

/// The package's own length and digests (RS-102).
fn measure(
    bytes: &mut dyn PackageBytes,
    said: &PackageListing,
    flaws: &mut Vec<(Rule, String)>,
) -> io::Result<()> {
    let length = bytes.seek(io::SeekFrom::End(0))?;
    if let Some(expected) = said.length.filter(|&expected| expected != length) {
        flaws.push((Rule::PackageDiffers, format!("it has {length} bytes, not {expected}")));
    }
    bytes.rewind()?;
    if !said.hashes.is_empty() {
        let mut hasher = Hasher::new(said.hashes.iter().map(Digest::algorithm));
        io::copy(bytes, &mut hasher)?;
        if said.hashes.compare(&hasher.finish()) == Agreement::Different {
            flaws.push((Rule::PackageDiffers, "it does not have the digest that the dump says".to_owned()));
        }
        bytes.rewind()?;
    }
    Ok(())
}

fn unpack(
    bytes: Box<dyn PackageBytes>,
    budget: u64,
    found: &mut Found,
    end: &mut dyn FnMut() -> Option<FetchFailure>,
) -> Result<(), PackageError> {
    let limits = PackageReadLimits::default();
    let mut package =
        Package::with_limits(bytes, PackageReadLimits { bytes: limits.bytes.min(budget), ..limits })?;
    found.manifest = Some(package.manifest()?);
    let mut looked_at = HashSet::new();
    let mut number = 0;
    while let Some(entry) = package.next_entry()? {
        number += 1;
        for bitstream in bitstreams(&entry, &mut looked_at) {
            found.end = end();
            if found.end.is_some() || found.of_bitstreams.len() >= MAX_FLAWS {
                return Ok(());
            }
            let copied = match bitstream {
                Bitstream::Entry => package.copy(&entry, &mut io::sink()),
                Bitstream::Linked(link) => package.copy_linked(link, &mut io::sink()),
            };
            found.taken = package.taken();
            match copied {
                // The rules report this of the entry itself.
                Err(PackageError::NoPath { .. }) | Ok(_) => {}
                Err(error) if error.is_about_one_entry() => {
                    found.of_bitstreams.push((number, rule(&error), error.to_string()));
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// What there is to look at of an entry.
enum Bitstream<'e> {
    Entry,
    Linked(&'e Link),
}

/// However often links name one path, one look at it is enough.
fn bitstreams<'e>(entry: &'e Entry, looked_at: &mut HashSet<String>) -> Vec<Bitstream<'e>> {
    let mut bitstreams = vec![Bitstream::Entry];
    for link in &entry.links {
        if link.path.as_ref().is_some_and(|path| looked_at.insert(path.clone())) {
            bitstreams.push(Bitstream::Linked(link));
        }
    }
    bitstreams
}

fn rule(error: &PackageError) -> Rule {
    match error {
        PackageError::NotAZip { .. }
        | PackageError::DuplicateMember
        | PackageError::Overlapping
        | PackageError::Directory { .. }
        | PackageError::Io(_) => Rule::PackageUnreadable,
        PackageError::ManifestMissing | PackageError::NotAManifest | PackageError::Manifest(_) => {
            Rule::PackageManifest
        }
        PackageError::DuplicatePath { .. } => Rule::PathRepeated,
        PackageError::NoPath { .. } => Rule::ShapeMissing,
        PackageError::Path { .. } => Rule::PathUnsafe,
        PackageError::Missing { .. } => Rule::BitstreamMissing,
        PackageError::Length { .. } | PackageError::Hash { .. } => Rule::BitstreamDiffers,
        PackageError::SymbolicLink { .. }
        | PackageError::NotAFile { .. }
        | PackageError::Unsupported { .. }
        | PackageError::Expansion { .. }
        | PackageError::TooMuch { .. }
        | PackageError::Damaged { .. }
        | PackageError::Output(_) => Rule::BitstreamUnsafe,
    }
}
