//! Splits an expression to words, operators and values.
//!
//! Stage: output. What a text means depends on where it stands, so the parser asks for what it expects. Places are counted in
//! characters, for marks below them.

use super::key::is_key;
use super::problem::{Place, Problem};

/// The operators, longer ones before those that they begin with.
const OPERATORS: [&str; 8] = ["!=", "!~", ">=", "<=", "=", "~", "<", ">"];

/// A text with the place up to which it was read.
#[derive(Debug)]
pub(super) struct Lexer {
    text: Vec<char>,
    at: usize,
}

impl Lexer {
    pub(super) fn new(text: &str) -> Self {
        Self {
            text: text.chars().collect(),
            at: 0,
        }
    }

    /// A problem at a place.
    pub(super) fn problem(&self, place: &Place, why: impl Into<String>) -> Problem {
        Problem::new(&self.text, place, why)
    }

    /// The place of the next character that is no space, or of the end.
    pub(super) fn here(&mut self) -> Place {
        self.at = self.after_spaces(self.at);
        self.at..self.text.len().min(self.at + 1)
    }

    /// The next character that is no space.
    pub(super) fn next(&mut self) -> Option<char> {
        let place = self.here();
        self.text.get(place.start).copied()
    }

    /// Passes over a character if it is the next one that is no space.
    pub(super) fn take(&mut self, wanted: char) -> bool {
        let is_next = self.next() == Some(wanted);
        self.at += usize::from(is_next);
        is_next
    }

    /// The next word, without passing over it.
    pub(super) fn word(&mut self) -> Option<(String, Place)> {
        let start = self.here().start;
        let end = self.word_end(start);
        (end > start).then(|| (self.part(&(start..end)), start..end))
    }

    /// Passes over what is before a place.
    pub(super) fn go_on_after(&mut self, place: &Place) {
        self.at = place.end;
    }

    /// The next operator.
    pub(super) fn operator(&mut self) -> Option<(&'static str, Place)> {
        let start = self.here().start;
        let (operator, end) = self.operator_at(start)?;
        self.at = end;
        Some((operator, start..end))
    }

    /// The value after an operator: text in quotes, or all up to the next `and`, `or` or closing parenthesis.
    pub(super) fn value(&mut self) -> Result<(String, Place), Problem> {
        match self.next() {
            Some(quote @ ('"' | '\'')) => self.quoted(quote),
            _ => self.bare(),
        }
    }

    /// Text in quotes. In double ones, `\"` is a quote and `\\` a backslash.
    fn quoted(&mut self, quote: char) -> Result<(String, Place), Problem> {
        let start = self.at;
        let mut value = String::new();
        let mut at = start + 1;
        loop {
            let next = self.text.get(at + 1).copied();
            match self.text.get(at) {
                None => {
                    return Err(self.problem(&(start..start + 1), "this quote is not closed"));
                }
                Some('\\') if quote == '"' && matches!(next, Some('"' | '\\')) => {
                    value.extend(next);
                    at += 1;
                }
                Some(c) if *c == quote => break,
                Some(c) => value.push(*c),
            }
            at += 1;
        }
        self.at = at + 1;
        Ok((value, start..at + 1))
    }

    /// Text without quotes. Names of functions have spaces and parentheses: pairs of these belong to the text.
    fn bare(&mut self) -> Result<(String, Place), Problem> {
        let start = self.at;
        let (mut open, mut at) = (0_u32, start);
        if self.is_joint(start) {
            return Ok((String::new(), self.here()));
        }
        while let Some(c) = self.text.get(at) {
            match c {
                '(' => open += 1,
                ')' if open == 0 => break,
                ')' => open -= 1,
                c if c.is_whitespace() => {
                    let word = self.after_spaces(at);
                    if self.is_joint(word) {
                        break;
                    }
                    if let Some(place) = self.condition_at(word) {
                        let key = self.part(&place);
                        let why = format!(
                            "`and` or `or` is missing before `{key}`; put a name that has such words into quotes"
                        );
                        return Err(self.problem(&place, why));
                    }
                    at = word;
                    continue;
                }
                _ => {}
            }
            at += 1;
        }
        self.at = at;
        let mut end = at;
        let is_space = |c: &char| c.is_whitespace();
        while end > start && self.text.get(end - 1).is_some_and(is_space) {
            end -= 1;
        }
        Ok((self.part(&(start..end)), start..end))
    }

    /// Whether `and` or `or` begins at a place.
    fn is_joint(&self, start: usize) -> bool {
        let end = self.word_end(start);
        let is_word = matches!(self.part(&(start..end)).as_str(), "and" | "or");
        let after = self.text.get(end);
        is_word && after.is_none_or(|c| c.is_whitespace() || *c == '(')
    }

    /// The key of a condition that begins at a place.
    fn condition_at(&self, start: usize) -> Option<Place> {
        let end = self.word_end(start);
        let is_condition =
            is_key(&self.part(&(start..end))) && self.operator_at(self.after_spaces(end)).is_some();
        is_condition.then_some(start..end)
    }

    fn operator_at(&self, start: usize) -> Option<(&'static str, usize)> {
        let rest = self.text.get(start..)?;
        let begins = |it: &&str| it.chars().eq(rest.iter().take(it.len()).copied());
        let operator = OPERATORS.into_iter().find(begins)?;
        Some((operator, start + operator.len()))
    }

    fn word_end(&self, start: usize) -> usize {
        let rest = self.text.get(start..).unwrap_or_default();
        let is_begin = rest.first().is_some_and(|c| c.is_alphabetic() || *c == '_');
        let is_part = |c: &&char| c.is_alphanumeric() || matches!(c, '_' | '-');
        let length = rest.iter().take_while(is_part).count();
        start + if is_begin { length } else { 0 }
    }

    fn after_spaces(&self, start: usize) -> usize {
        let rest = self.text.get(start..).unwrap_or_default();
        start + rest.iter().take_while(|c| c.is_whitespace()).count()
    }

    fn part(&self, place: &Place) -> String {
        let part = self.text.get(place.clone());
        part.unwrap_or_default().iter().collect()
    }
}

/// A value as it is read again: in quotes if it needs them.
pub(super) fn written(value: &str) -> String {
    let mut open = 0_i64;
    let is_paired = value.chars().all(|c| {
        open += i64::from(c == '(') - i64::from(c == ')');
        open >= 0
    });
    let mut lexer = Lexer::new(value);
    let is_same = |(read, _): (String, Place)| read == value;
    let begins_otherwise = value.starts_with(['=', '~', '<', '>']);
    if is_paired && open == 0 && !begins_otherwise && lexer.value().is_ok_and(is_same) {
        return value.to_owned();
    }
    let escaped = value.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{escaped}\"")
}
