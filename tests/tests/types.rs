//! Tests of the types of blocks: programs whose comments say what each function allocates, in several builds.
//!
//! With `HEAPTRACE_TYPES_TABLE`, all builds that this machine has compilers for are compared, with generated programs too, and a table is written there.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use heaptrace_tests::types::{Score, Truths, variants};
use heaptrace_tests::{Heaptrace, workspace};

/// A way to build a program.
struct Build {
    language: &'static str,
    compiler: &'static str,
    options: &'static [&'static str],
}

const fn build(
    language: &'static str,
    compiler: &'static str,
    options: &'static [&'static str],
) -> Build {
    Build {
        language,
        compiler,
        options,
    }
}

/// The builds of the table.
const BUILDS: [Build; 24] = [
    build("cc", "g++", &["-O0", "-g"]),
    build("cc", "g++", &["-O1", "-g"]),
    build("cc", "g++", &["-O2", "-g"]),
    build("cc", "g++", &["-O3", "-g"]),
    build("cc", "g++", &["-O2", "-g", "-gdwarf-4"]),
    build("cc", "g++", &["-O2", "-g", "-flto"]),
    build("cc", "g++", &["-O2", "-g", "-fdebug-types-section"]),
    build("cc", "g++", &["-O2", "-g1"]),
    build("cc", "g++", &["-O2"]),
    build("cc", "clang++", &["-O0", "-g"]),
    build("cc", "clang++", &["-O2", "-g"]),
    build("cc", "clang++", &["-O2", "-g1"]),
    build("cc", "clang++", &["-O2"]),
    build("c", "gcc", &["-O0", "-g"]),
    build("c", "gcc", &["-O1", "-g"]),
    build("c", "gcc", &["-O2", "-g"]),
    build("c", "gcc", &["-O2", "-g", "-flto"]),
    build("c", "gcc", &["-O2"]),
    build("c", "clang", &["-O2", "-g"]),
    build("rs", "rustc", &["-Cdebuginfo=2"]),
    build("rs", "rustc", &["-Copt-level=3", "-Cdebuginfo=2"]),
    build("rs", "rustc", &["-Copt-level=3", "-Cdebuginfo=1"]),
    build(
        "rs",
        "rustc",
        &["-Copt-level=3", "-Cdebuginfo=line-tables-only"],
    ),
    build("rs", "rustc", &["-Copt-level=3"]),
];

impl Build {
    /// Builds a program in a folder; `None` if there is no such compiler.
    fn program(&self, folder: &Path, source: &str) -> Result<Option<OsString>> {
        let is_there = Command::new(self.compiler).arg("--version").output();
        if !is_there.is_ok_and(|it| it.status.success()) {
            return Ok(None);
        }
        let file = folder.join(format!("rs.{}", self.language));
        std::fs::write(&file, source)?;
        let program = folder.join("program");
        let mut command = Command::new(self.compiler);
        match self.language {
            "cc" => command.args(["-std=c++17", "-w"]),
            "c" => command.arg("-w"),
            _ => command.args(["--edition=2024", "--crate-name=rs", "-Awarnings"]),
        };
        command.args(self.options).arg("-o").arg(&program).arg(file);
        // Without the limit of other children: a compiler may take minutes on a loaded machine.
        let built = command.current_dir(folder).output()?;
        ensure!(
            built.status.success(),
            "{command:?} failed:\n{}",
            String::from_utf8_lossy(&built.stderr)
        );
        Ok(Some(program.into_os_string()))
    }

    /// Records a program, and compares the types of its sites.
    fn score(&self, source: &str) -> Result<Option<Score>> {
        let here = Heaptrace::tracing()?;
        let Some(program) = self.program(here.folder(), source)? else {
            return Ok(None);
        };
        let recorded = here.start_record(&["--".into(), program])?.wait()?;
        ensure!(recorded.code() == 0, "{}", recorded.stderr);
        let data = here.data();
        let data = data.to_str().context("an odd path")?;
        let json = here.run(&["report", "--format", "json", data])?.success()?;
        let report = serde_json::from_str(&json.stdout)?;
        Ok(Some(Truths::of(source).score(&report)))
    }
}

/// The program that the rules were developed on.
fn corpus(language: &str) -> Result<String> {
    let name = match language {
        "cc" => "cpp.cc",
        "c" => "c.c",
        _ => "rs.rs",
    };
    let path = workspace().join("tests/fixtures/types").join(name);
    std::fs::read_to_string(&path).with_context(|| path.display().to_string())
}

fn variants(language: &str) -> String {
    match language {
        "cc" => variants::cpp(),
        "c" => variants::c(),
        _ => variants::rust(),
    }
}

/// Compares one build of the corpus.
fn check(
    language: &'static str,
    compiler: &'static str,
    options: &'static [&'static str],
    least: f64,
) -> Result<()> {
    let of = build(language, compiler, options);
    let score = of.score(&corpus(language)?)?.context("no such compiler")?;
    ensure!(score.wrong.is_empty(), "wrong: {:#?}", score.wrong);
    ensure!(
        score.sites > 25 && score.recall() >= least,
        "{:.1} % of {} sites have a type; unknown: {:#?}",
        score.recall(),
        score.sites,
        score.unknown
    );
    Ok(())
}

/// Check that no type of a C++ program is wrong, and that most are known: containers, what they allocate in the library, `new`.
#[test]
fn blocks_of_cpp_have_types() -> Result<()> {
    check("cc", "g++", &["-O2", "-g"], 90.0)
}

/// Check the same of a C program, by where results go.
#[test]
fn blocks_of_c_have_types() -> Result<()> {
    check("c", "gcc", &["-O2", "-g"], 85.0)
}

/// Check the same of a Rust program that has line tables only, as release builds often do.
#[test]
fn blocks_of_rust_have_types() -> Result<()> {
    check(
        "rs",
        "rustc",
        &["-Copt-level=3", "-Cdebuginfo=line-tables-only"],
        95.0,
    )
}

/// Check that without debug information no type of a C program is guessed: only the C library's copies of text are known, by their function.
#[test]
fn blocks_without_debug_information_have_no_types() -> Result<()> {
    let of = build("c", "gcc", &["-O2"]);
    let score = of.score(&corpus("c")?)?.context("no such compiler")?;
    let is_guessed = score.ways.keys().any(|way| way != "symbol");
    ensure!(
        !is_guessed && score.wrong.is_empty() && score.sites > 25,
        "{score:?}"
    );
    Ok(())
}

/// Check the types of all builds, and write the table, if that was asked for. Each answer must be right in 99 of 100 cases, those by dataflow in 98, those by symbols
/// in 97.
#[test]
fn all_builds_have_types() -> Result<()> {
    let Some(table) = std::env::var_os("HEAPTRACE_TYPES_TABLE") else {
        return Ok(());
    };
    let mut page = String::from(
        "| Build | Sites | frames | alloc_type | constructor | dataflow | symbol | All | Recall |\n|--|--|--|--|--|--|--|--|--|\n",
    );
    let mut all = Score::default();
    for of in &BUILDS {
        let mut score = Score::default();
        for source in [corpus(of.language)?, variants(of.language)] {
            if let Some(found) = of.score(&source)? {
                score.add(found);
            }
        }
        if score.sites == 0 {
            continue;
        }
        let row = format!("{} {}", of.compiler, of.options.join(" "));
        write_row(&mut page, &row, &score);
        println!("{row}: {:.1} % of {}", score.recall(), score.sites);
        for wrong in &score.wrong {
            println!("  wrong: {wrong}");
        }
        if std::env::var_os("HEAPTRACE_TYPES_UNKNOWN").is_some() {
            for unknown in &score.unknown {
                println!("  unknown: {unknown}");
            }
        }
        all.add(score);
    }
    write_row(&mut page, "all", &all);
    std::fs::write(table, page)?;
    for (way, of) in &all.ways {
        let least = BTreeMap::from([("dataflow", 98.0), ("symbol", 97.0)]);
        let least = least.get(way.as_str()).copied().unwrap_or(99.0);
        let precision = 100.0 * of.right as f64 / of.answered as f64;
        ensure!(precision >= least, "{way}: only {precision:.1} % are right");
    }
    Ok(())
}

/// Adds a row: right answers of answers, by way.
fn write_row(page: &mut String, name: &str, score: &Score) {
    let _ = write!(page, "| {name} | {} |", score.sites);
    for way in ["frames", "alloc_type", "constructor", "dataflow", "symbol"] {
        let _ = match score.ways.get(way) {
            Some(of) => write!(page, " {}/{} |", of.right, of.answered),
            None => write!(page, " – |"),
        };
    }
    let all = score.all();
    let _ = writeln!(
        page,
        " {}/{} | {:.0} % |",
        all.right,
        all.answered,
        score.recall()
    );
}
