//! What the hub, the publisher and the subscriber kit have in common below their subjects, each thing once.
//!
//! Nothing here knows ResourceSync or WebSub. What a program needs and a library does not is behind a feature.
//!
//! * [`backoff`]: pauses between tries that fail;
//! * `client`: what HTTP clients trust, the dates and pauses in answers (feature `client`);
//! * `completions`: completions for shells, and man pages (feature `cli`);
//! * `config`: configuration files and layers, and the key that was meant (feature `config`);
//! * `file_limit`: the limit of open files (feature `cli`);
//! * `habits`: what all command lines have in common (feature `cli`);
//! * [`locks`]: locks that are used on after a panic;
//! * `logging`: the log of a program (feature `cli`);
//! * [`output`]: what a program prints;
//! * `pace`: connections whose clients have to read at a least pace (feature `pace`);
//! * `progress`: a line on the terminal that says how far work has come (feature `progress`);
//! * `signals`: the signals that ask a program to stop (feature `cli`);
//! * `server`: a small HTTP/1 server with bounded connections (feature `server`);
//! * [`space`]: how much space a disk has;
//! * `values`: values of flags (feature `cli`);
//! * [`words`]: numbers, sizes and lengths of time in words, and words of a command line.
#![deny(missing_docs)]

pub mod backoff;
#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "cli")]
pub mod completions;
#[cfg(feature = "config")]
pub mod config;
#[cfg(feature = "cli")]
pub mod file_limit;
#[cfg(feature = "cli")]
pub mod habits;
pub mod locks;
#[cfg(feature = "cli")]
pub mod logging;
pub mod output;
#[cfg(feature = "pace")]
pub mod pace;
#[cfg(feature = "progress")]
pub mod progress;
#[cfg(feature = "server")]
pub mod server;
#[cfg(feature = "cli")]
pub mod signals;
pub mod space;
#[cfg(feature = "cli")]
pub mod values;
pub mod words;
