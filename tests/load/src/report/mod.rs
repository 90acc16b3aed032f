//! `resync-load report`: one or two results as a page that needs nothing else, as SVG and as JSON.

mod chart;
mod charts;
mod figures;
mod page;

use std::fs;
use std::path::{Path, PathBuf};

use super::Failure;
use super::measure::RunResult;

/// Writes the page, and beside it the pictures and the results under the same name.
///
/// # Errors
/// When a result cannot be read, or something cannot be written.
pub fn report(results: &[PathBuf], page: &Path) -> Result<Vec<PathBuf>, Failure> {
    let results: Vec<RunResult> = results.iter().map(|path| read(path)).collect::<Result<_, _>>()?;
    let mut written = Vec::new();
    let mut write = |path: PathBuf, text: &str| {
        fs::write(&path, text).map_err(|error| format!("{} cannot be written: {error}", path.display()))?;
        written.push(path);
        Ok::<_, Failure>(())
    };
    let charts = charts::charts(&results);
    write(page.to_owned(), &page::html(&results, &charts))?;
    write(page.with_extension("json"), &serde_json::to_string_pretty(&results)?)?;
    let stem = page.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    for chart in &charts {
        let name = chart.title.to_lowercase().replace(|letter: char| !letter.is_ascii_alphanumeric(), "-");
        write(page.with_file_name(format!("{stem}-{name}.svg")), &chart.alone())?;
    }
    Ok(written)
}

fn read(path: &Path) -> Result<RunResult, Failure> {
    let text =
        fs::read_to_string(path).map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    Ok(serde_json::from_str(&text)
        .map_err(|error| format!("{} is no result of `resync-load run --out`: {error}", path.display()))?)
}

/// A number with three digits at most, and thousands as letters.
fn short(value: f64) -> String {
    let (value, letter) = match value.abs() {
        1e9.. => (value / 1e9, " G"),
        1e6.. => (value / 1e6, " M"),
        1e4.. => (value / 1e3, " k"),
        _ => (value, ""),
    };
    let text = format!("{value:.digits$}", digits = digits(value));
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{letter}")
}

/// A value with its unit. Times keep to theirs, and everything else gets letters for thousands.
pub(super) fn with_unit(value: f64, unit: &str) -> String {
    let text = match unit {
        "ms" | "µs" => format!("{value:.digits$} {unit}", digits = digits(value)),
        _ if short(value).ends_with(char::is_alphabetic) => format!("{}{unit}", short(value)),
        _ => format!("{} {unit}", short(value)),
    };
    text.trim_end().to_owned()
}

fn digits(value: f64) -> usize {
    match value.abs() {
        100.0.. => 0,
        10.0.. => 1,
        _ => 2,
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (0.25, "0.25"),
            (12.34, "12.3"),
            (1_234.0, "1234"),
            (45_600.0, "45.6 k"),
            (1e7, "10 M"),
        ] {
            assert_eq!(short(value), text);
        }
    }

    #[test]
    fn units_follow_their_letters_and_times_have_none() {
        for (value, unit, text) in [
            (31_900.0, "B", "31.9 kB"),
            (512.0, "B", "512 B"),
            (45_600.0, "/s", "45.6 k/s"),
            (12_345.6, "ms", "12346 ms"),
            (0.5, "ms", "0.50 ms"),
            (3.0, "", "3"),
        ] {
            assert_eq!(with_unit(value, unit), text);
        }
    }
}
