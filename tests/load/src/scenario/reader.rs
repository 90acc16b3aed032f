//! The keys of a TOML file, read with their places: every mistake is noted, and says where it is and what would be right.

use std::cell::RefCell;
use std::fmt;
use std::time::Duration;

use toml::de::{DeTable, DeValue};

/// Names that are less alike than this are not suggested.
const LIKE: f64 = 0.75;

/// Something in a scenario that cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Counted from 1.
    pub line: usize,
    /// Counted from 1, in characters.
    pub column: usize,
    /// What it is, and what would be right.
    pub what: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.what)
    }
}

/// A text and what is wrong with it.
#[derive(Debug)]
pub(super) struct Source<'s> {
    text: &'s str,
    mistakes: RefCell<Vec<Mistake>>,
}

impl<'s> Source<'s> {
    pub(super) fn new(text: &'s str) -> Self {
        Self { text, mistakes: RefCell::default() }
    }

    /// Notes a mistake at this byte.
    pub(super) fn wrong(&self, at: usize, what: impl Into<String>) {
        let before = self.text.get(..at).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        self.mistakes.borrow_mut().push(Mistake { line, column, what: what.into() });
    }

    /// All of them, from the top to the bottom.
    pub(super) fn mistakes(self) -> Vec<Mistake> {
        let mut mistakes = self.mistakes.into_inner();
        mistakes.sort_by_key(|mistake| (mistake.line, mistake.column));
        mistakes.dedup();
        mistakes
    }
}

/// The keys of one table. What was never asked for is unknown.
#[derive(Debug)]
pub(super) struct Keys<'a, 's> {
    source: &'a Source<'s>,
    table: &'a DeTable<'s>,
    /// Names and a dot, or nothing.
    prefix: String,
    at: usize,
    known: RefCell<Vec<&'static str>>,
}

impl<'a, 's> Keys<'a, 's> {
    pub(super) fn new(source: &'a Source<'s>, table: &'a DeTable<'s>, prefix: String, at: usize) -> Self {
        Self { source, table, prefix, at, known: RefCell::default() }
    }

    /// The value that `read` makes of it; one that it can make nothing of is a mistake, and `what` says what would be right.
    pub(super) fn read<T>(
        &self,
        key: &'static str,
        what: &str,
        read: impl Fn(&DeValue<'_>) -> Option<T>,
    ) -> Option<T> {
        self.known.borrow_mut().push(key);
        let value = self.table.get(key)?;
        let found = read(value.get_ref());
        if found.is_none() {
            self.source.wrong(value.span().start, format!("{}{key} must be {what}", self.prefix));
        }
        found
    }

    pub(super) fn text(&self, key: &'static str) -> Option<String> {
        self.read(key, "text in quotes", |value| value.as_str().map(str::to_owned))
    }

    pub(super) fn flag(&self, key: &'static str) -> Option<bool> {
        self.read(key, "true or false", as_bool)
    }

    /// One of these words.
    pub(super) fn word<T: Copy>(&self, key: &'static str, words: &[(&str, T)]) -> Option<T> {
        let all: Vec<_> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
        self.read(key, &format!("one of {}", all.join(", ")), |value| {
            words.iter().find(|(word, _)| Some(*word) == value.as_str()).map(|(_, meaning)| *meaning)
        })
    }

    pub(super) fn count(&self, key: &'static str, from: u64, to: u64) -> Option<u64> {
        let what = format!("a whole number from {from} to {to}");
        self.read(key, &what, |value| count(value).filter(|count| (from..=to).contains(count)))
    }

    pub(super) fn number(&self, key: &'static str, from: f64, to: f64) -> Option<f64> {
        let what = format!("a number from {from} to {to}");
        self.read(key, &what, |value| number(value).filter(|number| (from..=to).contains(number)))
    }

    pub(super) fn duration(&self, key: &'static str) -> Option<Duration> {
        self.read(key, "a time such as \"250ms\", \"10s\" or \"2m\"", duration)
    }

    pub(super) fn size(&self, key: &'static str) -> Option<u64> {
        self.read(key, "a size such as \"512 B\" or \"16 KiB\"", size)
    }

    /// The table below this key.
    pub(super) fn section(&self, key: &'static str) -> Option<Keys<'a, 's>> {
        self.known.borrow_mut().push(key);
        let value = self.table.get(key)?;
        let prefix = format!("{}{key}.", self.prefix);
        if let Some(table) = value.get_ref().as_table() {
            return Some(Keys::new(self.source, table, prefix, value.span().start));
        }
        let what =
            format!("{}{key} is a section: write [{}{key}] and its keys below", self.prefix, self.prefix);
        self.source.wrong(value.span().start, what);
        None
    }

    /// The tables of a list, each written under `[[key]]`.
    pub(super) fn sections(&self, key: &'static str) -> Vec<Keys<'a, 's>> {
        self.known.borrow_mut().push(key);
        let Some(value) = self.table.get(key) else { return Vec::new() };
        let items = value.get_ref().as_array();
        let tables = items.into_iter().flat_map(|items| items.iter());
        let found: Option<Vec<_>> = tables
            .map(|item| {
                let table = item.get_ref().as_table()?;
                Some(Keys::new(self.source, table, format!("{key}."), item.span().start))
            })
            .collect();
        match found {
            Some(found) if items.is_some() => found,
            _ => {
                let what = format!("{key} is a list of sections: write [[{key}]] and the keys of one below");
                self.source.wrong(value.span().start, what);
                Vec::new()
            }
        }
    }

    /// Every key with its value, whatever it is called.
    pub(super) fn all(&self) -> impl Iterator<Item = (&'a str, &'a DeValue<'s>)> {
        self.table.iter().map(|(key, value)| (key.get_ref().as_ref(), value.get_ref()))
    }

    /// Notes a mistake at the value of a key, or at the table where it is missing.
    pub(super) fn wrong(&self, key: &str, what: impl Into<String>) {
        let at = self.table.get(key).map_or(self.at, |value| value.span().start);
        self.source.wrong(at, what);
    }

    /// Notes a mistake where there is no such value.
    pub(super) fn required<T>(&self, key: &'static str, value: Option<T>, what: &str) -> Option<T> {
        if value.is_none() && !self.table.contains_key(key) {
            self.wrong(key, format!("{}{key} is missing: {what}", self.prefix));
        }
        value
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// Notes every key that nobody asked for.
    pub(super) fn finish(self) {
        let known = self.known.into_inner();
        for key in self.table.keys().filter(|key| !known.contains(&key.get_ref().as_ref())) {
            let name = key.get_ref();
            let nearest = known
                .iter()
                .map(|known| (strsim::jaro_winkler(name, known), known))
                .max_by(|one, other| one.0.total_cmp(&other.0))
                .filter(|(likeness, _)| *likeness > LIKE);
            let hint = match nearest {
                Some((_, nearest)) => format!("did you mean {}{nearest}?", self.prefix),
                None => format!("known here: {}", known.join(", ")),
            };
            self.source.wrong(key.span().start, format!("{}{name} is not a key: {hint}", self.prefix));
        }
    }
}

fn as_bool(value: &DeValue<'_>) -> Option<bool> {
    value.as_bool()
}

pub(super) fn count(value: &DeValue<'_>) -> Option<u64> {
    let whole = value.as_integer()?;
    u64::from_str_radix(whole.as_str(), whole.radix()).ok()
}

pub(super) fn number(value: &DeValue<'_>) -> Option<f64> {
    let text = value.as_float().map(toml::de::DeFloat::as_str);
    text.or_else(|| value.as_integer().map(toml::de::DeInteger::as_str))?.parse().ok()
}

pub(super) fn duration(value: &DeValue<'_>) -> Option<Duration> {
    humantime::parse_duration(value.as_str()?).ok()
}

pub(super) fn size(value: &DeValue<'_>) -> Option<u64> {
    value.as_str()?.parse::<bytesize::ByteSize>().ok().map(|size| size.as_u64())
}
