//! Reads what one source file defines, imports and names, out of its tokens.
//!
//! Part of the harness, for `imports.rs`. It sees one file, and doesn't know where paths lead.

use std::collections::{BTreeMap, BTreeSet};

/// The names of a path, such as `crate::a::b`, or of a module, from the crate's root.
pub(crate) type Path = Vec<String>;

/// The contents of a module. Test code is left out.
#[derive(Debug, Default)]
pub(crate) struct Items {
    /// The names of its own items.
    pub(crate) defined: BTreeSet<String>,
    /// The names that it imports or re-exports, with their paths.
    pub(crate) imported: BTreeMap<String, Path>,
    /// The paths of which it imports or re-exports every item.
    pub(crate) globs: Vec<Path>,
    /// The paths that it names, except re-exports that its own code doesn't use.
    pub(crate) uses: Vec<Path>,
    /// Every word of its code, imports apart.
    pub(crate) words: BTreeSet<String>,
    /// The modules inside of it.
    pub(crate) modules: Vec<(String, Self)>,
    /// The modules that it declares for tests alone.
    pub(crate) test_modules: Vec<String>,
}

const DEFINING: [&str; 8] = [
    "fn", "struct", "enum", "trait", "type", "const", "static", "union",
];

impl Items {
    /// Reads the tokens of a file, or of a module in braces.
    pub(crate) fn read(tokens: &[&str]) -> Self {
        let mut items = Self::default();
        let mut reexported = Vec::new();
        let (mut at, mut depth) = (0, 0);
        let token = |at: usize| tokens.get(at).copied().unwrap_or_default();
        while at < tokens.len() {
            match token(at) {
                "#" if token(at + 1) == "[" => {
                    let end = group_end(tokens, at + 1);
                    let attribute = &tokens[at..end];
                    at = end;
                    let is_for_tests = attribute.get(2..4) == Some(&["cfg", "("])
                        && attribute.contains(&"test")
                        && !attribute.contains(&"not");
                    if is_for_tests {
                        let end = item_end(tokens, at);
                        if let Some(name) = declared_module(&tokens[at..end]) {
                            items.test_modules.push(name);
                        }
                        at = end;
                    }
                    continue;
                }
                "{" => depth += 1,
                "}" => depth -= 1,
                "use" if is_name(token(at + 1)) || token(at + 1) == "{" => {
                    let is_public = is_public(&tokens[..at]);
                    let mut imports = Vec::new();
                    at = read_use_tree(tokens, at + 1, &[], &mut imports);
                    for (name, path) in imports {
                        if name == "*" {
                            items.globs.push(path.clone());
                        } else {
                            items.imported.insert(name.clone(), path.clone());
                        }
                        if is_public {
                            reexported.push((name, path));
                        } else {
                            items.uses.push(path);
                        }
                    }
                    continue;
                }
                "mod" if depth == 0 && token(at + 2) == "{" => {
                    let end = group_end(tokens, at + 2);
                    let inner = Self::read(&tokens[at + 3..end - 1]);
                    items.modules.push((token(at + 1).to_owned(), inner));
                    at = end;
                    continue;
                }
                "macro_rules" => {
                    items.defined.insert(token(at + 2).to_owned());
                }
                // `*const T` defines nothing.
                word if depth == 0
                    && DEFINING.contains(&word)
                    && !tokens[..at].ends_with(&["*"]) =>
                {
                    let is_mutable = token(at + 1) == "mut";
                    let name = token(at + 1 + usize::from(is_mutable));
                    if is_name(name) {
                        items.defined.insert(name.to_owned());
                    }
                }
                _ => {}
            }
            if is_name(token(at)) {
                let begin = at;
                while token(at + 1) == "::" && is_name(token(at + 2)) {
                    at += 2;
                }
                let names = tokens[begin..=at].iter().step_by(2);
                let path: Path = names.map(|name| (*name).to_owned()).collect();
                items.words.extend(path.iter().cloned());
                let is_whole = begin == 0 || !matches!(token(begin - 1), "::" | ".");
                if path.len() > 1 && is_whole {
                    items.uses.push(path);
                }
            }
            at += 1;
        }
        for (name, path) in reexported {
            if items.words.contains(&name) {
                items.uses.push(path);
            }
        }
        items
    }
}

fn is_name(token: &str) -> bool {
    token.starts_with(|letter: char| letter.is_alphabetic() || letter == '_')
}

/// Whether the tokens before an item end in `pub` or `pub(…)`.
fn is_public(before: &[&str]) -> bool {
    let Some(at) = before.iter().rposition(|token| *token == "pub") else {
        return false;
    };
    let scope = &before[at + 1..];
    scope.is_empty() || scope[0] == "(" && group_end(scope, 0) == scope.len()
}

/// The position behind a group in brackets that begins at a position.
fn group_end(tokens: &[&str], begin: usize) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(begin) {
        match *token {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    tokens.len()
}

/// The position behind an item, a field or a variant that begins at a position.
fn item_end(tokens: &[&str], begin: usize) -> usize {
    let mut at = begin;
    while let Some(token) = tokens.get(at) {
        match *token {
            "(" | "[" => at = group_end(tokens, at),
            "{" => return group_end(tokens, at),
            ";" | "," => return at + 1,
            ")" | "}" => return at,
            _ => at += 1,
        }
    }
    at
}

/// The name in `mod NAME;`, which may have attributes and `pub` before it.
fn declared_module(item: &[&str]) -> Option<String> {
    match item {
        [.., "mod", name, ";"] => Some((*name).to_owned()),
        _ => None,
    }
}

/// Reads a path of `use` or a group of them. Returns the position behind it.
fn read_use_tree(
    tokens: &[&str],
    mut at: usize,
    prefix: &[String],
    imports: &mut Vec<(String, Path)>,
) -> usize {
    let mut path = prefix.to_vec();
    loop {
        match tokens.get(at).copied() {
            None => return at,
            Some("{") => {
                let end = group_end(tokens, at);
                at += 1;
                while at + 1 < end {
                    at = read_use_tree(tokens, at, &path, imports);
                    at += usize::from(tokens.get(at) == Some(&","));
                }
                return end;
            }
            Some("*") => {
                imports.push(("*".to_owned(), path));
                return at + 1;
            }
            // In a group, `self` is the path before the group.
            Some("self") if !path.is_empty() => {}
            Some(name) => path.push(name.to_owned()),
        }
        at += 1;
        if tokens.get(at) == Some(&"::") {
            at += 1;
            continue;
        }
        let mut name = path.last().cloned().unwrap_or_default();
        if tokens.get(at) == Some(&"as") {
            name = tokens.get(at + 1).copied().unwrap_or_default().to_owned();
            at += 2;
        }
        imports.push((name, path));
        return at;
    }
}
