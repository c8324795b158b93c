//! The modules of a crate, and which file imports which.
//!
//! A file imports another when it names something that is defined there, by `use` or by a path in the code. The name
//! is followed through re-exports to the file with the definition. A declaration of a module is no import, and neither
//! is a name that is passed on and not used. Calls of methods are not seen.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{Token, production};

/// The text of each file of a crate, by its path below `src`.
pub(super) type Files = BTreeMap<String, String>;

/// An import between two files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Import {
    /// The line that imports.
    pub(super) line: usize,
    /// The path that stands there.
    pub(super) path: String,
}

/// Imports between the files of a crate: the first of each pair.
pub(super) type Imports = BTreeMap<(String, String), Import>;

/// Keywords after which the name of an item follows.
const DEFINING: [&str; 9] = [
    "const", "enum", "fn", "mod", "static", "struct", "trait", "type", "union",
];

/// A chain of imports longer than this is a circle.
const CHAIN_MAX: usize = 16;

/// A name that a `use` brings into a file.
#[derive(Debug, Clone)]
struct Use {
    path: Vec<String>,
    /// The name in this file; `*` for all of a module.
    name: String,
    is_public: bool,
    line: usize,
}

/// A file.
#[derive(Debug, Default)]
struct Module {
    file: String,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    uses: Vec<Use>,
    /// Paths in the code, each with its line.
    paths: Vec<(Vec<String>, usize)>,
    /// Words in the code outside of imports.
    words: BTreeSet<String>,
    /// Names of what is defined here.
    items: BTreeSet<String>,
}

/// The end of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    Module(usize),
    /// Something that is defined in this module.
    Item(usize),
    /// Something of another crate.
    Elsewhere,
}

/// Returns the imports between the files of a crate.
pub(super) fn imports(files: &Files) -> Imports {
    let mut crate_ = Crate::default();
    for root in ["lib.rs", "main.rs"] {
        if files.contains_key(root) {
            crate_.read(files, root.into(), None);
        }
    }
    crate_.imports()
}

#[derive(Debug, Default)]
struct Crate {
    modules: Vec<Module>,
}

impl Crate {
    /// Reads a file and those of the modules that it declares.
    fn read(&mut self, files: &Files, file: String, parent: Option<usize>) -> usize {
        let number = self.modules.len();
        let tokens = production(&files[&file]);
        let parsed = Parser::parse(&tokens);
        self.modules.push(Module {
            file: file.clone(),
            parent,
            ..parsed.module
        });
        for name in parsed.declared {
            let folder = folder_of_children(&file);
            let places = [
                format!("{folder}{name}.rs"),
                format!("{folder}{name}/mod.rs"),
            ];
            if let Some(place) = places.into_iter().find(|place| files.contains_key(place)) {
                let child = self.read(files, place, Some(number));
                self.modules[number].children.insert(name, child);
            }
        }
        number
    }

    fn imports(&self) -> Imports {
        let mut imports = Imports::new();
        for number in 0..self.modules.len() {
            let module = &self.modules[number];
            let used = module.uses.iter().filter(|import| {
                !import.is_public || import.name == "*" || module.words.contains(&import.name)
            });
            let used = used.map(|import| (&import.path, import.line));
            let paths = module.paths.iter().map(|(path, line)| (path, *line));
            for (path, line) in used.chain(paths) {
                let Target::Item(to) = self.resolve(number, path, CHAIN_MAX) else {
                    continue;
                };
                if to == number {
                    continue;
                }
                let pair = (module.file.clone(), self.modules[to].file.clone());
                let path = path.join("::");
                let first = imports.entry(pair).or_insert(Import {
                    line,
                    path: path.clone(),
                });
                if line < first.line {
                    *first = Import { line, path };
                }
            }
        }
        imports
    }

    /// Follows a path that stands in a module to where its item is defined.
    fn resolve(&self, from: usize, path: &[String], left: usize) -> Target {
        let (Some(left), Some((first, rest))) = (left.checked_sub(1), path.split_first()) else {
            return Target::Elsewhere;
        };
        let start = match first.as_str() {
            "crate" => self.root_of(from),
            "self" => from,
            "super" => match self.modules[from].parent {
                Some(parent) => parent,
                None => return Target::Elsewhere,
            },
            name => match self.look_up(from, name, path, left) {
                Some(Target::Module(module)) => module,
                Some(target) => return target,
                None => return Target::Elsewhere,
            },
        };
        self.descend(start, rest, left)
    }

    fn descend(&self, start: usize, path: &[String], left: usize) -> Target {
        let Some((first, rest)) = path.split_first() else {
            return Target::Module(start);
        };
        match first.as_str() {
            "self" => self.descend(start, rest, left),
            "super" => match self.modules[start].parent {
                Some(parent) => self.descend(parent, rest, left),
                None => Target::Elsewhere,
            },
            "*" => Target::Module(start),
            name => match self.look_up(start, name, path, left) {
                Some(Target::Module(module)) => self.descend(module, rest, left),
                Some(target) => target,
                None => Target::Item(start),
            },
        }
    }

    /// Finds a name in a module: a child, an item, an import. `path` is the one that is being followed.
    fn look_up(&self, number: usize, name: &str, path: &[String], left: usize) -> Option<Target> {
        let module = &self.modules[number];
        if let Some(&child) = module.children.get(name) {
            return Some(Target::Module(child));
        }
        if module.items.contains(name) {
            return Some(Target::Item(number));
        }
        let named = module.uses.iter().find(|import| import.name == name);
        if let Some(import) = named.filter(|import| import.path != path) {
            return Some(self.resolve(number, &import.path, left));
        }
        let globs = module.uses.iter().filter(|import| import.name == "*");
        globs
            .filter_map(|glob| match self.resolve(number, &glob.path, left) {
                Target::Module(other) if other != number && left > 0 => {
                    self.look_up(other, name, path, left - 1)
                }
                _ => None,
            })
            .next()
    }

    fn root_of(&self, module: usize) -> usize {
        let parent = |&module: &usize| self.modules[module].parent;
        std::iter::successors(Some(module), parent)
            .last()
            .unwrap_or(module)
    }
}

/// Returns the folder, with a slash, in which the modules lie that a file declares.
fn folder_of_children(file: &str) -> String {
    let (folder, name) = match file.rsplit_once('/') {
        Some((folder, name)) => (format!("{folder}/"), name),
        None => (String::new(), file),
    };
    match name {
        "lib.rs" | "main.rs" | "mod.rs" => folder,
        _ => format!("{folder}{}/", name.trim_end_matches(".rs")),
    }
}

/// Reads the tokens of a file.
struct Parser<'a> {
    tokens: &'a [Token],
    at: usize,
    module: Module,
    /// Modules that have a file of their own.
    declared: Vec<String>,
    depth: usize,
    /// Depths at which modules began that have none.
    inline: Vec<usize>,
}

impl<'a> Parser<'a> {
    fn parse(tokens: &'a [Token]) -> Self {
        let mut parser = Self {
            tokens,
            at: 0,
            module: Module::default(),
            declared: Vec::new(),
            depth: 0,
            inline: Vec::new(),
        };
        while parser.at < tokens.len() {
            parser.step();
        }
        parser
    }

    fn step(&mut self) {
        let text = self.text(0);
        match text {
            "{" => self.depth += 1,
            "}" => {
                self.depth = self.depth.saturating_sub(1);
                self.inline.retain(|&depth| depth < self.depth);
            }
            "use" => return self.import(),
            "mod" if self.text(2) == ";" => {
                self.declared.push(self.text(1).into());
                self.at += 1;
            }
            "mod" if self.text(2) == "{" => {
                self.module.items.insert(self.text(1).into());
                self.inline.push(self.depth);
            }
            "::" => {}
            _ if is_name(text) => {
                if DEFINING.contains(&text) && is_name(self.text(1)) {
                    self.module.items.insert(self.text(1).into());
                }
                if text == "macro_rules" {
                    self.module.items.insert(self.text(2).into());
                }
                return self.path();
            }
            _ => {}
        }
        self.at += 1;
    }

    /// Returns the text of a token ahead.
    fn text(&self, ahead: usize) -> &'a str {
        self.tokens
            .get(self.at + ahead)
            .map_or("", |token| token.text.as_str())
    }

    /// Reads a path in the code; a single name is a word.
    fn path(&mut self) {
        let line = self.tokens[self.at].line;
        let mut path = vec![self.text(0).to_string()];
        let is_continued =
            self.at > 0 && matches!(self.tokens[self.at - 1].text.as_str(), "." | "::");
        self.at += 1;
        while self.text(0) == "::" && is_name(self.text(1)) {
            path.push(self.text(1).into());
            self.at += 2;
        }
        self.module.words.insert(path[0].clone());
        if path.len() > 1 && !is_continued {
            self.module.paths.push((self.outside(path), line));
        }
    }

    /// Reads a `use` to its semicolon.
    fn import(&mut self) {
        let is_public = self.at > 0 && {
            let before = &self.tokens[self.at - 1].text;
            before == "pub" || before == ")"
        };
        self.at += 1;
        // `use<'a>` in a type is another thing.
        if self.text(0) == "<" {
            return;
        }
        self.import_tree(&mut Vec::new(), is_public);
        while !matches!(self.text(0), ";" | "") {
            self.at += 1;
        }
    }

    fn import_tree(&mut self, above: &mut Vec<String>, is_public: bool) {
        let depth = above.len();
        while self.text(0) == "::" || is_name(self.text(0)) && self.text(1) == "::" {
            if is_name(self.text(0)) {
                above.push(self.text(0).into());
            }
            self.at += 1;
        }
        if self.text(0) == "{" {
            self.at += 1;
            while !matches!(self.text(0), "}" | "") {
                self.import_tree(above, is_public);
                if self.text(0) == "," {
                    self.at += 1;
                }
            }
            self.at += 1;
        } else {
            self.import_name(above, is_public);
        }
        above.truncate(depth);
    }

    /// Reads the last name of a path, and the one that it has here.
    fn import_name(&mut self, above: &[String], is_public: bool) {
        let line = self.tokens.get(self.at).map_or(0, |token| token.line);
        let last = self.text(0);
        let mut path = above.to_vec();
        let mut name = last;
        self.at += 1;
        match last {
            "self" => name = above.last().map_or("", String::as_str),
            _ => path.push(last.into()),
        }
        if self.text(0) == "as" {
            name = self.text(1);
            self.at += 2;
        }
        let path = self.outside(path);
        // A module without a file may import from around it.
        if path.first().is_some_and(|first| first == "self") && !self.inline.is_empty() {
            return;
        }
        self.module.uses.push(Use {
            path,
            name: name.into(),
            is_public,
            line,
        });
    }

    /// Returns a path as it would stand outside of modules that have no file.
    fn outside(&self, mut path: Vec<String>) -> Vec<String> {
        for _ in &self.inline {
            if path.first().is_some_and(|first| first == "super") {
                path.remove(0);
                if path.first().is_none_or(|first| first != "super") {
                    path.insert(0, "self".into());
                    break;
                }
            }
        }
        path
    }
}

fn is_name(text: &str) -> bool {
    text == "*" || text.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

/// Returns whether a file has a name by which it is for tests alone.
pub(super) fn is_test(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name == "tests.rs" || path.split('/').any(|folder| folder == "tests")
}
