//! The Destination, from outside: its real program, beside a hub, under fire, and before a hostile Source.

mod attacks;
mod capabilities;
mod change_sets;
mod hostile_source;
mod main_job;
mod many_changes;
mod mirror_under_fire;
mod moments;
