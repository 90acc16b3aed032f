//! `resync-hub fsck`: checks the store of a stopped hub, or that in a database, and repairs one in a folder.

use clap::Args;
use resync_common::output::note;
use resync_hub::admin::{Audit, By, counted};
use resync_hub::store::{Findings, Keyring, Place, RepairStep, Repaired};
use serde_json::{Value, json};

use super::owner::is_ours;
use super::which::WhichHub;
use super::{Failure, answer, say};

/// Faults that are written out; there may be one for each record.
const SHOWN: usize = 100;
/// What helps where a check has found faults.
const DAMAGED: &str = "restore a backup, or take one now (`resync-hub backup` copies a damaged store as it is) and type `resync-hub fsck --repair`";

/// What helps there.
const DAMAGED_DATABASE: &str = "restore a backup into an empty database, or the database to a point in time";

#[derive(Args, Debug)]
pub(super) struct Fsck {
    #[command(flatten)]
    hub: WhichHub,
    /// Remove records that cannot be read, rebuild what follows from others, and print what is lost: take a backup first
    #[arg(long)]
    repair: bool,
    /// Print JSON: the number of records, every fault, and what a repair has done
    #[arg(long)]
    json: bool,
}

pub(super) fn run(command: &Fsck) -> Result<(), Failure> {
    let config = command.hub.load()?;
    let place = Place::of(&config);
    let is_in_folder = place.is_folder();
    // Nothing is written into the folder while a database is looked at.
    if is_in_folder || command.repair {
        is_ours(&config)?;
    }
    let keys = Keyring::of(&config.secrets).map_err(Failure::new)?;
    let (steps, left, advice) = if command.repair {
        note(format_args!("repairing the store in {place}"));
        let Repaired { steps, left } = repair(&place, &keys)?;
        (steps, left, "this cannot be repaired: restore a backup")
    } else {
        let found = place.check(&keys).map_err(Failure::new)?;
        (Vec::new(), found, if is_in_folder { DAMAGED } else { DAMAGED_DATABASE })
    };
    if command.json {
        answer(as_json(&steps, &left));
    } else {
        show(&steps, &left);
    }
    let Findings { records, faults } = left;
    if faults.is_empty() {
        return Ok(());
    }
    let (faults, records) = (counted(faults.len(), "fault", "faults"), counted(records, "record", "records"));
    Err(Failure::new(format_args!("{faults} in {records}: {advice}")))
}

fn repair(place: &Place, keys: &Keyring) -> Result<Repaired, Failure> {
    let audit = place.registry(keys).map_err(Failure::new)?;
    let audit = Audit::open(audit).map_err(Failure::new)?;
    let begun = audit.begin(By::Files, "repair", "").map_err(Failure::new)?;
    let repaired = place.repair(keys);
    let outcome = repaired.as_ref().map_or_else(ToString::to_string, |repaired| outcome_of(&repaired.steps));
    audit.end(begun, &outcome);
    repaired.map_err(Failure::new)
}

fn outcome_of(steps: &[RepairStep]) -> String {
    let lost = steps.iter().filter(|one| matches!(one, RepairStep::Lost(_))).count();
    let anew = steps.len() - lost;
    format!("{}, {}", counted(lost, "loss", "losses"), counted(anew, "rebuilt", "rebuilt"))
}

/// Everything that was done is written out, however much it is.
fn show(steps: &[RepairStep], Findings { records, faults }: &Findings) {
    steps.iter().for_each(say);
    if !steps.is_empty() {
        say(outcome_of(steps));
    }
    faults.iter().take(SHOWN).for_each(say);
    match faults.len().saturating_sub(SHOWN) {
        0 if faults.is_empty() => say(format_args!("{}, no faults", counted(*records, "record", "records"))),
        0 => {}
        more => say(format_args!("… and {more} more")),
    }
}

fn as_json(steps: &[RepairStep], Findings { records, faults }: &Findings) -> Value {
    let step = |step: &RepairStep| match step {
        RepairStep::Lost(what) => json!({ "step": "lost", "what": what }),
        RepairStep::Rebuilt(what) => json!({ "step": "rebuilt", "what": what }),
    };
    let faults: Vec<_> = faults.iter().map(|fault| json!({ "what": fault })).collect();
    json!({ "records": records, "faults": faults, "steps": steps.iter().map(step).collect::<Vec<_>>() })
}
