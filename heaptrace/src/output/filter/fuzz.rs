//! A check for fuzzers: any expression, and any file of named ones.
//!
//! Stage: output.

use super::definitions::Definitions;
use super::expression::Expression;
use super::key::Scope;
use crate::join::{LocationId, Process};
use crate::output::frame::StackFrame;

/// Most conditions whose results are told apart: inputs with ever more of them would all give new outcomes.
const MAX_TOLD: u32 = 6;

/// Checks that an expression that is written for programs is read as the same one, that a mistake can be shown, and that a filter can be
/// asked of a frame and a process. Lines after the first are a file of named filters.
pub(crate) fn filters(data: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(data);
    let (first, file) = text.split_once('\n').unwrap_or((&text, ""));
    let mut definitions = Definitions::default();
    let is_file = definitions
        .add("file", file)
        .and_then(|()| definitions.check());
    let definitions = is_file.map_or_else(|_| Definitions::default(), |()| definitions);
    let expression: Expression = match first.parse() {
        Ok(expression) => expression,
        Err(problem) => {
            let shown = problem.to_string();
            assert!(shown.contains("\n    ") && shown.ends_with('^'));
            return 0;
        }
    };
    let written = expression.tree().to_string();
    let again: Result<Expression, _> = written.parse();
    assert!(
        again.is_ok_and(|again| again.tree() == expression.tree()),
        "{written}"
    );
    let Ok(filter) = definitions.filter(&expression) else {
        return 1;
    };
    let frame = StackFrame {
        location: LocationId(0),
        language: None,
        function: Some("std::vector<int>::push_back(int&&) [clone .cold]"),
        module: None,
        address: 0,
        file: Some("/usr/include/c++/bits/stl_vector.h"),
        line: 1_234,
        inlined: false,
    };
    let process = Process {
        pid: 7,
        command: "nginx".to_owned(),
        cgroup: "/system.slice/nginx.service".to_owned(),
        ..Process::default()
    };
    let (of_processes, of_sites) = filter.parts();
    let mut seen = 1 + of_processes.len().min(3) as u64 + 4 * of_sites.len().min(3) as u64;
    for (number, tree) in (0..).zip(of_processes.into_iter().chain(of_sites)) {
        let holds = tree.holds(&mut |it| match it.scope() {
            Scope::Process => it.matches_process(&process),
            Scope::Frame => it.matches_frame(&frame),
            Scope::Site => false,
            Scope::Block => it.of_block().is_some(),
        });
        if number < MAX_TOLD {
            seen = 2 * seen + u64::from(holds);
        }
    }
    seen
}
