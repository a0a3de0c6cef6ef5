//! Parses licence expressions of packages, and checks them against the allowed licences.
//!
//! Part of dependencies. It knows SPDX's `OR`, `AND`, `WITH` and brackets, and the older slash for `OR`.

use anyhow::{Result, bail};

/// Whether a package can be used under the allowed licences.
pub fn is_allowed(expression: &str, allowed: &[String]) -> Result<bool> {
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let mut words: Vec<&str> = spaced.split_whitespace().rev().collect();
    let result = either(&mut words, allowed)?;
    if let Some(word) = words.last() {
        bail!("unexpected {word:?} in {expression:?}");
    }
    Ok(result)
}

fn either(words: &mut Vec<&str>, allowed: &[String]) -> Result<bool> {
    let mut result = both(words, allowed)?;
    while words.last() == Some(&"OR") {
        words.pop();
        result |= both(words, allowed)?;
    }
    Ok(result)
}

fn both(words: &mut Vec<&str>, allowed: &[String]) -> Result<bool> {
    let mut result = one(words, allowed)?;
    while words.last() == Some(&"AND") {
        words.pop();
        result &= one(words, allowed)?;
    }
    Ok(result)
}

fn one(words: &mut Vec<&str>, allowed: &[String]) -> Result<bool> {
    match words.pop() {
        Some("(") => {
            let result = either(words, allowed)?;
            if words.pop() != Some(")") {
                bail!("a bracket is not closed");
            }
            Ok(result)
        }
        None | Some(")" | "OR" | "AND" | "WITH") => bail!("a licence is missing"),
        Some(name) => {
            let mut name = name.to_owned();
            if words.last() == Some(&"WITH") {
                words.pop();
                name = format!("{name} WITH {}", words.pop().unwrap_or_default());
            }
            Ok(allowed.contains(&name))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that one allowed alternative is enough, that all parts of an `AND` are needed, and that an
    /// exception is part of its licence.
    #[test]
    fn licence_expressions_are_evaluated() {
        let allowed = ["MIT", "Apache-2.0 WITH LLVM-exception", "Zlib"].map(str::to_owned);
        for (expression, expected) in [
            ("MIT", true),
            ("GPL-3.0-only", false),
            ("MIT OR GPL-3.0-only", true),
            ("GPL-3.0-only/MIT", true),
            ("MIT AND GPL-3.0-only", false),
            ("(MIT OR GPL-3.0-only) AND Zlib", true),
            ("MIT OR GPL-3.0-only AND BSL-1.0", true),
            ("Apache-2.0 WITH LLVM-exception", true),
            ("Apache-2.0", false),
        ] {
            assert_eq!(
                is_allowed(expression, &allowed).unwrap(),
                expected,
                "{expression}"
            );
        }
        for broken in ["", "MIT OR", "(MIT", "MIT)", "MIT Zlib", "AND MIT"] {
            assert!(is_allowed(broken, &allowed).is_err(), "{broken:?}");
        }
    }
}
