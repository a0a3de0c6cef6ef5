//! Check of what probes cost here: whether the kernel emulates the instructions that they are on.
//!
//! Stage: doctor. Looks at the C libraries that a program of this machine may run with; says nothing of
//! a certain process.

use super::Check;
use crate::probes::allocators::{self, Allocator, LookFor};
use crate::reader::{Budget, Limits, Reader};

/// A program that every machine has; its C library is most programs'.
const ANY_PROGRAM: &str = "/bin/sh";

pub(super) fn examine() -> Check {
    let mut reader = Reader::new(&Budget::default(), Limits::default());
    let command = [ANY_PROGRAM.into()];
    let found = allocators::of_command(&mut reader, &command, LookFor::default()).allocators;
    let stepped: Vec<_> = found.iter().flat_map(stepped).collect();
    let functions = found.iter().map(|it| it.places.len()).sum();
    check(functions, &stepped)
}

/// The functions of an allocator whose probes take a second trap, with the reason for each.
fn stepped(allocator: &Allocator) -> Vec<String> {
    let places = allocator.places.iter();
    places
        .filter(|place| place.placed.is_stepped)
        .map(|place| {
            let names = place.names.join("/");
            format!("{names}{} in {}", place.placed, allocator.path)
        })
        .collect()
}

fn check(functions: usize, stepped: &[String]) -> Check {
    const NAME: &str = "places of probes";
    if stepped.is_empty() {
        let found = match functions {
            0 => "no C library here that heaptrace knows".to_owned(),
            _ => format!("the kernel emulates the instructions at all {functions}"),
        };
        return Check::ok(NAME, found);
    }
    Check::warn(
        NAME,
        stepped.join("; "),
        "each call there takes a second trap, in a virtual machine many times as dear as the first: docs/placement.md",
    )
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    /// Check that a function with a second trap is named, and that none, or no library, is no warning.
    #[test]
    fn second_traps_are_named() {
        assert_eq!(check(0, &[]).verdict, Verdict::Ok);
        assert!(check(8, &[]).found.contains("all 8"));
        let warned = check(8, &["free+0 (test), stepped: why in /lib/x".to_owned()]);
        assert_eq!(warned.verdict, Verdict::Warn);
        assert!(warned.found.contains("free+0"));
        assert!(warned.advice.contains("second trap"));
    }
}
