//! Fixtures that run on the C library of another Debian release, which is unpacked and not installed.
//!
//! Part of the harness. All are linked with the oldest release's library, because newer ones still run what it can run.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::archive::{Archive, unpack};
use crate::child::run;
use crate::fixture::{Fixture, c_object, folder, hand_over};

/// The releases, and the version of each one's C library.
pub const GLIBCS: [(&str, &str); 3] = [
    ("bullseye", "2.31"),
    ("bookworm", "2.36"),
    ("trixie", "2.41"),
];

/// Where a package of any release has its libraries: older ones have both folders.
const LIBRARIES: [&str; 2] = ["lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"];

/// A fixture in C on the C library of a release.
pub fn c_on_glibc(name: &str, release: &str) -> Result<Fixture> {
    let (oldest, _) = GLIBCS[0];
    let (here, linked) = (libc6(release)?, libc6(oldest)?);
    let found = |file: &str| find(&linked, file);
    let of_compiler = |file: &str| -> Result<String> {
        let ended = run(Command::new("cc").arg(format!("-print-file-name={file}")))?;
        Ok(ended.success()?.stdout.trim().to_owned())
    };
    let linker = find(&here, "ld-linux-x86-64.so.2")?;
    let libraries = find(&here, "libc.so.6")?;
    let libraries = libraries.parent().context("no folder")?.display();
    let path = folder().join(format!("{name}-{release}"));
    let mut command = Command::new("cc");
    // The machine's own startup files need a newer library.
    command
        .args(["-pie", "-nostdlib", "-o"])
        .arg(&path)
        .arg(format!("-Wl,--dynamic-linker={}", linker.display()))
        // Also for the libraries that the C library itself loads.
        .arg(format!("-Wl,--disable-new-dtags,-rpath={libraries}"))
        .args([found("Scrt1.o")?, found("crti.o")?])
        .arg(of_compiler("crtbeginS.o")?)
        .arg(&c_object(name)?.path)
        .args(["-Wl,--no-as-needed"])
        .args([found("libpthread.so.0")?, found("libdl.so.2")?])
        .args([found("libc.so.6")?, found("libc_nonshared.a")?])
        .args([found("ld-linux-x86-64.so.2")?])
        .args(["-lgcc".to_owned(), of_compiler("crtendS.o")?])
        .arg(found("crtn.o")?);
    run(&mut command)?.success()?;
    Ok(Fixture { path })
}

/// The libraries of a release's C library: that itself, the dynamic linker, and that of threads, which newer ones keep for old
/// programs.
pub fn glibc_files(release: &str) -> Result<Vec<PathBuf>> {
    let folder = libc6(release)?;
    ["libc.so.6", "ld-linux-x86-64.so.2", "libpthread.so.0"]
        .into_iter()
        .map(|file| find(&folder, file))
        .collect()
}

/// A file of an unpacked release.
fn find(folder: &Path, file: &str) -> Result<PathBuf> {
    let mut paths = LIBRARIES.iter().map(|it| folder.join(it).join(file));
    let path = paths.find(|path| path.exists());
    path.with_context(|| format!("no {file} in {}", folder.display()))
}

/// The folder with a release's unpacked C library, and what programs are linked with.
fn libc6(release: &str) -> Result<PathBuf> {
    let all = folder().join("glibc");
    fs::create_dir_all(&all)?;
    // Several threads of several test programs may need it at once.
    let lock = File::create(all.join(".lock"))?;
    lock.lock().context("cannot lock the folder of glibc")?;
    let path = all.join(release);
    if path.is_dir() {
        return Ok(path);
    }
    let suites = GLIBCS.map(|(release, _)| release);
    let needed = "Debian's libc6 of several releases is needed, and can't be had";
    let archive = Archive::new(&all.join("apt"), &suites).context(needed)?;
    let unfinished = all.join(format!(".{release}.unfinished"));
    // Threads that are cancelled are unwound by libgcc.
    for package in ["libc6", "libc6-dev", "libgcc-s1"] {
        let file = archive.download(package, Some(release)).context(needed)?;
        unpack(&file, &unfinished)?;
    }
    ensure!(unfinished.is_dir(), "{needed}");
    fs::rename(&unfinished, &path)?;
    hand_over(&all)?;
    Ok(path)
}
