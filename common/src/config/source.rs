//! The text of a TOML file, and what is wrong with it at which place.

use std::cell::RefCell;
use std::fmt;
use std::path::Path;

use toml::Table;
use toml::de::{DeTable, Error};

use super::{ConfigError, on_one_line};

/// Something in a file that cannot be.
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

/// A text and what is wrong with it. That never tells what stands in a line, which may be a secret.
#[derive(Debug)]
pub struct Source<'s> {
    text: &'s str,
    mistakes: RefCell<Vec<Mistake>>,
}

impl<'s> Source<'s> {
    /// Of which nothing is known to be wrong.
    pub fn new(text: &'s str) -> Self {
        Self { text, mistakes: RefCell::default() }
    }

    /// Its keys and values with their places, for [`Keys`](super::Keys). What is no TOML is a mistake.
    pub fn parse(&self) -> Option<DeTable<'s>> {
        let (table, errors) = DeTable::parse_recoverable(self.text);
        for error in &errors {
            self.no_toml(error);
        }
        errors.is_empty().then(|| table.into_inner())
    }

    /// The text as a table, without places.
    pub(super) fn table(&self) -> Option<Table> {
        self.text.parse::<Table>().map_err(|error| self.no_toml(&error)).ok()
    }

    fn no_toml(&self, error: &Error) {
        let at = error.span().map_or(0, |span| span.start);
        self.wrong(at, format!("not valid TOML: {}", on_one_line(error)));
    }

    /// Notes a mistake at this byte.
    pub fn wrong(&self, at: usize, what: impl Into<String>) {
        let mistake = self.mistake(at, what.into());
        self.mistakes.borrow_mut().push(mistake);
    }

    pub(super) fn mistake(&self, at: usize, what: String) -> Mistake {
        let before = self.text.get(..at).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        Mistake { line, column, what }
    }

    /// All of them, from the top to the bottom.
    pub fn mistakes(self) -> Vec<Mistake> {
        let mut mistakes = self.mistakes.into_inner();
        mistakes.sort_by_key(|mistake| (mistake.line, mistake.column));
        mistakes.dedup();
        mistakes
    }

    /// What was made of the file, if nothing is wrong with it.
    ///
    /// # Errors
    /// [`ConfigError::Problems`]
    pub fn settle<T>(self, made: Option<T>, path: &Path) -> Result<T, ConfigError> {
        let problems = self.problems(path);
        match made {
            Some(made) if problems.is_empty() => Ok(made),
            _ => Err(ConfigError::Problems(problems)),
        }
    }

    pub(super) fn problems(self, path: &Path) -> Vec<String> {
        let file = path.display();
        self.mistakes().iter().map(|mistake| format!("{file}, {mistake}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_toml_is_named_with_file_line_and_column_and_without_what_stands_there() {
        let source = Source::new("delay = \"1s\"\ntoken = s3cret");
        let table = source.table();
        let said = source.settle(table, Path::new("mill.toml")).unwrap_err().to_string();
        assert!(said.contains("mill.toml, line 2, column ") && said.contains(": not valid TOML: "), "{said}");
        assert!(!said.contains("s3cret"), "{said}");
    }
}
