//! Generates a program with many functions of templates that have one call of an allocator each, for builds without debug information.
//!
//! Part of the harness. Nothing is random.

use std::fmt::Write as _;

const HEAD: &str = "#include <vector>
#include <utility>
#define CASE extern \"C\" __attribute__((noinline)) void
template<class T> static inline void esc(T&& p){ asm volatile(\"\" :: \"r\"(&p) : \"memory\"); }
";

/// Elements with `E` for a class. Each gets a container that grows in two places, so that compilers keep the function that grows it.
const OF: [&str; 3] = ["E", "std::pair<int, E>", "E*"];

/// How many elements there are.
const ELEMENTS: usize = 44;

/// A program in C++.
pub fn symbols() -> String {
    let mut source = HEAD.to_owned();
    let mut calls = String::new();
    let mut number = 0;
    for element in 0..ELEMENTS {
        let length = element % 9 + 1;
        let (scope, name) = match element % 3 {
            0 => (String::new(), format!("E{element}")),
            1 => (format!("app{element}"), format!("app{element}::E")),
            _ => (format!("lib::in{element}"), format!("lib::in{element}::E")),
        };
        let own = name.rsplit("::").next().unwrap_or(&name);
        let class = format!("struct {own} {{ long a[{length}]; char b; }};");
        let class = match scope.is_empty() {
            true => class,
            false => format!("namespace {scope} {{ {class} }}"),
        };
        let _ = writeln!(source, "{class}");
        for of in OF {
            number += 1;
            let of = of.replace('E', &name);
            let _ = writeln!(
                source,
                "CASE case_{number}(int n){{ (void)n; std::vector<{of}> v; {of} e{{}}; esc(v); v.insert(v.begin(), e); v.push_back(e); esc(v); }} // T: case_{number} *={of}|"
            );
            let _ = write!(calls, "case_{number}(n);");
        }
    }
    let _ = writeln!(
        source,
        "int main(int argc, char**){{ int n = argc + 4; {calls} return 0; }}"
    );
    source
}
