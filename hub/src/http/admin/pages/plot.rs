//! Small plots as inline SVG, which need no script.

use std::fmt::Write as _;

use maud::{Markup, html};

/// The size of a plot in its own units; it is stretched to its place.
const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 64.0;
/// What stands above the highest point, so that its line is whole.
const MARGIN: f64 = 3.0;

/// A row of values from left to right, of which the last is the newest. `name` says what they are for those who do not see them.
pub(super) fn plot(name: &str, values: &[f64], bad: bool) -> Markup {
    let top = values.iter().copied().fold(1.0, f64::max);
    let points = points(values, top);
    let area = format!("0,{HEIGHT} {points} {WIDTH},{HEIGHT}");
    html! {
        svg.plot.bad[bad] viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" role="img" aria-label=(name) {
            polygon.area points=(area) {}
            polyline.line points=(points) vector-effect="non-scaling-stroke" {}
        }
    }
}

fn points(values: &[f64], top: f64) -> String {
    let mut points = String::new();
    let count = u32::try_from(values.len()).unwrap_or(u32::MAX);
    let step = WIDTH / f64::from(count.saturating_sub(1).max(1));
    let mut x = 0.0;
    let one = [values.first().copied().unwrap_or_default(); 2];
    for value in if count < 2 { &one } else { values } {
        let y = HEIGHT - value / top * (HEIGHT - MARGIN);
        // Writing to a string succeeds.
        let _ = write!(points, "{x:.1},{y:.1} ");
        x += step;
    }
    points.truncate(points.trim_end().len());
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_is_as_wide_as_its_place_however_few_values_there_are() {
        assert_eq!(points(&[], 1.0), "0.0,64.0 360.0,64.0");
        assert_eq!(points(&[2.0], 2.0), "0.0,3.0 360.0,3.0");
        assert_eq!(points(&[0.0, 1.0, 2.0], 2.0), "0.0,64.0 180.0,33.5 360.0,3.0");
    }
}
