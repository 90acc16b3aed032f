//! `resync-hub fsck`: whether the store of a stopped hub is whole, and mending it.

use clap::Args;
use resync_hub::admin::{Audit, By, counted};
use resync_hub::config::Config;
use resync_hub::store::{self, Fault, Findings, Mended, Repaired};

use super::owner::is_ours;
use super::{Failure, say, tools::WhichHub};

/// Faults that are written out; there may be one for each record.
const SHOWN: usize = 100;

#[derive(Args, Debug)]
pub(super) struct Fsck {
    #[command(flatten)]
    hub: WhichHub,
    /// Repair what can be repaired, and say what is lost by it: take a backup first
    #[arg(long)]
    repair: bool,
}

pub(super) fn run(command: Fsck) -> Result<(), Failure> {
    let config = command.hub.load()?;
    is_ours(&config)?;
    let keys = store::Keyring::of(&config.secrets).map_err(Failure::new)?;
    if command.repair {
        return repair(&config, &keys);
    }
    let found = store::check(config.store.engine, &config.data_dir, &keys).map_err(Failure::new)?;
    judge(
        &found,
        "restore a backup, or repair the store with `resync-hub fsck --repair` (first `resync-hub backup`, which copies it as it is)",
    )
}

/// Everything that was done is written out, however much it is.
fn repair(config: &Config, keys: &store::Keyring) -> Result<(), Failure> {
    let audit = Audit::open(&config.audit_file()).map_err(Failure::new)?;
    let begun = audit.begin(By::Files, "repair", "").map_err(Failure::new)?;
    let repaired = store::repair(config.store.engine, &config.data_dir, keys);
    let outcome = repaired.as_ref().map_or_else(ToString::to_string, told);
    audit.end(begun, &outcome);
    let Repaired { mended, left } = repaired.map_err(Failure::new)?;
    mended.iter().for_each(say);
    if !mended.is_empty() {
        say(outcome);
    }
    judge(&left, "this cannot be repaired: restore a backup")
}

fn told(repaired: &Repaired) -> String {
    let lost = repaired.mended.iter().filter(|one| matches!(one, Mended::Lost(_))).count();
    let anew = repaired.mended.len() - lost;
    format!("{}, {}", counted(lost, "loss", "losses"), counted(anew, "thing made anew", "things made anew"))
}

fn judge(found: &Findings, advice: &str) -> Result<(), Failure> {
    let Findings { records, faults } = found;
    faults.iter().take(SHOWN).for_each(|fault: &Fault| say(fault));
    if faults.is_empty() {
        say(format_args!("{records} records, no faults"));
        return Ok(());
    }
    let more = faults.len().saturating_sub(SHOWN);
    if more > 0 {
        say(format_args!("… and {more} more"));
    }
    Err(Failure::new(format_args!("{} faults in {records} records: {advice}", faults.len())))
}
