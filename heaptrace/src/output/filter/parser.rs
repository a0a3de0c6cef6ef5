//! Reads an expression of the filter language.
//!
//! Stage: output. The grammar:
//!
//! ```text
//! expression = all { "or" all }
//! all        = one { "and" one }
//! one        = "not" one | "(" expression ")" | NAME | KEY OPERATOR VALUE
//! ```
//!
//! Must not know which names there are.

use std::str::FromStr;

use super::condition::Condition;
use super::expression::{Expression, Name, Part};
use super::key::{Key, is_key, why_not};
use super::lexer::Lexer;
use super::problem::{Place, Problem};
use super::tree::Tree;

/// The longest expression, in bytes.
const LONGEST: usize = 64 << 10;

/// The deepest nesting of parentheses and `not`.
const DEEPEST: u32 = 50;

impl FromStr for Expression {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let text = text.trim();
        let mut parser = Parser {
            lexer: Lexer::new(text),
            depth: 0,
        };
        if text.len() > LONGEST {
            let why = format!("the expression has more than {} KiB", LONGEST >> 10);
            return Err(parser.lexer.problem(&(0..1), why));
        }
        let tree = parser.any()?;
        match parser.lexer.next() {
            None => Ok(Self::new(text, tree)),
            Some(next) => Err(parser.unexpected(next)),
        }
    }
}

struct Parser {
    lexer: Lexer,
    depth: u32,
}

impl Parser {
    fn any(&mut self) -> Result<Tree<Part>, Problem> {
        let mut parts = vec![self.all()?];
        while self.joint("or") {
            parts.push(self.all()?);
        }
        Ok(Tree::of(parts, Tree::Any))
    }

    fn all(&mut self) -> Result<Tree<Part>, Problem> {
        let mut parts = vec![self.one()?];
        while self.joint("and") {
            parts.push(self.one()?);
        }
        Ok(Tree::of(parts, Tree::All))
    }

    fn joint(&mut self, wanted: &str) -> bool {
        match self.lexer.word() {
            Some((word, place)) if word == wanted => {
                self.lexer.go_on_after(&place);
                true
            }
            _ => false,
        }
    }

    fn one(&mut self) -> Result<Tree<Part>, Problem> {
        let place = self.lexer.here();
        if self.depth >= DEEPEST {
            return Err(self
                .lexer
                .problem(&place, "the expression is nested too deep"));
        }
        if self.lexer.take('(') {
            let inner = self.deeper(Self::any)?;
            return match self.lexer.next() {
                Some(')') => {
                    self.lexer.take(')');
                    Ok(inner)
                }
                Some(next) => Err(self.unexpected(next)),
                None => Err(self.lexer.problem(
                    &place,
                    "this ( has no ); put a name with a single parenthesis into quotes",
                )),
            };
        }
        match self.lexer.word() {
            Some((word, place)) => self.begun_by(&word, &place),
            None => Err(self.nothing_at(&place)),
        }
    }

    fn deeper<T>(&mut self, parse: impl FnOnce(&mut Self) -> T) -> T {
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    /// What begins with a word.
    fn begun_by(&mut self, word: &str, place: &Place) -> Result<Tree<Part>, Problem> {
        match word {
            "and" | "or" => {
                let why = format!("a condition is missing before `{word}`");
                return Err(self.lexer.problem(place, why));
            }
            "not" => {
                self.lexer.go_on_after(place);
                let inner = self.deeper(Self::one)?;
                return Ok(Tree::Not(Box::new(inner)));
            }
            _ => {}
        }
        self.lexer.go_on_after(place);
        let Some((operator, at)) = self.lexer.operator() else {
            if is_key(word) {
                let why = match why_not(word) {
                    Some(why) => why.to_owned(),
                    None => format!("`{word}` needs an operator and a value, such as {word}=…"),
                };
                return Err(self.lexer.problem(place, why));
            }
            return Ok(Tree::Leaf(Part::Name(Name {
                name: word.to_owned(),
                place: place.clone(),
            })));
        };
        let key = self.key(word, place)?;
        let doubled = self.lexer.here();
        if operator == "=" && matches!(self.lexer.next(), Some('=' | '~')) {
            let why = "write = for a glob and ~ for a regular expression; put a name that begins so into quotes";
            return Err(self.lexer.problem(&(at.start..doubled.end), why));
        }
        let (value, place) = self.lexer.value()?;
        let (is_negated, operator) = match operator.strip_prefix('!') {
            Some(operator) => (true, operator),
            None => (false, operator),
        };
        let condition = Condition::new(key, operator, &value);
        let condition = condition.map_err(|why| self.lexer.problem(&place, why))?;
        let leaf = Tree::Leaf(Part::Condition(condition));
        Ok(match is_negated {
            true => Tree::Not(Box::new(leaf)),
            false => leaf,
        })
    }

    fn key(&self, word: &str, place: &Place) -> Result<Key, Problem> {
        if let Some(key) = Key::from_name(word) {
            return Ok(key);
        }
        let why = match (why_not(word), Key::like(word)) {
            (Some(why), _) => why.to_owned(),
            (None, Some(key)) => {
                format!("unknown key `{word}`; did you mean `{}`?", key.name())
            }
            (None, None) => format!("unknown key `{word}`; use one of {}", Key::list()),
        };
        Err(self.lexer.problem(place, why))
    }

    /// What is wrong where a condition should begin.
    fn nothing_at(&mut self, place: &Place) -> Problem {
        let why = match self.lexer.next() {
            None => "a condition is missing here, such as function=main",
            Some(')') => "a condition is missing before this )",
            Some(_) => "a condition begins with a key: KEY=GLOB, e.g. function=main",
        };
        self.lexer.problem(place, why)
    }

    /// What is wrong where an expression should end.
    fn unexpected(&mut self, next: char) -> Problem {
        let place = self.lexer.here();
        let why = match next {
            ')' => "this ) has no (; put a name with a single parenthesis into quotes",
            _ => "`and` or `or` is missing here; a condition is KEY=GLOB, e.g. function=main",
        };
        self.lexer.problem(&place, why)
    }
}
