//! Which modules of a crate name which others, read from its source.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use walkdir::WalkDir;

/// The roots of a crate, which are in no module.
const ROOTS: [&str; 2] = ["lib", "main"];

/// One module's use of another.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Use {
    /// Below the crate's folder.
    pub(super) file: String,
    pub(super) line: usize,
    pub(super) module: String,
    pub(super) names: String,
}

/// What was read of a crate.
pub(super) struct Read {
    pub(super) modules: BTreeSet<String>,
    pub(super) uses: Vec<Use>,
}

/// Reads the production code below `src`. `known` are the modules as they are listed: what is below a module may be one of its own.
pub(super) fn read(src: &Path, known: &[&str]) -> Read {
    let files = files(src);
    let modules = KnownModules(known.iter().map(|module| (*module).to_owned()).collect());
    let re_exports: BTreeMap<_, _> =
        files.iter().filter(|file| file.path == ["lib"]).flat_map(|lib| lib.re_exports(&modules)).collect();
    let uses = in_production(&files).flat_map(|file| file.uses(&modules, &re_exports)).collect();
    let modules = files.iter().filter(|file| !file.is_root()).map(|file| modules.of(&file.path)).collect();
    Read { modules, uses }
}

/// Where production code below `folder` names one of these words, or paths.
pub(super) fn named(folder: &Path, names: &[&str]) -> Vec<String> {
    let named = |file: &File| {
        let begins = (0..file.tokens.len()).filter_map(|at| {
            let name = names.iter().find(|name| file.has(at, name))?;
            Some(format!("{}.rs:{}: {name}", file.path.join("/"), file.tokens[at].line))
        });
        begins.collect::<Vec<_>>()
    };
    in_production(&files(folder)).flat_map(named).collect()
}

/// Those that are not compiled for tests only.
pub(super) fn in_production(files: &[File]) -> impl Iterator<Item = &File> {
    let of_tests: BTreeSet<_> = files.iter().flat_map(|file| file.of_tests.iter().cloned()).collect();
    let is_of_tests =
        move |file: &File| (1..=file.path.len()).any(|end| of_tests.contains(&file.path[..end]));
    files.iter().filter(move |file| !is_of_tests(file))
}

/// The source files below this folder.
pub(super) fn files(folder: &Path) -> Vec<File> {
    let path_of = |path: &Path| {
        let path = path.strip_prefix(folder).unwrap().with_extension("");
        path.iter().map(|part| part.to_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    WalkDir::new(folder)
        .sort_by_file_name()
        .into_iter()
        .map(Result::unwrap)
        .filter(|entry| entry.path().extension().is_some_and(|extension| extension == "rs"))
        .map(|entry| File::read(path_of(entry.path()), &fs::read_to_string(entry.path()).unwrap()))
        .collect()
}

/// The modules of a crate: a name, or for a module within a module both names with a slash.
struct KnownModules(BTreeSet<String>);

impl KnownModules {
    /// The innermost module that has this path; a new one where none has.
    fn of(&self, path: &[String]) -> String {
        let inner = path.get(..2).map(|inner| inner.join("/"));
        inner.filter(|inner| self.0.contains(inner)).unwrap_or_else(|| path[0].clone())
    }
}

/// A source file.
pub(super) struct File {
    /// Its folders and its name.
    path: Vec<String>,
    /// Its production code.
    tokens: Vec<Token>,
    /// The modules that it declares for tests.
    of_tests: Vec<Vec<String>>,
}

/// A path as it is written somewhere.
pub(super) struct Named {
    pub(super) line: usize,
    /// From the crate's root on.
    pub(super) path: Vec<String>,
    /// What it is called there from then on, if that is a `use`.
    name: String,
}

/// A word, or another character.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Token {
    line: usize,
    text: String,
}

impl File {
    pub(super) fn read(path: Vec<String>, text: &str) -> Self {
        let (tokens, tests) = production(&tokens(text));
        let of_tests = tests.into_iter().map(|name| [module(&path), &[name]].concat()).collect();
        Self { path, tokens, of_tests }
    }

    /// Whether this word or path begins with the token at this place.
    fn has(&self, at: usize, name: &str) -> bool {
        let text = |token: &Token| token.text.clone();
        let sought: Vec<_> = tokens(name).iter().map(text).collect();
        self.tokens[at..].iter().map(text).take(sought.len()).eq(sought)
    }

    /// Below the crate's folder.
    pub(super) fn place(&self) -> String {
        format!("src/{}.rs", self.path.join("/"))
    }

    /// The module that it is.
    pub(super) fn module(&self) -> &[String] {
        module(&self.path)
    }

    /// Whether it is the root of a program, whose modules are another crate's.
    pub(super) fn is_program(&self) -> bool {
        self.path == ["main"]
    }

    /// Whether it is in no module.
    fn is_root(&self) -> bool {
        ROOTS.contains(&self.path[0].as_str())
    }

    /// Every use of another module.
    fn uses(&self, modules: &KnownModules, re_exports: &BTreeMap<String, String>) -> Vec<Use> {
        if self.is_root() {
            return Vec::new();
        }
        let module = modules.of(&self.path);
        let named = self.named().into_iter().filter_map(|Named { line, path, .. }| {
            let names = modules.of(&path);
            let names = if modules.0.contains(&names) { names } else { re_exports.get(&names)?.clone() };
            Some((line, names))
        });
        let used = named.filter(|(_, names)| *names != module).map(|(line, names)| Use {
            file: self.place(),
            line,
            module: module.clone(),
            names,
        });
        let mut used: Vec<_> = used.collect();
        used.dedup();
        used
    }

    /// Every path that begins with `crate` or `super`.
    pub(super) fn named(&self) -> Vec<Named> {
        let begins = (0..self.tokens.len()).filter_map(|at| self.behind_crate_or_super(at));
        begins.flat_map(|(module, at)| self.paths(&module, at)).collect()
    }

    /// The names that its `use` lines give, with the paths that these stand for.
    pub(super) fn bound(&self) -> BTreeMap<String, Vec<String>> {
        let uses = (0..self.tokens.len()).filter(|at| self.is(*at, "use") && !self.is(*at + 1, "<"));
        let begins = uses.map(|at| {
            let own = if self.is(at + 1, "self") && self.is(at + 2, ":") { at + 4 } else { at + 1 };
            self.behind_crate_or_super(at + 1).unwrap_or_else(|| (self.module().to_vec(), own))
        });
        let named = begins.flat_map(|(module, at)| self.paths(&module, at));
        named.map(|Named { path, name, .. }| (name, path)).collect()
    }

    /// In which module a path goes on behind `crate::` or `super::` that begins here, and where.
    fn behind_crate_or_super(&self, at: usize) -> Option<(Vec<String>, usize)> {
        let step = |at: usize, word: &str| {
            (self.is(at, word) && self.is(at + 1, ":") && self.is(at + 2, ":")).then_some(at + 3)
        };
        let is_visibility = at >= 3 && self.is(at - 3, "pub") && self.is(at - 1, "in");
        if is_visibility || at >= 1 && self.is(at - 1, ":") {
            return None;
        }
        if let Some(behind) = step(at, "crate") {
            return Some((Vec::new(), behind));
        }
        let (mut module, mut behind) = (module(&self.path).to_vec(), step(at, "super")?);
        module.pop();
        while let Some(further) = step(behind, "super") {
            behind = further;
            module.pop();
        }
        Some((module, behind))
    }

    fn is(&self, at: usize, text: &str) -> bool {
        self.tokens.get(at).is_some_and(|token| token.text == text)
    }

    /// The paths that go on here: one, or one for each in braces.
    fn paths(&self, begin: &[String], at: usize) -> Vec<Named> {
        let Token { line, text } = &self.tokens[at];
        if text == "{" {
            return self.in_braces(at).into_iter().flat_map(|at| self.paths(begin, at)).collect();
        }
        let path = if text == "self" && !begin.is_empty() {
            begin.to_vec()
        } else {
            [begin, std::slice::from_ref(text)].concat()
        };
        let goes_on = |next: &Token| is_word(&next.text) || ["{", "*"].contains(&next.text.as_str());
        if self.is(at + 1, ":") && self.is(at + 2, ":") && self.tokens.get(at + 3).is_some_and(goes_on) {
            return self.paths(&path, at + 3);
        }
        let other = self.tokens.get(at + 2).filter(|_| self.is(at + 1, "as"));
        let name = other.map(|other| other.text.clone()).or_else(|| path.last().cloned()).unwrap_or_default();
        vec![Named { line: *line, path, name }]
    }

    /// Where the parts of a path in braces begin.
    fn in_braces(&self, at: usize) -> Vec<usize> {
        let (mut depth, mut begins) = (0, Vec::new());
        for at in at..self.tokens.len() - 1 {
            let text = self.tokens[at].text.as_str();
            match text {
                "{" => depth += 1,
                "}" => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                break;
            }
            if depth == 1 && matches!(text, "{" | ",") && self.tokens[at + 1].text != "}" {
                begins.push(at + 1);
            }
        }
        begins
    }

    /// What the root gives out of its modules by their own names.
    fn re_exports(&self, modules: &KnownModules) -> Vec<(String, String)> {
        let uses = self.tokens.split(|token| token.text == ";").filter_map(|item| {
            let begin = item.iter().position(|token| token.text == "use")?;
            let module = modules.0.get(&item.get(begin + 1)?.text)?;
            Some(item[begin + 2..].iter().map(|token| (token.text.clone(), module.clone())))
        });
        uses.flatten().filter(|(name, _)| is_word(name)).collect()
    }
}

/// The module that a file is.
fn module(path: &[String]) -> &[String] {
    match path {
        [folders @ .., last] if ["mod", "lib", "main"].contains(&last.as_str()) => folders,
        path => path,
    }
}

fn is_word(text: &str) -> bool {
    text.starts_with(|first: char| first.is_alphanumeric() || first == '_')
}

/// Leaves out items for tests only, and names the modules in other files among them.
fn production(tokens: &[Token]) -> (Vec<Token>, Vec<String>) {
    const FOR_TESTS: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let texts: Vec<&str> = tokens.iter().map(|token| token.text.as_str()).collect();
    let (mut kept, mut modules) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < tokens.len() {
        if !texts[at..].starts_with(&FOR_TESTS) {
            kept.push(tokens[at].clone());
            at += 1;
            continue;
        }
        let end = end_of_item(&texts, at + FOR_TESTS.len());
        if let [.., "mod", name, ";"] = texts[at..end] {
            modules.push(name.to_owned());
        }
        at = end;
    }
    (kept, modules)
}

/// Where an item ends that begins here: behind its semicolon, or behind its braces.
fn end_of_item(texts: &[&str], begin: usize) -> usize {
    let mut depth = 0;
    for (at, text) in texts.iter().enumerate().skip(begin) {
        match *text {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => depth -= 1,
            _ => {}
        }
        if depth == 0 && matches!(*text, ";" | "}") {
            // A brace may end a part of a `use`, whose semicolon follows.
            return if texts.get(at + 1) == Some(&";") { at + 2 } else { at + 1 };
        }
    }
    texts.len()
}

/// Words and other characters, without comments and without what quotes hold.
fn tokens(text: &str) -> Vec<Token> {
    let mut rest = text;
    let mut tokens = Vec::new();
    let mut line = 1;
    while let Some(first) = rest.chars().next() {
        let length = length(rest, first);
        let taken = &rest[..length];
        if !first.is_whitespace() && !is_quiet(taken) {
            tokens.push(Token { line, text: taken.to_owned() });
        }
        line += taken.matches('\n').count();
        rest = &rest[length..];
    }
    tokens
}

/// Whether this is a comment or quoted.
fn is_quiet(taken: &str) -> bool {
    ["//", "/*", "\"", "r\"", "r#", "b\"", "br", "'"].iter().any(|begin| taken.starts_with(begin))
        && taken.len() > 2
        && !is_word_only(taken)
}

fn is_word_only(taken: &str) -> bool {
    taken.chars().all(|character| character.is_alphanumeric() || character == '_')
}

/// How long the token is that begins here.
fn length(rest: &str, first: char) -> usize {
    let until =
        |end: &str, from: usize| rest[from..].find(end).map_or(rest.len(), |at| from + at + end.len());
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return until("*/", 2);
    }
    let raw = rest.strip_prefix('b').unwrap_or(rest);
    if let Some(quoted) = raw.strip_prefix('r') {
        let hashes = quoted.chars().take_while(|character| *character == '#').count();
        if quoted[hashes..].starts_with('"') {
            let begin = rest.len() - quoted.len() + hashes + 1;
            return until(&format!("\"{}", "#".repeat(hashes)), begin);
        }
    }
    match first {
        '"' => quoted(rest, 1),
        'b' if rest.starts_with("b\"") => quoted(rest, 2),
        '\'' => character(rest),
        first if first.is_alphanumeric() || first == '_' => {
            rest.find(|next: char| !next.is_alphanumeric() && next != '_').unwrap_or(rest.len())
        }
        first => first.len_utf8(),
    }
}

/// How long a text in quotes is whose content begins at `from`.
fn quoted(rest: &str, from: usize) -> usize {
    let mut escaped = false;
    for (at, character) in rest.char_indices().filter(|(at, _)| *at >= from) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// How long a character in quotes is; the quote alone where it begins a lifetime.
fn character(rest: &str) -> usize {
    let content = &rest[1..];
    let long = match content.strip_prefix('\\') {
        Some(escape) => 1 + escape.chars().next().map_or(0, char::len_utf8),
        None => content.chars().next().map_or(0, char::len_utf8),
    };
    match content[long..].find('\'') {
        Some(0) => long + 2,
        // Such as '\u{e9}'.
        Some(at) if content.starts_with("\\u") || content.starts_with("\\x") => long + at + 2,
        _ => 1,
    }
}

mod tests {
    use super::*;

    const TEXT: &str = r#"
//! crate::comment is none.
use crate::cellar::{Coal, Wine};
use crate::{
    attic, floor::{Carpet, Parquet},
    Lamp,
};
/* nor is crate::block */
const A: &str = "crate::quoted // crate::not_a_comment"; use super::super::attic::Trunk;
const B: &str = r"crate::raw";
fn f<'a>(c: char) -> &'a crate::roof::Tile { if c == '"' { super::near() } else { crate::cellar::dig() } }
#[cfg(test)]
use crate::of_tests::{A, B};
#[cfg(test)]
#[allow(unused)]
mod tests { use crate::inner; }
#[cfg(test)]
mod model;
mod kept { use crate::attic; }
"#;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn production_code_is_read_and_tests_comments_and_texts_are_not() {
        let names =
            ["attic", "block", "cellar", "comment", "floor", "inner", "lamps", "near", "of_tests", "quoted"];
        let modules =
            KnownModules(words(&names).into_iter().chain(words(&["raw", "roof", "not_a_comment"])).collect());
        let re_exports = BTreeMap::from([("Lamp".to_owned(), "lamps".to_owned())]);
        let file = File::read(words(&["floor", "corner"]), TEXT);
        let found: Vec<_> =
            file.uses(&modules, &re_exports).into_iter().map(|used| (used.line, used.names)).collect();
        let expected = [
            (3, "cellar"),
            (5, "attic"),
            (6, "lamps"),
            (9, "attic"),
            (11, "roof"),
            (11, "cellar"),
            (19, "attic"),
        ];
        assert_eq!(found, expected.map(|(line, names)| (line, names.to_owned())));
        assert_eq!(file.of_tests, [words(&["floor", "corner", "model"])]);
        assert_eq!(file.uses(&modules, &re_exports)[0].file, "src/floor/corner.rs");
    }

    #[test]
    fn a_path_is_named_where_all_its_words_are() {
        let file =
            File::read(words(&["floor"]), "fn lamp() { let lit = Instant::now(); let now = Instant; now() }");
        let named = (0..file.tokens.len()).filter(|at| file.has(*at, "Instant::now"));
        assert_eq!(named.count(), 1);
    }

    #[test]
    fn a_module_within_a_module_is_one_of_its_own() {
        const TEXT: &str = "use super::super::chest::Lid; use super::own; use super::super::Rafter;
pub(in crate::attic) use crate::attic::{Beam, corner::Web, chest::Lid}; use crate::{attic::chest, cellar};";
        let modules =
            KnownModules(words(&["attic", "attic/chest", "attic/corner", "cellar"]).into_iter().collect());
        let uses = File::read(words(&["attic", "corner", "web"]), TEXT).uses(&modules, &BTreeMap::new());
        let found: Vec<_> =
            uses.iter().map(|used| (used.module.as_str(), used.line, used.names.as_str())).collect();
        let expected = [(1, "attic/chest"), (1, "attic"), (2, "attic"), (2, "attic/chest"), (2, "cellar")];
        assert_eq!(found, expected.map(|(line, names)| ("attic/corner", line, names)));
    }

    #[test]
    fn what_the_root_gives_out_belongs_to_its_module() {
        let lib = File::read(words(&["lib"]), "pub mod lamps; pub use lamps::{Bulb, Lamp}; use std::fmt;");
        let modules = KnownModules(words(&["lamps"]).into_iter().collect());
        assert_eq!(
            lib.re_exports(&modules),
            [("Bulb".to_owned(), "lamps".to_owned()), ("Lamp".to_owned(), "lamps".to_owned())]
        );
    }
}
