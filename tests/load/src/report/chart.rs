//! Curves as SVG: readable at the width of a phone, in light and dark, and by themselves.

use std::fmt::Write as _;

use super::{escaped, short};

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 270.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 22.0;
const TOP: f64 = 58.0;
const BOTTOM: f64 = 38.0;
/// Lines of a grid, about.
const LINES: f64 = 4.0;
/// Numbers below it, about.
const MOMENTS: f64 = 8.0;
/// About as wide is a letter, in a font that is wider than most.
const LETTER: f64 = 7.0;
/// Points of a curve that can be told apart.
const POINTS: usize = 400;

/// How a chart looks.
pub(super) const STYLE: &str = include_str!("chart.css");

/// A chart with one horizontal axis.
#[derive(Clone, Debug, Default)]
pub(super) struct Chart {
    /// Also its name among files.
    pub(super) title: String,
    /// Of the values.
    pub(super) unit: &'static str,
    /// What is on the horizontal axis.
    pub(super) across: &'static str,
    pub(super) curves: Vec<Curve>,
    /// From, until and what it is.
    pub(super) bands: Vec<(f64, f64, String)>,
    /// Powers of ten at equal distances, upwards.
    pub(super) is_log_up: bool,
    /// The same across; points are marked.
    pub(super) is_log_across: bool,
}

/// A curve of a chart.
#[derive(Clone, Debug)]
pub(super) struct Curve {
    pub(super) name: String,
    /// Which of the chart's colours.
    pub(super) colour: usize,
    /// 0 solid, 1 dashed, 2 dotted.
    pub(super) dash: usize,
    pub(super) points: Vec<(f64, f64)>,
}

/// An axis from one value to another.
struct Axis {
    from: f64,
    to: f64,
    is_log: bool,
    ticks: Vec<f64>,
}

impl Axis {
    /// A linear one begins at 0; it ends with the last value, or with the round number after it.
    fn new(values: impl Iterator<Item = f64> + Clone, is_log: bool, about: f64, ends_round: bool) -> Self {
        let values = values.filter(|value| value.is_finite() && (!is_log || *value > 0.0));
        let most = values.clone().fold(f64::NEG_INFINITY, f64::max);
        let least = values.fold(f64::INFINITY, f64::min);
        if is_log {
            let (least, most) = if most > 0.0 { (least, most) } else { (1.0, 10.0) };
            let from = least.log10().floor();
            let to = most.log10().ceil().max(from + 1.0);
            let mut ticks = Vec::new();
            let mut tick = from;
            while tick <= to {
                ticks.push(10_f64.powf(tick));
                tick += ((to - from) / 5.0).ceil();
            }
            return Self { from: 10_f64.powf(from), to: 10_f64.powf(to), is_log, ticks };
        }
        let most = if most > 0.0 { most } else { 1.0 };
        let step = step(most / about);
        let to = if ends_round { (most / step).ceil() * step } else { most };
        let mut ticks = Vec::new();
        let mut tick = 0.0;
        while tick <= to + step / 1e3 {
            ticks.push(tick);
            tick += step;
        }
        Self { from: 0.0, to, is_log, ticks }
    }

    /// From 0 to 1.
    fn place(&self, value: f64) -> f64 {
        let on = |value: f64| if self.is_log { value.max(self.from).log10() } else { value };
        let (from, to) = (on(self.from), on(self.to));
        // A single moment is in the middle.
        if to > from { ((on(value) - from) / (to - from)).clamp(0.0, 1.0) } else { 0.5 }
    }
}

/// 1, 2 or 5 times a power of ten.
fn step(about: f64) -> f64 {
    let power = 10_f64.powf(about.log10().floor());
    let round = [1.0, 2.0, 5.0, 10.0].into_iter().find(|round| round * power >= about);
    round.unwrap_or(10.0) * power
}

impl Chart {
    /// Whether there is anything to see.
    pub(super) fn is_empty(&self) -> bool {
        self.curves.iter().all(|curve| curve.points.iter().all(|(_, value)| *value <= 0.0))
    }

    /// A picture that needs nothing around it.
    pub(super) fn alone(&self) -> String {
        self.svg(&format!("<style>{STYLE}</style>"))
    }

    /// A picture for a page that has [`STYLE`].
    pub(super) fn within(&self) -> String {
        self.svg("")
    }

    fn svg(&self, style: &str) -> String {
        let points = || self.curves.iter().flat_map(|curve| curve.points.iter().copied());
        let across = Axis::new(points().map(|(at, _)| at), self.is_log_across, MOMENTS, false);
        let up = Axis::new(points().map(|(_, value)| value), self.is_log_up, LINES, true);
        let x = |at: f64| LEFT + across.place(at) * (WIDTH - LEFT - RIGHT);
        let y = |value: f64| HEIGHT - BOTTOM - up.place(value) * (HEIGHT - TOP - BOTTOM);
        let title = escaped(&self.title);
        let mut svg = format!(
            "<svg class=\"chart\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
             aria-label=\"{title}\">{style}<text class=\"title\" x=\"8\" y=\"20\">{title}</text>"
        );
        self.bands(&mut svg, x);
        for tick in &up.ticks {
            let (at, label) = (y(*tick), short(*tick));
            let _ = write!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
                WIDTH - RIGHT,
                LEFT - 6.0,
                at + 4.0
            );
        }
        for tick in &across.ticks {
            let (at, label) = (x(*tick), short(*tick));
            let _ = write!(
                svg,
                "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
                HEIGHT - 20.0
            );
        }
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text><text x=\"{:.1}\" y=\"20\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            HEIGHT - 5.0,
            escaped(self.across),
            WIDTH - RIGHT,
            escaped(self.unit)
        );
        for curve in &self.curves {
            self.curve(&mut svg, curve, x, y);
        }
        self.legend(&mut svg);
        svg.push_str("</svg>");
        svg
    }

    fn bands(&self, svg: &mut String, x: impl Fn(f64) -> f64) {
        for (from, until, what) in &self.bands {
            let (left, width) = (x(*from), (x(*until) - x(*from)).max(2.0));
            let _ = write!(
                svg,
                "<rect class=\"band\" x=\"{left:.1}\" y=\"{TOP}\" width=\"{width:.1}\" height=\"{:.1}\"><title>{}</title></rect>",
                HEIGHT - TOP - BOTTOM,
                escaped(what)
            );
        }
    }

    fn curve(&self, svg: &mut String, curve: &Curve, x: impl Fn(f64) -> f64, y: impl Fn(f64) -> f64) {
        // A logarithmic axis has no place for nothing.
        let shown = |(_, value): &(f64, f64)| !self.is_log_up || *value > 0.0;
        let points: Vec<_> = thinned(&curve.points).into_iter().filter(shown).collect();
        let path: Vec<_> =
            points.iter().map(|(at, value)| format!("{:.1},{:.1}", x(*at), y(*value))).collect();
        let Curve { colour, dash, .. } = curve;
        let _ = write!(svg, "<polyline class=\"curve k{colour} d{dash}\" points=\"{}\"/>", path.join(" "));
        if self.is_log_across || points.len() == 1 {
            for (at, value) in &points {
                let _ = write!(
                    svg,
                    "<circle class=\"f{colour}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\"><title>{}: {}</title></circle>",
                    x(*at),
                    y(*value),
                    short(*at),
                    short(*value)
                );
            }
        }
    }

    fn legend(&self, svg: &mut String) {
        let mut at = 8.0;
        for Curve { name, colour, dash, .. } in &self.curves {
            let _ = write!(
                svg,
                "<line class=\"curve k{colour} d{dash}\" x1=\"{at:.1}\" x2=\"{:.1}\" y1=\"38\" y2=\"38\"/>\
                 <text x=\"{:.1}\" y=\"42\">{}</text>",
                at + 18.0,
                at + 23.0,
                escaped(name)
            );
            at += 33.0 + width(name);
        }
        let mut kinds: Vec<_> = self.bands.iter().map(|(_, _, what)| what).collect();
        kinds.sort();
        kinds.dedup();
        if !kinds.is_empty() {
            let all = kinds.iter().map(|kind| kind.as_str()).collect::<Vec<_>>().join(", ");
            let fits = at + 17.0 + width(&all) < WIDTH;
            let _ = write!(
                svg,
                "<rect class=\"band\" x=\"{at:.1}\" y=\"33\" width=\"12\" height=\"10\"/><text x=\"{:.1}\" y=\"42\">{}</text>",
                at + 17.0,
                if fits { escaped(&all) } else { "faults".to_owned() }
            );
        }
    }
}

fn width(text: &str) -> f64 {
    LETTER * f64::from(u32::try_from(text.chars().count()).unwrap_or(0))
}

/// Of several points in one place, the highest.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let together = points.len().div_ceil(POINTS).max(1);
    points
        .chunks(together)
        .filter_map(|some| some.iter().copied().max_by(|one, other| one.1.total_cmp(&other.1)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_round_numbers() {
        let axis = Axis::new([0.0, 937.0].into_iter(), false, LINES, true);
        assert_eq!(axis.ticks, [0.0, 500.0, 1_000.0]);
        assert!((axis.place(500.0) - 0.5).abs() < 1e-9);
        let axis = Axis::new([1.0, 21.5].into_iter(), false, MOMENTS, false);
        assert_eq!(axis.ticks, [0.0, 5.0, 10.0, 15.0, 20.0]);
        assert!((axis.place(21.5) - 1.0).abs() < 1e-9);
        let axis = Axis::new([0.3, 250.0].into_iter(), true, LINES, true);
        assert_eq!(axis.ticks.len(), 5, "0.1 to 1000: {:?}", axis.ticks);
        assert!((axis.place(10.0) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn a_chart_without_values_has_numbers_all_the_same() {
        let curve = Curve { name: "p < 50".to_owned(), colour: 0, dash: 0, points: vec![(1.0, 0.0)] };
        let chart = Chart { title: "t".into(), curves: vec![curve], is_log_up: true, ..Chart::default() };
        let svg = chart.alone();
        assert!(
            chart.is_empty() && !svg.contains("NaN") && !svg.contains("inf") && svg.contains("p &lt; 50"),
            "{svg}"
        );
    }

    #[test]
    fn a_long_curve_keeps_its_peaks() {
        let mut points: Vec<_> = (0..10_000).map(|at| (f64::from(at), 1.0)).collect();
        points[5_003].1 = 9.0;
        let thin = thinned(&points);
        assert!(thin.len() <= POINTS && thin.iter().any(|(_, value)| *value > 8.0));
    }
}
