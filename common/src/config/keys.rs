//! The keys of a table, read one by one with their places. A mistake says where it is and what would be right.

use std::cell::RefCell;
use std::fmt::Display;

use toml::de::{DeFloat, DeTable, DeValue};

use super::source::Source;
use super::{hint, meant};

/// The keys of one table. What was never asked for is unknown.
#[derive(Debug)]
pub struct Keys<'a, 's> {
    source: &'a Source<'s>,
    table: &'a DeTable<'s>,
    /// Names and a dot, or nothing.
    prefix: String,
    at: usize,
    known: RefCell<Vec<String>>,
}

impl<'a, 's> Keys<'a, 's> {
    /// Those of a whole file, as [`Source::parse`] returned it.
    pub fn new(source: &'a Source<'s>, table: &'a DeTable<'s>) -> Self {
        Self { source, table, prefix: String::new(), at: 0, known: RefCell::default() }
    }

    fn below(&self, table: &'a DeTable<'s>, key: &str, at: usize) -> Self {
        let prefix = format!("{}{key}.", self.prefix);
        Self { source: self.source, table, prefix, at, known: RefCell::default() }
    }

    /// That there may be these keys, even if nothing asks for them.
    pub fn know(&self, keys: &[&str]) {
        let mut known = self.known.borrow_mut();
        for key in keys {
            if !known.iter().any(|known| known == key) {
                known.push((*key).to_owned());
            }
        }
    }

    /// The value that `read` makes of it; one that it can make nothing of is a mistake, and `what` says what would be right.
    pub fn read<T>(&self, key: &str, what: &str, read: impl Fn(&DeValue<'_>) -> Option<T>) -> Option<T> {
        self.know(&[key]);
        let value = self.table.get(key)?;
        let found = read(value.get_ref());
        if found.is_none() {
            self.wrong(key, format!("{}{key} must be {what}", self.prefix));
        }
        found
    }

    /// A text.
    pub fn text(&self, key: &str) -> Option<String> {
        self.read(key, "text in quotes", |value| value.as_str().map(str::to_owned))
    }

    /// What `parse` makes of a text.
    pub fn parsed<T, E: Display>(&self, key: &str, parse: impl Fn(&str) -> Result<T, E>) -> Option<T> {
        parse(&self.text(key)?).map_err(|error| self.blame(key, &error)).ok()
    }

    /// What `parse` makes of each text of a list, or of the one text in place of a list.
    pub fn list<T, E: Display>(&self, key: &str, parse: impl Fn(&str) -> Result<T, E>) -> Vec<T> {
        let text = |value: &DeValue<'_>| value.as_str().map(str::to_owned);
        let texts: Option<Vec<String>> =
            self.read(key, "text in quotes, or a list of such texts", |value| match value.as_array() {
                Some(all) => all.iter().map(|one| text(one.get_ref())).collect(),
                None => Some(vec![text(value)?]),
            });
        let parsed = |text: String| parse(&text).map_err(|error| self.blame(key, &error)).ok();
        texts.unwrap_or_default().into_iter().filter_map(parsed).collect()
    }

    /// True or false.
    pub fn flag(&self, key: &str) -> Option<bool> {
        self.read(key, "true or false", as_bool)
    }

    /// One of these words.
    pub fn word<T: Copy>(&self, key: &str, words: &[(&str, T)]) -> Option<T> {
        let all: Vec<_> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
        self.read(key, &format!("one of {}", all.join(", ")), |value| {
            words.iter().find(|(word, _)| Some(*word) == value.as_str()).map(|(_, meaning)| *meaning)
        })
    }

    /// A whole number.
    pub fn count(&self, key: &str, from: u64, to: u64) -> Option<u64> {
        let what = format!("a whole number from {from} to {to}");
        self.read(key, &what, |value| whole(value).filter(|count| (from..=to).contains(count)))
    }

    /// A number.
    pub fn number(&self, key: &str, from: f64, to: f64) -> Option<f64> {
        let what = format!("a number from {from} to {to}");
        self.read(key, &what, |value| number(value).filter(|number| (from..=to).contains(number)))
    }

    /// The table below this key.
    pub fn section(&self, key: &str) -> Option<Keys<'a, 's>> {
        self.know(&[key]);
        let value = self.table.get(key)?;
        if let Some(table) = value.get_ref().as_table() {
            return Some(self.below(table, key, value.span().start));
        }
        let name = format!("{}{key}", self.prefix);
        self.wrong(key, format!("{name} is a section: write [{name}] and its keys below"));
        None
    }

    /// The tables of a list, each written under `[[key]]`.
    pub fn sections(&self, key: &str) -> Vec<Keys<'a, 's>> {
        self.know(&[key]);
        let Some(value) = self.table.get(key) else { return Vec::new() };
        let tables = value.get_ref().as_array().into_iter().flat_map(|items| items.iter());
        let found: Option<Vec<_>> =
            tables.map(|item| Some(self.below(item.get_ref().as_table()?, key, item.span().start))).collect();
        match found {
            Some(found) if !found.is_empty() => found,
            _ => {
                let name = format!("{}{key}", self.prefix);
                self.wrong(
                    key,
                    format!("{name} is a list of sections: write [[{name}]] and the keys of one below"),
                );
                Vec::new()
            }
        }
    }

    /// Every key with its value, whatever it is called.
    pub fn all(&self) -> impl Iterator<Item = (&'a str, &'a DeValue<'s>)> {
        self.table.iter().map(|(key, value)| (key.get_ref().as_ref(), value.get_ref()))
    }

    /// Whether it is there.
    pub fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// Notes a mistake at the value of a key, or at the table where it is missing.
    pub fn wrong(&self, key: &str, what: impl Into<String>) {
        let at = self.table.get(key).map_or(self.at, |value| value.span().start);
        self.source.wrong(at, what);
    }

    /// Notes a mistake at the value of a key, behind the name of the key.
    pub fn blame(&self, key: &str, what: &impl Display) {
        self.wrong(key, format!("{}{key}: {what}", self.prefix));
    }

    /// Notes a mistake where there is no such value.
    pub fn required<T>(&self, key: &str, value: Option<T>, what: &str) -> Option<T> {
        if value.is_none() && !self.has(key) {
            self.wrong(key, format!("{}{key} is missing: {what}", self.prefix));
        }
        value
    }

    /// Notes every key that nobody asked for.
    pub fn finish(self) {
        let listing = format!("known here: {}", self.known.borrow().join(", "));
        self.finish_with(&listing, |_| None);
    }

    /// Notes every key that nobody asked for. `own` may say more of a key, and `listing` what to do about one like no other.
    pub fn finish_with(self, listing: &str, own: impl Fn(&str) -> Option<String>) {
        let known = self.known.into_inner();
        for key in self.table.keys() {
            let name: &str = key.get_ref();
            if known.iter().any(|known| known == name) {
                continue;
            }
            let meant = meant(name, known.iter().map(String::as_str));
            let meant = meant.map(|nearest| format!("{}{nearest}", self.prefix));
            let hint = own(name).unwrap_or_else(|| hint(meant.as_deref(), listing));
            self.source.wrong(key.span().start, format!("{}{name} is not a key: {hint}", self.prefix));
        }
    }
}

fn as_bool(value: &DeValue<'_>) -> Option<bool> {
    value.as_bool()
}

/// A whole number that is not negative.
pub fn whole(value: &DeValue<'_>) -> Option<u64> {
    let whole = value.as_integer()?;
    u64::from_str_radix(whole.as_str(), whole.radix()).ok()
}

/// Any number.
pub fn number(value: &DeValue<'_>) -> Option<f64> {
    let text = value.as_float().map(DeFloat::as_str);
    text.or_else(|| value.as_integer().map(toml::de::DeInteger::as_str))?.parse().ok()
}

/// What is neither a list nor a table, as a text.
pub fn plain(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.clone().into_owned()),
        DeValue::Integer(whole) => {
            i64::from_str_radix(whole.as_str(), whole.radix()).ok().map(|whole| whole.to_string())
        }
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        DeValue::Boolean(flag) => Some(flag.to_string()),
        DeValue::Datetime(time) => Some(time.to_string()),
        DeValue::Array(_) | DeValue::Table(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistakes(text: &str, read: impl Fn(&Keys<'_, '_>)) -> Vec<String> {
        let source = Source::new(text);
        if let Some(table) = source.parse() {
            let keys = Keys::new(&source, &table);
            read(&keys);
            keys.finish();
        }
        source.mistakes().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_mistake_is_named_from_the_top_to_the_bottom_with_what_would_be_right() {
        let text = "nam = 1\nzzz = 2\n[wheel]\nturn = 3\nteeth = 0\n[[gate]]\nopen = 1\n";
        let said = mistakes(text, |keys| {
            let name = keys.text("name");
            assert_eq!(keys.required("name", name, "say what it is called"), None);
            let wheel = keys.section("wheel").unwrap();
            assert_eq!((wheel.count("turns", 1, 9), wheel.count("teeth", 1, 9)), (None, None));
            wheel.finish();
            for gate in keys.sections("gate") {
                assert_eq!(gate.flag("open"), None);
                gate.finish();
            }
        });
        assert_eq!(
            said,
            [
                "line 1, column 1: name is missing: say what it is called",
                "line 1, column 1: nam is not a key: did you mean name?",
                "line 2, column 1: zzz is not a key: known here: name, wheel, gate",
                "line 4, column 1: wheel.turn is not a key: did you mean wheel.turns?",
                "line 5, column 9: wheel.teeth must be a whole number from 1 to 9",
                "line 7, column 8: gate.open must be true or false",
            ]
        );
    }

    #[test]
    fn a_list_may_be_one_text_and_each_that_makes_no_sense_is_named() {
        let said = mistakes("one = \"7\"\nmany = [\"x\", \"8\"]\nnone = [9]\n", |keys| {
            let numbers = |key| keys.list(key, str::parse::<u8>);
            assert_eq!((numbers("one"), numbers("many"), numbers("none")), (vec![7], vec![8], vec![]));
            assert!(numbers("missing").is_empty());
        });
        let [many, none] = said.as_slice() else { panic!("{said:?}") };
        assert!(many.starts_with("line 2, column 8: many: invalid digit"), "{many}");
        assert_eq!(none, "line 3, column 8: none must be text in quotes, or a list of such texts");
    }
}
