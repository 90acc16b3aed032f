//! What strangers have the hub keep is taken from their own share of the log (H1).
