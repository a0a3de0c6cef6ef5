//! The Python interpreters of this machine.
//!
//! Part of `python`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// An interpreter of a known version.
#[derive(Clone, Debug)]
pub(super) struct Interpreter {
    /// Its program.
    pub(super) program: PathBuf,
    /// Its minor version.
    pub(super) minor: u16,
}

impl Interpreter {
    /// Asks a program for its version, and for its own path: the program may be a script that selects one.
    fn ask(program: &Path) -> Option<Self> {
        let question =
            "import sys; print(sys.version_info[0], sys.version_info[1], sys.executable)";
        let mut command = Command::new(program);
        command.args(["-I", "-c", question]).stderr(Stdio::null());
        let answer = command.output().ok()?;
        let answer = String::from_utf8(answer.stdout).ok()?;
        let mut words = answer.trim_end().splitn(3, ' ');
        let (major, minor, program) = (words.next()?, words.next()?, words.next()?);
        let program = std::fs::canonicalize(program).ok()?;
        let minor = minor.parse().ok()?;
        (major == "3" && super::super::layout(minor).is_some()).then_some(Self { program, minor })
    }

    /// Runs a script, and returns what it prints.
    pub(super) fn run(&self, script: &str) -> String {
        let output = Command::new(&self.program)
            .args(["-I", "-c", script])
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{self:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }
}

/// The interpreters of known versions: in the path, in `/usr`, and those that pyenv has installed. At least one.
pub(super) fn interpreters() -> Vec<Interpreter> {
    let mut programs = vec![PathBuf::from("python3"), PathBuf::from("/usr/bin/python3")];
    for folder in ["/usr/bin", "/usr/local/bin"] {
        programs.extend((8..=13).map(|minor| PathBuf::from(format!("{folder}/python3.{minor}"))));
    }
    let pyenv = std::env::var_os("PYENV_ROOT").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".pyenv"));
    if let Some(pyenv) = pyenv.or(home)
        && let Ok(versions) = std::fs::read_dir(pyenv.join("versions"))
    {
        let versions = versions.map(|version| version.unwrap().path().join("bin/python3"));
        programs.extend(versions);
    }
    let found: BTreeMap<PathBuf, Interpreter> = programs
        .iter()
        .filter_map(|program| Interpreter::ask(program))
        .map(|it| (it.program.clone(), it))
        .collect();
    assert!(
        !found.is_empty(),
        "this test needs a python3 of version 3.8 to 3.13"
    );
    found.into_values().collect()
}
