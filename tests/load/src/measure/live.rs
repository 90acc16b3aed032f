//! A run while it runs: a panel on a terminal, a line for each second elsewhere.

use std::io::{self, IsTerminal as _, Write as _};

use super::{Second, float};

/// Columns of the panel's curve.
const WIDTH: usize = 60;
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Where progress is shown; always on standard error.
#[derive(Clone, Debug)]
pub enum Live {
    /// Nowhere.
    Silent,
    /// A line a second.
    Lines,
    /// A panel that is drawn anew each second.
    Panel {
        /// Lines of it that are on the screen.
        drawn: usize,
    },
}

impl Live {
    /// A panel on a terminal, lines elsewhere.
    pub fn fitting() -> Self {
        if io::stderr().is_terminal() { Self::Panel { drawn: 0 } } else { Self::Lines }
    }

    /// Something that is told once.
    pub(crate) fn say(&mut self, what: &str) {
        match self {
            Self::Silent => {}
            Self::Lines => write(&format!("{what}\n")),
            Self::Panel { drawn } => {
                write(&format!("{}{what}\n", wiped(*drawn)));
                *drawn = 0;
            }
        }
    }

    /// Another second is over.
    pub(crate) fn second(&mut self, series: &[Second], doing: &str) {
        let Some(now) = series.last() else { return };
        match self {
            Self::Silent => {}
            Self::Lines => write(&format!("{}\n", line(now, doing))),
            Self::Panel { drawn } => {
                let panel = panel(series, now, doing);
                write(&format!("{}{panel}", wiped(*drawn)));
                *drawn = panel.lines().count();
            }
        }
    }
}

fn line(now: &Second, doing: &str) -> String {
    let Second {
        at,
        acknowledged,
        deliveries,
        publish_p99,
        delivery_p50,
        delivery_p99,
        hub_cpu,
        tool_cpu,
        ..
    } = now;
    let memory = mebibytes(now.hub_memory);
    format!(
        "{at:6.1} s  published {acknowledged:>6}/s (p99 {publish_p99:.1} ms)  delivered {deliveries:>7}/s \
         (p50 {delivery_p50:.1} p99 {delivery_p99:.1} ms)  hub {hub_cpu:.2} cores {memory:.0} MiB  tool \
         {tool_cpu:.2} cores{doing}"
    )
}

fn panel(series: &[Second], now: &Second, doing: &str) -> String {
    let rates: Vec<f64> = series.iter().map(|second| float(second.deliveries)).collect();
    let delays: Vec<f64> = series.iter().map(|second| second.delivery_p99).collect();
    format!(
        "  {:.0} s{doing}\n  published  {:>9}/s   p50 {:>8.1} ms   p99 {:>8.1} ms\n  delivered  {:>9}/s   p50 {:>8.1} ms   p99 {:>8.1} ms\n  \
         hub        {:>9.2} cores  {:>6.0} MiB memory  {:>6.0} MiB on disk\n  tool       {:>9.2} cores\n  deliveries {}\n  p99        {}\n",
        now.at,
        now.acknowledged,
        now.publish_p50,
        now.publish_p99,
        now.deliveries,
        now.delivery_p50,
        now.delivery_p99,
        now.hub_cpu,
        mebibytes(now.hub_memory),
        mebibytes(now.hub_store),
        now.tool_cpu,
        curve(&rates),
        curve(&delays),
    )
}

/// The last values, each by the highest of them.
fn curve(values: &[f64]) -> String {
    let shown = &values[values.len().saturating_sub(WIDTH)..];
    let highest = shown.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    // A share of seven steps is from 0 to 7.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let bar = |value: &f64| BARS[(value / highest * 7.0).clamp(0.0, 7.0) as usize];
    shown.iter().map(bar).collect()
}

fn mebibytes(bytes: u64) -> f64 {
    float(bytes) / f64::from(1 << 20)
}

/// Goes up so many lines and clears what is below.
fn wiped(lines: usize) -> String {
    if lines == 0 { String::new() } else { format!("\x1b[{lines}A\x1b[J") }
}

fn write(text: &str) {
    // Nobody may be looking.
    let _ = io::stderr().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_panel_and_the_line_say_what_happened_in_the_last_second() {
        let second = |at, deliveries| Second { at, deliveries, delivery_p99: 12.5, ..Second::default() };
        let series = [second(1.0, 0), second(2.0, 700)];
        let panel = panel(&series, &series[1], "  kill");
        assert!(panel.contains("700/s") && panel.contains("▁█") && panel.contains("kill"), "{panel}");
        let line = line(&series[1], "");
        assert!(line.contains("700/s") && line.contains("p99 12.5 ms"), "{line}");
    }
}
