//! A program's source files.
//!
//! Part of differential. It must not know how a source is printed or built.

use super::program::{Action, Around, Language, Node, Program};

/// The source files of a program.
#[derive(Clone, Debug, Default)]
pub(super) struct Source {
    pub(super) main: String,
    /// Libraries, by their numbers.
    pub(super) libraries: Vec<(u32, String)>,
}

/// The name of a program's source file.
pub(super) fn file_name(language: Language) -> &'static str {
    match language {
        Language::C => "program.c",
        Language::Cpp => "program.cpp",
        Language::Rust => "program.rs",
    }
}

/// The actions that run as the first function of a process that executes the program anew.
pub(super) fn parts(program: &Program) -> Vec<&Node> {
    let is_part = |node: &&Node| {
        matches!(
            node.action,
            Action::Around(Around::Spawn { .. } | Around::Execute, _)
        )
    };
    program.nodes().into_iter().filter(is_part).collect()
}

/// The expression that runs an action, in every language.
pub(super) fn call(node: &Node) -> String {
    let name = node.name();
    match node.action {
        Action::Around(around, _) => match around {
            Around::Recursion(depth) => format!("{name}({depth})"),
            Around::Threads(count) => format!("d_threads({count}, {name})"),
            Around::Signal { alternate_stack } => {
                format!("d_raise({name}, {})", i32::from(alternate_stack))
            }
            Around::Coroutine => format!("d_coroutine({name})"),
            Around::Callback => format!("d_call_back({name})"),
            Around::Spawn { vfork } => format!("d_spawn({}, {})", node.id, i32::from(vfork)),
            Around::Execute => format!("d_execute({})", node.id),
            _ => format!("{name}()"),
        },
        _ => format!("{name}()"),
    }
}
