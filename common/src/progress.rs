//! A line on the terminal that says how far long work has come; nothing where standard error is no terminal.

use std::ops::Deref;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

/// A line with a bar. It is taken back when this is dropped.
#[derive(Debug)]
pub struct Bar(ProgressBar);

impl Bar {
    /// A line of its own, which appears when it is first drawn.
    pub fn new() -> Self {
        Self(ProgressBar::new(0))
    }

    /// A line below those of others.
    pub fn among(others: &MultiProgress) -> Self {
        Self(others.add(ProgressBar::new(0)))
    }

    /// Draws what this template says from now on.
    pub fn draw(&self, template: &str) {
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        self.0.set_style(style.progress_chars("=> "));
    }
}

impl Default for Bar {
    fn default() -> Self {
        Self::new()
    }
}

impl Deref for Bar {
    type Target = ProgressBar;

    fn deref(&self) -> &ProgressBar {
        &self.0
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
