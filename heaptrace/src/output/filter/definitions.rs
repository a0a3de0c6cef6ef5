//! Named expressions, and the filters that they make of expressions with names.
//!
//! Stage: output. The text of a file: one `name = expression` in a line; empty lines and those that begin with `#` are passed over. Must
//! not know where files are.

use std::collections::BTreeMap;
use std::str::FromStr;

use super::condition::Condition;
use super::expression::{Expression, Name, Part};
use super::key::is_reserved;
use super::lexer::Lexer;
use super::resolved::Filter;
use super::tree::Tree;
use crate::text::escape;

/// Most definitions.
const MOST: usize = 1_000;

/// Most conditions of a filter, with those of its names.
const MOST_CONDITIONS: usize = 1_000;

/// How deep names may stand for names.
const DEEPEST: usize = 16;

/// How alike two names are, from 0 to 1, if the one is most likely a misspelling of the other.
const ALIKE: f64 = 0.8;

/// Expressions by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Definitions(BTreeMap<String, Definition>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Definition {
    expression: Expression,
    /// Where it stands: `FILE, line 3`.
    place: String,
}

/// A filter without named ones.
impl FromStr for Filter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expression: Expression = text.parse().map_err(|it| format!("{it}"))?;
        Definitions::default().filter(&expression)
    }
}

impl Definitions {
    /// Adds those of a file. The error names the line.
    pub fn add(&mut self, file: &str, text: &str) -> Result<(), String> {
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let place = format!("{}, line {number}", escape(file));
            let failed = |why: String| format!("{place}: {why}");
            let (name, expression) = definition(line).map_err(failed)?;
            if let Some(other) = self.0.get(&name) {
                let why = format!("`{name}` has a definition in {} already", other.place);
                return Err(failed(why));
            }
            if self.0.len() >= MOST {
                return Err(failed(format!("there are more than {MOST} definitions")));
            }
            self.0.insert(name, Definition { expression, place });
        }
        Ok(())
    }

    /// Checks that each definition makes a filter, also those that no expression uses.
    pub fn check(&self) -> Result<(), String> {
        for (name, definition) in &self.0 {
            let mut room = MOST_CONDITIONS;
            let made = self.tree(&definition.expression, &mut vec![name], &mut room);
            made.map_err(|why| format!("{}: {why}", definition.place))?;
        }
        Ok(())
    }

    /// The filter that an expression is, with what its names stand for.
    pub fn filter(&self, expression: &Expression) -> Result<Filter, String> {
        let tree = self.tree(expression, &mut Vec::new(), &mut MOST_CONDITIONS.clone())?;
        let is_choice = matches!(expression.tree(), Tree::Any(_));
        Ok(Filter::new(expression.to_string(), is_choice, tree))
    }

    /// `path` has the names that lead to the expression, `room` the number of conditions that may follow.
    fn tree<'a>(
        &'a self,
        expression: &'a Expression,
        path: &mut Vec<&'a str>,
        room: &mut usize,
    ) -> Result<Tree<Condition>, String> {
        expression.tree().try_map(&mut |part| {
            let name = match part {
                Part::Condition(condition) if *room > 0 => {
                    *room -= 1;
                    return Ok(Tree::Leaf(condition.clone()));
                }
                Part::Condition(_) => {
                    return Err(format!(
                        "with its names, the filter has more than {MOST_CONDITIONS} conditions"
                    ));
                }
                Part::Name(name) => name,
            };
            let failed = |why: String| expression.problem(name, why).to_string();
            if path.contains(&name.name.as_str()) {
                return Err(failed(format!("`{}` stands for itself", name.name)));
            }
            if path.len() >= DEEPEST {
                return Err(failed(format!(
                    "more than {DEEPEST} names stand for each other"
                )));
            }
            let Some((own, definition)) = self.0.get_key_value(&name.name) else {
                return Err(failed(self.why_unknown(name)));
            };
            path.push(own);
            let tree = self.tree(&definition.expression, path, room);
            path.pop();
            tree
        })
    }

    fn why_unknown(&self, name: &Name) -> String {
        let name = &name.name;
        let alike = self.0.keys().map(|it| (strsim::jaro(it, name), it));
        let alike = alike
            .filter(|(alike, _)| *alike >= ALIKE)
            .max_by(|(a, _), (b, _)| a.total_cmp(b));
        match alike {
            Some((_, like)) => format!("there is no filter `{name}`; did you mean `{like}`?"),
            None => format!(
                "there is no filter `{name}` in the files of --filters; for a function, write function={name}"
            ),
        }
    }
}

/// The name and the expression of a line.
fn definition(line: &str) -> Result<(String, Expression), String> {
    let why = "write it as NAME = EXPRESSION, e.g. web = process=nginx or process=php*";
    let Some((name, expression)) = line.split_once('=') else {
        return Err(why.to_owned());
    };
    let name = name.trim();
    let word = Lexer::new(name).word();
    if word.is_none_or(|(word, _)| word != name) {
        return Err(why.to_owned());
    }
    if is_reserved(name) {
        return Err(format!(
            "`{name}` is a word of the language, not a name; {why}"
        ));
    }
    let expression = expression.parse().map_err(|it| format!("{it}"))?;
    Ok((name.to_owned(), expression))
}
