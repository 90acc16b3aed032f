//! Documents, from outside: the generators, the reader and the writer, and what each kind must have.

mod beyond_the_schema;
mod build;
mod kinds;
mod round_trip;
mod strategies;
