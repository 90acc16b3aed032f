//! One path of a shared origin that fails holds up no other path (H3).
