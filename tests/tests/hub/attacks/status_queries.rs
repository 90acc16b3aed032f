//! Queries for the status of a notification are bounded for each client (L3).
