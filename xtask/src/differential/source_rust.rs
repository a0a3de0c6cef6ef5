//! Prints a program in Rust. What it shares with C is linked with it.
//!
//! Part of differential. It must not know how a source is built.

use std::fmt::Write as _;

use super::program::{Action, Around, How, Node, Program};
use super::source::{Source, call, parts};

/// Prints a program.
pub(super) fn print(program: &Program) -> Source {
    let mut text = include_str!("programs/head.rs.txt").to_owned();
    let before = body(&mut text, &program.before);
    let after = body(&mut text, &program.after);
    let mut waiting = String::new();
    for node in &program.waiting {
        function(&mut text, node);
        let _ = writeln!(waiting, "            d_wait_for_gate({});", node.name());
    }
    text.push_str("fn main() {\n    let part = begin();\n    match part {\n");
    for node in parts(program) {
        let _ = writeln!(text, "        {} => {}(),", node.id, node.name());
    }
    let _ = write!(
        text,
        "        _ => unsafe {{\n{before}{waiting}            d_gate();\n{after}        }},\n    }}\n    unsafe {{ d_end() }};\n}}\n"
    );
    Source {
        main: text,
        libraries: Vec::new(),
    }
}

fn body(text: &mut String, body: &[Node]) -> String {
    let mut calls = String::new();
    for node in body {
        function(text, node);
        let _ = writeln!(calls, "    {};", call(node));
    }
    calls
}

fn define(text: &mut String, name: &str, parameters: &str, inside: &str) {
    let _ = write!(
        text,
        "#[inline(never)]\nextern \"C-unwind\" fn {name}({parameters}) {{\n    unsafe {{\n{inside}    end();\n    }}\n}}\n\n"
    );
}

fn function(text: &mut String, node: &Node) {
    let (id, name) = (node.id, node.name());
    let inside = match &node.action {
        Action::Allocate {
            how,
            base,
            step,
            times,
            ..
        } => format!(
            "    for turn in 0..{times} {{\n        let n = d_size({base}, {step}, turn);\n{}    }}\n",
            allocation(id, *how)
        ),
        Action::Free { count, newest } => {
            format!("    d_free_some({count}, {});\n", i32::from(*newest))
        }
        // Rust's programs load none.
        Action::Plugins(_) => String::new(),
        Action::Around(around, nodes) => {
            let calls = body(text, nodes);
            match around {
                Around::Recursion(_) => {
                    let inside = format!(
                        "    if depth > 0 {{\n        {name}(depth - 1);\n    }} else {{\n{calls}    }}\n"
                    );
                    return define(text, &name, "depth: i32", &inside);
                }
                Around::Fork => format!(
                    "    let pid = d_fork({id});\n    if pid == 0 {{\n{calls}    d_fork_end();\n    }}\n    d_wait(pid);\n"
                ),
                Around::Throw => {
                    let inner = format!("h{id:03}_");
                    let throws =
                        format!("{calls}    std::panic::resume_unwind(Box::new({id}u32));\n");
                    let _ = write!(
                        text,
                        "#[inline(never)]\nfn {inner}() {{\n    unsafe {{\n{throws}    }}\n}}\n\n"
                    );
                    format!("    let _ = std::panic::catch_unwind({inner} as fn());\n")
                }
                Around::Coroutine => calls.replace(";\n", ";\n    d_yield();\n"),
                _ => calls,
            }
        }
    };
    define(text, &name, "", &inside);
}

/// The lines that allocate `n` bytes once.
fn allocation(id: u32, how: How) -> String {
    match how {
        How::RustBox => format!(
            "        let block: Box<[u8]> = vec![1; n].into_boxed_slice();\n        keep({id}, Box::into_raw(block).cast(), n, 1);\n"
        ),
        How::RustVec => format!(
            "        let block = std::mem::ManuallyDrop::new(Vec::<u8>::with_capacity(n));\n        keep({id}, block.as_ptr().cast_mut(), n, 1);\n"
        ),
        How::RustZeroed => {
            format!("        keep({id}, std::alloc::alloc_zeroed(layout(n, 16)), n, 16);\n")
        }
        How::RustAligned => {
            format!("        keep({id}, std::alloc::alloc(layout(n, 64)), n, 64);\n")
        }
        _ => format!(
            "        let old = take();\n        if old.at.is_null() {{\n            \
             keep({id}, std::alloc::alloc(layout(n, 1)), n, 1);\n        }} else {{\n            \
             let at = std::alloc::realloc(old.at, layout(old.size, old.align), n);\n            \
             d_reallocated({id}, &old, at, n);\n        }}\n"
        ),
    }
}
