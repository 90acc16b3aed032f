//! What of the database's transactions somebody has seen: a snapshot as the database writes it.

/// The transactions that a snapshot shows: all before `first`, and those before `next` that were not under way. Whatever is committed later is
/// not among them, however it is numbered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    written: String,
    first: i64,
    next: i64,
    /// In their order.
    under_way: Vec<i64>,
}

impl Seen {
    /// Reads `first:next:under way,…`.
    pub(super) fn parse(written: String) -> Option<Self> {
        let mut parts = written.split(':');
        let (first, next) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let numbers = parts.next()?.split(',').filter(|number| !number.is_empty());
        let under_way = numbers.map(|number| number.parse().ok()).collect::<Option<_>>()?;
        Some(Self { written, first, next, under_way })
    }

    /// As the database writes it.
    pub(super) fn as_str(&self) -> &str {
        &self.written
    }

    /// Whether what this transaction did is shown.
    pub(super) fn shows(&self, xid: i64) -> bool {
        xid < self.first || (xid < self.next && self.under_way.binary_search(&xid).is_err())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_shows_what_was_committed_before_it() {
        let seen = Seen::parse("10:15:10,13".to_owned()).unwrap();
        let shown: Vec<_> = (8..17).filter(|xid| seen.shows(*xid)).collect();
        assert_eq!(shown, [8, 9, 11, 12, 14]);
        assert_eq!(seen.as_str(), "10:15:10,13");
        assert!((0..9).all(|xid| !Seen::default().shows(xid)), "who has read nothing has seen nothing");
        for cut_off in ["", "1", "1:2", "a:2:", "1:2:x"] {
            assert_eq!(Seen::parse(cut_off.to_owned()), None, "{cut_off:?}");
        }
    }
}
