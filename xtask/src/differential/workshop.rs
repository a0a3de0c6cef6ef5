//! Builds programs, and the libraries that are preloaded into them.
//!
//! Part of differential. It must not know what a program does.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::print::print;
use super::program::{Language, Program};
use super::source::{Source, file_name};
use super::variant::{Allocator, Build, Link, Run, Wrapper};
use crate::{process, workspace};

/// The folder of everything, and what is built once.
pub(super) struct Workshop {
    folder: PathBuf,
    allocators: Vec<(Allocator, PathBuf)>,
}

/// A program that was built.
pub(super) struct Built {
    pub(super) program: PathBuf,
    /// The commands that built it.
    pub(super) commands: Vec<String>,
}

const SHARED: [(&str, &str); 2] = [
    ("runtime.h", include_str!("programs/runtime.h")),
    ("runtime.c", include_str!("programs/runtime.c")),
];

const PRELOADED: [(&str, &str); 3] = [
    ("oracle", include_str!("programs/oracle.c")),
    ("wrapper_libc", include_str!("programs/wrapper_libc.c")),
    ("wrapper_next", include_str!("programs/wrapper_next.c")),
];

impl Workshop {
    pub(super) fn open() -> Result<Self> {
        let folder = workspace::target_dir().join("differential");
        create(&folder)?;
        for (name, text) in SHARED {
            write(&folder.join(name), text)?;
        }
        for (name, text) in PRELOADED {
            let source = folder.join(format!("{name}.c"));
            write(&source, text)?;
            let mut command = Command::new("cc");
            command.args(["-O2", "-fno-builtin", "-fPIC", "-shared", "-o"]);
            command.arg(folder.join(format!("{name}.so"))).arg(&source);
            process::run(&mut command)?;
        }
        let found = |it: Allocator| find_library(it.file()).map(|path| (it, path));
        Ok(Self {
            allocators: Allocator::ALL.into_iter().filter_map(found).collect(),
            folder,
        })
    }

    /// A folder for a program, empty.
    pub(super) fn folder(&self, name: &str) -> Result<PathBuf> {
        let folder = self.folder.join(name);
        if folder.exists() {
            fs::remove_dir_all(&folder)
                .with_context(|| format!("cannot empty {}", folder.display()))?;
        }
        create(&folder)?;
        Ok(folder)
    }

    /// The preloaded library that counts.
    pub(super) fn oracle(&self) -> PathBuf {
        self.folder.join("oracle.so")
    }

    /// Whether the allocator is installed.
    pub(super) fn has(&self, allocator: Allocator) -> bool {
        self.allocators.iter().any(|(it, _)| *it == allocator)
    }

    /// The value of `LD_PRELOAD` for a run, if any.
    pub(super) fn preload(&self, run: &Run) -> Option<OsString> {
        let wrapper = run.wrapper.map(|it| match it {
            Wrapper::Libc => self.folder.join("wrapper_libc.so"),
            Wrapper::Next => self.folder.join("wrapper_next.so"),
        });
        let is_it = |it: &&(Allocator, PathBuf)| Some(it.0) == run.allocator;
        let allocator = self.allocators.iter().find(is_it);
        let mut all = wrapper
            .iter()
            .chain(allocator.map(|(_, path)| path))
            .peekable();
        all.peek()?;
        let mut value = OsString::new();
        for path in all {
            if !value.is_empty() {
                value.push(":");
            }
            value.push(path);
        }
        Some(value)
    }

    /// Prints and builds a program.
    pub(super) fn build(&self, program: &Program, build: &Build, to: &Path) -> Result<Built> {
        let Source { main, libraries } = print(program);
        let source = to.join(file_name(program.language));
        write(&source, &main)?;
        let built = to.join("program");
        let mut commands = Vec::new();
        let mut run = |command: &mut Command| -> Result<()> {
            commands.push(process::describe(command));
            let output = command.output().context("cannot run a compiler")?;
            if !output.status.success() {
                let errors = String::from_utf8_lossy(&output.stderr);
                bail!("`{}` failed:\n{errors}", process::describe(command));
            }
            Ok(())
        };
        if program.language == Language::Rust {
            let runtime = to.join("runtime.o");
            // rustc's link-time optimization knows nothing of gcc's.
            let mut command = self.compiler("gcc", build, to);
            command.args(["-fno-lto", "-c", "-o"]).arg(&runtime);
            run(command.arg(self.folder.join("runtime.c")))?;
            run(rustc(build).arg("-o").arg(&built).arg(&source).arg({
                let mut argument = OsString::from("-Clink-arg=");
                argument.push(&runtime);
                argument
            }))?;
        } else {
            let extension = if program.language == Language::C {
                "c"
            } else {
                "cpp"
            };
            for (number, text) in libraries {
                let library = to.join(format!("lib{number}.{extension}"));
                write(&library, &text)?;
                let mut command = self.compiler(compiler(program.language, build), build, to);
                command.args(["-fPIC", "-shared", "-o"]);
                command.arg(to.join(format!("lib{number}.so")));
                run(command.arg(&library))?;
            }
            // The parts in C keep their language.
            let mut objects = vec![self.folder.join("runtime.c")];
            if build.wrapped {
                objects.push(self.folder.join("wrapper_libc.c"));
            }
            let mut linked = Vec::new();
            for object in objects {
                let out = to
                    .join(object.file_stem().unwrap_or_default())
                    .with_extension("o");
                let mut command = self.compiler(compiler(Language::C, build), build, to);
                command.args(pie(build)).arg("-fno-builtin-malloc");
                run(command.args(["-c", "-o"]).arg(&out).arg(&object))?;
                linked.push(out);
            }
            let mut command = self.compiler(compiler(program.language, build), build, to);
            command.args(pie(build)).args(link(build));
            run(command
                .arg("-o")
                .arg(&built)
                .arg(&source)
                .args(&linked)
                .arg("-ldl"))?;
        }
        if build.stripped {
            run(Command::new("strip").arg(&built))?;
        }
        Ok(Built {
            program: built,
            commands,
        })
    }

    /// A compiler with the options that everything of a program shares.
    fn compiler(&self, name: &str, build: &Build, to: &Path) -> Command {
        let mut command = Command::new(name);
        command.arg(format!("-O{}", build.level));
        command
            .args(["-g", "-w", "-pthread", "-I"])
            .arg(&self.folder);
        command.arg(format!("-DD_FOLDER=\"{}\"", to.display()));
        if build.is_static() {
            command.arg("-DD_STATIC");
        }
        if build.settles {
            command.arg("-DD_SETTLES");
        }
        if build.lto {
            command.arg("-flto");
        }
        command.arg(if build.frame_pointers {
            "-fno-omit-frame-pointer"
        } else {
            "-fomit-frame-pointer"
        });
        if name.contains("++") {
            // clang has no sized delete without being asked.
            command.args(["-std=gnu++17", "-fsized-deallocation"]);
        }
        command
    }
}

fn compiler(language: Language, build: &Build) -> &'static str {
    match (language, build.clang) {
        (Language::Cpp, false) => "g++",
        (Language::Cpp, true) => "clang++",
        (_, false) => "gcc",
        (_, true) => "clang",
    }
}

fn pie(build: &Build) -> &'static [&'static str] {
    match build.link {
        Link::Pie | Link::StaticPie => &["-fPIE"],
        Link::NoPie | Link::Static => &["-fno-pie"],
    }
}

fn link(build: &Build) -> Vec<&'static str> {
    let mut options = match build.link {
        Link::Pie => vec!["-pie", "-rdynamic"],
        Link::NoPie => vec!["-no-pie", "-rdynamic"],
        Link::Static => vec!["-static"],
        Link::StaticPie => vec!["-static-pie"],
    };
    if build.clang && build.lto {
        options.push("-fuse-ld=lld");
    }
    options
}

fn rustc(build: &Build) -> Command {
    let mut command = Command::new("rustc");
    command.args(["--edition", "2024", "-g", "--crate-name", "program"]);
    command.arg(format!("-Copt-level={}", build.level));
    command.arg(format!(
        "-Cforce-frame-pointers={}",
        if build.frame_pointers { "yes" } else { "no" }
    ));
    if build.lto {
        command.arg("-Clto=fat");
    }
    match build.link {
        Link::Pie => command.arg("-Clink-arg=-Wl,--export-dynamic-symbol=d_oracle"),
        Link::NoPie => command.args([
            "-Crelocation-model=static",
            "-Clink-arg=-Wl,--export-dynamic-symbol=d_oracle",
        ]),
        Link::Static => command.args(["-Ctarget-feature=+crt-static", "-Crelocation-model=static"]),
        Link::StaticPie => command.arg("-Ctarget-feature=+crt-static"),
    };
    command
}

/// Creates the folder for the user of the target folder, who must be able to remove what root leaves in it.
fn create(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let owner = fs::metadata(workspace::target_dir())?;
    chown(folder, Some(owner.uid()), Some(owner.gid()))
        .with_context(|| format!("cannot hand over {}", folder.display()))
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// The shared library whose name begins so, where the system keeps its libraries.
fn find_library(begins: &str) -> Option<PathBuf> {
    let folders = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"];
    let entries = folders.into_iter().filter_map(|it| fs::read_dir(it).ok());
    let mut found: Vec<PathBuf> = entries
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            let name = path.file_name().unwrap_or_default();
            name.to_string_lossy().starts_with(begins)
        })
        .collect();
    found.sort();
    found.into_iter().next()
}
