//! Lists processes and threads by `/proc`.
//!
//! Part of `proc`. Yields ids only; must not know what is mapped or probed.

use std::fs::{self, DirEntry};
use std::io;

/// A program that a process runs. It runs another one after an exec, and the place of its stack is another one then, unless addresses
/// are not random.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Image {
    /// The process.
    pub pid: u32,
    /// When the process started, in clock ticks after the machine did.
    pub start_time: u64,
    stack_start: u64,
}

/// Ids of all processes except this one.
pub fn processes() -> io::Result<Vec<u32>> {
    let own = std::process::id();
    Ok(fs::read_dir("/proc")?
        .filter_map(|entry| number(&entry.ok()?))
        .filter(|pid| *pid != own)
        .collect())
}

/// Ids of the threads of a process.
pub fn threads(pid: u32) -> io::Result<Vec<u32>> {
    let mut threads = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        threads.extend(number(&entry?));
    }
    Ok(threads)
}

/// Whether a process or thread has memory: it is neither a thread of the kernel nor ended.
pub fn has_memory(tid: u32) -> bool {
    fs::read_link(format!("/proc/{tid}/exe")).is_ok()
}

/// The name of a process, as the kernel keeps it. `None` if it has ended.
pub fn name(pid: u32) -> Option<String> {
    let name = fs::read(format!("/proc/{pid}/comm")).ok()?;
    let name = name.strip_suffix(b"\n").unwrap_or(&name);
    Some(String::from_utf8_lossy(name).into_owned())
}

/// When a process started, in clock ticks after the machine did. With its id, this names a process for good. `None` if it has
/// ended.
pub fn start_time(pid: u32) -> Option<u64> {
    parse_start_time(&stat(pid)?)
}

/// The program that a process runs. `None` if it has ended.
pub fn image(pid: u32) -> Option<Image> {
    let stat = stat(pid)?;
    Some(Image {
        pid,
        start_time: parse_start_time(&stat)?,
        stack_start: parse_field(&stat, 28)?,
    })
}

/// The parent of a process. `None` if the process has ended.
pub fn parent(pid: u32) -> Option<u32> {
    parse_field(&stat(pid)?, 4)?.try_into().ok()
}

/// Where a process's heap begins, and grows upwards. `None` if it has ended, or has none.
pub fn heap_start(pid: u32) -> Option<u64> {
    parse_heap_start(&stat(pid)?)
}

/// Whether a process that started at this time has not ended yet.
pub fn is_running(pid: u32, start_time: u64) -> bool {
    stat(pid).is_some_and(|stat| !has_ended(&stat) && parse_start_time(&stat) == Some(start_time))
}

/// Whether a thread has ended, also if its number is still taken.
pub fn has_thread_ended(pid: u32, tid: u32) -> bool {
    let stat = text(&format!("/proc/{pid}/task/{tid}/stat"));
    stat.map_or(true, |stat| has_ended(&stat))
}

/// The process that traces a thread.
pub fn tracer(pid: u32, tid: u32) -> io::Result<Option<u32>> {
    let status = text(&format!("/proc/{pid}/task/{tid}/status"))?;
    let mut lines = status.lines();
    let tracer = lines.find_map(|line| line.strip_prefix("TracerPid:")?.trim().parse().ok());
    Ok(tracer.filter(|tracer| *tracer != 0))
}

fn stat(pid: u32) -> Option<String> {
    text(&format!("/proc/{pid}/stat")).ok()
}

/// A file with the name of a process, which may not be UTF-8.
fn text(path: &str) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&fs::read(path)?).into_owned())
}

/// Whether the state is that of a process or thread that has ended.
fn has_ended(stat: &str) -> bool {
    fields(stat).is_none_or(|fields| fields.starts_with(['Z', 'X']))
}

/// The fields of `/proc/PID/stat` from the third on, which is the state.
fn fields(stat: &str) -> Option<&str> {
    // The second field is a name in parentheses, and may hold blanks and parentheses.
    let (_, behind) = stat.rsplit_once(") ")?;
    Some(behind)
}

fn parse_start_time(stat: &str) -> Option<u64> {
    parse_field(stat, 22)
}

fn parse_heap_start(stat: &str) -> Option<u64> {
    parse_field(stat, 47).filter(|start| *start != 0)
}

/// A field of `/proc/PID/stat`, by its number in proc(5), which is at least 3.
fn parse_field(stat: &str, number: usize) -> Option<u64> {
    fields(stat)?.split(' ').nth(number - 3)?.parse().ok()
}

fn number(entry: &DirEntry) -> Option<u32> {
    entry.file_name().to_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use super::*;

    /// Check that the start time and that of the heap are found behind a name with blanks and parentheses.
    #[test]
    fn fields_are_found_behind_names() {
        let fields: Vec<String> = (4..=52).map(|number| number.to_string()).collect();
        let stat = format!("17 (a) b (c)) S {}\n", fields.join(" "));
        assert_eq!(parse_start_time(&stat), Some(22));
        assert_eq!(parse_start_time("17 (a"), None);
        assert!(start_time(std::process::id()).is_some());
        assert_eq!(parse_heap_start(&stat), Some(47));
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let heap = maps.lines().find(|line| line.ends_with("[heap]")).unwrap();
        let start = heap_start(std::process::id()).unwrap();
        assert!(heap.starts_with(&format!("{start:x}-")), "{heap}");
    }

    /// Check that a process that starts another program is another image, and otherwise the same.
    #[test]
    fn another_program_is_another_image() {
        let own = image(std::process::id());
        assert!(own.is_some());
        assert_eq!(own, image(std::process::id()));
        let script = "read line; exec cat";
        let mut child = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (pid, mut answer) = (child.id(), [0; 2]);
        let has_name = |it: &str| name(pid).as_deref() == Some(it);
        while !has_name("sh") {
            std::thread::sleep(Duration::from_millis(1));
        }
        let before = image(pid).unwrap();
        stdin.write_all(b"go\nx\n").unwrap();
        stdout.read_exact(&mut answer).unwrap();
        let after = image(pid).unwrap();
        assert_eq!(before.start_time, after.start_time);
        assert_ne!(before, after);
        drop(stdin);
        assert!(child.wait().unwrap().success());
    }
}
