//! A page in a real browser: what it draws, and how it lays things out.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Output};

use flate2::read::ZlibDecoder;

/// Bytes before the first chunk of a PNG.
const MAGIC: usize = 8;

/// A picture of a page.
pub(crate) struct Picture {
    pub(crate) width: usize,
    pub(crate) height: usize,
    /// How many pixels have each colour.
    pub(crate) colours: BTreeMap<[u8; 3], usize>,
}

impl Picture {
    /// Which part of it has this colour.
    pub(crate) fn share(&self, colour: [u8; 3]) -> f64 {
        let count = |pixels: usize| f64::from(u32::try_from(pixels).unwrap());
        count(self.colours.get(&colour).copied().unwrap_or(0)) / count(self.width * self.height)
    }
}

/// Draws a page, in the dark or not.
pub(crate) fn picture(page: &Path, is_dark: bool, width: u32, height: u32) -> Picture {
    let out = page.with_extension(if is_dark { "dark.png" } else { "light.png" });
    let scheme = u8::from(!is_dark);
    browse(
        page,
        &[
            &format!("--screenshot={}", out.display()),
            &format!("--window-size={width},{height}"),
            &format!("--blink-settings=preferredColorScheme={scheme}"),
        ],
    );
    decoded(&fs::read(out).unwrap())
}

/// The page as it is once its scripts have run.
pub(crate) fn document(page: &Path) -> String {
    String::from_utf8(browse(page, &["--dump-dom", "--window-size=1200,900"]).stdout).unwrap()
}

fn browse(page: &Path, arguments: &[&str]) -> Output {
    let profile = tempfile::tempdir().unwrap();
    let output = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-dev-shm-usage", "--virtual-time-budget=2000"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .args(arguments)
        .arg(format!("file://{}", page.display()))
        .output()
        .unwrap_or_else(|error| panic!("chromium is missing (tests/run installs it): {error}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

/// A PNG of eight bits for each part of a colour, as browsers write them.
fn decoded(png: &[u8]) -> Picture {
    let (mut at, mut packed, mut head) = (MAGIC, Vec::new(), Vec::new());
    while at < png.len() {
        let length = number(&png[at..]);
        let (name, data) = (&png[at + 4..at + 8], &png[at + 8..at + 8 + length]);
        match name {
            b"IHDR" => head = data.to_vec(),
            b"IDAT" => packed.extend_from_slice(data),
            _ => {}
        }
        at += length + 12;
    }
    let (width, height) = (number(&head), number(&head[4..]));
    let bytes = match head[9] {
        2 => 3,
        6 => 4,
        other => panic!("colours of type {other}"),
    };
    let mut raw = Vec::new();
    ZlibDecoder::new(&packed[..]).read_to_end(&mut raw).unwrap();
    let mut colours = BTreeMap::new();
    let mut above = vec![0; width * bytes];
    for line in raw.chunks_exact(1 + width * bytes) {
        above = unfiltered(line[0], &line[1..], &above, bytes);
        for pixel in above.chunks_exact(bytes) {
            *colours.entry([pixel[0], pixel[1], pixel[2]]).or_default() += 1;
        }
    }
    Picture { width, height, colours }
}

/// PNG, section 9: each byte is told by its neighbours.
fn unfiltered(filter: u8, line: &[u8], above: &[u8], bytes: usize) -> Vec<u8> {
    let mut out: Vec<u8> = Vec::with_capacity(line.len());
    for (at, byte) in line.iter().enumerate() {
        let left = if at < bytes { 0 } else { out[at - bytes] };
        let corner = if at < bytes { 0 } else { above[at - bytes] };
        let guess = match filter {
            0 => 0,
            1 => left,
            2 => above[at],
            3 => u8::midpoint(left, above[at]),
            _ => nearest(left, above[at], corner),
        };
        out.push(byte.wrapping_add(guess));
    }
    out
}

fn nearest(left: u8, above: u8, corner: u8) -> u8 {
    let guess = i16::from(left) + i16::from(above) - i16::from(corner);
    let distance = |of: u8| (guess - i16::from(of)).abs();
    if distance(left) <= distance(above) && distance(left) <= distance(corner) {
        left
    } else if distance(above) <= distance(corner) {
        above
    } else {
        corner
    }
}

fn number(bytes: &[u8]) -> usize {
    usize::try_from(u32::from_be_bytes(bytes[..4].try_into().unwrap())).unwrap()
}
