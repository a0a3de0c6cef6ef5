//! Check whether the kernel emulates the instructions that probes are on; otherwise each hit takes a second trap.
//!
//! Part of `doctor`. Examines the C libraries that programs of this machine use; must not look at processes.

use super::check::Check;
use crate::probes::allocators::{self, Allocator, LookFor};
use crate::reader::{Budget, Limits, Reader};

/// A program that every machine has. Most programs use the same C library.
const ANY_PROGRAM: &str = "/bin/sh";

pub(super) fn examine() -> Check {
    let mut reader = Reader::new(&Budget::default(), Limits::default());
    let command = [ANY_PROGRAM.into()];
    let files = allocators::files_of_command(&mut reader, &command);
    let found = allocators::of_command(&mut reader, files, LookFor::default()).allocators;
    let stepped: Vec<_> = found.iter().flat_map(stepped).collect();
    let functions = found.iter().map(|it| it.functions.len()).sum();
    check(functions, &stepped)
}

/// Names the functions of an allocator whose probes take a second trap, with the reason for each.
fn stepped(allocator: &Allocator) -> Vec<String> {
    let functions = allocator.functions.iter();
    functions
        .filter(|function| function.placed.is_stepped)
        .map(|function| {
            let names = function.names.join("/");
            format!("{names}{} in {}", function.placed, allocator.path)
        })
        .collect()
}

fn check(functions: usize, stepped: &[String]) -> Check {
    const NAME: &str = "probe locations";
    if stepped.is_empty() {
        let found = match functions {
            0 => "heaptrace found no C library that it knows".to_owned(),
            _ => {
                format!("the kernel emulates the instructions at all {functions} of the C library")
            }
        };
        return Check::ok(NAME, found);
    }
    Check::warn(
        NAME,
        stepped.join("; "),
        "each call of these takes a second trap, which costs many times the first in a virtual machine (docs/placement.md)",
    )
}

#[cfg(test)]
mod tests {
    use super::super::check::{Verdict, documents_exist};
    use super::*;

    /// Check that a function with a second trap is named, and that there is no warning without one.
    #[test]
    fn second_traps_are_named() {
        assert_eq!(check(0, &[]).verdict, Verdict::Ok);
        assert!(check(8, &[]).found.contains("all 8"));
        let warned = check(8, &["free+0 (test), stepped: why in /lib/x".to_owned()]);
        assert_eq!(warned.verdict, Verdict::Warn);
        assert!(warned.found.contains("free+0"));
        assert!(warned.advice.contains("second trap"));
        assert!(documents_exist(&warned.advice), "{}", warned.advice);
    }
}
