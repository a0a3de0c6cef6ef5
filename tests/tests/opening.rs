//! Tests of files that targets choose: heaptrace opens only the right ones, and runs none.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use heaptrace::open::{self, Expected, NotOpened};
use heaptrace_tests::{Child, Heaptrace, c, c_linked, c_plugin, ready_pid, run};
use object::{Object as _, ObjectSection as _};

/// Check that heaptrace doesn't run the loader that a file on the command line names. (Once, it ran the loader of each
/// word to list its libraries.)
#[test]
fn loaders_of_arguments_are_not_run() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let (loader, proof) = (here.path("loader"), here.path("proof"));
    fs::write(&loader, format!("#!/bin/sh\ntouch {}\n", proof.display()))?;
    fs::set_permissions(&loader, fs::Permissions::from_mode(0o755))?;
    let document = here.path("document");
    let linker = format!("-Wl,--dynamic-linker={}", loader.display());
    let source = here.path("document.c");
    fs::write(&source, "int main(void) { return 0; }\n")?;
    run(Command::new("cc")
        .arg("-o")
        .arg(&document)
        .arg(&source)
        .arg(&linker))?
    .success()?;
    let recording = here.record(&[], &["sha256sum".as_ref(), document.as_os_str()])?;
    assert_eq!(recording.ended.code(), 0, "{}", recording.ended.stderr);
    ensure!(!proof.exists(), "the foreign loader was run");
    Ok(())
}

/// Check that a pipe at the path of a file that an ended process had mapped doesn't block heaptrace.
#[test]
fn a_pipe_at_a_files_path_is_not_opened() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let recording = here.record_all(&[
        c("replaced")?.path.as_os_str(),
        "fifo".as_ref(),
        here.folder().as_os_str(),
    ])?;
    recording.truth("main")?.matches(&recording.report.totals)
}

/// Watches a file: the kernel reports each time that a process opens it.
fn watch(path: &Path) -> Result<File> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the name is a C string.
    let watching = unsafe {
        let watching = libc::inotify_init1(libc::IN_NONBLOCK | libc::IN_CLOEXEC);
        libc::inotify_add_watch(watching, name.as_ptr(), libc::IN_OPEN);
        watching
    };
    ensure!(watching >= 0, "cannot watch {}", path.display());
    // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(watching) }))
}

/// Check that the path of a file in a target's root folder is not opened in heaptrace's own root.
#[test]
fn a_path_of_another_root_is_not_opened_here() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let fixture = c("replaced")?;
    let (own, root) = (Path::new("/library"), here.path("root"));
    fs::create_dir(&root)?;
    fs::copy(&fixture.path, root.join("library"))?;
    ensure!(!own.exists(), "/library is there already");
    fs::copy(&fixture.path, own)?;
    let mut watched = watch(own)?;
    let words = [
        fixture.path.as_os_str(),
        "chroot".as_ref(),
        root.as_os_str(),
    ];
    let recording = here.record(&[], &words);
    let mut opened = [0; 64];
    let seen = watched.read(&mut opened);
    fs::remove_file(own)?;
    assert_eq!(recording?.ended.code(), 0);
    let error = seen.err().context("the file of the own root was opened")?;
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    Ok(())
}

/// Check that a library that is cut short during a lookup of names doesn't end the run.
#[test]
fn a_file_that_is_cut_short_ends_no_run() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let plugin = here.path("plugin.so");
    fs::copy(c_plugin("plugin")?.path, &plugin)?;
    let mut target = Child::spawn(c("shrinking")?.command().arg(&plugin))?;
    let pid = ready_pid(&target.line()?)?;
    let arguments = ["--pid", &pid.to_string(), "--exact", "--interval", "100ms"];
    let mut live = Child::spawn(&mut here.command(&arguments)?)?;
    // The live view writes a line when it traces.
    live.line()?;
    target.go()?;
    let ended = target.wait()?;
    assert_eq!(ended.code(), 0, "{}", ended.stderr);
    let live = live.wait()?.success()?;
    live.no_panic()?;
    ensure!(live.stdout.contains("called_back"), "{}", live.stdout);
    Ok(())
}

/// Check that two programs with the same path and build id, in different root folders, keep their own names.
#[test]
fn a_copied_build_id_forges_no_names() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let mut words = Vec::new();
    for (name, size) in [("honest", 1111), ("forged", 2222)] {
        let definitions = [format!("-DNAME={name}"), format!("-DSIZE={size}")];
        let options = [
            definitions[0].as_str(),
            &definitions[1],
            "-static",
            "-Wl,--build-id=0x0123456789abcdef0123456789abcdef01234567",
        ];
        let fixture = c_linked("twofaced", &format!("twofaced-{name}"), "cc", &options)?;
        let root = here.path(name);
        fs::create_dir(&root)?;
        fs::copy(&fixture.path, root.join("program"))?;
        words.push(format!("chroot {} /program", root.display()));
    }
    let command = ["sh", "-c", &words.join("; ")];
    let recording = here.record(&[], &command)?;
    assert_eq!(recording.ended.code(), 0, "{}", recording.ended.stderr);
    for (name, size) in [("honest", 1111), ("forged", 2222)] {
        let found = recording.report.sites.iter().find(|site| {
            let totals = &site.totals;
            (1..=200).contains(&totals.allocations)
                && totals.allocated_bytes == totals.allocations * size
        });
        let site = found.with_context(|| format!("{name} was not seen"))?;
        let frames = site.stack.iter();
        let names: Vec<&str> = frames.filter_map(|it| it.function.as_deref()).collect();
        ensure!(names.contains(&name), "{name}: {names:?}");
    }
    Ok(())
}

/// Check that a file with a symbol table of 6 GiB, a hole that uses no disk space, needs little memory. (Once, it needed
/// 2 GiB.)
#[test]
fn a_large_hole_needs_no_memory() -> Result<()> {
    const HOLE: u64 = 6 << 30;
    let here = Heaptrace::tracing()?;
    let program = here.path("program");
    fs::copy(c("churn")?.path, &program)?;
    let bytes = fs::read(&program)?;
    let parsed = object::File::parse(&*bytes)?;
    let table = parsed.section_by_name(".symtab").context("no symbols")?;
    let headers = u64::from_le_bytes(*bytes[0x28..].first_chunk().context("no header")?);
    let header = headers + 64 * table.index().0 as u64;
    let file = OpenOptions::new().write(true).open(&program)?;
    let start = (bytes.len() as u64).next_multiple_of(4096);
    file.write_all_at(&start.to_le_bytes(), header + 0x18)?;
    file.write_all_at(&HOLE.to_le_bytes(), header + 0x20)?;
    file.set_len(start + HOLE)?;
    drop(file);
    let recording = here.record_all(&[program.as_os_str()])?;
    recording.truth("main")?.matches(&recording.report.totals)?;
    let peak = recording.report.quality.agent_peak_bytes;
    ensure!(peak < 400 << 20, "the agent used {peak} bytes");
    Ok(())
}

/// Maps the first page of a file at an address, and replaces the mapping there.
fn map_at(path: &Path, at: *mut libc::c_void) -> Result<u64> {
    let file = File::open(path)?;
    let fixed = if at.is_null() { 0 } else { libc::MAP_FIXED };
    // SAFETY: this is a new mapping, or replaces one that this function made before.
    let mapped = unsafe {
        libc::mmap(
            at,
            4096,
            libc::PROT_READ | libc::PROT_EXEC,
            libc::MAP_PRIVATE | fixed,
            file.as_raw_fd(),
            0,
        )
    };
    ensure!(mapped != libc::MAP_FAILED, "cannot map {}", path.display());
    Ok(mapped as u64)
}

/// Check that opening the file of a mapping fails if another file is mapped there by now.
#[test]
fn a_replaced_mapping_is_not_opened() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let expected = |path: &Path| -> Result<Expected> {
        let meta = path.metadata()?;
        Ok(Expected {
            device: (libc::major(meta.dev()), libc::minor(meta.dev())),
            inode: meta.ino(),
        })
    };
    let paths: Vec<_> = (0..20).map(|n| here.path(&format!("lib{n}.so"))).collect();
    let mut at = 0;
    for path in &paths {
        let mut file = File::create(path)?;
        file.write_all(&[0x90; 4096])?;
        at = map_at(path, at as *mut libc::c_void)?;
        let opened = open::mapped(std::process::id(), at, at + 4096, Some(expected(path)?))?;
        assert_eq!(opened.identity.file.inode, path.metadata()?.ino());
    }
    for path in &paths[..19] {
        let opened = open::mapped(std::process::id(), at, at + 4096, Some(expected(path)?));
        ensure!(matches!(opened, Err(NotOpened::Replaced)), "{opened:?}");
    }
    Ok(())
}
