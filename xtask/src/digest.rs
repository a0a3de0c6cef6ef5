//! The digest that ties the committed kernel object to its sources.
//!
//! Used by build-ebpf, check and test. It must not know how the object is built.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use object::{Object, ObjectSection};
use sha2::{Digest, Sha256};

/// The object's section that holds the digest, as 64 hexadecimal digits.
pub const SECTION: &str = "heaptrace.digest";

/// The folders that the object is built from, including manifests and lock file.
const FOLDERS: [&str; 2] = ["heaptrace-common", "heaptrace-ebpf"];

/// The digest of the sources below the repository's root, in hexadecimal.
pub fn of_sources(root: &Path) -> Result<String> {
    let mut files = Vec::new();
    for folder in FOLDERS {
        list_files(&root.join(folder), &mut files)?;
    }
    let mut named = Vec::new();
    for file in files {
        let relative = file.strip_prefix(root).unwrap_or(&file);
        let Some(name) = relative.to_str() else {
            bail!("the name of {} is not valid UTF-8", file.display());
        };
        named.push((name.to_owned(), file));
    }
    named.sort();
    let mut hasher = Sha256::new();
    for (name, file) in named {
        let content = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
        // Lengths are hashed, too, so that two different trees can't give the same stream of bytes.
        hasher.update((name.len() as u64).to_le_bytes());
        hasher.update(name.as_bytes());
        hasher.update((content.len() as u64).to_le_bytes());
        hasher.update(&content);
    }
    Ok(hasher
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect())
}

/// The digest that the object carries.
pub fn of_object(path: &Path) -> Result<String> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let file = object::File::parse(&*bytes)
        .with_context(|| format!("{} is no object file", path.display()))?;
    let Some(section) = file.section_by_name(SECTION) else {
        bail!("{} has no section {SECTION}", path.display());
    };
    let data = section
        .data()
        .with_context(|| format!("{}: section {SECTION} cannot be read", path.display()))?;
    let digits = data.len() == 64 && data.iter().all(u8::is_ascii_hexdigit);
    match std::str::from_utf8(data) {
        Ok(text) if digits => Ok(text.to_owned()),
        _ => bail!(
            "{}: section {SECTION} holds no 64 hexadecimal digits",
            path.display()
        ),
    }
}

/// Check that the object was built from the sources below the root; gives the digest.
pub fn check(root: &Path, object: &Path) -> Result<String> {
    const REMEDY: &str = "run `cargo xtask build-ebpf` and commit the object with the sources";
    let built_from = of_object(object).context(REMEDY)?;
    let sources = of_sources(root)?;
    if built_from != sources {
        bail!(
            "{} was built from other sources (digest {built_from}; these have {sources}): {REMEDY}",
            object.display()
        );
    }
    Ok(sources)
}

fn list_files(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let context = || format!("cannot read the folder {}", folder.display());
    for entry in fs::read_dir(folder).with_context(context)? {
        let entry = entry.with_context(context)?;
        let path = entry.path();
        if is_no_source(&entry.file_name()) {
            continue;
        }
        if entry.file_type().with_context(context)?.is_dir() {
            list_files(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

/// Build output, and backup files of editors.
fn is_no_source(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name == "target" || name.ends_with('~') || (name.starts_with('.') && name.ends_with(".swp"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for folder in FOLDERS {
            fs::create_dir_all(root.path().join(folder).join("src")).unwrap();
        }
        for (name, content) in files {
            fs::write(root.path().join(name), content).unwrap();
        }
        root
    }

    /// Check that the committed kernel object was built from these sources.
    #[test]
    fn committed_object_matches_the_sources() {
        check(&workspace::root(), &workspace::committed_object())
            .map_err(|error| format!("{error:#}"))
            .unwrap();
    }

    /// Check that the digest changes with a changed byte, a renamed file, and a byte that moved to the next
    /// file.
    #[test]
    fn any_difference_shows() {
        let digest = |files: &[(&str, &str)]| of_sources(tree(files).path()).unwrap();
        let first = digest(&[
            ("heaptrace-ebpf/src/a.rs", "ab"),
            ("heaptrace-ebpf/src/b.rs", "c"),
        ]);
        let changed = digest(&[
            ("heaptrace-ebpf/src/a.rs", "aX"),
            ("heaptrace-ebpf/src/b.rs", "c"),
        ]);
        let renamed = digest(&[
            ("heaptrace-ebpf/src/a.rs", "ab"),
            ("heaptrace-ebpf/src/c.rs", "c"),
        ]);
        let moved = digest(&[
            ("heaptrace-ebpf/src/a.rs", "a"),
            ("heaptrace-ebpf/src/b.rs", "bc"),
        ]);
        assert_eq!(first.len(), 64);
        assert_ne!(first, changed);
        assert_ne!(first, renamed);
        assert_ne!(first, moved);
    }

    /// Check that the lock file changes the digest, and build output and editors' files don't.
    #[test]
    fn only_sources_count() {
        let plain = tree(&[("heaptrace-ebpf/src/a.rs", "a")]);
        let littered = tree(&[
            ("heaptrace-ebpf/src/a.rs", "a"),
            ("heaptrace-ebpf/src/a.rs~", "old"),
            ("heaptrace-ebpf/src/.a.rs.swp", "editing"),
        ]);
        fs::create_dir(littered.path().join("heaptrace-ebpf/target")).unwrap();
        fs::write(littered.path().join("heaptrace-ebpf/target/x"), "built").unwrap();
        let locked = tree(&[
            ("heaptrace-ebpf/src/a.rs", "a"),
            ("heaptrace-ebpf/Cargo.lock", "version = 4"),
        ]);
        let digest = of_sources(plain.path()).unwrap();
        assert_eq!(digest, of_sources(littered.path()).unwrap());
        assert_ne!(digest, of_sources(locked.path()).unwrap());
    }

    /// Check that a file that is no object, and an object without the section, are refused with their names.
    #[test]
    fn objects_without_a_digest_are_refused() {
        let root = tree(&[("no-object", "text")]);
        let error = of_object(&root.path().join("no-object")).unwrap_err();
        assert!(error.to_string().contains("is no object file"), "{error}");
        let own = std::env::current_exe().unwrap();
        let error = of_object(&own).unwrap_err();
        assert!(error.to_string().contains(SECTION), "{error}");
    }
}
