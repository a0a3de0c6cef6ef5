//! Makes a program smaller while something stays as it is.
//!
//! Part of differential. It must not know what stays.

use std::time::{Duration, Instant};

use super::program::{Action, Around, Node, Program};

/// A change that makes a program smaller. The numbers are those of nodes.
#[derive(Clone, Copy)]
enum Change {
    Remove(u32),
    /// Leaves the body, without what is around it.
    Unwrap(u32),
    /// Once instead of often.
    Once(u32),
}

/// The smallest program that was found in that time for which `stays` holds. What `named` texts name is tried first,
/// without all else.
pub(super) fn shrink(
    program: &Program,
    named: &[&str],
    limit: Duration,
    mut stays: impl FnMut(&Program) -> bool,
) -> Program {
    let began = Instant::now();
    let mut best = program.clone();
    let first = named.get(..1).unwrap_or_default();
    for (texts, with_frees) in [(first, false), (named, false), (named, true)] {
        let mut candidate = program.clone();
        let parts = [
            &mut candidate.before,
            &mut candidate.waiting,
            &mut candidate.after,
        ];
        for part in parts {
            keep(part, texts, with_frees);
        }
        if !candidate.nodes().is_empty() && stays(&candidate) {
            best = candidate;
            break;
        }
    }
    loop {
        let mut is_smaller = false;
        // Outer nodes come first: most goes at once.
        for change in changes(&best) {
            if began.elapsed() > limit {
                return best;
            }
            let mut candidate = best.clone();
            if apply(&mut candidate, change) && stays(&candidate) {
                best = candidate;
                is_smaller = true;
            }
        }
        if !is_smaller {
            return best;
        }
    }
}

/// Leaves the actions whose functions are named, those around them, and those that free if they are wanted.
fn keep(body: &mut Vec<Node>, texts: &[&str], with_frees: bool) {
    for children in body.iter_mut().filter_map(Node::children_mut) {
        keep(children, texts, with_frees);
    }
    body.retain(|node| {
        let name = node.name();
        match node.action {
            Action::Free { .. } => with_frees,
            Action::Allocate { .. } => texts.iter().any(|text| text.contains(&name)),
            Action::Around(..) | Action::Plugins(_) => !node.children().is_empty(),
        }
    });
}

fn changes(program: &Program) -> Vec<Change> {
    let nodes = program.nodes();
    let removals = nodes.iter().map(|node| Change::Remove(node.id));
    let unwrapped = nodes
        .iter()
        .filter(|node| can_unwrap(node))
        .map(|node| Change::Unwrap(node.id));
    let once = nodes
        .iter()
        .filter(|node| matches!(node.action, Action::Allocate { times: 2.., .. }))
        .map(|node| Change::Once(node.id));
    removals.chain(unwrapped).chain(once).collect()
}

/// A library's function and a waiting thread are only valid where they are.
fn can_unwrap(node: &Node) -> bool {
    let is_bound = matches!(
        node.action,
        Action::Around(Around::Library | Around::Waiting, _) | Action::Plugins(_)
    );
    !is_bound && !node.children().is_empty()
}

/// Whether the program has changed.
fn apply(program: &mut Program, change: Change) -> bool {
    [
        &mut program.before,
        &mut program.waiting,
        &mut program.after,
    ]
    .into_iter()
    .any(|part| apply_in(part, change))
}

fn apply_in(body: &mut Vec<Node>, change: Change) -> bool {
    let (Change::Remove(id) | Change::Unwrap(id) | Change::Once(id)) = change;
    let Some(at) = body.iter().position(|node| node.id == id) else {
        let mut inner = body.iter_mut().filter_map(Node::children_mut);
        return inner.any(|body| apply_in(body, change));
    };
    match change {
        Change::Remove(_) => {
            body.remove(at);
        }
        Change::Unwrap(_) => {
            let children = body.remove(at).children().to_vec();
            body.splice(at..at, children);
        }
        Change::Once(_) => {
            if let Some(Node {
                action: Action::Allocate { times, .. },
                ..
            }) = body.get_mut(at)
            {
                *times = 1;
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::super::program::{How, Language, Through};
    use super::*;

    fn allocates(program: &Program, site: u32) -> bool {
        program.nodes().iter().any(|node| node.id == site)
    }

    /// Check that nothing remains of a program but what is needed, once and without anything around it.
    #[test]
    fn only_what_is_needed_remains() {
        let site = |id| Node {
            id,
            action: Action::Allocate {
                how: How::Malloc,
                through: Through::Nothing,
                base: 8,
                step: 1,
                times: 100,
            },
        };
        let around = |id, around, body| Node {
            id,
            action: Action::Around(around, body),
        };
        let inner = around(3, Around::Threads(4), vec![site(4), site(5)]);
        let program = Program {
            language: Language::C,
            before: vec![site(1)],
            waiting: vec![around(2, Around::Waiting, vec![site(6)])],
            after: vec![around(7, Around::Call, vec![inner, site(8)])],
        };
        let minute = Duration::from_secs(60);
        let small = shrink(&program, &["s008_"], minute, |it| allocates(it, 5));
        let nodes = small.nodes();
        assert_eq!(nodes.len(), 1);
        assert!(matches!(nodes[0].action, Action::Allocate { times: 1, .. }));
    }
}
