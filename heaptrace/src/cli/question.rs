//! The words that `heaptrace who` is given: addresses, and the path of a file.
//!
//! Part of the command line. Must not know clap, nor how an answer is found.

use std::path::PathBuf;

use crate::core_file::register_names;

/// Most addresses of a question.
const MOST: usize = 64;

/// An address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// By its number.
    Address(u64),
    /// By the register that holds it.
    Register(&'static str),
}

/// Divides words into addresses and the path of a file, which is the last word if it is no address.
pub(super) fn divide(words: &[String]) -> Result<(Vec<Asked>, Option<PathBuf>), String> {
    let mut asked = Vec::new();
    let mut file = None;
    for (at, word) in words.iter().enumerate() {
        match parse(word) {
            Some(it) => asked.push(it),
            None if at + 1 == words.len() => file = Some(PathBuf::from(word)),
            None => {
                return Err(format!(
                    "`{word}` is no address: write it as 0x55d0c8a2b2d0, or the name of a register as rdi; FILE comes last"
                ));
            }
        }
    }
    if asked.len() > MOST {
        return Err(format!(
            "at most {MOST} addresses can be asked about at once"
        ));
    }
    Ok((asked, file))
}

/// An address: hexadecimal with 0x, decimal, or a register's name, which may begin with a dollar sign as in a debugger.
fn parse(word: &str) -> Option<Asked> {
    let digits = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X"));
    if let Some(digits) = digits {
        let number = u64::from_str_radix(digits, 16).ok();
        return number.map(Asked::Address);
    }
    if let Ok(number) = word.parse() {
        return Some(Asked::Address(number));
    }
    let name = word.strip_prefix('$').unwrap_or(word);
    let register = register_names().find(|it| *it == name);
    register.map(Asked::Register)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn divided(words: &str) -> Result<(Vec<Asked>, Option<PathBuf>), String> {
        let words: Vec<_> = words.split(' ').map(str::to_owned).collect();
        divide(&words)
    }

    /// Check that addresses are read in every form, and that a last word of another form is the file.
    #[test]
    fn addresses_and_files_are_told_apart() {
        let (asked, file) = divided("0x10 0XfF 17 rdi $rax run.data").unwrap();
        let address = Asked::Address;
        let register = Asked::Register;
        let expected = [
            address(16),
            address(255),
            address(17),
            register("rdi"),
            register("rax"),
        ];
        assert_eq!(asked, expected);
        assert_eq!(file, Some("run.data".into()));
        assert_eq!(divided("./17"), Ok((vec![], Some("./17".into()))));
        assert_eq!(divided("0x10"), Ok((vec![address(16)], None)));
        // More than 64 bits are no address.
        let long = "0x10000000000000000";
        assert_eq!(divided(long), Ok((vec![], Some(long.into()))));
        let error = divided("run.data 0x10").unwrap_err();
        assert!(error.contains("`run.data` is no address"), "{error}");
        let many = "0x1 ".repeat(65);
        assert!(divided(many.trim()).unwrap_err().contains("at most 64"));
    }
}
