//! The calls of allocators in a file.
//!
//! Part of types. They are those in the code, whether a run would reach them or not.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use object::{Object as _, ObjectSection as _, ObjectSegment as _};

/// Functions that allocate, as they are called in machine code.
const ALLOCATORS: [&str; 5] = ["malloc", "calloc", "realloc", "_Znwm", "_Znam"];

/// Ends of the names of Rust's.
const OF_RUST: [&str; 6] = [
    "__rust_alloc",
    "__rust_alloc_zeroed",
    "__rust_realloc",
    "__rdl_alloc",
    "__rdl_alloc_zeroed",
    "__rdl_realloc",
];

/// Offsets in a file of the last bytes of so many calls, spread over all of them.
pub(super) fn of(path: &Path, count: usize) -> Result<Vec<u64>> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let file = object::File::parse(&*bytes).with_context(|| path.display().to_string())?;
    let segments: Vec<(u64, u64, u64)> = file
        .segments()
        .map(|it| (it.address(), it.file_range().1, it.file_range().0))
        .collect();
    let mut disassembler = Command::new("objdump")
        .args(["--disassemble", "--no-show-raw-insn"])
        .arg(path)
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run objdump")?;
    let output = disassembler
        .stdout
        .take()
        .context("objdump has no output")?;
    let returns = returns(BufReader::new(output).lines().map_while(Result::ok));
    if !disassembler.wait()?.success() {
        bail!("objdump could not read {}", path.display());
    }
    if returns.len() < count {
        bail!(
            "{} has {} calls of allocators, not {count}",
            path.display(),
            returns.len()
        );
    }
    let spread = (0..count).map(|it| it * returns.len() / count);
    let offsets = spread.filter_map(|at| {
        let last = returns.get(at)?.checked_sub(1)?;
        let holds = |(start, size, _): &&(u64, u64, u64)| (*start..start + size).contains(&last);
        let (start, _, offset) = segments.iter().find(holds)?;
        Some(last - start + offset)
    });
    Ok(offsets.collect())
}

/// The bytes of a file's section.
pub(super) fn section_bytes(path: &Path, name: &str) -> Result<u64> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let file = object::File::parse(&*bytes).with_context(|| path.display().to_string())?;
    Ok(file.section_by_name(name).map_or(0, |it| it.size()))
}

/// The addresses behind calls of allocators.
fn returns(lines: impl Iterator<Item = String>) -> Vec<u64> {
    let mut found = BTreeSet::new();
    let mut is_behind = false;
    for line in lines {
        let instruction = line.split_once(":\t");
        let address = instruction.and_then(|(it, _)| u64::from_str_radix(it.trim(), 16).ok());
        found.extend(address.filter(|_| is_behind));
        is_behind = instruction.is_some_and(|(_, text)| is_call(text));
    }
    found.into_iter().collect()
}

fn is_call(instruction: &str) -> bool {
    let name = |text: &str| {
        let (_, name) = text.split_once('<')?;
        let name = name.trim_end().strip_suffix('>')?;
        Some(name.split('@').next().unwrap_or(name).to_owned())
    };
    let called = instruction.strip_prefix("call").and_then(name);
    called.is_some_and(|name| {
        ALLOCATORS.contains(&&*name) || OF_RUST.iter().any(|end| name.ends_with(end))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that calls by a linkage stub, by a slot and to a function of the file are found, and jumps and other functions are not.
    #[test]
    fn calls_are_found() {
        let text = "
0000000000001000 <f>:
    1000:\tcall   1050 <malloc@plt>
    1005:\tcall   *0x2fda(%rip)        # 3fd8 <_Znwm@GLIBCXX_3.4>
    100b:\tcall   2000 <_RNvCs1_7___rustc12___rust_alloc>
    1010:\tcall   2010 <_RNvCs1_7___rustc35___rust_no_alloc_shim_is_unstable_v2>
    1015:\tcall   1060 <free@plt>
    101a:\tjmp    1050 <malloc@plt>
    101f:\tcall   1050 <malloc@plt>

0000000000001024 <g>:
    1024:\tret
";
        let found = returns(text.lines().map(str::to_owned));
        assert_eq!(found, [0x1005, 0x100b, 0x1010]);
    }
}
