//! A process that reads source files for a report that has given up its rights.
//!
//! Part of the command line. The paths come from a data file, which may come from anywhere. So only files whose names are those of
//! source files are read, and their text goes to the terminal alone. Must not know what the text is for.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::side_process::SideProcess;
use super::source_path::{SourcePath, candidates};
use crate::open;
use crate::output::{SourceFile, SourceText};
use crate::symbolize::Debuginfod;

/// Most bytes of a file.
const MAX_FILE: u64 = 4 << 20;

/// Most bytes of a path, and of a build id.
const MAX_PATH: u64 = 4096;

/// What the names of source files end with.
const EXTENSIONS: [&str; 44] = [
    "S", "ads", "adb", "asm", "c", "cc", "clj", "cpp", "cs", "cu", "cxx", "d", "ex", "erl", "f",
    "f90", "go", "h", "hh", "hpp", "hs", "hxx", "inc", "inl", "ipp", "java", "js", "jl", "kt",
    "lua", "m", "mjs", "ml", "mm", "nim", "php", "pl", "py", "pyx", "rb", "rs", "s", "swift", "ts",
];

/// The process, which waits for questions.
pub(super) struct Sources(SideProcess);

impl Sources {
    /// Starts the process, which searches these places, and then asks these servers. Must be called while this process has a single
    /// thread.
    pub(super) fn start(places: &[SourcePath], debuginfod: Option<Debuginfod>) -> io::Result<Self> {
        SideProcess::start(c"heaptrace-lines", |asked, answered| {
            // An error means that the parent has ended.
            let _ = serve(asked, answered, places, debuginfod);
        })
        .map(Self)
    }

    /// The text of a file, as a recording that began then names it.
    pub(super) fn text(&mut self, file: &SourceFile, begun_unix_ns: u64) -> io::Result<SourceText> {
        if file.path.len() as u64 > MAX_PATH || file.build_id.len() as u64 > MAX_PATH {
            return Ok(SourceText::default());
        }
        let SideProcess { question, answer } = &mut self.0;
        send(question, file.path.as_bytes())?;
        send(question, &file.build_id)?;
        let read_from = receive(answer, MAX_PATH)?;
        let mut changed = [0; 8];
        answer.read_exact(&mut changed)?;
        let bytes = receive(answer, MAX_FILE)?;
        let read_from = String::from_utf8_lossy(&read_from).into_owned();
        let is_there = !read_from.is_empty();
        Ok(SourceText {
            text: is_there.then(|| String::from_utf8_lossy(&bytes).into_owned()),
            read_from,
            is_newer: u64::from_le_bytes(changed) > begun_unix_ns,
        })
    }
}

/// Sends some bytes with their length.
fn send(to: &mut File, bytes: &[u8]) -> io::Result<()> {
    to.write_all(&(bytes.len() as u64).to_le_bytes())?;
    to.write_all(bytes)
}

/// Receives some bytes, no more than `most`.
fn receive(from: &mut File, most: u64) -> io::Result<Vec<u8>> {
    let mut length = [0; 8];
    from.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length).min(most);
    let mut bytes = Vec::new();
    from.take(length).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A file that was found.
#[derive(Default)]
struct Found {
    path: String,
    /// When it was changed, in nanoseconds since 1970.
    changed: u64,
    content: Vec<u8>,
}

/// Answers questions until the parent has ended: each with the place, the time of the last change, and the content. Without a file, the
/// place is empty.
fn serve(
    mut asked: File,
    mut answered: File,
    places: &[SourcePath],
    mut debuginfod: Option<Debuginfod>,
) -> io::Result<()> {
    loop {
        let path = receive(&mut asked, MAX_PATH)?;
        let build_id = receive(&mut asked, MAX_PATH)?;
        let path = String::from_utf8_lossy(&path);
        let found = find(&path, &build_id, places, debuginfod.as_mut()).unwrap_or_default();
        send(&mut answered, found.path.as_bytes())?;
        answered.write_all(&found.changed.to_le_bytes())?;
        send(&mut answered, &found.content)?;
    }
}

/// A source file of the program with this build id.
fn find(
    path: &str,
    build_id: &[u8],
    places: &[SourcePath],
    debuginfod: Option<&mut Debuginfod>,
) -> Option<Found> {
    let extension = Path::new(path).extension()?.to_str()?;
    if !EXTENSIONS.contains(&extension) {
        return None;
    }
    let mut candidates = candidates(path, places).into_iter();
    candidates.find_map(|it| read(&it)).or_else(|| {
        let fetched = debuginfod?.fetch_source(build_id, path)?;
        // It belongs to the build, whenever it came here.
        let changed = 0;
        Some(Found {
            changed,
            ..read(&fetched)?
        })
    })
}

fn read(path: &Path) -> Option<Found> {
    // A path that is relative, as reproducible builds have it, is meant from the project's folder on.
    let file = open::named(path).ok()?.file;
    let changed = file.metadata().ok()?.modified().ok()?;
    let mut content = Vec::new();
    file.take(MAX_FILE).read_to_end(&mut content).ok()?;
    Some(Found {
        path: path.display().to_string(),
        changed: nanoseconds(changed),
        content,
    })
}

fn nanoseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::join::Totals;

    /// Check that no file is read whose name is not that of a source file, whatever a recording says, and that a file is found below a
    /// folder.
    #[test]
    fn only_source_files_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("a.c");
        let secret = dir.path().join("secret");
        std::fs::write(&source, "int a;\n").unwrap();
        std::fs::write(&secret, "x").unwrap();
        let place = SourcePath::parse(dir.path().to_str().unwrap()).unwrap();
        let mut sources = Sources::start(&[place], None).unwrap();
        let mut text = |path: &Path, begun| {
            let file = SourceFile {
                path: path.to_str().unwrap().to_owned(),
                build_id: vec![1; 20],
                totals: Totals::default(),
                lines: BTreeMap::new(),
            };
            sources.text(&file, begun).unwrap()
        };
        let found = text(&source, u64::MAX);
        assert_eq!(
            (found.text.as_deref(), found.is_newer),
            (Some("int a;\n"), false)
        );
        assert_eq!(Path::new(&found.read_from), source);
        assert!(text(&source, 0).is_newer);
        let elsewhere = text(Path::new("/no/such/folder/a.c"), 0);
        assert_eq!(Path::new(&elsewhere.read_from), source);
        assert_eq!(text(&secret, 0).text, None);
        assert_eq!(text(&dir.path().join("gone.c"), 0).text, None);
        assert_eq!(text(Path::new("/etc/shadow"), 0).text, None);
    }
}
