//! Two streams in the order of their URLs, read as one.

use std::cmp::Ordering;

use super::BuildError;

/// What two streams have at one URL.
#[derive(Debug)]
pub enum Pair<A, B> {
    /// Only the first stream has it.
    First(A),
    /// Only the second stream has it.
    Second(B),
    /// Both have it.
    Both(A, B),
}

/// Joins two streams in the order of their URLs to one stream of pairs, which ends with the first error.
pub fn joined<A, B>(
    one: impl Iterator<Item = Result<A, BuildError>>,
    other: impl Iterator<Item = Result<B, BuildError>>,
    loc_of_one: impl Fn(&A) -> &str,
    loc_of_other: impl Fn(&B) -> &str,
) -> impl Iterator<Item = Result<Pair<A, B>, BuildError>> {
    let (mut one, mut other) = (one.peekable(), other.peekable());
    let mut has_failed = false;
    std::iter::from_fn(move || {
        if has_failed {
            return None;
        }
        let order = match (one.peek(), other.peek()) {
            (None, None) => return None,
            (Some(Err(_)), _) | (Some(_), None) => Ordering::Less,
            (_, Some(Err(_))) | (None, Some(_)) => Ordering::Greater,
            (Some(Ok(one)), Some(Ok(other))) => loc_of_one(one).cmp(loc_of_other(other)),
        };
        let first = if order == Ordering::Greater { None } else { one.next() };
        let second = if order == Ordering::Less { None } else { other.next() };
        let pair = match (first, second) {
            (Some(first), Some(second)) => first.and_then(|first| Ok(Pair::Both(first, second?))),
            (Some(first), None) => first.map(Pair::First),
            (None, second) => second?.map(Pair::Second),
        };
        has_failed = pair.is_err();
        Some(pair)
    })
}
