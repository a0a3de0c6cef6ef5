//! `cargo xtask build-ebpf`: builds the kernel object that is committed from the sources of the kernel program.
//!
//! It knows how the program is compiled and which digest it carries. It must not know what the program does.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::built_with::{self, BuiltWith};
use crate::toolchain::{self, Toolchain};
use crate::{bpf_linker, cargo, digest, process, stable_rustc, workspace};

/// The target: little-endian eBPF.
const TARGET: &str = "bpfel-unknown-none";

/// The variable that hands the digest of the sources to the kernel program.
pub const DIGEST_VARIABLE: &str = "HEAPTRACE_SOURCES_SHA256";

/// Build the kernel object from source.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Write the object here instead of heaptrace/bpf/heaptrace.bpf.o.
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
    /// Compare the result with the committed object byte by byte, and don't change the committed object.
    #[arg(long)]
    check: bool,
}

/// Run the task.
pub fn run(args: &Args) -> Result<ExitCode> {
    let committed = workspace::committed_object();
    if args.check {
        digest::check(&workspace::root(), &committed)?;
        let built = build(args.out.as_deref())?;
        return compare(&built, &committed);
    }
    let built = build(Some(args.out.as_deref().unwrap_or(&committed)))?;
    if args.out.is_none() {
        built.with.write(&built_with::path(), &committed)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// An object, and the tools that built it.
struct Built {
    path: PathBuf,
    with: BuiltWith,
}

/// Compare the object with the committed one, if both were built with the same tools.
fn compare(built: &Built, committed: &Path) -> Result<ExitCode> {
    const REMEDY: &str =
        "run `cargo xtask build-ebpf` and commit heaptrace/bpf/ with what it wrote there";
    let Some((with, _)) = BuiltWith::read(&built_with::path()) else {
        bail!("{} can't be read: {REMEDY}", built_with::path().display());
    };
    let (ours, theirs) = (
        built_with::sha256(&built.path)?,
        built_with::sha256(committed)?,
    );
    if ours == theirs {
        println!("These sources give the committed kernel object, byte for byte: {ours}");
        return Ok(ExitCode::SUCCESS);
    }
    if with != built.with {
        println!(
            "NOT COMPARED byte by byte: the committed kernel object was built with other tools.\n\
             Committed:\n{with}\nHere:\n{}\n\
             The digest in it shows that it was built from these sources.",
            built.with
        );
        return Ok(ExitCode::SUCCESS);
    }
    bail!(
        "{} ({theirs}) differs from {} ({ours}), which the same tools built from the same sources: {REMEDY}",
        committed.display(),
        built.path.display()
    )
}

/// Build the object, and copy it to `out`.
fn build(out: Option<&Path>) -> Result<Built> {
    let root = workspace::root();
    let toolchain = choose()?;
    println!(
        "Toolchain: {} ({})",
        toolchain.name,
        toolchain.rustc.display()
    );
    let linker = bpf_linker::ensure(&toolchain)?;
    println!("Linker: {}", linker.display());
    let with = BuiltWith::of(
        &toolchain.rustc,
        &linker,
        &bpf_linker::llvm_prefix(&toolchain),
    )?;

    let manifest = workspace::ebpf_dir().join("Cargo.toml");
    if !workspace::ebpf_dir().join("Cargo.lock").exists() {
        let mut lock = cargo::shielded(&toolchain.cargo, &toolchain.rustc);
        lock.args(["generate-lockfile", "--manifest-path"]);
        process::run(lock.arg(&manifest))?;
    }
    let sources = digest::of_sources(&root)?;
    println!("Sources: {sources}");

    let remaps = Remaps::of(&root, &toolchain);
    let target_dir = workspace::target_dir().join("kernel-object");
    let wrapper = env::current_exe().context("cannot tell where this program is")?;
    let mut command = cargo::shielded(&toolchain.cargo, &toolchain.rustc);
    command
        .args(["build", "--release", "--locked", "--target", TARGET])
        .args(["-Z", "build-std=core", "--manifest-path"])
        .arg(&manifest)
        .arg("--target-dir")
        .arg(&target_dir)
        .env("CARGO_TARGET_BPFEL_UNKNOWN_NONE_LINKER", &linker)
        .env("CARGO_ENCODED_RUSTFLAGS", remaps.flags())
        .env(DIGEST_VARIABLE, &sources)
        .env("RUSTC_WRAPPER", wrapper)
        .env(stable_rustc::VARIABLE, TARGET)
        .current_dir(&root);
    if toolchain.stable {
        command.env("RUSTC_BOOTSTRAP", "1");
    }
    process::run(&mut command).context("the kernel program did not build")?;

    let built = target_dir.join(TARGET).join("release/heaptrace");
    let finished = target_dir.join("heaptrace.bpf.o");
    strip(&toolchain, &built, &finished)?;
    let carried = digest::of_object(&finished)?;
    if carried != sources {
        bail!(
            "{} carries the digest {carried}, but its sources have {sources}",
            finished.display()
        );
    }
    remaps.verify(&finished)?;
    if let Some(out) = out {
        if let Some(folder) = out.parent() {
            fs::create_dir_all(folder)
                .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        }
        let size =
            fs::copy(&finished, out).with_context(|| format!("cannot write {}", out.display()))?;
        println!("Built {}, {size} bytes", out.display());
    }
    Ok(Built {
        path: finished,
        with,
    })
}

/// The compiler that built the committed object, if it is installed; else rustup's nightly, if it has
/// everything that the build needs; else Debian's compiler.
fn choose() -> Result<Toolchain> {
    let committed = BuiltWith::read(&built_with::path());
    let is_committed = |toolchain: &Toolchain| {
        let (with, _) = committed.as_ref()?;
        (with.rustc == toolchain.version).then_some(())
    };
    if let Some(toolchain) = toolchain::installed_debian()
        && is_committed(&toolchain).is_some()
    {
        return Ok(toolchain);
    }
    match toolchain::rustup_nightly() {
        Some(toolchain) if bpf_linker::is_available(&toolchain) => Ok(toolchain),
        _ => toolchain::debian(),
    }
}

/// Remove the DWARF, which no loader reads, and keep the BTF, which the kernel reads.
fn strip(toolchain: &Toolchain, built: &Path, finished: &Path) -> Result<()> {
    let tool = bpf_linker::llvm_prefix(toolchain).join("bin/llvm-strip");
    if !tool.exists() {
        fs::copy(built, finished)
            .with_context(|| format!("cannot write {}", finished.display()))?;
        return Ok(());
    }
    let mut command = Command::new(tool);
    command
        .arg("--strip-debug")
        .arg("-o")
        .arg(finished)
        .arg(built);
    process::run(&mut command)
}

/// Folders of the building machine, and their names in the object.
struct Remaps(Vec<(PathBuf, &'static str)>);

impl Remaps {
    fn of(root: &Path, toolchain: &Toolchain) -> Self {
        let library = toolchain.library();
        let mut remaps = vec![(root.to_owned(), "heaptrace"), (library.clone(), "rust")];
        // Debian's sources are behind a link, and the object may contain either path.
        if let Ok(path) = library.canonicalize() {
            remaps.push((path, "rust"));
        }
        let home = env::var_os("CARGO_HOME")
            .map(PathBuf::from)
            .or_else(|| env::home_dir().map(|home| home.join(".cargo")));
        remaps.extend(home.map(|home| (home, "cargo")));
        Self(remaps)
    }

    /// rustc's flags, in the form that allows spaces in paths. They enable the instructions of Linux 5.12 and
    /// later (fetch-and-add).
    fn flags(&self) -> OsString {
        let mut flags = OsString::from("--cfg\u{1f}bpf_target_arch=\"x86_64\"");
        flags.push("\u{1f}-Cdebuginfo=2\u{1f}-Ctarget-cpu=v3\u{1f}-Clink-arg=--btf");
        for (path, name) in &self.0 {
            flags.push("\u{1f}--remap-path-prefix=");
            flags.push(path);
            flags.push("=");
            flags.push(name);
        }
        flags
    }

    /// Check that the object, which is published, names none of the folders.
    fn verify(&self, object: &Path) -> Result<()> {
        let content =
            fs::read(object).with_context(|| format!("cannot read {}", object.display()))?;
        for (path, _) in &self.0 {
            if names(&content, path.as_os_str().as_encoded_bytes()) {
                bail!(
                    "{} names a folder of this machine: {}",
                    object.display(),
                    path.display()
                );
            }
        }
        Ok(())
    }
}

/// Whether the content contains the folder's path, or a longer path that begins with it.
fn names(content: &[u8], folder: &[u8]) -> bool {
    let is_in_name = |byte: Option<&u8>| {
        byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(byte))
    };
    (0..content.len()).any(|at| {
        let (before, rest) = content.split_at(at);
        // `/src` is in many paths that only have a folder of that name in them.
        !is_in_name(before.last())
            && rest
                .strip_prefix(folder)
                .is_some_and(|tail| !is_in_name(tail.first()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that every folder is remapped, and that a path with a space stays one argument.
    #[test]
    fn folders_are_remapped_whole() {
        let remaps = Remaps(vec![(PathBuf::from("/my home/x"), "heaptrace")]);
        let flags = remaps.flags().into_string().unwrap();
        let words: Vec<&str> = flags.split('\u{1f}').collect();
        assert_eq!(
            words.last(),
            Some(&"--remap-path-prefix=/my home/x=heaptrace")
        );
        assert!(words.contains(&"-Clink-arg=--btf"));
    }

    /// Check that an object that names a folder of the building machine is refused, and a clean one is not.
    #[test]
    fn leaked_folders_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let object = folder.path().join("object");
        let remaps = Remaps(vec![(PathBuf::from("/home/builder"), "x")]);
        fs::write(&object, b"\0x/home/builder/main.rs\0").unwrap();
        remaps.verify(&object).unwrap();
        fs::write(&object, b"\0/home/builder2/main.rs\0").unwrap();
        remaps.verify(&object).unwrap();
        fs::write(&object, b"\0/home/builder/src/main.rs\0").unwrap();
        assert!(remaps.verify(&object).is_err());
    }
}
