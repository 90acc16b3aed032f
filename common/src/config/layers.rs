//! Values in layers: a file over the defaults, the environment over the file, flags over both, each key by itself.

use std::collections::BTreeMap;
use std::path::Path;

use serde::de::DeserializeOwned;
use toml::de::DeTable;
use toml::{Table, Value};

use super::source::Source;
use super::{ConfigError, hint, meant, on_one_line, read};

/// The dotted names of all values of a table.
pub fn dotted(table: &Table) -> Vec<String> {
    let below = |(name, value): (&String, &Value)| match value {
        Value::Table(inner) => dotted(inner).into_iter().map(|key| format!("{name}.{key}")).collect(),
        _ => vec![name.clone()],
    };
    table.iter().flat_map(below).collect()
}

/// The value of a dotted name.
pub fn value<'a>(table: &'a Table, key: &str) -> Option<&'a Value> {
    match key.split_once('.') {
        Some((section, rest)) => value(table.get(section)?.as_table()?, rest),
        None => table.get(key),
    }
}

/// What the settings of a program are called.
#[derive(Clone, Copy, Debug)]
pub struct Names {
    /// How the environment variable of a key begins: `store.engine` is `RESYNC_HUB_STORE_ENGINE`.
    pub prefix: &'static str,
    /// Where all keys can be seen.
    pub listing: &'static str,
}

/// Values that were put over each other so far.
#[derive(Clone, Debug)]
pub struct Layers {
    names: Names,
    default: Table,
    known: Vec<String>,
    /// Where each value that a file says stands.
    places: BTreeMap<String, String>,
    /// The values in force.
    pub effective: Table,
    /// What was wrong so far.
    pub problems: Vec<String>,
}

impl Layers {
    /// The lowest layer, which has every key.
    pub fn over(default: Table, names: Names) -> Self {
        Self {
            names,
            known: dotted(&default),
            places: BTreeMap::new(),
            effective: default.clone(),
            default,
            problems: Vec::new(),
        }
    }

    /// Puts a file over what is there. Returns what is written in it.
    ///
    /// # Errors
    /// [`ConfigError`] where it cannot be read or is no TOML.
    pub fn file(&mut self, path: &Path) -> Result<Table, ConfigError> {
        let text = read(path)?;
        let source = Source::new(&text);
        let Some((places, written)) = source.parse().and_then(|places| Some((places, source.table()?)))
        else {
            return Err(ConfigError::Problems(source.problems(path)));
        };
        self.merge(&source, &places, &written, "", path);
        self.problems.extend(source.problems(path));
        Ok(written)
    }

    /// Takes over the values of a section.
    fn merge(&mut self, source: &Source<'_>, places: &DeTable<'_>, from: &Table, section: &str, path: &Path) {
        for (name, place) in places {
            let at = name.span().start;
            let name: &str = name.get_ref();
            let key = format!("{section}{name}");
            // A name in quotes may have a dot of its own.
            let old = value(&self.effective, &key).filter(|_| !name.contains('.'));
            match (old, from.get(name)) {
                (Some(Value::Table(_)), Some(Value::Table(from))) => {
                    if let Some(places) = place.get_ref().as_table() {
                        self.merge(source, places, from, &format!("{key}."), path);
                    }
                }
                (Some(Value::Table(_)), _) => {
                    source.wrong(at, format!("{key} is a section: write [{key}] and its keys below"));
                }
                (Some(_), Some(new)) => {
                    put(&mut self.effective, &key, new.clone());
                    let place = source.mistake(place.span().start, key.clone());
                    self.places.insert(key, format!("{}, {place}", path.display()));
                }
                (None, _) => {
                    let meant = meant(&key, self.known.iter().map(String::as_str));
                    source.wrong(at, format!("{key} is not a key: {}", hint(meant, self.names.listing)));
                }
                (Some(_), None) => {}
            }
        }
    }

    /// Puts the variables of these that are keys over what is there. Others would change nothing without a word, so they are mistakes
    /// where they begin like a key and are not `foreign`.
    pub fn environment(
        &mut self,
        variables: &BTreeMap<String, String>,
        foreign: impl Fn(&str, &str) -> bool,
    ) {
        let prefix = self.names.prefix;
        let known: Vec<_> = self.known.iter().map(|key| (variable(prefix, key), key.clone())).collect();
        let own = |name: &str| name.strip_prefix(prefix).unwrap_or(name).to_lowercase();
        for (name, text) in variables.iter().filter(|(name, _)| name.starts_with(prefix)) {
            if let Some((_, key)) = known.iter().find(|(known, _)| known == name) {
                self.set(key, text);
            } else if !foreign(name, text) {
                let names: Vec<_> = known.iter().map(|(known, _)| own(known)).collect();
                let meant = meant(&own(name), names.iter().map(String::as_str));
                let hint = hint(meant.map(|own| variable(prefix, own)).as_deref(), self.names.listing);
                self.problems.push(format!("{name} is not a variable: {hint}"));
            }
        }
    }

    /// Replaces one value by a text, which becomes what the default is: a number, a truth value or a list where the default is one, else
    /// a string.
    pub fn set(&mut self, key: &str, text: &str) {
        if let Some(new) = value(&self.effective, key).map(|old| typed(old, text)) {
            put(&mut self.effective, key, new);
            self.places.remove(key);
        }
    }

    /// The values as a type. Those that make no sense are named, each of them, and give way to their defaults, so that the others can be
    /// compared.
    pub fn understand<T: DeserializeOwned>(&mut self) -> Option<T> {
        let whole = |table: &Table| T::deserialize(Value::Table(table.clone()));
        if let Ok(understood) = whole(&self.effective) {
            return Some(understood);
        }
        for key in &self.known {
            let (found, usual) = (value(&self.effective, key), value(&self.default, key));
            let (Some(found), Some(usual)) = (found.cloned(), usual.cloned()) else { continue };
            let mut alone = self.default.clone();
            put(&mut alone, key, found);
            if let Err(error) = whole(&alone) {
                let place = self.places.get(key).unwrap_or(key);
                self.problems.push(format!("{place}: {}", instead(&error, &usual)));
                put(&mut self.effective, key, usual);
            }
        }
        whole(&self.effective).map_err(|error| self.problems.push(on_one_line(&error))).ok()
    }
}

fn variable(prefix: &str, key: &str) -> String {
    format!("{prefix}{}", key.replace('.', "_").to_uppercase())
}

/// What to write, where the error only says which type of the program does not fit.
fn instead(error: &toml::de::Error, usual: &Value) -> String {
    let said = on_one_line(error);
    let raw = ["invalid type:", "invalid value:", "invalid socket address syntax"];
    if !raw.iter().any(|raw| said.contains(raw)) {
        return said;
    }
    match usual {
        Value::Integer(number) => format!("write a whole number, for example {number}"),
        Value::Boolean(_) => "write true or false".to_owned(),
        Value::Array(_) => "write a list, for example [\"one\", \"two\"]".to_owned(),
        Value::String(text) if text.is_empty() => "write a text in quotes".to_owned(),
        usual => format!("write for example {usual}"),
    }
}

/// Replaces the value of a dotted name.
fn put(table: &mut Table, key: &str, new: Value) {
    match key.split_once('.') {
        Some((section, rest)) => {
            if let Some(Value::Table(inner)) = table.get_mut(section) {
                put(inner, rest, new);
            }
        }
        None => drop(table.insert(key.to_owned(), new)),
    }
}

fn typed(like: &Value, text: &str) -> Value {
    let string = || Value::String(text.to_owned());
    match like {
        Value::String(_) => string(),
        _ => format!("value = {text}")
            .parse::<Table>()
            .ok()
            .and_then(|mut table| table.remove("value"))
            .unwrap_or_else(string),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    const NAMES: Names = Names { prefix: "MILL_", listing: "see the manual" };

    #[derive(Debug, Deserialize, PartialEq)]
    struct Mill {
        name: String,
        wheel: Wheel,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    struct Wheel {
        turns: u32,
        sluice_gates: Vec<String>,
    }

    fn layers() -> Layers {
        let default = "name = \"old\"\n[wheel]\nturns = 1\nsluice_gates = []";
        Layers::over(default.parse().unwrap(), NAMES)
    }

    /// With a file over the defaults, and what it is called in messages.
    fn with_file(text: &str) -> (Layers, String) {
        let (mut layers, file) = (layers(), tempfile::NamedTempFile::new().unwrap());
        std::fs::write(file.path(), text).unwrap();
        layers.file(file.path()).unwrap();
        (layers, file.path().display().to_string())
    }

    fn environment(layers: &mut Layers, variables: &[(&str, &str)]) {
        let owned = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
        layers.environment(&variables.iter().map(owned).collect(), |name, _| name == "MILL_OF_OTHERS");
    }

    #[test]
    fn each_key_is_that_of_the_highest_layer_that_has_it_and_takes_the_kind_of_its_default() {
        let (mut layers, _) = with_file("name = \"file\"\n[wheel]\nturns = 2");
        environment(
            &mut layers,
            &[
                ("MILL_WHEEL_TURNS", "3"),
                ("MILL_WHEEL_SLUICE_GATES", "[\"a\"]"),
                ("MILL_OF_OTHERS", "x"),
                ("PATH", "/"),
            ],
        );
        layers.set("wheel.turns", "4");
        let wheel = Wheel { turns: 4, sluice_gates: vec!["a".to_owned()] };
        assert_eq!(layers.understand(), Some(Mill { name: "file".to_owned(), wheel }));
        assert_eq!(layers.problems, [""; 0]);
    }

    #[test]
    fn every_mistake_is_named_at_once_with_what_was_meant() {
        let (mut layers, file) = with_file("nam = 1\nname = 2\nwheel = 2\nzzz = 3");
        environment(&mut layers, &[("MILL_WHEEL_TURN", "s3cret"), ("MILL_WHEEL_TURNS", "many")]);
        let understood = layers.understand::<Mill>().unwrap();
        assert_eq!(understood.wheel.turns, 1, "the others can still be compared");
        let problems = &layers.problems;
        for expected in [
            format!("{file}, line 1, column 1: nam is not a key: did you mean name?"),
            format!("{file}, line 2, column 8: name: write for example \"old\""),
            format!("{file}, line 3, column 1: wheel is a section: write [wheel] and its keys below"),
            format!("{file}, line 4, column 1: zzz is not a key: see the manual"),
            "MILL_WHEEL_TURN is not a variable: did you mean MILL_WHEEL_TURNS?".to_owned(),
            "wheel.turns: write a whole number, for example 1".to_owned(),
        ] {
            assert!(problems.contains(&expected), "{expected}: {problems:?}");
        }
        assert_eq!(problems.len(), 6, "{problems:?}");
    }
}
