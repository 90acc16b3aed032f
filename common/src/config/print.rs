//! A commented configuration file with other values in it.

use toml::Value;

/// A commented file with the values of dotted names in it, where there are any. In it every value is on the line of its key, also one
/// behind a `#` that is not set, and none contains a `#`.
pub fn with_values(commented: &str, value: impl Fn(&str) -> Option<Value>) -> String {
    let mut section = String::new();
    let line = |line: &str| {
        if let Some((name, _)) = line.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            section = format!("{name}.");
        }
        let setting = line.strip_prefix('#').unwrap_or(line);
        let found = setting.split_once(" = ").and_then(|(name, _)| value(&format!("{section}{name}")));
        found.map_or_else(|| line.to_owned(), |value| with_value(setting, &value))
    };
    commented.lines().map(line).map(|line| line + "\n").collect()
}

/// The comment stays in its column, if it can.
fn with_value(line: &str, value: &Value) -> String {
    let name = line.split_once(" = ").map_or(line, |(name, _)| name);
    let setting = format!("{name} = {value}");
    match line.find('#') {
        Some(at) => format!("{setting:<width$} {}", &line[at..], width = at - 1),
        None => setting,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stand_beside_the_comments_of_their_keys() {
        let commented = "# The mill = this.\n#name = \"x\"\nold = 1   # years\n[wheel]\nold = 2\n";
        let printed = with_values(commented, |key| match key {
            "name" => Some(Value::from("Mühle")),
            "old" => Some(Value::from(12)),
            _ => None,
        });
        assert_eq!(printed, "# The mill = this.\nname = \"Mühle\"\nold = 12  # years\n[wheel]\nold = 2\n");
    }
}
