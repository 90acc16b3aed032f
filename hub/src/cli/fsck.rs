//! `resync-hub fsck`: checks the store of a stopped hub, and repairs it.

use clap::Args;
use resync_hub::admin::{Audit, By, counted};
use resync_hub::config::Config;
use resync_hub::store::{self, Findings, RepairStep, Repaired};

use super::owner::is_ours;
use super::{Failure, say, tools::WhichHub};

/// Faults that are written out; there may be one for each record.
const SHOWN: usize = 100;

#[derive(Args, Debug)]
pub(super) struct Fsck {
    #[command(flatten)]
    hub: WhichHub,
    /// Remove records that cannot be read, rebuild what follows from others, and print what is lost: take a backup first
    #[arg(long)]
    repair: bool,
}

pub(super) fn run(command: &Fsck) -> Result<(), Failure> {
    let config = command.hub.load()?;
    is_ours(&config)?;
    let keys = store::Keyring::of(&config.secrets).map_err(Failure::new)?;
    if command.repair {
        return repair(&config, &keys);
    }
    let found = store::check(config.store.engine, &config.data_dir, &keys).map_err(Failure::new)?;
    judge(
        &found,
        "restore a backup, or take one now (`resync-hub backup` copies a damaged store as it is) and type `resync-hub fsck --repair`",
    )
}

/// Everything that was done is written out, however much it is.
fn repair(config: &Config, keys: &store::Keyring) -> Result<(), Failure> {
    let audit = Audit::open(&config.audit_file()).map_err(Failure::new)?;
    let begun = audit.begin(By::Files, "repair", "").map_err(Failure::new)?;
    let repaired = store::repair(config.store.engine, &config.data_dir, keys);
    let outcome = repaired.as_ref().map_or_else(ToString::to_string, outcome_of);
    audit.end(begun, &outcome);
    let Repaired { steps, left } = repaired.map_err(Failure::new)?;
    steps.iter().for_each(say);
    if !steps.is_empty() {
        say(outcome);
    }
    judge(&left, "this cannot be repaired: restore a backup")
}

fn outcome_of(repaired: &Repaired) -> String {
    let lost = repaired.steps.iter().filter(|one| matches!(one, RepairStep::Lost(_))).count();
    let anew = repaired.steps.len() - lost;
    format!("{}, {}", counted(lost, "loss", "losses"), counted(anew, "rebuilt", "rebuilt"))
}

fn judge(found: &Findings, advice: &str) -> Result<(), Failure> {
    let Findings { records, faults } = found;
    faults.iter().take(SHOWN).for_each(say);
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
