//! Configuration in layers: a file over the defaults, the environment over the file, flags over both, each key by itself.
//!
//! Neither `figment` nor `config` does this: both stop at the first mistake and pass over a key that nobody knows, and they would have to
//! guess where the section ends in `RESYNC_HUB_DELIVERY_PER_HOST`. Here the table of defaults says which keys there are. So every mistake is
//! named at once, with the key that was meant.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use toml::{Table, Value};

/// From what likeness on a key is taken for a misspelt one.
const ALIKE: f64 = 0.75;

/// Reads TOML. An error says line, column and what is wrong there, and not what stands in the line, which may be a secret.
///
/// ```
/// let error = resync_common::config::parse("delay = \"1s\"\nper_host = ").unwrap_err();
/// assert!(error.starts_with("line 2, column 12: "), "{error}");
/// ```
pub fn parse(text: &str) -> Result<Table, String> {
    text.parse().map_err(|error: toml::de::Error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = before.split('\n').count();
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        format!("line {line}, column {column}: {}", on_one_line(&error))
    })
}

/// The one of the known keys that was meant by an unknown one, if there is one like it.
///
/// ```
/// use resync_common::config::meant;
///
/// let known = ["delivery.per_host", "lease.max"];
/// assert_eq!(meant("per_hosts", known), Some("delivery.per_host"));
/// assert_eq!(meant("zzz", known), None);
/// ```
pub fn meant<'k>(key: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let last = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
    let likeness =
        |name: &str| strsim::jaro_winkler(key, name).max(strsim::jaro_winkler(&last(key), &last(name)));
    let nearest = known.into_iter().map(|name| (likeness(name), name));
    nearest
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .filter(|(alike, _)| *alike > ALIKE)
        .map(|found| found.1)
}

/// The dotted names of all values of a table.
pub fn keys(table: &Table) -> Vec<String> {
    let below = |(name, value): (&String, &Value)| match value {
        Value::Table(inner) => keys(inner).into_iter().map(|key| format!("{name}.{key}")).collect(),
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

/// What a program and its settings are called.
#[derive(Clone, Copy, Debug)]
pub struct Names {
    /// As "the hub".
    pub program: &'static str,
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
    /// The values in force.
    pub effective: Table,
    /// What was wrong so far.
    pub problems: Vec<String>,
}

impl Layers {
    /// The lowest layer, which has every key.
    pub fn over(default: Table, names: Names) -> Self {
        Self { names, known: keys(&default), effective: default.clone(), default, problems: Vec::new() }
    }

    /// Puts a file over what is there.
    pub fn file(&mut self, written: Table) {
        let mut unknown = Vec::new();
        merge(&mut self.effective, written, "", &mut unknown, &mut self.problems);
        for key in unknown {
            let hint = self.hint(meant(&key, self.known.iter().map(String::as_str)));
            self.problems.push(format!("{key} is not a key of {}: {hint}", self.names.program));
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
                let hint = self.hint(meant.map(|own| variable(prefix, own)).as_deref());
                self.problems.push(format!("{name} is not a variable of {}: {hint}", self.names.program));
            }
        }
    }

    /// Replaces one value by a text, which becomes what the default is: a number, a truth value or a list where the default is one, else
    /// a string.
    pub fn set(&mut self, key: &str, text: &str) {
        if let Some(new) = value(&self.effective, key).map(|old| typed(old, text)) {
            put(&mut self.effective, key, new);
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
                self.problems.push(format!("{key}: {}", instead(&error, &usual)));
                put(&mut self.effective, key, usual);
            }
        }
        whole(&self.effective).map_err(|error| self.problems.push(on_one_line(&error))).ok()
    }

    fn hint(&self, meant: Option<&str>) -> String {
        meant.map_or_else(|| self.names.listing.to_owned(), |name| format!("did you mean {name}?"))
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

fn on_one_line(error: &toml::de::Error) -> String {
    error.message().replace('\n', " ")
}

fn merge(
    into: &mut Table,
    from: Table,
    section: &str,
    unknown: &mut Vec<String>,
    problems: &mut Vec<String>,
) {
    for (name, value) in from {
        let key = format!("{section}{name}");
        match (into.get_mut(&name), value) {
            (Some(Value::Table(below)), Value::Table(inner)) => {
                merge(below, inner, &format!("{key}."), unknown, problems);
            }
            (Some(Value::Table(_)), _) => {
                problems.push(format!("{key} is a section: write [{key}] and its keys below"));
            }
            (Some(old), new) => *old = new,
            (None, _) => unknown.push(key),
        }
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

    const NAMES: Names = Names { program: "the mill", prefix: "MILL_", listing: "see the manual" };

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
        Layers::over(parse(default).unwrap(), NAMES)
    }

    fn environment(layers: &mut Layers, variables: &[(&str, &str)]) {
        let owned = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
        layers.environment(&variables.iter().map(owned).collect(), |name, _| name == "MILL_OF_OTHERS");
    }

    #[test]
    fn each_key_is_that_of_the_highest_layer_that_has_it_and_takes_the_kind_of_its_default() {
        let mut layers = layers();
        layers.file(parse("name = \"file\"\n[wheel]\nturns = 2").unwrap());
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
        let mut layers = layers();
        layers.file(parse("nam = 1\nwheel = 2\nzzz = 3").unwrap());
        environment(&mut layers, &[("MILL_WHEEL_TURN", "s3cret"), ("MILL_WHEEL_TURNS", "many")]);
        let understood = layers.understand::<Mill>().unwrap();
        assert_eq!(understood.wheel.turns, 1, "the others can still be compared");
        let problems = &layers.problems;
        for expected in [
            "wheel is a section: write [wheel] and its keys below",
            "nam is not a key of the mill: did you mean name?",
            "zzz is not a key of the mill: see the manual",
            "MILL_WHEEL_TURN is not a variable of the mill: did you mean MILL_WHEEL_TURNS?",
        ] {
            assert!(problems.iter().any(|problem| problem == expected), "{expected}: {problems:?}");
        }
        let number = "wheel.turns: write a whole number, for example 1";
        assert!(problems.iter().any(|problem| problem == number), "{problems:?}");
        assert_eq!(problems.len(), 5, "{problems:?}");
    }
}
