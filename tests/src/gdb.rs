//! Stacks at allocations as gdb's `bt` prints them, read as data.
//!
//! Part of the harness: a second opinion on heaptrace's stacks.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::child::run;
use crate::rights::require_tool;

/// A stack as gdb sees it, from the caller of the allocator's function outward.
pub type Backtrace = Vec<GdbFrame>;

/// A frame, or a function that is inlined in the next frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GdbFrame {
    /// The function; `None` if gdb knows none.
    pub function: Option<String>,
    /// The file, and the offset in the file of the instruction after the call.
    pub place: (String, u64),
}

/// The script that gdb runs at each allocation. From debug information, gdb guesses which functions left by a tail
/// call. `bt` prints these as well, but they have no frame, so they are left out.
const SHOW: &str = r#"
python
def show():
    print("\nSIZE %d" % int(gdb.parse_and_eval("$rdi")))
    frame = gdb.newest_frame().older()
    for _ in range(160):
        if frame is None:
            break
        if frame.type() != gdb.TAILCALL_FRAME:
            print("FRAME %x %s" % (frame.pc(), frame.name() or ""))
        frame = frame.older()
end
"#;

/// Runs a command in gdb, and returns the stack at the `malloc` of each of these sizes that is requested exactly once.
pub fn backtraces<S: AsRef<OsStr>>(
    folder: &Path,
    command: &[S],
    sizes: &[u64],
) -> Result<BTreeMap<u64, Backtrace>> {
    let gdb = require_tool("gdb", "gdb")?;
    let script = folder.join("gdb.script");
    fs::write(&script, script_text(sizes)?)?;
    let ended = run(Command::new(gdb)
        .args(["-nx", "-batch", "-x"])
        .arg(&script)
        .arg("--args")
        .args(command))?;
    let mut stacks = BTreeMap::<u64, Vec<Backtrace>>::new();
    for part in ended.stdout.split("\nSIZE ").skip(1) {
        let (size, text) = part.split_once('\n').context("cut off")?;
        stacks
            .entry(size.trim().parse()?)
            .or_default()
            .push(parse(text)?);
    }
    ensure!(
        !stacks.is_empty(),
        "gdb took no stack:\n{}\n{}",
        ended.stdout,
        ended.stderr
    );
    stacks.retain(|_, stacks| stacks.len() == 1);
    let single = stacks.into_iter();
    Ok(single.map(|(size, mut it)| (size, it.remove(0))).collect())
}

fn script_text(sizes: &[u64]) -> Result<String> {
    let mut script = String::from(
        "set debuginfod enabled off\nset pagination off\nset width 0\nset confirm off\n\
         set backtrace past-main on\nset breakpoint pending on\n\
         handle SIGUSR1 nostop noprint pass\n",
    );
    script.push_str(SHOW);
    // Before the C library is loaded, the only malloc is the dynamic loader's.
    script.push_str("tbreak __libc_start_main\nrun\nbreak *malloc if 0");
    for size in sizes {
        write!(script, " || $rdi == {size}")?;
    }
    script.push_str(
        "\ncommands\nsilent\npython show()\ninfo proc mappings\ncontinue\nend\ncontinue\n",
    );
    Ok(script)
}

/// Reads the frames and, after them, the mappings that contain their addresses.
fn parse(text: &str) -> Result<Backtrace> {
    let mappings: Vec<(u64, u64, u64, &str)> = text
        .lines()
        .filter_map(|line| {
            let mut fields = line.split_whitespace();
            let mut number = || u64::from_str_radix(fields.next()?.strip_prefix("0x")?, 16).ok();
            let (start, end, _, offset) = (number()?, number()?, number()?, number()?);
            let file = fields.last().filter(|it| it.starts_with(['/', '[']))?;
            Some((start, end, offset, file))
        })
        .collect();
    let mut stack = Vec::new();
    for line in text.lines() {
        let Some((digits, name)) = line
            .strip_prefix("FRAME ")
            .and_then(|rest| rest.split_once(' '))
        else {
            continue;
        };
        let address = u64::from_str_radix(digits, 16)?;
        let mapping = mappings
            .iter()
            .find(|mapping| (mapping.0..mapping.1).contains(&address));
        let Some((start, _, offset, file)) = mapping else {
            bail!("{line}: an address in no file");
        };
        stack.push(GdbFrame {
            function: (!name.is_empty()).then(|| name.to_owned()),
            place: ((*file).to_owned(), address - start + offset),
        });
    }
    Ok(stack)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that frames with and without names are read, together with their files.
    #[test]
    fn frames_are_read() {
        let text = "FRAME 1499 operator new(unsigned long)\n\
                    FRAME 1500 \n\
                    process 12\n\
                    0x1000 0x2000 0x1000 0x5000 r-xp /a/b\n";
        let frame = |function: Option<&str>, offset| GdbFrame {
            function: function.map(str::to_owned),
            place: ("/a/b".to_owned(), offset),
        };
        assert_eq!(
            parse(text).unwrap(),
            [
                frame(Some("operator new(unsigned long)"), 0x5499),
                frame(None, 0x5500),
            ]
        );
    }
}
