//! The topics of a trial.

pub(crate) const TOPICS: usize = 12;
/// Of this topic the operator has something delivered again now and then.
pub(crate) const REPLAYED: usize = 0;
/// This one it pauses.
pub(crate) const PAUSED: usize = 1;

pub(crate) fn topic(number: usize) -> String {
    format!("http://source.example/set{number}/framework/")
}

/// Topics in which the operator does nothing: what is posted to them arrives at once.
pub(crate) fn is_undisturbed(topic: usize) -> bool {
    ![PAUSED, REPLAYED].contains(&topic)
}
