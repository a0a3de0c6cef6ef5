//! Files that were made to look like an interpreter.
//!
//! Part of `python`.

use std::fs;
use std::process::Command;

use heaptrace_common::wire::{PythonImage, thread_data};

use super::files::found;
use crate::python::{is_in, layout};

/// A library with the names of an interpreter. `KEY` is the offset of the key, `NAME` a further function, `VERSION` the
/// version, and `UNLOCKED` tells whether there is no global lock.
const SOURCE: &str = r#"
struct {
    char cookie[8];
    unsigned long version, is_free_threaded;
    char rest[4096];
} _PyRuntime = { "xdebugpy", VERSION, UNLOCKED };

#if VERSION
const unsigned long Py_Version = VERSION;
#endif

void NAME(void) {}

char *PyGILState_GetThisThreadState(void) { return (char *)&_PyRuntime + KEY; }

__asm__(
    ".text\n"
    ".globl other\n"
    ".type other, @function\n"
    "other:\n"
    ".cfi_startproc\n"
    ".skip 200, 0x90\n"
    "ret\n"
    ".cfi_endproc\n"
    ".globl _PyEval_EvalFrameDefault\n"
    ".type _PyEval_EvalFrameDefault, @function\n"
    "_PyEval_EvalFrameDefault:\n"
    ".cfi_startproc\n"
    "je 2f\n"
    "1: jne 3f\n"
    ".skip 200, 0x90\n"
    "jmp other\n"
    "jmp other\n"
    "jmp other\n"
    ".cfi_endproc\n"
    ".size _PyEval_EvalFrameDefault, . - _PyEval_EvalFrameDefault\n"
    ".skip 200, 0x90\n"
    "rare:\n"
    ".cfi_startproc\n"
    ".skip 8, 0x90\n"
    "2: .skip 8, 0x90\n"
    "3: .skip 200, 0x90\n"
    "jmp 1b\n"
    ".cfi_endproc\n");
"#;

/// A kind of interpreter.
#[derive(Clone, Copy)]
struct Kind {
    version: u32,
    key: u32,
    name: &'static str,
    is_unlocked: bool,
    /// The name of a library that it needs.
    needed: &'static str,
}

const RELEASE: Kind = Kind {
    version: 0x030b_02f0,
    key: 592,
    name: "PyFrame_GetLocals",
    is_unlocked: false,
    needed: "libother.so",
};

fn library(kind: &Kind) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("source.c"), SOURCE).unwrap();
    fs::write(folder.path().join("empty.c"), "").unwrap();
    let compile = |words: &[&str]| {
        let status = Command::new("cc")
            .args(["-O2", "-fPIC", "-shared", "-nostdlib"])
            .args(words)
            .current_dir(folder.path())
            .status()
            .expect("this test needs the C compiler that Rust links with");
        assert!(status.success(), "{status}");
    };
    let soname = format!("-Wl,-soname,{}", kind.needed);
    compile(&["empty.c", &soname, "-o", "needed.so"]);
    compile(&[
        "source.c",
        "-Wl,--no-as-needed",
        "./needed.so",
        "-Wl,-z,noseparate-code",
        &format!("-DVERSION={}", kind.version),
        &format!("-DKEY={}", kind.key),
        &format!("-DNAME={}", kind.name),
        &format!("-DUNLOCKED={}", u8::from(kind.is_unlocked)),
        "-o",
        "library.so",
    ]);
    fs::read(folder.path().join("library.so")).unwrap()
}

fn image(kind: Kind) -> Option<PythonImage> {
    found(&library(&kind), false)
}

/// Check that each version is recognized, and that versions without a known layout, debug builds, builds without the global
/// lock, and builds with the key elsewhere are refused.
#[test]
fn only_known_builds_are_accepted() {
    let old = |name, key| Kind {
        version: 0,
        key,
        name,
        ..RELEASE
    };
    let new = |version, key| Kind {
        version,
        key,
        ..RELEASE
    };
    for (minor, kind) in [
        (8, old("PyConfig_Read", 1392)),
        (9, old("PyFrame_GetCode", 584)),
        (10, old("PyModule_AddObjectRef", 584)),
        (11, RELEASE),
        (12, new(0x030c_07f0, 1544)),
        (13, new(0x030d_00c1, 2160)),
    ] {
        assert_eq!(image(kind).map(|it| it.layout), layout(minor), "{minor}");
        let moved = Kind {
            key: kind.key + 8,
            ..kind
        };
        assert_eq!(image(moved), None, "{minor}");
    }
    for (what, kind) in [
        (
            "an unknown version without a number",
            old("PyFrame_New", 592),
        ),
        ("3.11 without a number", old("PyFrame_GetLocals", 592)),
        ("3.14", new(0x030e_00f0, 2160)),
        ("4.11", new(0x040b_00f0, 592)),
        ("a beta", new(0x030d_00b1, 2160)),
        (
            "without the lock",
            Kind {
                is_unlocked: true,
                ..new(0x030d_00f0, 2160)
            },
        ),
        (
            "a debug build",
            Kind {
                name: "_Py_NegativeRefcount",
                ..RELEASE
            },
        ),
    ] {
        let library = library(&kind);
        assert_eq!(found(&library, false), None, "{what}");
        // Reports say that such a file has an interpreter.
        assert!(is_in(library.as_slice()), "{what}");
    }
}

/// Check that the code which was put elsewhere is found, not a function that ends of the interpreter's function jump to.
#[test]
fn code_elsewhere_is_found() {
    let [main, cold] = image(RELEASE).unwrap().loops;
    assert_eq!(main[1] - main[0], 6 + 6 + 200 + 15);
    assert_eq!(cold[0] - main[1], 200);
    assert_eq!(cold[1] - cold[0], 8 + 8 + 200 + 5);
}

/// Check that musl is recognized by a library that the file needs.
#[test]
fn musl_is_recognized() {
    let thread_data = |needed| image(Kind { needed, ..RELEASE }).map(|it| it.layout.thread_data);
    assert_eq!(thread_data("libc.so.6"), Some(thread_data::GLIBC));
    for needed in ["libc.musl-x86_64.so.1", "libc.so"] {
        assert_eq!(thread_data(needed), Some(thread_data::MUSL));
    }
}
