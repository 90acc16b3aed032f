//! The clock of the embedded store: that of the computer, whose only hub uses it.

use resync_core::datetime::DateTime;

use super::super::Embedded;
use crate::store::Clock;

impl Clock for Embedded {
    fn now(&self) -> DateTime {
        DateTime::now()
    }
}
