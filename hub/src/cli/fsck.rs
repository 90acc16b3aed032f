//! `resync-hub fsck`: whether the store of a stopped hub is whole.

use clap::Args;
use resync_hub::store;

use super::{Failure, say, tools::WhichHub};

/// Faults that are written out; there may be one for each record.
const SHOWN: usize = 100;

#[derive(Args, Debug)]
pub(super) struct Fsck {
    #[command(flatten)]
    hub: WhichHub,
}

pub(super) fn run(command: Fsck) -> Result<(), Failure> {
    let config = command.hub.load()?;
    let keys = config.secrets.keyring().map_err(Failure::new)?;
    let found = store::check(config.store.engine, &config.data_dir, &keys).map_err(Failure::new)?;
    found.faults.iter().take(SHOWN).for_each(say);
    if found.faults.is_empty() {
        say(format_args!("{} records, all well", found.records));
        return Ok(());
    }
    let more = found.faults.len().saturating_sub(SHOWN);
    if more > 0 {
        say(format_args!("… and {more} more"));
    }
    Err(Failure::new(format_args!(
        "{} faults in {} records: keep a copy of the data folder, and go back to the last one that was whole",
        found.faults.len(),
        found.records
    )))
}
