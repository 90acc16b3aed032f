//! A package of a dump unpacked, by the code that Destinations unpack it with, and compared with what the dump and the manifest say.

use std::io;

use super::PackageBytes;
use super::reading::Said;
use crate::digest::{Agreement, Digest, Hasher};
use crate::document::Entry;
use crate::package::{Package, PackageError};
use crate::rules::Rule;

/// Most flaws of the bitstreams of one package that are told.
const MAX_FLAWS: usize = 1_000;

/// What was found in a package.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The manifest; none where the package is refused as a whole.
    pub(super) manifest: Option<Vec<u8>>,
    pub(super) of_package: Vec<(Rule, String)>,
    /// By the number of the manifest's entry.
    pub(super) of_bitstreams: Vec<(usize, Rule, String)>,
}

/// Looks at every byte of a package, and keeps none but the manifest's.
pub(super) fn examine(mut bytes: Box<dyn PackageBytes>, said: &Said) -> Found {
    let mut found = Found::default();
    if let Err(error) = measure(&mut *bytes, said, &mut found.of_package) {
        found.of_package.push((Rule::Unreachable, format!("it cannot be read: {error}")));
        return found;
    }
    if let Err(error) = unpack(bytes, &mut found) {
        found.of_package.push((rule(&error), error.to_string()));
    }
    found
}

/// The package's own length and digests (RS-102).
fn measure(bytes: &mut dyn PackageBytes, said: &Said, flaws: &mut Vec<(Rule, String)>) -> io::Result<()> {
    let length = bytes.seek(io::SeekFrom::End(0))?;
    if let Some(expected) = said.length.filter(|&expected| expected != length) {
        flaws.push((Rule::PackageDiffers, format!("it has {length} bytes, not {expected}")));
    }
    bytes.rewind()?;
    if !said.hashes.is_empty() {
        let mut hasher = Hasher::new(said.hashes.iter().map(Digest::algorithm));
        let mut buffer = vec![0; 64 * 1024];
        loop {
            match bytes.read(&mut buffer)? {
                0 => break,
                count => hasher.update(&buffer[..count]),
            }
        }
        if said.hashes.compare(&hasher.finish()) == Agreement::Different {
            flaws.push((Rule::PackageDiffers, "it does not have the digest that the dump says".to_owned()));
        }
        bytes.rewind()?;
    }
    Ok(())
}

fn unpack(bytes: Box<dyn PackageBytes>, found: &mut Found) -> Result<(), PackageError> {
    let mut package = Package::open(bytes)?;
    found.manifest = Some(package.manifest()?);
    let mut number = 0;
    while let Some(entry) = package.next_entry()? {
        number += 1;
        for flaw in bitstreams(&mut package, &entry) {
            match flaw {
                // What the rules ask of the entry itself is told by them.
                Err(PackageError::NoPath { .. }) | Ok(_) => {}
                Err(error) if error.is_about_one_entry() => {
                    found.of_bitstreams.push((number, rule(&error), error.to_string()));
                }
                Err(error) => return Err(error),
            }
        }
        if found.of_bitstreams.len() > MAX_FLAWS {
            break;
        }
    }
    Ok(())
}

fn bitstreams(package: &mut Package<Box<dyn PackageBytes>>, entry: &Entry) -> Vec<Result<u64, PackageError>> {
    let packed = entry.links.iter().filter(|link| link.path.is_some());
    let mut all = vec![package.copy(entry, &mut io::sink())];
    all.extend(packed.map(|link| package.copy_linked(link, &mut io::sink())));
    all
}

fn rule(error: &PackageError) -> Rule {
    match error {
        PackageError::NotAZip { .. }
        | PackageError::DuplicateMember
        | PackageError::Overlapping
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
