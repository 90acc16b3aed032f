//! Packages made by somebody who means harm: each is refused, with the name of what is wrong (RS-110, RS-111).

use std::io::{Cursor, Write};

use resync_core::document::{Entry, Metadata};
use resync_core::package::{Package, PackageError, PackageReadLimits};
use resync_core::rules::PathFlaw;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

const STORED: SimpleFileOptions = SimpleFileOptions::DEFAULT.compression_method(CompressionMethod::Stored);
const DEFLATED: SimpleFileOptions =
    SimpleFileOptions::DEFAULT.compression_method(CompressionMethod::Deflated);

/// A manifest with an entry for each `rs:md`, given by its attributes.
fn manifest(entries: &[&str]) -> String {
    let entry = |attributes| format!("<url><loc>https://example.org/item</loc><rs:md {attributes}/></url>");
    let entries = entries.iter().map(entry).collect::<Vec<_>>().concat();
    format!(
        "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" xmlns:rs=\"http://www.openarchives.org/rs/terms/\">\
         <rs:ln rel=\"up\" href=\"https://example.org/capabilitylist.xml\"/>\
         <rs:md capability=\"resourcedump-manifest\" at=\"2026-01-03T09:00:00Z\"/>{entries}</urlset>"
    )
}

fn archive(manifest: &str, members: &[(&str, &[u8])]) -> Vec<u8> {
    archive_with(STORED, manifest, members)
}

fn archive_with(options: SimpleFileOptions, manifest: &str, members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    zip.start_file("manifest.xml", STORED).unwrap();
    zip.write_all(manifest.as_bytes()).unwrap();
    for (name, bytes) in members {
        zip.start_file(*name, options).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

fn open(bytes: &[u8]) -> Result<Package<Cursor<&[u8]>>, PackageError> {
    Package::open(Cursor::new(bytes))
}

/// What becomes of each entry.
fn copied(bytes: &[u8]) -> Vec<Result<Vec<u8>, PackageError>> {
    let mut package = open(bytes).unwrap();
    let mut outcomes = Vec::new();
    while let Some(entry) = package.next_entry().unwrap() {
        let mut out = Vec::new();
        outcomes.push(package.copy(&entry, &mut out).map(|_| out));
    }
    outcomes
}

fn only(bytes: &[u8]) -> Result<Vec<u8>, PackageError> {
    let mut outcomes = copied(bytes);
    assert_eq!(outcomes.len(), 1);
    outcomes.remove(0)
}

/// Replaces the bytes after every signature, in local headers and in the central directory.
fn patch(bytes: &mut [u8], signature: &[u8], offset: usize, value: &[u8], name: &[u8], name_offset: usize) {
    for place in 0..bytes.len() - name_offset - name.len() {
        if bytes[place..].starts_with(signature) && bytes[place + name_offset..].starts_with(name) {
            bytes[place + offset..][..value.len()].copy_from_slice(value);
        }
    }
}

fn patch_central(bytes: &mut [u8], name: &str, offset: usize, value: &[u8]) {
    patch(bytes, b"PK\x01\x02", offset, value, name.as_bytes(), 46);
}

fn patch_local(bytes: &mut [u8], name: &str, offset: usize, value: &[u8]) {
    patch(bytes, b"PK\x03\x04", offset, value, name.as_bytes(), 30);
}

#[test]
fn the_length_of_a_bitstream_is_known_from_the_archive_before_it_is_copied_unless_it_is_refused() {
    let bomb = vec![0_u8; 4 << 20];
    let entries = [r#"path="/item""#, r#"path="/bomb""#, r#"path="/missing""#];
    let bytes = archive_with(DEFLATED, &manifest(&entries), &[("item", b"12345"), ("bomb", &bomb)]);
    let mut package = open(&bytes).unwrap();
    let mut lengths = Vec::new();
    while let Some(entry) = package.next_entry().unwrap() {
        lengths.push(package.length(&entry));
    }
    assert_eq!(lengths, [Some(5), None, None]);
}

#[test]
fn rs110_paths_that_lead_out_of_the_package_are_refused() {
    let cases = [
        ("/../../etc/cron.d/evil", PathFlaw::Upwards),
        ("/a/../../evil", PathFlaw::Upwards),
        ("//etc/passwd", PathFlaw::Absolute),
        ("/C:/evil", PathFlaw::Drive),
        ("/a\\..\\evil", PathFlaw::Backslash),
    ];
    for (path, flaw) in cases {
        let name = path.strip_prefix('/').unwrap();
        let package = archive(&manifest(&[&format!("path=\"{path}\"")]), &[(name, b"evil")]);
        let error = only(&package).unwrap_err();
        assert!(error.is_about_one_entry());
        assert!(matches!(error, PackageError::Path { flaw: found, .. } if found == flaw), "{path}");
    }
}

#[test]
fn rs110_a_path_with_nul_is_refused() {
    let package = archive(&manifest(&[]), &[]);
    let metadata = Metadata { path: Some("/a\0.txt".to_owned()), ..Metadata::default() };
    let entry = Entry::with_metadata("https://example.org/a", metadata);
    let error = open(&package).unwrap().copy(&entry, &mut Vec::new()).unwrap_err();
    assert!(matches!(error, PackageError::Path { flaw: PathFlaw::Control, .. }));
}

#[test]
fn rs110_two_members_or_two_entries_of_one_path_are_refused() {
    let mut twice = archive(&manifest(&["path=\"/a\""]), &[("a", b"one"), ("b", b"two")]);
    patch_central(&mut twice, "b", 46, b"a");
    patch_local(&mut twice, "b", 30, b"a");
    assert!(matches!(open(&twice), Err(PackageError::DuplicateMember)));
    let named_twice = archive(&manifest(&["path=\"/a\"", "path=\"/a\""]), &[("a", b"one")]);
    assert!(matches!(open(&named_twice), Err(PackageError::DuplicatePath { .. })));
}

#[test]
fn rs110_symbolic_links_and_folders_are_refused() {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    zip.start_file("manifest.xml", STORED).unwrap();
    zip.write_all(manifest(&["path=\"/link\""]).as_bytes()).unwrap();
    zip.add_symlink("link", "/etc/passwd", STORED).unwrap();
    let package = zip.finish().unwrap().into_inner();
    assert!(matches!(only(&package), Err(PackageError::SymbolicLink { .. })));
}

#[test]
fn rs110_lengths_that_lie_are_refused() {
    let said = archive(&manifest(&["path=\"/a\" length=\"9\""]), &[("a", b"four")]);
    assert!(matches!(only(&said), Err(PackageError::Length { expected: 9, found: 4, .. })));

    let text = b"four and twenty".repeat(9);
    for announced in [3_u32, 5_000] {
        let mut lying = archive_with(DEFLATED, &manifest(&["path=\"/a\""]), &[("a", &text)]);
        patch_central(&mut lying, "a", 24, &announced.to_le_bytes());
        patch_local(&mut lying, "a", 22, &announced.to_le_bytes());
        let outcome = only(&lying);
        assert!(
            matches!(outcome, Err(PackageError::Length { .. } | PackageError::Damaged { .. })),
            "{announced}: {outcome:?}"
        );
    }
}

#[test]
fn rs110_a_claim_of_more_than_four_gigabytes_is_refused_before_a_byte_is_read() {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    zip.start_file("manifest.xml", STORED).unwrap();
    zip.write_all(manifest(&["path=\"/huge\""]).as_bytes()).unwrap();
    zip.start_file("huge", STORED.large_file(true)).unwrap();
    zip.write_all(b"tiny").unwrap();
    let mut package = zip.finish().unwrap().into_inner();
    // The ZIP64 field of the central directory: identifier, size 16, then uncompressed and compressed length.
    let directory = package.windows(4).position(|window| window == b"PK\x01\x02").unwrap();
    let field = directory
        + package[directory..].windows(4).position(|window| window == [1, 0, 16, 0]).expect("ZIP64");
    package[field + 4..field + 12].copy_from_slice(&(5_u64 << 40).to_le_bytes());
    let outcome = only(&package);
    assert!(
        matches!(outcome, Err(PackageError::Expansion { .. } | PackageError::TooMuch { .. })),
        "{outcome:?}"
    );
}

#[test]
fn rs110_bombs_are_refused_by_ratio_by_total_and_by_overlap() {
    let zeros = vec![0; 8 << 20];
    let bomb = archive_with(DEFLATED, &manifest(&["path=\"/a\""]), &[("a", &zeros)]);
    assert!(matches!(only(&bomb), Err(PackageError::Expansion { limit: 250, .. })));

    let two = archive(&manifest(&["path=\"/a\"", "path=\"/b\""]), &[("a", b"12345"), ("b", b"67890")]);
    let limits = PackageReadLimits { bytes: 9, ..PackageReadLimits::default() };
    let mut package = Package::with_limits(Cursor::new(&two), limits).unwrap();
    let entry = package.next_entry().unwrap().unwrap();
    assert_eq!(package.copy(&entry, &mut Vec::new()).unwrap(), 5);
    let entry = package.next_entry().unwrap().unwrap();
    let error = package.copy(&entry, &mut Vec::new()).unwrap_err();
    assert!(matches!(error, PackageError::TooMuch { limit: 9 }) && !error.is_about_one_entry());

    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    zip.start_file("manifest.xml", STORED).unwrap();
    zip.write_all(manifest(&["path=\"/a\"", "path=\"/b\""]).as_bytes()).unwrap();
    zip.start_file("a", STORED).unwrap();
    zip.write_all(b"kernel").unwrap();
    zip.shallow_copy_file("a", "b").unwrap();
    let overlapping = zip.finish().unwrap().into_inner();
    assert!(matches!(open(&overlapping), Err(PackageError::Overlapping)));
}

#[test]
fn a_directory_too_long_to_be_held_is_refused() {
    let of_members = |count: usize| {
        let names: Vec<String> = (0..count).map(|number| format!("{number}{}", "n".repeat(60_000))).collect();
        let members: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), &b""[..])).collect();
        archive(&manifest(&[]), &members)
    };
    assert!(open(&of_members(200)).is_ok());
    let error = open(&of_members(300)).unwrap_err();
    assert!(matches!(error, PackageError::Directory { limit: 16_777_216 }) && !error.is_about_one_entry());
}

#[test]
fn rs035_another_digest_is_refused_and_an_unknown_one_is_no_mismatch() {
    let md5 = "hash=\"md5:d41d8cd98f00b204e9800998ecf8427e\"";
    let package = archive(
        &manifest(&[&format!("path=\"/a\" {md5}"), "path=\"/b\" hash=\"whirlpool:00\""]),
        &[("a", b"not empty"), ("b", b"fine")],
    );
    let outcomes = copied(&package);
    assert!(matches!(outcomes[0], Err(PackageError::Hash { .. })));
    assert_eq!(outcomes[1].as_deref().unwrap(), b"fine");
}

#[test]
fn rs111_a_missing_member_concerns_its_entry_only_and_others_are_ignored() {
    let package = archive(
        &manifest(&["path=\"/gone\"", "hash=\"\"", "path=\"/there\""]),
        &[("../../evil", b"x"), ("there", b"fine"), ("not named", b"x")],
    );
    let outcomes = copied(&package);
    assert!(matches!(&outcomes[0], Err(error @ PackageError::Missing { .. }) if error.is_about_one_entry()));
    assert!(matches!(&outcomes[1], Err(error @ PackageError::NoPath { .. }) if error.is_about_one_entry()));
    assert_eq!(outcomes[2].as_deref().unwrap(), b"fine");
}

#[test]
fn rs104_a_package_without_a_manifest_is_refused() {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    zip.start_file("sub/manifest.xml", STORED).unwrap();
    zip.write_all(manifest(&[]).as_bytes()).unwrap();
    let package = zip.finish().unwrap().into_inner();
    assert!(matches!(open(&package), Err(PackageError::ManifestMissing)));
    assert!(matches!(open(&archive("<urlset", &[])), Err(PackageError::Manifest(_))));
    let list = manifest(&[]).replace("resourcedump-manifest", "resourcelist");
    assert!(matches!(open(&archive(&list, &[])), Err(PackageError::NotAManifest)));
    assert!(matches!(open(b"no archive at all"), Err(PackageError::NotAZip { .. })));
}

#[test]
fn damaged_bytes_have_a_name_and_no_bytes_panic() {
    let text: Vec<u8> = (0..2_000_u32).map(|n| u8::try_from(n * n % 251).unwrap()).collect();
    let sound = archive_with(DEFLATED, &manifest(&["path=\"/a\""]), &[("a", &text)]);
    assert_eq!(only(&sound).unwrap(), text);
    let mut is_damaged = false;
    for place in (0..sound.len()).step_by(7) {
        let mut broken = sound.clone();
        broken[place] ^= 0x55;
        let Ok(mut package) = open(&broken) else { continue };
        while let Ok(Some(entry)) = package.next_entry() {
            let outcome = package.copy(&entry, &mut Vec::new());
            is_damaged |= matches!(outcome, Err(PackageError::Damaged { .. }));
        }
    }
    assert!(is_damaged);
}

#[test]
fn rs050_entries_that_cannot_be_understood_are_counted_since_they_may_name_what_is_to_be_kept() {
    let package = archive(
        &manifest(&["path=\"/a\"", "path=\"/b\" length=\"many\"", "path=\"/c\""]),
        &[("a", b"a"), ("b", b"b"), ("c", b"c")],
    );
    assert_eq!(copied(&package).len(), 2);
    let package = open(&package).unwrap();
    assert_eq!(package.refused(), 1);
    assert!(!package.violations().is_empty());
    let sound = archive(&manifest(&["path=\"/a\""]), &[("a", b"a")]);
    assert_eq!(open(&sound).unwrap().refused(), 0);
}

#[test]
fn the_manifest_is_copied_to_the_folder_that_is_given() {
    let package = archive(&manifest(&[]), &[]);
    let open_in = |folder: &std::path::Path| {
        Package::open_in(Cursor::new(&package), PackageReadLimits::default(), folder).map(drop)
    };
    assert!(matches!(open_in("/nowhere/at/all".as_ref()), Err(PackageError::Io(_))));
    open_in(tempfile::tempdir().unwrap().path()).unwrap();
}
