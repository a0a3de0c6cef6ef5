//! The allocators to measure: for each a file, and a program that calls its functions.
//!
//! Part of placements. It must not know what is measured.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{apt, process, run};

/// The Debian packages of the allocators.
const PACKAGES: [&str; 5] = [
    "libjemalloc2",
    "libgoogle-perftools4",
    "libtcmalloc-minimal4",
    "libmimalloc2.0",
    "musl-tools",
];

/// The names of preloaded allocators, and their file names.
const PRELOADED: [(&str, &str); 4] = [
    ("jemalloc", "libjemalloc.so.2"),
    ("tcmalloc", "libtcmalloc.so.4"),
    ("tcmalloc, minimal", "libtcmalloc_minimal.so.4"),
    ("mimalloc", "libmimalloc.so.2"),
];

/// The folders of libraries, for systems other than Debian too.
const FOLDERS: [&str; 4] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
];

/// The program that calls the allocators' functions.
const SOURCE: &str = "xtask/bench/place.c";

/// An allocator.
#[derive(Clone, Debug)]
pub(super) struct Library {
    /// The name and version, for the table.
    pub(super) name: String,
    /// The path of the library.
    pub(super) path: PathBuf,
    /// The program that calls the library's functions.
    pub(super) program: PathBuf,
    /// Whether the library must be preloaded.
    pub(super) preload: bool,
}

/// The C libraries, and the allocators that Debian has.
pub(super) fn known() -> Result<Vec<Library>> {
    apt::ensure(&PACKAGES, "as allocators to place probes in")?;
    let program = compiled()?;
    let path = process::output(Command::new("cc").arg("-print-file-name=libc.so.6"))?;
    let mut libraries = vec![Library {
        name: named("glibc", "libc6"),
        path: real(Path::new(path.trim()))?,
        program: program.clone(),
        preload: false,
    }];
    for ((name, file), package) in PRELOADED.into_iter().zip(PACKAGES) {
        let found = FOLDERS.iter().map(|folder| Path::new(folder).join(file));
        let Some(path) = found.into_iter().find(|path| path.exists()) else {
            bail!("cannot find {file} in {}", FOLDERS.join(", "));
        };
        libraries.push(Library {
            name: named(name, package),
            path: real(&path)?,
            program: program.clone(),
            preload: true,
        });
    }
    libraries.push(musl()?);
    Ok(libraries)
}

/// The given files, as allocators to preload.
pub(super) fn preloaded(files: &[PathBuf]) -> Result<Vec<Library>> {
    let program = compiled()?;
    let library = |file: &PathBuf| {
        Ok(Library {
            name: file
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            path: real(file)?,
            program: program.clone(),
            preload: true,
        })
    };
    files.iter().map(library).collect()
}

fn compiled() -> Result<PathBuf> {
    run::compile_c(SOURCE, &["-O2", "-fno-builtin"])
}

/// musl's C library is its own dynamic loader, so it needs a program that is compiled for it.
fn musl() -> Result<Library> {
    let program = compiled()?.with_file_name("place-musl");
    let mut command = Command::new("musl-gcc");
    command.args(["-O2", "-fno-builtin", "-o"]).arg(&program);
    process::run(command.arg(crate::workspace::root().join(SOURCE)))?;
    Ok(Library {
        name: named("musl", "musl"),
        path: real(Path::new("/lib/ld-musl-x86_64.so.1"))?,
        program,
        preload: false,
    })
}

fn real(path: &Path) -> Result<PathBuf> {
    path.canonicalize()
        .with_context(|| format!("cannot find {}", path.display()))
}

/// The name with the version of the Debian package, if it is installed.
fn named(name: &str, package: &str) -> String {
    match apt::version(package) {
        Some(version) => format!("{name} {version}"),
        None => name.to_owned(),
    }
}
