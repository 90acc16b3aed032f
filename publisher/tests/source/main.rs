//! The Source from outside: the binary on real folders, a hub and clients of raw TCP, written from the requirement numbers.
#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod building;
mod checking;
mod configured;
mod dumping;
mod duties;
mod emptied;
mod failing_disk;
mod forgetting;
mod hubs_on_hold;
mod killing;
mod knowing;
mod mutations;
mod notifying;
mod notifying_channels;
mod packing;
mod past;
mod power_cuts;
mod python;
mod rich_site;
mod serving;
mod sharing_blocks;
mod support;
mod synced;
mod trying;
mod versions;
mod watching;
