//! Where source files are on this machine.
//!
//! Part of the command line. Must not know who asks for them, nor open any.

use std::path::{Component, Path, PathBuf};

/// Where the usual build tools of Java want packages, below the folder of a project.
const JAVA_FOLDERS: [&str; 4] = ["src/main/java", "src/test/java", "src/main/kotlin", "src"];

/// A place of source files here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourcePath {
    /// The place of these files on the machine that built them. Without it, they may be at any part of their path below the folder.
    from: Option<String>,
    to: PathBuf,
}

impl SourcePath {
    /// Parses `FROM=TO` or `FOLDER`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (from, to) = match text.split_once('=') {
            Some((from, to)) => (Some(from), to),
            None => (None, text),
        };
        if to.is_empty() || from.is_some_and(str::is_empty) {
            return Err(
                "write it as FROM=TO, e.g. /build/app=/home/me/app, or as a folder".to_owned(),
            );
        }
        Ok(Self {
            from: from.map(ToOwned::to_owned),
            to: PathBuf::from(to),
        })
    }

    /// Where a file may be here, the most likely place first.
    fn apply(&self, path: &str) -> Vec<PathBuf> {
        let Some(from) = &self.from else {
            return self.below(path);
        };
        let is_whole = |rest: &str| rest.is_empty() || rest.starts_with('/') || from.ends_with('/');
        let rest = path.strip_prefix(from).filter(|rest| is_whole(rest));
        let rest = rest.map(|rest| self.to.join(rest.trim_start_matches('/')));
        rest.into_iter().collect()
    }

    /// The folder with ever shorter ends of a path: a project's folder has another name on each machine.
    fn below(&self, path: &str) -> Vec<PathBuf> {
        let parts: Vec<_> = Path::new(path)
            .components()
            .filter_map(|part| match part {
                Component::Normal(part) => Some(part),
                _ => None,
            })
            .collect();
        let ends = (0..parts.len()).filter_map(|first| parts.get(first..));
        ends.map(|end| self.to.join(end.iter().collect::<PathBuf>()))
            .collect()
    }
}

/// Where a source file may be here, the most likely place first.
pub(super) fn candidates(path: &str, places: &[SourcePath]) -> Vec<PathBuf> {
    let named = places.iter().flat_map(|it| it.apply(path));
    let mut candidates: Vec<PathBuf> = named.chain([PathBuf::from(path)]).collect();
    // A relative path begins in the folder of the project.
    if path.ends_with(".java") || path.ends_with(".kt") {
        candidates.extend(JAVA_FOLDERS.map(|folder| Path::new(folder).join(path)));
    }
    candidates
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(place: &str, path: &str) -> Vec<String> {
        let place = SourcePath::parse(place).unwrap();
        let paths = place.apply(path).into_iter();
        paths.map(|it| it.display().to_string()).collect()
    }

    /// Check that a place stands for whole folders, and that a file elsewhere is not found by it.
    #[test]
    fn places_are_whole_folders() {
        let here = |text: &str| found("/build/app=/home/me", text);
        assert_eq!(here("/build/app/a/b.c"), ["/home/me/a/b.c"]);
        assert!(here("/build/apple/b.c").is_empty());
        assert!(here("/other/b.c").is_empty());
        assert_eq!(found("./=/home/me", "./csu/b.c"), ["/home/me/csu/b.c"]);
        for wrong in ["", "=b", "a="] {
            assert!(SourcePath::parse(wrong).is_err(), "{wrong}");
        }
    }

    /// Check that a folder is searched for each end of a path, the longest first, and never outside of it.
    #[test]
    fn folders_are_searched() {
        assert_eq!(
            found("/home/me", "/srv/app/a.py"),
            [
                "/home/me/srv/app/a.py",
                "/home/me/app/a.py",
                "/home/me/a.py"
            ]
        );
        assert_eq!(
            found("src", "com/acme/Foo.java"),
            ["src/com/acme/Foo.java", "src/acme/Foo.java", "src/Foo.java"]
        );
        assert_eq!(found("src", "./../../x.c"), ["src/x.c"]);
        assert!(found("src", "..").is_empty());
    }

    /// Check that files of Java are searched where build tools want them.
    #[test]
    fn packages_are_searched_in_projects() {
        let found = candidates("com/acme/Foo.java", &[]);
        assert_eq!(found.len(), 1 + JAVA_FOLDERS.len());
        assert_eq!(found[1], Path::new("src/main/java/com/acme/Foo.java"));
        assert_eq!(candidates("a.c", &[]), [PathBuf::from("a.c")]);
    }
}
