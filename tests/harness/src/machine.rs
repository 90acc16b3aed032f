//! A machine on whose disk a folder is: a program on it dies at any of its steps, alone or with the machine.

use std::path::Path;

use fastrand::Rng;

use super::steps::{At, Kind, Step, Steps};
use super::{Disk, Loss};

/// The machine under a folder.
#[derive(Debug)]
pub struct Machine {
    disk: Disk,
    steps: Steps,
    /// What chance decides.
    pub rng: Rng,
    /// What all power cuts took.
    pub loss: Loss,
}

impl Machine {
    /// The machine under `folder`; whatever is there now is durable.
    pub fn under(folder: &Path, seed: u64) -> Self {
        let disk = Disk::under(folder, u32::try_from(seed >> 32).unwrap_or_default());
        disk.sync_at_once();
        Self { disk, steps: Steps::under(folder), rng: Rng::with_seed(seed), loss: Loss::default() }
    }

    /// For programs that start others: see [`Steps::plain`].
    #[must_use]
    pub fn plain(self) -> Self {
        Self { steps: self.steps.plain(), ..self }
    }

    /// The environment of a program on this machine, and what becomes of one of its steps.
    ///
    /// # Panics
    /// When files cannot be read or written.
    pub fn environment(&mut self, at: Option<At<'_>>) -> Vec<(String, String)> {
        self.disk.pass_on().expect("files can be read and written");
        self.steps.environment(at, Some(&self.disk))
    }

    /// What was done since this was asked last.
    pub fn taken(&self) -> Vec<Step> {
        self.steps.taken()
    }

    /// How often it was synced since this was asked last.
    pub fn syncs(&self) -> usize {
        self.taken().iter().filter(|step| step.kind == Kind::Sync).count()
    }

    /// The power is cut, once no program lives on the machine any more.
    pub fn lose_power(&mut self) {
        self.loss += self.disk.cut_power(&mut self.rng);
    }

    /// Whatever is there now is durable.
    ///
    /// # Panics
    /// When files cannot be copied.
    pub fn settle(&mut self) {
        self.disk.settle().expect("files can be copied");
    }

    /// The numbers from 1 to `last` in any order, or so many of them.
    pub fn numbers(&mut self, last: usize, most: usize) -> Vec<usize> {
        let mut numbers: Vec<_> = (1..=last).collect();
        self.rng.shuffle(&mut numbers);
        numbers.truncate(most);
        numbers
    }
}
