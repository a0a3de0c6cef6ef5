//! Checks that some operations are done in a few files only: starting programs, opening files that a target chose, and
//! creating files.
//!
//! The operations are found by words. Comments and tests don't count.

use anyhow::Result;
use heaptrace_tests::{Source, rust_sources};

/// Each word, and the files or folders of heaptrace that may have it.
const RESERVED: [(&str, &[&str]); 11] = [
    (
        "Command::new(",
        &[
            "probes/launch.rs",
            "reader/process.rs",
            // Only if the user has named servers.
            "symbolize/debuginfod.rs",
            // What the user asked for, as that user.
            "cli/on_oom.rs",
        ],
    ),
    ("map_files", &["open.rs"]),
    // In a reader, which ends if a file becomes shorter.
    ("Mmap::map", &["symbolize/image.rs"]),
    (
        "File::open(",
        &[
            // Files of `/proc`, `/sys` and the like.
            "join/cgroups.rs",
            "join/command_line.rs",
            "proc/address_space.rs",
            "proc/contents.rs",
            "proc/memory_limit.rs",
            "proc/owner.rs",
            "proc/residency/mod.rs",
            "proc/residency/page_map.rs",
            "unwind/vdso.rs",
            // Files of this user's own.
            "profile/datafile/read.rs",
            "unwind/cache.rs",
        ],
    ),
    ("File::create", CREATING),
    (".create(true)", CREATING),
    (".create_new(", CREATING),
    ("fs::write(", CREATING),
    ("fs::rename(", CREATING),
    ("create_dir", CREATING),
    ("O_CREAT", CREATING),
];

/// `create/` makes sure that another user can't choose which file is overwritten. The folder of cached tables has rules
/// of its own: nothing in it is trusted.
const CREATING: &[&str] = &["create/", "unwind/cache.rs"];

/// The uses of reserved words in files that may not have them.
fn violations(sources: &[Source]) -> Vec<String> {
    let mut found = Vec::new();
    for source in sources {
        let path = source.path.display().to_string();
        if path.contains("tests") || path.contains("fuzz") {
            continue;
        }
        let text = source.text.split("#[cfg(test)]\nmod tests").next();
        let code = text.unwrap_or_default().lines();
        let code: Vec<&str> = code.filter_map(|line| line.split("//").next()).collect();
        for (word, allowed) in RESERVED {
            // A longer name with the same end is another name.
            let is_method = word.starts_with('.');
            let has_word = |line: &&str| {
                let mut uses = line.match_indices(word).map(|(at, _)| &line[..at]);
                uses.any(|before| is_method || !before.ends_with(char::is_alphanumeric))
            };
            let is_allowed = allowed.iter().any(|it| path.starts_with(it));
            if !is_allowed && code.iter().any(has_word) {
                found.push(format!("{path} has {word}"));
            }
        }
    }
    found
}

/// Check that heaptrace starts programs, opens files of targets, and creates files only in the files made for it.
#[test]
fn reserved_operations_are_in_few_files() -> Result<()> {
    let found = violations(&rust_sources("heaptrace/src")?);
    assert_eq!(found, Vec::<String>::new());
    Ok(())
}

/// Check that the test above finds reserved words, and none in comments, tests and longer names.
#[test]
fn reserved_words_are_found() {
    let in_file = |path: &str, text: &str| {
        violations(&[Source {
            path: path.into(),
            text: text.to_owned(),
        }])
    };
    for text in [
        "fn f() { Command::new(\"ld.so\"); }",
        "let file = File::open(path)?;",
        "format!(\"/proc/{pid}/map_files/{at}\")",
        "let file = File::create(path)?;",
        "options.create(true).open(path)",
        "std::fs::write(path, bytes)?;",
    ] {
        assert_eq!(in_file("join/mod.rs", text).len(), 1, "{text}");
    }
    for text in [
        "// File::open(path)",
        "let file = MyFile::open(path)?;",
        "#[cfg(test)]\nmod tests { fn f() { fs::write(path, bytes); } }",
    ] {
        assert_eq!(in_file("join/mod.rs", text), Vec::<String>::new(), "{text}");
    }
    let created = in_file("create/mod.rs", "File::create(path)");
    assert_eq!(created, Vec::<String>::new());
}
