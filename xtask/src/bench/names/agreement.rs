//! How far two programs agree about names.
//!
//! Part of bench. It must not know which programs they are.

use super::tool::Answer;

/// Most examples of differences that are kept.
const EXAMPLES: usize = 8;

/// The numbers of addresses on which two programs agree and differ.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Agreement {
    pub(super) same: usize,
    /// The same function, with other types, arguments or parameters.
    pub(super) differently: usize,
    pub(super) another: usize,
    /// The second program has no name.
    pub(super) unnamed: usize,
    /// The second program alone has a name.
    pub(super) only_named: usize,
    /// The innermost function is the same.
    pub(super) innermost: usize,
    /// The line of the innermost function is the same.
    pub(super) lines: usize,
    pub(super) examples: Vec<String>,
}

impl Agreement {
    pub(super) fn of(ours: &[Answer], theirs: &[Answer]) -> Self {
        let mut agreement = Self::default();
        for (ours, theirs) in ours.iter().zip(theirs) {
            agreement.innermost +=
                usize::from(bare(ours.functions.first()) == bare(theirs.functions.first()));
            agreement.lines += usize::from(ours.line == theirs.line);
            let [own, other] = [ours, theirs].map(|it| it.functions.last());
            let is_alike = || {
                let (own, other) = (bare(own), bare(other));
                own == other || last(own.as_deref()) == other.as_deref()
            };
            match (own, other) {
                (None, None) => agreement.same += 1,
                (None, Some(_)) => agreement.only_named += 1,
                (Some(_), None) => agreement.unnamed += 1,
                _ if plain(own) == plain(other) => agreement.same += 1,
                _ if is_alike() => agreement.differently += 1,
                (Some(own), Some(other)) => {
                    agreement.another += 1;
                    if agreement.examples.len() < EXAMPLES {
                        let example = format!("`{other}` for `{own}`");
                        agreement.examples.push(example);
                    }
                }
            }
        }
        agreement
    }
}

/// What Rust's older names have in place of characters that symbols can't have. llvm-symbolizer leaves it.
const ENCODED: [(&str, &str); 11] = [
    ("$LT$", "<"),
    ("$GT$", ">"),
    ("$RF$", "&"),
    ("$BP$", "*"),
    ("$LP$", "("),
    ("$RP$", ")"),
    ("$C$", ","),
    ("$u20$", " "),
    ("$u7b$", "{"),
    ("$u7d$", "}"),
    ("..", "::"),
];

/// A name without spaces and hashes.
fn plain(name: Option<&String>) -> Option<String> {
    let mut name = name?.clone();
    if name.contains('$') {
        for (encoded, character) in ENCODED {
            name = name.replace(encoded, character);
        }
        // A name can't begin with what is encoded.
        name = name.replace("::_<", "::<").replace("::_{", "::{");
        name = name
            .strip_prefix("_<")
            .map_or(name.clone(), |it| format!("<{it}"));
    }
    let name = name.as_str();
    let is_hash = |hash: &str| hash.len() == 16 && hash.bytes().all(|it| it.is_ascii_hexdigit());
    let name = match name.rsplit_once("::h") {
        Some((name, hash)) if is_hash(hash) => name,
        _ => name,
    };
    Some(name.split_whitespace().collect())
}

/// A name without what is in brackets.
fn bare(name: Option<&String>) -> Option<String> {
    let name = plain(name)?;
    let mut depth = 0_u32;
    let mut bare = String::new();
    for c in name.chars() {
        match c {
            '<' | '(' | '[' | '{' => depth += 1,
            '>' | ')' | ']' | '}' => depth = depth.saturating_sub(1),
            c if depth == 0 => bare.push(c),
            _ => {}
        }
    }
    // What demanglers add behind the parameters differs, too.
    let end = bare.find("::__").unwrap_or(bare.len());
    bare.truncate(end);
    Some(bare.trim_end_matches("const").replace("::::", "::"))
}

/// A function's own name, which is all that debug information has of a function without a linkage name.
fn last(bare: Option<&str>) -> Option<&str> {
    let bare = bare?;
    Some(bare.rsplit_once("::").map_or(bare, |it| it.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(functions: &[&str], line: Option<&str>) -> Answer {
        Answer {
            functions: functions.iter().map(|it| (*it).to_owned()).collect(),
            line: line.map(ToOwned::to_owned),
        }
    }

    /// Check that names that are written differently are counted apart from other names, and those without a name apart from both.
    #[test]
    fn differences_are_counted_apart() {
        let ours = [
            answer(&["f(int)"], Some("a.c:1")),
            answer(&["inner", "a::f<int> >()"], Some("a.c:2")),
            answer(&["a::f<int>()"], None),
            answer(&["g"], None),
            answer(&["h"], None),
            answer(&[], None),
            answer(&[], None),
            answer(&["a::b"], None),
            answer(&["<a::B<T> as c::D>::e"], None),
            answer(&["a::Vec<T>::push"], None),
        ];
        let theirs = [
            answer(&["f( int)"], Some("a.c:1")),
            answer(&["inner", "a::f<int>>()"], Some("a.c:3")),
            answer(&["a::f<long>()"], None),
            answer(&["other"], None),
            answer(&[], None),
            answer(&["i"], None),
            answer(&[], None),
            answer(&["a::b::h0123456789abcdef"], None),
            answer(
                &["_$LT$a..B$LT$T$GT$$u20$as$u20$c..D$GT$::e::h0123456789abcdef"],
                None,
            ),
            answer(&["push<int>"], None),
        ];
        let found = Agreement::of(&ours, &theirs);
        let expected = Agreement {
            same: 5,
            differently: 2,
            another: 1,
            unnamed: 1,
            only_named: 1,
            innermost: 6,
            lines: 9,
            examples: vec!["`other` for `g`".to_owned()],
        };
        assert_eq!(found, expected);
    }
}
