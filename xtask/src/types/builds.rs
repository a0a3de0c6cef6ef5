//! Compares the types of blocks with those that programs say, for all builds that this machine has compilers for. Fails if too many are wrong.
//!
//! Part of types. It runs the tests that compare, and must not know how they do it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::test_result::Counts;
use crate::{apt, pip, test, workspace};

/// The Debian packages of compilers, packagers and libraries that only this task uses.
const PACKAGES: [&str; 10] = [
    "binutils",
    "clang-19",
    "dwz",
    "libabsl-dev",
    "libboost-dev",
    "libc++-19-dev",
    "libc++abi-19-dev",
    "pkg-config",
    "qt6-base-dev",
    "qtbase5-dev",
];

/// The package of Python's that has clang 22.
const CLANG: &str = "ziglang==0.17.0";

/// Compares the builds whose rows contain one of the texts, or all; returns the table. Other rows of the old table stay.
pub(super) fn compare(only: &[String], old: &str) -> Result<String> {
    apt::ensure(&PACKAGES, "for more compilers and libraries")?;
    let file = workspace::target_dir().join("xtask/types.md");
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    }
    let mut variables: Vec<(&'static str, OsString)> = vec![
        ("HEAPTRACE_TYPES_TABLE", file.clone().into()),
        ("HEAPTRACE_TYPES_ONLY", only.join(";").into()),
    ];
    variables.extend(clang().map(|folder| ("HEAPTRACE_TYPES_CLANG", folder.into())));
    let suites = ["types".to_owned()];
    test::trace(&suites, &[], &variables, &mut Counts::default())?;
    let table =
        fs::read_to_string(&file).with_context(|| format!("no table in {}", file.display()))?;
    Ok(match only {
        [] => table,
        _ => merged(old, &table),
    })
}

/// The folder of clang 22; `None` if it can't be had.
fn clang() -> Option<PathBuf> {
    let folder = workspace::target_dir().join("xtask/clang");
    let found = folder.join("ziglang");
    if !found.exists()
        && let Err(error) = pip::install(CLANG, &folder)
    {
        println!("Without clang 22: {error:#}");
        return None;
    }
    Some(found)
}

/// A table with the rows of a newer one in place of its own, and the sum of all.
fn merged(old: &str, new: &str) -> String {
    let rows = |table: &str| {
        let rows = table.lines().filter(|it| it.starts_with("| ")).skip(1);
        let rows =
            rows.filter_map(|it| Some((it.split('|').nth(1)?.trim().to_owned(), it.to_owned())));
        rows.filter(|(name, _)| name != "all").collect::<Vec<_>>()
    };
    let mut newer: BTreeMap<String, String> = rows(new).into_iter().collect();
    let mut all: Vec<String> = rows(old)
        .into_iter()
        .map(|(name, row)| newer.remove(&name).unwrap_or(row))
        .collect();
    // New builds, in the order of the newer table.
    let added = rows(new)
        .into_iter()
        .filter(|(name, _)| newer.contains_key(name));
    all.extend(added.map(|(_, row)| row));
    let mut page: String = new.lines().take(2).map(|it| format!("{it}\n")).collect();
    let mut sums: Vec<Option<(u64, u64)>> = Vec::new();
    for row in &all {
        let _ = writeln!(page, "{row}");
        for (at, cell) in row.split('|').skip(2).enumerate() {
            if sums.len() <= at {
                sums.push(None);
            }
            let (right, of) = cell.trim().split_once('/').unwrap_or((cell.trim(), "0"));
            if let (Ok(right), Ok(of), Some(sum)) =
                (right.parse::<u64>(), of.parse::<u64>(), sums.get_mut(at))
            {
                let (known, known_of) = sum.unwrap_or_default();
                *sum = Some((known + right, known_of + of));
            }
        }
    }
    let _ = write!(page, "| all |");
    let sites = sums.first().copied().flatten().unwrap_or_default().0;
    let _ = write!(page, " {sites} |");
    let of_ways = sums.get(1..7).unwrap_or_default();
    for sum in of_ways {
        let _ = match sum {
            Some((right, of)) => write!(page, " {right}/{of} |"),
            None => write!(page, " – |"),
        };
    }
    let right = of_ways.last().copied().flatten().unwrap_or_default().0;
    let recall = 100.0 * right as f64 / sites.max(1) as f64;
    let _ = writeln!(page, " {recall:.0} % |");
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that rows are replaced and added, and that the last row is the sum.
    #[test]
    fn rows_are_merged() {
        let head = "| Build | Sites | frames | alloc_type | constructor | dataflow | symbol | All | Recall |\n|--|--|--|--|--|--|--|--|--|\n";
        let old = format!(
            "{head}| a | 10 | 4/5 | – | – | – | – | 4/5 | 40 % |\n| b | 10 | – | – | – | 9/9 | – | 9/9 | 90 % |\n| all | 20 | 4/5 | – | – | 9/9 | – | 13/14 | 65 % |\n"
        );
        let new = format!(
            "{head}| a | 20 | 19/19 | – | – | – | – | 19/19 | 95 % |\n| c | 10 | – | 1/1 | – | – | – | 1/1 | 10 % |\n| all | 30 | 19/19 | 1/1 | – | – | – | 20/20 | 67 % |\n"
        );
        let found = merged(&old, &new);
        let rows: Vec<&str> = found.lines().skip(2).collect();
        assert_eq!(
            rows,
            [
                "| a | 20 | 19/19 | – | – | – | – | 19/19 | 95 % |",
                "| b | 10 | – | – | – | 9/9 | – | 9/9 | 90 % |",
                "| c | 10 | – | 1/1 | – | – | – | 1/1 | 10 % |",
                "| all | 40 | 19/19 | 1/1 | – | 9/9 | – | 29/29 | 72 % |",
            ]
        );
    }
}
