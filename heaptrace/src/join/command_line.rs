//! The command line of a process, as it is at its first allocation.
//!
//! Stage: join. A process can write any bytes there, so the text is cut to a size, and every output escapes it.

use std::fs::File;
use std::io::{self, Read};

use super::processes;

/// Most bytes that are read.
const MAX_BYTES: u64 = 1024;

/// The longest path, with its zero.
const MAX_PATH: u64 = 4096;

/// The command line of a running process. It is empty if the process is gone, has none, or has another name
/// by now: then it runs another program, and the command line belongs to that one.
pub(super) fn of(pid: u32, name: &str) -> String {
    let line = File::open(format!("/proc/{pid}/cmdline"))
        .and_then(read)
        .unwrap_or_default();
    // The name is read after the command line: an exec in between changes both.
    if processes::name_of(pid) == name {
        line
    } else {
        String::new()
    }
}

/// The first word of the command line of a running process; empty if it has none, or one too long to be a path.
pub(super) fn first_word(pid: u32) -> Vec<u8> {
    File::open(format!("/proc/{pid}/cmdline"))
        .and_then(read_first)
        .unwrap_or_default()
}

/// The first of zero-terminated words.
fn read_first(source: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(MAX_PATH).read_to_end(&mut bytes)?;
    let end = bytes.iter().position(|byte| *byte == 0);
    bytes.truncate(end.unwrap_or(0));
    Ok(bytes)
}

/// Turns zero-terminated words into a line for a shell.
fn read(source: impl Read) -> io::Result<String> {
    let mut bytes = Vec::new();
    // One byte more shows whether there is more.
    source.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    let is_cut = bytes.len() as u64 > MAX_BYTES;
    bytes.truncate(MAX_BYTES as usize);
    // A program that writes its own title leaves zeros after it.
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

/// A word, in quotes if a shell would not take it as one word otherwise.
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

    /// Check that words become a line, also empty ones and ones with separators in them.
    #[test]
    fn words_become_a_line() {
        assert_eq!(line(b"ls\0-l\0/tmp\0"), "ls -l /tmp");
        assert_eq!(line(b"sh\0-c\0it's a\0x\0"), r"sh -c 'it'\''s a' x");
        assert_eq!(line(b"a\0\0b\0"), "a '' b");
        assert_eq!(line(b""), "");
        assert_eq!(line(b"\0"), "");
    }

    /// Check that a title has no zeros at its end, and that bytes which are no UTF-8 are replaced.
    #[test]
    fn titles_have_no_zeros_at_their_end() {
        assert_eq!(line(b"nginx:worker\0\0\0\0"), "nginx:worker");
        assert_eq!(line(b"\xff\xfe\0"), "\u{fffd}\u{fffd}");
    }

    /// Check that a long line is cut, and that its end shows it.
    #[test]
    fn long_lines_are_cut() {
        let long = line(&vec![b'x'; 1 << 20]);
        assert_eq!(long.len(), MAX_BYTES as usize + '…'.len_utf8());
        assert!(long.ends_with('…'));
        assert_eq!(line(&vec![b'x'; 1024]).len(), 1024);
    }

    /// Check that the first word ends at its zero, and that an endless one is dropped.
    #[test]
    fn first_words_are_bounded() {
        assert_eq!(read_first(&b"ab\0c\0"[..]).unwrap(), b"ab");
        assert!(read_first(&b""[..]).unwrap().is_empty());
        assert!(read_first(io::repeat(b'x')).unwrap().is_empty());
    }

    /// Check that a running process has a command line, and that an unknown one has none.
    #[test]
    fn running_processes_have_command_lines() {
        let own = std::fs::read_to_string("/proc/self/comm").unwrap();
        assert!(!of(std::process::id(), own.trim_end()).is_empty());
        assert_eq!(of(std::process::id(), "another"), "");
        assert_eq!(of(u32::MAX, ""), "");
    }
}
