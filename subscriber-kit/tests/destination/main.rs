//! What a Destination mounts, against Sources and hubs that are made by hand.

mod adoption;
mod archived_state;
mod boundaries;
mod callback;
mod chains;
mod command;
mod deletion;
mod discovery;
mod dumps;
mod economy;
mod examples;
#[cfg(unix)]
mod failing_disk;
mod forwarding;
mod gaps;
mod hostile;
mod incremental;
mod listening;
mod messages;
mod other_source;
mod past;
#[cfg(unix)]
mod power_cuts;
mod representations;
mod republished;
mod signatures;
mod subscribing;
mod support;
#[cfg(unix)]
mod synced;
mod synchronise;
mod time_maps;
mod transfer;
mod versions;
mod websub_rocks;
