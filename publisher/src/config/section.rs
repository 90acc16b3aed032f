//! A table of the file: its values, and what is wrong with them.

use std::{cell::RefCell, fmt::Display, ops::RangeInclusive, path::PathBuf};

use resync_common::config::meant;
use toml::{Table, Value};

/// A table of the file. What is wrong with its values is collected, so that all mistakes are named at once.
#[derive(Clone, Copy)]
pub(super) struct Section<'a> {
    pub(super) table: &'a Table,
    /// What precedes its keys in messages: nothing, `change_list.` or `set 1: `.
    pub(super) place: &'a str,
    pub(super) problems: &'a RefCell<Vec<String>>,
}

impl<'a> Section<'a> {
    pub(super) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// Adds a problem with a key.
    pub(super) fn wrong(&self, key: &str, what: &impl Display) {
        let problem = format!("{}{key}: {what}", self.place);
        self.problems.borrow_mut().push(problem.replace(": : ", ": "));
    }

    /// Names each unknown key, and the one that was probably meant.
    pub(super) fn only(&self, known: &[&str]) {
        for key in self.table.keys().filter(|key| !known.contains(&key.as_str())) {
            match meant(key, known.iter().copied()) {
                Some(name) => self.wrong(key, &format!("is not a key here: did you mean {name}?")),
                None => self.wrong(key, &format!("is not a key here; there are {}", known.join(", "))),
            }
        }
    }

    /// A table inside this one, with its place in messages.
    pub(super) fn below<'b>(&self, key: &str, place: &'b str) -> Option<Section<'b>>
    where
        'a: 'b,
    {
        if let Value::Table(table) = self.table.get(key)? {
            return Some(Section { table, place, problems: self.problems });
        }
        self.wrong(key, &format!("is a section: write [{key}] and its keys below"));
        None
    }

    pub(super) fn text(&self, key: &str) -> Option<&'a str> {
        match self.table.get(key) {
            Some(Value::String(text)) => return Some(text),
            Some(_) => self.wrong(key, &"write it in quotes"),
            None => self.wrong(key, &"is missing"),
        }
        None
    }

    pub(super) fn path(&self, key: &str) -> Option<PathBuf> {
        self.text(key).map(PathBuf::from)
    }

    pub(super) fn parsed<T, E: Display>(&self, key: &str, parse: impl Fn(&str) -> Result<T, E>) -> Option<T> {
        parse(self.text(key)?).map_err(|error| self.wrong(key, &error)).ok()
    }

    /// A list of texts, or one text.
    pub(super) fn list<T, E: Display>(&self, key: &str, parse: impl Fn(&str) -> Result<T, E>) -> Vec<T> {
        let values = match self.table.get(key) {
            None => return Vec::new(),
            Some(Value::Array(values)) => values.as_slice(),
            Some(value) => std::slice::from_ref(value),
        };
        let one = |value: &Value| match value {
            Value::String(text) => parse(text).map_err(|error| self.wrong(key, &error)).ok(),
            other => {
                self.wrong(key, &format!("{other} is not a text: write it in quotes"));
                None
            }
        };
        values.iter().filter_map(one).collect()
    }

    pub(super) fn texts(&self, key: &str) -> Vec<String> {
        self.list(key, |text| Ok::<_, std::convert::Infallible>(text.to_owned()))
    }

    /// False where the key is missing.
    pub(super) fn flag(&self, key: &str) -> bool {
        match self.table.get(key) {
            None => false,
            Some(Value::Boolean(flag)) => *flag,
            Some(_) => {
                self.wrong(key, &"write true or false");
                false
            }
        }
    }

    pub(super) fn number<T: TryFrom<i64>>(&self, key: &str, range: RangeInclusive<i64>) -> Option<T> {
        let number = self.table.get(key)?.as_integer().filter(|number| range.contains(number));
        let number = number.and_then(|number| T::try_from(number).ok());
        if number.is_none() {
            self.wrong(key, &format!("write a number from {} to {}", range.start(), range.end()));
        }
        number
    }

    /// A duration in seconds, `None` for `never`; `otherwise` where the key is missing.
    pub(super) fn seconds(&self, key: &str, otherwise: Option<u64>) -> Option<u64> {
        if !self.has(key) {
            return otherwise;
        }
        let text = self.text(key)?;
        let time = humantime::parse_duration(text).ok();
        if time.is_none() && text != "never" {
            self.wrong(key, &"write it as \"12h\" or \"30d\", or \"never\"");
        }
        time.map(|time| time.as_secs())
    }
}
