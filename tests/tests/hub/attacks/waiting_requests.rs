//! Requests that wait cost what they say, and nobody supersedes those of others (M1, L2).
