//! What runs when a program is started: its file, its dynamic loader, and its libraries.
//!
//! Stage: probes. Reads files that may be anything; starts nothing but a loader that is asked for its list.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use object::ReadRef;

/// What runs when a program is started.
#[derive(Debug)]
pub struct Image {
    /// The program, or the interpreter of a script.
    pub program: PathBuf,
    /// The dynamic loader that it asks for.
    pub loader: Option<PathBuf>,
}

/// What runs when a program is started.
pub fn image_of(program: &Path) -> Option<Image> {
    const MAX_SCRIPTS: usize = 4;
    let mut path = program.to_owned();
    for _ in 0..MAX_SCRIPTS {
        let file = File::open(&path).ok()?;
        let mut head = Vec::new();
        (&file).take(256).read_to_end(&mut head).ok()?;
        let Some(line) = head.strip_prefix(b"#!") else {
            let cache = object::ReadCache::new(&file);
            let loader = interpreter(&cache);
            return Some(Image {
                program: path,
                loader,
            });
        };
        let line = String::from_utf8_lossy(line.split(|byte| *byte == b'\n').next()?).into_owned();
        path = line.split_whitespace().next()?.into();
    }
    None
}

/// The dynamic loader that an ELF file asks for.
pub fn interpreter<'a, R: ReadRef<'a>>(data: R) -> Option<PathBuf> {
    use object::read::elf::{FileHeader as _, ProgramHeader as _};
    let header = object::elf::FileHeader64::<object::Endianness>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, data).ok()?;
    let name = segments
        .iter()
        .find_map(|segment| segment.interpreter(endian, data).ok().flatten())?;
    Some(String::from_utf8_lossy(name).into_owned().into())
}

impl Image {
    /// The files with code that it will map when it starts: the program, the loader, and the libraries
    /// that the loader says it would load.
    pub fn files(&self) -> Vec<PathBuf> {
        let mut paths = vec![self.program.clone()];
        if let Some(loader) = &self.loader {
            paths.extend(libraries(loader, &self.program));
            paths.push(loader.clone());
        }
        paths
    }
}

/// What the dynamic loader would load, by its own word; the program does not run for that.
fn libraries(loader: &Path, program: &Path) -> Vec<PathBuf> {
    let listed = Command::new(loader)
        .args([OsStr::new("--list"), program.as_os_str()])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    let Ok(listed) = listed else {
        return Vec::new();
    };
    parse_list(&String::from_utf8_lossy(&listed.stdout))
}

/// Paths in lines such as `libc.so.6 => /lib/libc.so.6 (0x7f…)`, or without the arrow where a
/// library is asked for by its path.
fn parse_list(text: &str) -> Vec<PathBuf> {
    text.lines()
        .filter_map(|line| line.trim_start().rsplit_once(" (0x"))
        .map(|(library, _)| library.split_once("=> ").map_or(library, |(_, path)| path))
        .filter(|path| path.starts_with('/'))
        .map(PathBuf::from)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that paths are found with and without a name before them, with blanks, and that what
    /// has no path is left out.
    #[test]
    fn parses_the_loaders_list() {
        let text = "\tlinux-vdso.so.1 (0x00007ffe)\n\
                    \tlibc.so.6 => /a b/libc.so.6 (0x00007f00)\n\
                    \tlibx.so => not found\n\
                    \t/opt/plugin.so (0x00007f01)\n";
        assert_eq!(
            parse_list(text),
            [
                PathBuf::from("/a b/libc.so.6"),
                PathBuf::from("/opt/plugin.so")
            ]
        );
    }
}
