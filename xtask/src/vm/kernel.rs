//! A kernel to boot: found in Debian's archive by its version, extracted from its package, and cached.
//!
//! Part of `cargo xtask vm`. It must not know the purpose of the kernel.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::packages::Kernels;
use crate::process;

/// A kernel that is ready to boot.
pub(super) struct Kernel {
    /// The name that the user gave.
    pub(super) name: String,
    /// The Debian package that it came from.
    pub(super) package: String,
    /// The path of its image.
    pub(super) image: PathBuf,
}

/// Returns the kernel of this version: the cached one, or else the newest one of Debian.
pub(super) fn get(name: &str, archive: &Kernels, folder: &Path) -> Result<Kernel> {
    ensure!(
        is_version(name),
        "{name} is not a kernel version; give one such as 6.1"
    );
    let kept = folder.join("kernels").join(name);
    let (image, label) = (kept.join("vmlinuz"), kept.join("package"));
    if !image.is_file() {
        let mut names = archive.names(&format!("linux-image-{name}."))?;
        names.extend(archive.names(&format!("linux-binary-{name}."))?);
        let package = newest(&names)
            .with_context(|| format!("Debian has no cloud package of Linux {name}"))?;
        let file = archive.download(package)?;
        fs::create_dir_all(&kept)?;
        fs::write(&label, package)?;
        let unfinished = kept.join("vmlinuz.unfinished");
        extract(&file, &unfinished)?;
        fs::rename(unfinished, &image)?;
    }
    Ok(Kernel {
        name: name.to_owned(),
        package: fs::read_to_string(label)?,
        image,
    })
}

fn is_version(name: &str) -> bool {
    name.split('.')
        .all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The package of the newest kernel. Cloud kernels include everything that an emulated machine needs. The
/// newest releases have the image in a package of its own, and the package of the usual name only refers to
/// it.
fn newest(names: &[String]) -> Option<&str> {
    names
        .iter()
        .filter(|name| name.ends_with("-cloud-amd64"))
        .max_by_key(|name| (numbers(name), name.starts_with("linux-binary-")))
        .map(String::as_str)
}

fn numbers(name: &str) -> Vec<u32> {
    name.trim_end_matches("amd64")
        .split(|letter: char| !letter.is_ascii_digit())
        .filter_map(|part| part.parse().ok())
        .collect()
}

fn extract(package: &Path, image: &Path) -> Result<()> {
    let mut unpack = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(package)
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run dpkg-deb")?;
    let files = unpack.stdout.take().context("dpkg-deb has no output")?;
    let mut tar = Command::new("tar");
    tar.args(["-xO", "--wildcards", "./boot/vmlinuz-*", "*/vmlinuz"]);
    tar.stdin(files).stdout(File::create(image)?);
    // One of the two patterns never matches, and tar reports that as a failure.
    tar.stderr(Stdio::null());
    process::status(&mut tar)?;
    unpack.wait()?;
    let size = fs::metadata(image)?.len();
    ensure!(size > 0, "no kernel image in {}", package.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the newest kernel is found by its numbers, not by letters, and that of two packages of one
    /// version the one with the image is selected.
    #[test]
    fn newest_by_numbers() {
        let names = |names: &[&str]| {
            names
                .iter()
                .map(|&name| name.to_owned())
                .collect::<Vec<_>>()
        };
        let old = names(&[
            "linux-image-6.1.0-9-cloud-amd64",
            "linux-image-6.1.0-56-cloud-amd64",
            "linux-image-6.1.0-57-cloud-amd64-unsigned",
            "linux-image-6.1.0-58-amd64",
        ]);
        assert_eq!(newest(&old), Some("linux-image-6.1.0-56-cloud-amd64"));
        let new = names(&[
            "linux-binary-7.2.12+deb13-cloud-amd64",
            "linux-image-7.2.12+deb13-cloud-amd64",
            "linux-image-7.2.9+deb13-cloud-amd64",
        ]);
        assert_eq!(newest(&new), Some("linux-binary-7.2.12+deb13-cloud-amd64"));
        assert_eq!(newest(&[]), None);
    }

    /// Check that only versions are accepted, because they become part of a folder name and a package name.
    #[test]
    fn versions_only() {
        assert!(is_version("6.1") && is_version("7"));
        assert!(!is_version("../6.1") && !is_version("") && !is_version("6."));
    }
}
