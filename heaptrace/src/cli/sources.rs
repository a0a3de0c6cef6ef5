//! A process that reads source files for a report that has given up its rights.
//!
//! Part of the command line. The paths come from a data file, which may come from anywhere. So only files whose names are those of
//! source files are read, and their text goes to the terminal alone. Must not know what the text is for.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::side_process::SideProcess;
use crate::open;
use crate::output::SourceText;

/// Most bytes of a file.
const MAX_FILE: u64 = 4 << 20;

/// Most bytes of a path.
const MAX_PATH: u32 = 4096;

/// What the names of source files end with.
const EXTENSIONS: [&str; 44] = [
    "S", "ads", "adb", "asm", "c", "cc", "clj", "cpp", "cs", "cu", "cxx", "d", "ex", "erl", "f",
    "f90", "go", "h", "hh", "hpp", "hs", "hxx", "inc", "inl", "ipp", "java", "js", "jl", "kt",
    "lua", "m", "mjs", "ml", "mm", "nim", "php", "pl", "py", "pyx", "rb", "rs", "s", "swift", "ts",
];

/// A place of source files on the machine that built them, and where they are here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourcePath {
    from: String,
    to: PathBuf,
}

impl SourcePath {
    /// Parses `FROM=TO`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (from, to) = text
            .split_once('=')
            .filter(|(from, to)| !from.is_empty() && !to.is_empty())
            .ok_or("write it as FROM=TO, e.g. /build/app=/home/me/app")?;
        Ok(Self {
            from: from.to_owned(),
            to: PathBuf::from(to),
        })
    }

    /// Where a file is here, if it was there.
    fn apply(&self, path: &str) -> Option<PathBuf> {
        let rest = path.strip_prefix(&self.from)?;
        let is_whole = rest.is_empty() || rest.starts_with('/') || self.from.ends_with('/');
        is_whole.then(|| self.to.join(rest.trim_start_matches('/')))
    }
}

/// The process, which waits for questions.
pub(super) struct Sources(SideProcess);

impl Sources {
    /// Starts the process. Must be called while this process has a single thread.
    pub(super) fn start(paths: &[SourcePath]) -> io::Result<Self> {
        SideProcess::start(c"heaptrace-lines", |asked, answered| {
            // An error means that the parent has ended.
            let _ = serve(asked, answered, paths);
        })
        .map(Self)
    }

    /// The text of a file, as a recording that began then names it.
    pub(super) fn text(&mut self, path: &str, begun_unix_ns: u64) -> io::Result<SourceText> {
        let length = u32::try_from(path.len()).unwrap_or(u32::MAX);
        if length > MAX_PATH {
            return Ok(SourceText::default());
        }
        self.0.question.write_all(&length.to_le_bytes())?;
        self.0.question.write_all(path.as_bytes())?;
        let mut head = [[0; 8]; 2];
        for word in &mut head {
            self.0.answer.read_exact(word)?;
        }
        let [length, changed] = head.map(u64::from_le_bytes);
        if length == u64::MAX {
            return Ok(SourceText::default());
        }
        let mut bytes = Vec::new();
        let read = (&mut self.0.answer).take(length.min(MAX_FILE));
        { read }.read_to_end(&mut bytes)?;
        Ok(SourceText {
            text: Some(String::from_utf8_lossy(&bytes).into_owned()),
            is_newer: changed > begun_unix_ns,
        })
    }
}

/// Answers questions until the parent has ended: each with the length and the time of the last change, and the content.
fn serve(mut asked: File, mut answered: File, paths: &[SourcePath]) -> io::Result<()> {
    loop {
        let mut length = [0; 4];
        asked.read_exact(&mut length)?;
        let mut path = vec![0; u32::from_le_bytes(length).min(MAX_PATH) as usize];
        asked.read_exact(&mut path)?;
        let found = find(&String::from_utf8_lossy(&path), paths);
        let (length, changed) = match &found {
            Some((text, changed)) => (text.len() as u64, *changed),
            None => (u64::MAX, 0),
        };
        answered.write_all(&length.to_le_bytes())?;
        answered.write_all(&changed.to_le_bytes())?;
        answered.write_all(&found.map(|(text, _)| text).unwrap_or_default())?;
    }
}

/// The content of a source file, and when it was changed.
fn find(path: &str, paths: &[SourcePath]) -> Option<(Vec<u8>, u64)> {
    let mapped = paths.iter().filter_map(|it| it.apply(path));
    let mut candidates = mapped.chain([PathBuf::from(path)]);
    candidates.find_map(|path| read(&path))
}

fn read(path: &Path) -> Option<(Vec<u8>, u64)> {
    let extension = path.extension()?.to_str()?;
    // A path that is relative, as reproducible builds have it, is meant from the project's folder on.
    if !EXTENSIONS.contains(&extension) {
        return None;
    }
    let file = open::named(path).ok()?.file;
    let changed = file.metadata().ok()?.modified().ok()?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE).read_to_end(&mut bytes).ok()?;
    Some((bytes, nanoseconds(changed)))
}

fn nanoseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a place stands for whole folders, and that a file elsewhere is not found by it.
    #[test]
    fn places_are_whole_folders() {
        let path = SourcePath::parse("/build/app=/home/me").unwrap();
        let here = |text: &str| path.apply(text);
        assert_eq!(here("/build/app/a/b.c"), Some("/home/me/a/b.c".into()));
        assert_eq!(here("/build/apple/b.c"), None);
        assert_eq!(here("/other/b.c"), None);
        let relative = SourcePath::parse("./=/home/me").unwrap();
        assert_eq!(relative.apply("./csu/b.c"), Some("/home/me/csu/b.c".into()));
        for wrong in ["", "a", "=b", "a="] {
            assert!(SourcePath::parse(wrong).is_err(), "{wrong}");
        }
    }

    /// Check that no file is read whose name is not that of a source file, whatever a recording says.
    #[test]
    fn only_source_files_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("a.c");
        let secret = dir.path().join("secret");
        std::fs::write(&source, "int a;\n").unwrap();
        std::fs::write(&secret, "x").unwrap();
        let mut sources = Sources::start(&[]).unwrap();
        let mut text = |path: &Path, begun| sources.text(path.to_str().unwrap(), begun).unwrap();
        let found = text(&source, u64::MAX);
        assert_eq!(
            (found.text.as_deref(), found.is_newer),
            (Some("int a;\n"), false)
        );
        assert!(text(&source, 0).is_newer);
        assert_eq!(text(&secret, 0).text, None);
        assert_eq!(text(&dir.path().join("gone.c"), 0).text, None);
        assert_eq!(text(Path::new("/etc/shadow"), 0).text, None);
    }
}
