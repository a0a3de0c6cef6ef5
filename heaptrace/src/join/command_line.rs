//! The command line of a process, as it is at its first allocation.
//!
//! Stage: join. A process writes it as it likes: it is cut to a size, and escaped by every output.

use std::fs::File;
use std::io::{self, Read};

/// Most bytes that are read.
const MAX_BYTES: u64 = 1024;

/// Command line of a process that is there; empty where it is gone, has none, or has another name
/// by now: then it runs another program, and this would be that one's.
pub(super) fn of(pid: u32, name: &str) -> String {
    let line = File::open(format!("/proc/{pid}/cmdline"))
        .and_then(read)
        .unwrap_or_default();
    // After the words, as an exec in between changes both.
    let now = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    let now = String::from_utf8_lossy(now.strip_suffix(b"\n").unwrap_or(&now));
    if now == name { line } else { String::new() }
}

/// Words as a shell would take them, which are zero-terminated here.
fn read(source: impl Read) -> io::Result<String> {
    let mut bytes = Vec::new();
    // One more, to tell whether that was all.
    source.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    let is_cut = bytes.len() as u64 > MAX_BYTES;
    bytes.truncate(MAX_BYTES as usize);
    // A program that writes its own title leaves zeros behind it.
    while !is_cut && bytes.last() == Some(&0) {
        bytes.pop();
    }
    if bytes.is_empty() {
        return Ok(String::new());
    }
    let words: Vec<String> = bytes.split(|byte| *byte == 0).map(quoted).collect();
    let mut line = words.join(" ");
    if is_cut {
        line.push('…');
    }
    Ok(line)
}

/// A word, in quotes where it would not be one otherwise.
fn quoted(word: &[u8]) -> String {
    let word = String::from_utf8_lossy(word);
    if word.is_empty() || word.contains([' ', '\t', '\n', '\'', '"', '\\']) {
        format!("'{}'", word.replace('\'', r"'\''"))
    } else {
        word.into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(bytes: &[u8]) -> String {
        read(bytes).unwrap()
    }

    /// Check words, empty ones, and such as hold what separates words.
    #[test]
    fn words() {
        assert_eq!(line(b"ls\0-l\0/tmp\0"), "ls -l /tmp");
        assert_eq!(line(b"sh\0-c\0it's a\0x\0"), r"sh -c 'it'\''s a' x");
        assert_eq!(line(b"a\0\0b\0"), "a '' b");
        assert_eq!(line(b""), "");
        assert_eq!(line(b"\0"), "");
    }

    /// Check that a title which a program writes over its words has no tail of zeros, and that bytes
    /// of no alphabet do no harm.
    #[test]
    fn titles() {
        assert_eq!(line(b"nginx:worker\0\0\0\0"), "nginx:worker");
        assert_eq!(line(b"\xff\xfe\0"), "\u{fffd}\u{fffd}");
    }

    /// Check that nothing long is kept, and that it says so.
    #[test]
    fn bounded() {
        let long = line(&vec![b'x'; 1 << 20]);
        assert_eq!(long.len(), MAX_BYTES as usize + '…'.len_utf8());
        assert!(long.ends_with('…'));
        assert_eq!(line(&vec![b'x'; 1024]).len(), 1024);
    }

    /// Check that a process that is there has one, and one that never was has none.
    #[test]
    fn of_processes() {
        let own = std::fs::read_to_string("/proc/self/comm").unwrap();
        assert!(!of(std::process::id(), own.trim_end()).is_empty());
        assert_eq!(of(std::process::id(), "another"), "");
        assert_eq!(of(u32::MAX, ""), "");
    }
}
