//! Single values of a file, and what is wrong with them in words.

use std::path::PathBuf;

use resync_common::config::meant;
use toml::{Table, Value};

use super::reader::Reader;

impl Reader<'_> {
    pub(super) fn wrong(&mut self, key: &str, what: &str) {
        self.problems.push(format!("{key}: {what}").replace(": : ", ": "));
    }

    /// Names each key that nobody knows, and the one that was meant.
    pub(super) fn only(&mut self, table: &Table, known: &[&str], place: &str) {
        for key in table.keys().filter(|key| !known.contains(&key.as_str())) {
            let hint = match meant(key, known.iter().copied()) {
                Some(name) => format!("is no key here: did you mean {name}?"),
                None => format!("is no key here; there are {}", known.join(", ")),
            };
            self.wrong(&format!("{place}{key}"), &hint);
        }
    }

    pub(super) fn section<'t>(&mut self, table: &'t Table, key: &str) -> Option<&'t Table> {
        if let Value::Table(section) = table.get(key)? {
            return Some(section);
        }
        self.wrong(key, &format!("is a section: write [{key}] and its keys below"));
        None
    }

    pub(super) fn text<'t>(&mut self, table: &'t Table, key: &str, place: &str) -> Option<&'t str> {
        match table.get(key) {
            Some(Value::String(text)) => Some(text),
            Some(_) => {
                self.wrong(&format!("{place}{key}"), "write it in quotes");
                None
            }
            None => {
                self.wrong(&format!("{place}{key}"), "is missing");
                None
            }
        }
    }

    pub(super) fn path(&mut self, table: &Table, key: &str, place: &str) -> Option<PathBuf> {
        self.text(table, key, place).map(PathBuf::from)
    }

    pub(super) fn parsed<T, E: std::fmt::Display>(
        &mut self,
        table: &Table,
        key: &str,
        place: &str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Option<T> {
        let text = self.text(table, key, place)?;
        parse(text).map_err(|error| self.wrong(&format!("{place}{key}"), &error.to_string())).ok()
    }

    pub(super) fn list<T, E: std::fmt::Display>(
        &mut self,
        table: &Table,
        key: &str,
        place: &str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Vec<T> {
        let values = match table.get(key) {
            None => return Vec::new(),
            Some(Value::Array(values)) => values.as_slice(),
            Some(value) => std::slice::from_ref(value),
        };
        let mut parsed = Vec::new();
        for value in values {
            let one = match value {
                Value::String(text) => parse(text).map_err(|error| error.to_string()),
                other => Err(format!("{other} is no text: write it in quotes")),
            };
            match one {
                Ok(one) => parsed.push(one),
                Err(error) => self.wrong(&format!("{place}{key}"), &error),
            }
        }
        parsed
    }

    /// False where nothing is said.
    pub(super) fn is_so(&mut self, table: &Table, key: &str, place: &str) -> bool {
        match table.get(key) {
            None => false,
            Some(Value::Boolean(is_so)) => *is_so,
            Some(_) => {
                self.wrong(&format!("{place}{key}"), "write true or false");
                false
            }
        }
    }

    pub(super) fn number(
        &mut self,
        table: &Table,
        key: &str,
        place: &str,
        range: std::ops::RangeInclusive<i64>,
    ) -> Option<i64> {
        match table.get(key)? {
            Value::Integer(number) if range.contains(number) => Some(*number),
            _ => {
                let limits = format!("write a number from {} to {}", range.start(), range.end());
                self.wrong(&format!("{place}{key}"), &limits);
                None
            }
        }
    }

    /// The one key of a section; never where nothing is said.
    pub(super) fn only_time(&mut self, table: &Table, name: &str, key: &str) -> Option<u64> {
        let section = self.section(table, name)?;
        let place = format!("{name}.");
        self.only(section, &[key], &place);
        self.time(section, key, &place, None)
    }

    /// A duration in seconds, none for `never`; `otherwise` where nothing is said.
    pub(super) fn time(
        &mut self,
        table: &Table,
        key: &str,
        place: &str,
        otherwise: Option<u64>,
    ) -> Option<u64> {
        if !table.contains_key(key) {
            return otherwise;
        }
        let text = self.text(table, key, place)?;
        let time = humantime::parse_duration(text).ok();
        if time.is_none() && text != "never" {
            self.wrong(&format!("{place}{key}"), "write it as \"12h\" or \"30d\", or \"never\"");
        }
        time.map(|time| time.as_secs())
    }
}
