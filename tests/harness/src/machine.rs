//! A machine on whose disk a folder is: a program on it dies at any of its steps, alone or with the machine.

use std::path::Path;

use fastrand::Rng;

use super::{Disk, Event, Kind, Loss, Step};

/// The machine under a folder.
#[derive(Debug)]
pub struct Machine {
    disk: Disk,
    /// What chance decides.
    pub rng: Rng,
    /// What all power cuts took.
    pub loss: Loss,
}

impl Machine {
    /// The machine under `folder`; whatever is there now is durable.
    pub fn under(folder: &Path, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let disk = Disk::under(folder, rng.u64(..));
        disk.sync_at_once();
        Self { disk, rng, loss: Loss::default() }
    }

    /// The environment of a program on this machine, which dies before the sync of this number, if any.
    ///
    /// # Panics
    /// When files cannot be written.
    pub fn environment(&self, sync: Option<u32>) -> [(String, String); 5] {
        const SYNCS: &[Kind] = &[Kind::Sync];
        let none = Step::none(SYNCS);
        self.disk.meet(sync.map_or(none, |number| Step { number, event: Event::DiesBefore, ..none }));
        self.disk.environment()
    }

    /// How often the program has synced.
    ///
    /// # Panics
    /// When there are too many to be counted.
    pub fn syncs(&self) -> u32 {
        u32::try_from(self.disk.taken().len()).expect("there are less")
    }

    /// Whether the program dies by the sync that it was given, or has died by it. What it still answers from then on, no machine without
    /// power could have answered.
    ///
    /// # Panics
    /// When files cannot be read.
    pub fn is_killing(&self) -> bool {
        self.disk.is_killing()
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
        self.disk.assume_durable();
    }

    /// The numbers from 1 to `last` in any order, or so many of them.
    pub fn numbers(&mut self, last: u32, most: usize) -> Vec<u32> {
        let mut numbers: Vec<_> = (1..=last).collect();
        self.rng.shuffle(&mut numbers);
        numbers.truncate(most);
        numbers
    }
}
