//! Tests of the types of blocks: programs whose comments say what each function allocates, in several builds.
//!
//! With `HEAPTRACE_TYPES_TABLE`, all builds that this machine has compilers for are compared, with generated programs too, and a table is written there. With
//! `HEAPTRACE_TYPES_ONLY`, only those whose rows contain one of these texts, which `;` separates.

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
    /// A program that changes the debug information afterwards.
    packager: Option<&'static [&'static str]>,
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
        packager: None,
    }
}

/// A build whose debug information is changed afterwards.
const fn packed(build: Build, packager: &'static [&'static str]) -> Build {
    Build {
        packager: Some(packager),
        ..build
    }
}

/// The builds of the table.
const BUILDS: [Build; 50] = [
    build("cc", "g++", &["-O0", "-g"]),
    build("cc", "g++", &["-O1", "-g"]),
    build("cc", "g++", &["-O2", "-g"]),
    build("cc", "g++", &["-O3", "-g"]),
    build("cc", "g++", &["-O2", "-g", "-gdwarf-4"]),
    build("cc", "g++", &["-O2", "-g", "-flto"]),
    build("cc", "g++", &["-O2", "-g", "-fdebug-types-section"]),
    build("cc", "g++", &["-O2", "-g", "-gz"]),
    build("cc", "g++", &["-O2", "-g", "-gsplit-dwarf"]),
    packed(
        build("cc", "g++", &["-O2", "-g", "-gsplit-dwarf", "-gdwarf-4"]),
        &["dwp", "-e", "program"],
    ),
    packed(build("cc", "g++", &["-O2", "-g"]), &["dwz", "program"]),
    build("cc", "g++", &["-O2", "-g", "-fno-rtti"]),
    build("cc", "g++", &["-O2", "-g1"]),
    build("cc", "g++", &["-O2"]),
    build("cc", "g++", &["-O3"]),
    build("cc", "clang++", &["-O0", "-g"]),
    build("cc", "clang++", &["-O2", "-g"]),
    build("cc", "clang++", &["-O2", "-g", "-gsplit-dwarf"]),
    build("cc", "clang++", &["-O2", "-g", "-gsimple-template-names"]),
    build("cc", "clang++-19", &["-O2", "-g"]),
    build("cc", "clang++-19", &["-O2", "-g", "-stdlib=libc++"]),
    build("cc", "clang++-22", &["-O1", "-g"]),
    build("cc", "clang++-22", &["-O2", "-g"]),
    build("cc", "clang++-22", &["-O2", "-g", "-gdwarf-4"]),
    build("cc", "clang++-22", &["-O3", "-g"]),
    build("cc", "clang++", &["-O2", "-g1"]),
    build("cc", "clang++", &["-O2"]),
    build("c", "gcc", &["-O0", "-g"]),
    build("c", "gcc", &["-O1", "-g"]),
    build("c", "gcc", &["-O2", "-g"]),
    build("c", "gcc", &["-O2", "-g", "-flto"]),
    build("c", "gcc", &["-O2", "-g", "-gsplit-dwarf"]),
    build("c", "gcc", &["-O2"]),
    build("c", "clang", &["-O2", "-g"]),
    build("c", "clang-19", &["-O2", "-g"]),
    build("rs", "rustc", &["-Cdebuginfo=2"]),
    build("rs", "rustc", &["-Copt-level=3", "-Cdebuginfo=2"]),
    build("rs", "rustc", &["-Copt-level=3", "-Cdebuginfo=1"]),
    build(
        "rs",
        "rustc",
        &["-Copt-level=3", "-Cdebuginfo=line-tables-only"],
    ),
    build(
        "rs",
        "rustc",
        &[
            "-Copt-level=3",
            "-Cdebuginfo=2",
            "-Csplit-debuginfo=unpacked",
        ],
    ),
    build("rs", "rustc", &["-Copt-level=3"]),
    build("libraries", "g++", &["-O2", "-g"]),
    build("libraries", "clang++", &["-O2", "-g"]),
    build("qt5", "g++", &["-O0", "-g"]),
    build("qt5", "g++", &["-O2", "-g"]),
    build("qt5", "g++", &["-O2", "-g1"]),
    build("qt5", "g++", &["-O2"]),
    build("qt5", "clang++", &["-O2", "-g"]),
    build("qt6", "g++", &["-O2", "-g"]),
    build("qt6", "clang++", &["-O2", "-g"]),
];

/// The folder of the newest clang, as a package of Python's has it, without headers and libraries of C++.
const CLANG: &str = "HEAPTRACE_TYPES_CLANG";

impl Build {
    /// Builds a program in a folder; `None` if there is no such compiler.
    fn program(&self, folder: &Path, source: &str) -> Result<Option<OsString>> {
        let newest = std::env::var_os(CLANG).filter(|_| self.compiler == "clang++-22");
        let compiler = newest.as_ref().map_or(self.compiler, |_| "g++");
        let is_there = Command::new(compiler).arg("--version").output();
        if !is_there.is_ok_and(|it| it.status.success()) {
            return Ok(None);
        }
        let extension = match self.language {
            "libraries" | "qt5" | "qt6" => "cc",
            language => language,
        };
        let mut file = folder.join(format!("rs.{extension}"));
        std::fs::write(&file, source)?;
        if let Some(newest) = newest {
            let object = folder.join("rs.o");
            let mut command = by_newest(Path::new(&newest), self.options);
            run(command.arg("-o").arg(&object).arg(&file), folder)?;
            file = object;
        }
        let program = folder.join("program");
        let mut command = Command::new(compiler);
        match self.language {
            "cc" | "libraries" => command.args(["-std=c++17", "-w"]),
            "qt5" | "qt6" => command.args(["-std=c++17", "-w", "-fPIC"]),
            "c" => command.arg("-w"),
            _ => command.args(["--edition=2024", "--crate-name=rs", "-Awarnings"]),
        };
        command.args(self.options).arg("-o").arg(&program).arg(file);
        let Some(libraries) = libraries(self.language) else {
            return Ok(None);
        };
        command.args(libraries);
        run(&mut command, folder)?;
        if let Some([packager, arguments @ ..]) = self.packager {
            run(Command::new(packager).args(arguments), folder)?;
            let is_packed = program.with_extension("dwp").exists();
            for entry in std::fs::read_dir(folder)?.filter(|_| is_packed) {
                let path = entry?.path();
                if path.extension().is_some_and(|it| it == "dwo") {
                    std::fs::remove_file(path)?;
                }
            }
        }
        Ok(Some(program.into_os_string()))
    }

    /// The name of its row.
    fn row(&self) -> String {
        let mut row = format!("{} {}", self.compiler, self.options.join(" "));
        if let Some([packager, ..]) = self.packager {
            let _ = write!(row, ", {packager}");
        }
        row.push_str(match self.language {
            "libraries" => ", Boost, abseil, std::pmr",
            "qt5" => ", Qt 5",
            "qt6" => ", Qt 6",
            _ => "",
        });
        row
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

/// Runs a compiler or a packager, without the limit of other children: it may take minutes on a loaded machine.
fn run(command: &mut Command, folder: &Path) -> Result<()> {
    let output = command.current_dir(folder).output();
    let output = output.with_context(|| format!("cannot run {command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?} failed:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// The newest clang, with the headers of g++'s library.
fn by_newest(folder: &Path, options: &[&str]) -> Command {
    let mut command = Command::new(folder.join("zig"));
    command.args(["clang", "-x", "c++", "-c", "-std=c++17", "-w", "-fPIE"]);
    command.args(["-nostdinc", "-nostdinc++"]).args(options);
    let of_compiler = folder.join("lib/include");
    let version = Command::new("g++").arg("-dumpversion").output();
    let version = version.map_or_else(|_| Vec::new(), |it| it.stdout);
    let version = String::from_utf8_lossy(&version).trim().to_owned();
    for headers in [
        format!("/usr/include/c++/{version}"),
        format!("/usr/include/x86_64-linux-gnu/c++/{version}"),
        of_compiler.to_string_lossy().into_owned(),
        "/usr/include/x86_64-linux-gnu".to_owned(),
        "/usr/include".to_owned(),
    ] {
        command.args(["-isystem", &headers]);
    }
    command
}

/// The options for the libraries of a program's containers; `None` if they are not installed.
fn libraries(language: &str) -> Option<Vec<String>> {
    let packages: &[&str] = match language {
        "libraries" => &["absl_flat_hash_map", "absl_btree", "absl_node_hash_map"],
        "qt5" => &["Qt5Core"],
        "qt6" => &["Qt6Core"],
        _ => return Some(Vec::new()),
    };
    let boost = Path::new("/usr/include/boost/container/vector.hpp");
    if language == "libraries" && !boost.exists() {
        return None;
    }
    let mut command = Command::new("pkg-config");
    let found = command.args(["--cflags", "--libs"]).args(packages).output();
    let found = found.ok().filter(|it| it.status.success())?;
    let text = String::from_utf8(found.stdout).ok()?;
    Some(text.split_whitespace().map(str::to_owned).collect())
}

/// The program that the rules were developed on.
fn corpus(language: &str) -> Result<String> {
    let name = match language {
        "cc" => "cpp.cc",
        "c" => "c.c",
        "libraries" => "libraries.cc",
        "qt5" | "qt6" => "qt.cc",
        _ => "rs.rs",
    };
    let path = workspace().join("tests/fixtures/types").join(name);
    let source = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    Ok(match language {
        "qt6" => variants::in_version(&source, 6),
        _ => source,
    })
}

/// The programs that are generated for a build.
fn variants(of: &Build) -> Vec<String> {
    let has_debug = of.options.contains(&"-g");
    match of.language {
        "cc" if has_debug => vec![variants::cpp(), variants::objects()],
        "cc" => vec![variants::cpp(), variants::objects(), variants::symbols()],
        "c" => vec![variants::c()],
        "rs" => vec![variants::rust()],
        "qt5" => vec![variants::qt(5)],
        "qt6" => vec![variants::qt(6)],
        _ => Vec::new(),
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
    let only = std::env::var("HEAPTRACE_TYPES_ONLY").unwrap_or_default();
    for of in &BUILDS {
        let row = of.row();
        // A text that is a whole row means that row alone.
        let is_row = |text: &str| BUILDS.iter().any(|it| it.row() == text);
        let is_meant = |text: &str| row == text || !is_row(text) && row.contains(text);
        if !only.split(';').any(is_meant) {
            continue;
        }
        let mut score = Score::default();
        let mut sources = vec![corpus(of.language)?];
        sources.extend(variants(of));
        for source in sources {
            if let Some(found) = of.score(&source)? {
                score.add(found);
            }
        }
        if score.sites == 0 {
            continue;
        }
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
