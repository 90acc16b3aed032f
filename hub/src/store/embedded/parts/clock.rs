//! The clock of the embedded store: that of the computer, whose only hub uses it.

use super::super::Embedded;
use crate::store::{Clock, WallClock};

impl Clock for Embedded {
    fn clock(&self) -> &WallClock {
        &self.clock
    }
}
