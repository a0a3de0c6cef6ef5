//! Finds which source file of a crate uses which other one, and where they use each other in a circle.
//!
//! Part of the harness, for a test about the form of the sources. The nodes are files. Where file A names an item of file B,
//! there is an edge from A to B: by `use`, alone or in a group, or by a path in the code. A path is followed through `use` and
//! `pub use` to the file that defines the item. So a `mod.rs` that only declares modules and re-exports their items has
//! no edge, and neither does the name of a module alone. A call of a method names no file, and is not seen.
//! Left out are test modules, and files and folders named `tests` or `fuzz`.

use std::collections::{BTreeMap, BTreeSet};

use crate::items::{Items, Path};
use crate::sources::Source;
use crate::tokens::tokens;

/// The modules of a crate, by their paths from its root.
#[derive(Default)]
struct Crate {
    modules: BTreeMap<Path, Module>,
}

struct Module {
    file: String,
    items: Items,
}

/// Which file uses which files, and by which paths.
type Edges = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// The circles of files in a crate's sources, each with the uses that close it.
pub fn circles(sources: &[Source]) -> Vec<String> {
    let edges = Crate::new(sources).edges();
    let reached: BTreeMap<&str, BTreeSet<&str>> = edges
        .keys()
        .map(|file| (file.as_str(), reachable(&edges, file)))
        .collect();
    let mut found = Vec::new();
    let mut done = BTreeSet::new();
    for (file, others) in &reached {
        if done.contains(file) || !others.contains(file) {
            continue;
        }
        // The files that reach this one and are reached by it.
        let is_in_circle = |it: &&&str| reached.get(**it).is_some_and(|back| back.contains(file));
        let circle: BTreeSet<&str> = others.iter().filter(is_in_circle).copied().collect();
        found.push(described(&edges, &circle));
        done.extend(circle);
    }
    found
}

/// The files that a file uses, directly or through others.
fn reachable<'a>(edges: &'a Edges, file: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut next = vec![file];
    while let Some(file) = next.pop() {
        for used in edges.get(file).into_iter().flat_map(BTreeMap::keys) {
            if reached.insert(used.as_str()) {
                next.push(used);
            }
        }
    }
    reached
}

fn described(edges: &Edges, circle: &BTreeSet<&str>) -> String {
    let mut lines = vec![format!("circle of {} files:", circle.len())];
    for file in circle {
        for (used, paths) in edges.get(*file).into_iter().flatten() {
            if circle.contains(used.as_str()) {
                let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
                lines.push(format!("    {file} uses {used}: {}", paths.join(", ")));
            }
        }
    }
    lines.join("\n")
}

/// The path of the module in a file; none for a file that is left out.
fn module_path(source: &Source) -> Option<Path> {
    let path = source.path.with_extension("");
    let mut names: Path = path.iter().map(|it| it.display().to_string()).collect();
    if names.iter().any(|name| name == "tests" || name == "fuzz") {
        return None;
    }
    if let [.., last] = names.as_slice()
        && (last == "mod" || names == ["lib"] || names == ["main"])
    {
        names.pop();
    }
    Some(names)
}

impl Crate {
    fn new(sources: &[Source]) -> Self {
        let has_library = sources.iter().any(|it| it.path.as_os_str() == "lib.rs");
        let mut all = Self::default();
        let mut tests = Vec::new();
        for source in sources {
            // A binary beside a library is a crate of its own, which nothing imports.
            if has_library && source.path.as_os_str() == "main.rs" {
                continue;
            }
            let Some(path) = module_path(source) else {
                continue;
            };
            let file = source.path.display().to_string();
            let items = Items::read(&tokens(&source.text));
            all.add(path, &file, items, &mut tests);
        }
        all.modules
            .retain(|path, _| !tests.iter().any(|it| path.starts_with(it)));
        all
    }

    /// Adds a module and the modules inside of its file. Collects the paths of test modules.
    fn add(&mut self, path: Path, file: &str, mut items: Items, tests: &mut Vec<Path>) {
        let below = |name: String| [path.as_slice(), &[name]].concat();
        tests.extend(items.test_modules.drain(..).map(below));
        for (name, inner) in std::mem::take(&mut items.modules) {
            self.add(below(name), file, inner, tests);
        }
        let file = file.to_owned();
        self.modules.insert(path, Module { file, items });
    }

    fn edges(&self) -> Edges {
        let mut edges = Edges::new();
        for (path, module) in &self.modules {
            let named = module.items.uses.iter().cloned();
            let named = named.map(|used| (path.clone(), used));
            for (from, used) in named.chain(self.by_globs(path, module)) {
                let file = self.defining_file(&from, &used, false, &mut BTreeSet::new());
                if let Some(file) = file.filter(|file| **file != module.file) {
                    let edges = edges.entry(module.file.clone()).or_default();
                    let paths = edges.entry(file.clone()).or_default();
                    paths.insert(used.join("::"));
                }
            }
        }
        edges
    }

    /// The words that a module may have from another one by `use …::*`, each with that other module.
    fn by_globs(&self, path: &Path, module: &Module) -> Vec<(Path, Path)> {
        let items = &module.items;
        let is_own =
            |word: &String| items.defined.contains(word) || items.imported.contains_key(word);
        let modules = items
            .globs
            .iter()
            .filter_map(|glob| self.module(path, glob));
        let mut found = Vec::new();
        for module in modules {
            let words = items.words.iter().filter(|word| !is_own(word));
            found.extend(words.map(|word| (module.clone(), vec![word.clone()])));
        }
        found
    }

    /// The file that defines the item of a path, as seen from a module. There is none for items of other crates, and
    /// for a path that names a module alone. If the path is known to be of this crate, an item that is
    /// found nowhere, because a macro makes it, belongs to the last module of the path.
    fn defining_file(
        &self,
        from: &Path,
        path: &[String],
        mut is_local: bool,
        followed: &mut BTreeSet<(Path, String)>,
    ) -> Option<&String> {
        let mut at = from.clone();
        for (index, name) in path.iter().enumerate() {
            match name.as_str() {
                "crate" if index == 0 => at.clear(),
                "self" if index == 0 => {}
                "super" => {
                    at.pop()?;
                }
                _ => {
                    let below = [at.as_slice(), std::slice::from_ref(name)].concat();
                    if !self.modules.contains_key(&below) {
                        let rest = path.get(index..)?;
                        return self.item(&at, rest, is_local, followed);
                    }
                    at = below;
                }
            }
            is_local = true;
        }
        None
    }

    /// The file that defines the item which a module has under the first name of a path.
    fn item(
        &self,
        at: &Path,
        path: &[String],
        is_local: bool,
        followed: &mut BTreeSet<(Path, String)>,
    ) -> Option<&String> {
        let module = self.modules.get(at)?;
        let (name, rest) = path.split_first()?;
        if module.items.defined.contains(name) {
            return Some(&module.file);
        }
        // `use x::x` for another crate's item would lead to itself again.
        if !followed.insert((at.clone(), name.clone())) {
            return None;
        }
        if let Some(imported) = module.items.imported.get(name) {
            let path = [imported, rest].concat();
            return self.defining_file(at, &path, false, followed);
        }
        let in_glob = module.items.globs.iter().find_map(|glob| {
            let imported = self.module(at, glob)?;
            self.defining_file(&imported, path, false, followed)
        });
        in_glob.or_else(|| is_local.then_some(&module.file))
    }

    /// The module that a path names, as seen from a module.
    fn module(&self, from: &Path, path: &[String]) -> Option<Path> {
        let mut at = from.clone();
        for name in path {
            match name.as_str() {
                "crate" => at.clear(),
                "self" => {}
                "super" => {
                    at.pop()?;
                }
                _ => at.push(name.clone()),
            }
        }
        self.modules.contains_key(&at).then_some(at)
    }
}
