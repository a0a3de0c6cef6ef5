//! A generated program as data: a tree of actions, each of which becomes a function of its own.
//!
//! Part of differential. It must not know how a program is printed, built or run.

use std::collections::BTreeMap;

/// The language of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Language {
    C,
    Cpp,
    Rust,
}

/// A program.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) language: Language,
    /// Before the gate at which a tracer attaches.
    pub(super) before: Vec<Node>,
    /// Threads that start before the gate and run after it.
    pub(super) waiting: Vec<Node>,
    /// After the gate.
    pub(super) after: Vec<Node>,
}

/// An action and its number, by which its function is named.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) id: u32,
    pub(super) action: Action,
}

/// What a function does.
#[derive(Clone, Debug)]
pub(super) enum Action {
    /// Allocates so many times, with sizes from `base` in 13 steps.
    Allocate {
        how: How,
        through: Through,
        base: u32,
        step: u32,
        times: u32,
    },
    /// Frees so many blocks, from whichever site, the oldest or the newest first.
    Free {
        count: u32,
        newest: bool,
    },
    Around(Around, Vec<Node>),
    /// Libraries that are loaded, called and unloaded one after another.
    Plugins(Vec<Node>),
}

/// What a function does around its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Around {
    Call,
    Recursion(u32),
    /// With an `alloca` of so many bytes, so that the frame's size is known at run time only.
    Alloca(u32),
    Threads(u32),
    Signal {
        alternate_stack: bool,
    },
    Fork,
    /// Another process runs the body, in the same program executed anew.
    Spawn {
        vfork: bool,
    },
    /// This process executes itself to run the body. Nothing after it runs.
    Execute,
    Jump,
    Throw,
    Coroutine,
    /// From a function of the C library.
    Callback,
    /// What a library of [`Action::Plugins`] does.
    Library,
    /// A thread that was started before the gate.
    Waiting,
}

/// The function that allocates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    Malloc,
    Calloc,
    Realloc,
    ReallocNull,
    ReallocZero,
    ReallocArray,
    AlignedAlloc,
    PosixMemalign,
    Memalign,
    Strdup,
    MallocFails,
    CallocFails,
    ReallocFails,
    New,
    NewArray,
    NewAligned,
    NewNothrow,
    NewSized,
    Vector,
    RustBox,
    RustVec,
    RustGrow,
    RustZeroed,
    RustAligned,
}

/// What lies between the site and the allocator's function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Through {
    Nothing,
    Wrapper,
    TailCall,
    Pointer,
}

/// Where a stack of a site ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Root {
    Main,
    Thread,
    Coroutine,
}

/// What is known of a site.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) how: How,
    pub(super) through: Through,
    /// The names of the generated functions on the stack, the site first.
    pub(super) chain: Vec<String>,
    pub(super) root: Root,
    /// Whether its function is in a library that is unloaded after the call.
    pub(super) in_library: bool,
}

impl How {
    /// Whether it is one call with a pointer and a size, which a function can pass on.
    pub(super) fn is_simple(self) -> bool {
        matches!(
            self,
            Self::Malloc
                | Self::Calloc
                | Self::Realloc
                | Self::ReallocNull
                | Self::ReallocZero
                | Self::Memalign
                | Self::AlignedAlloc
                | Self::MallocFails
                | Self::New
                | Self::NewArray
        )
    }

    /// Whether the program calls a function of the C library that a preloaded library sees by its caller.
    pub(super) fn is_direct(self) -> bool {
        !self.is_cpp() && !self.is_rust() && self != Self::Strdup
    }

    pub(super) fn is_cpp(self) -> bool {
        matches!(
            self,
            Self::New
                | Self::NewArray
                | Self::NewAligned
                | Self::NewNothrow
                | Self::NewSized
                | Self::Vector
        )
    }

    pub(super) fn is_rust(self) -> bool {
        matches!(
            self,
            Self::RustBox | Self::RustVec | Self::RustGrow | Self::RustZeroed | Self::RustAligned
        )
    }
}

impl Node {
    /// The name of its function. All have the same length, so that libraries of the same shape have the same layout.
    pub(super) fn name(&self) -> String {
        let letter = match self.action {
            Action::Allocate { .. } => 's',
            _ => 'f',
        };
        format!("{letter}{:03}_", self.id)
    }

    /// The actions inside.
    pub(super) fn children(&self) -> &[Self] {
        match &self.action {
            Action::Around(_, body) | Action::Plugins(body) => body,
            Action::Allocate { .. } | Action::Free { .. } => &[],
        }
    }

    /// The actions inside, to change them.
    pub(super) fn children_mut(&mut self) -> Option<&mut Vec<Self>> {
        match &mut self.action {
            Action::Around(_, body) | Action::Plugins(body) => Some(body),
            Action::Allocate { .. } | Action::Free { .. } => None,
        }
    }
}

impl Program {
    /// All parts, in the order in which they are printed.
    pub(super) fn parts(&self) -> [&[Node]; 3] {
        [&self.before, &self.waiting, &self.after]
    }

    /// All nodes, parents before their children.
    pub(super) fn nodes(&self) -> Vec<&Node> {
        fn add<'a>(body: &'a [Node], to: &mut Vec<&'a Node>) {
            for node in body {
                to.push(node);
                add(node.children(), to);
            }
        }
        let mut all = Vec::new();
        for part in self.parts() {
            add(part, &mut all);
        }
        all
    }

    /// Whether it has threads beside its first one.
    pub(super) fn has_threads(&self) -> bool {
        let is_thread = |node: &Node| {
            matches!(
                node.action,
                Action::Around(Around::Threads(_) | Around::Waiting, _)
            )
        };
        self.nodes().into_iter().any(is_thread)
    }

    /// The sites, by number.
    pub(super) fn places(&self) -> BTreeMap<u32, Place> {
        let mut places = BTreeMap::new();
        for part in self.parts() {
            for node in part {
                descend(node, &[], (Root::Main, false), &mut places);
            }
        }
        places
    }
}

/// Collects the sites below a node; `outer` are the functions around it, the innermost first.
fn descend(
    node: &Node,
    outer: &[String],
    (mut root, mut in_library): (Root, bool),
    places: &mut BTreeMap<u32, Place>,
) {
    let mut outer = outer.to_vec();
    let mut times = 1;
    if let Action::Around(around, _) = &node.action {
        match around {
            Around::Threads(_) | Around::Waiting => {
                outer.clear();
                root = Root::Thread;
            }
            Around::Coroutine => {
                outer.clear();
                root = Root::Coroutine;
            }
            Around::Spawn { .. } | Around::Execute => {
                outer.clear();
                root = Root::Main;
            }
            Around::Recursion(depth) => times = depth + 1,
            Around::Library => in_library = true,
            _ => {}
        }
    }
    for _ in 0..times {
        outer.insert(0, node.name());
    }
    if let Action::Allocate { how, through, .. } = node.action {
        let place = Place {
            how,
            through,
            chain: outer.clone(),
            root,
            in_library,
        };
        places.insert(node.id, place);
    }
    for child in node.children() {
        descend(child, &outer, (root, in_library), places);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(id: u32) -> Node {
        Node {
            id,
            action: Action::Allocate {
                how: How::Malloc,
                through: Through::Nothing,
                base: 1,
                step: 0,
                times: 1,
            },
        }
    }

    /// Check that a site's chain has the functions around it up to the thread, coroutine or process that it runs in.
    #[test]
    fn chains_end_where_stacks_end() {
        let around = |id, around, body| Node {
            id,
            action: Action::Around(around, body),
        };
        let inner = around(3, Around::Recursion(1), vec![site(4)]);
        let thread = around(2, Around::Threads(2), vec![inner]);
        let program = Program {
            language: Language::C,
            before: Vec::new(),
            waiting: Vec::new(),
            after: vec![around(1, Around::Call, vec![thread, site(5)])],
        };
        let places = program.places();
        assert_eq!(places[&4].chain, ["s004_", "f003_", "f003_", "f002_"]);
        assert_eq!(places[&4].root, Root::Thread);
        assert_eq!(places[&5].chain, ["s005_", "f001_"]);
        assert_eq!(places[&5].root, Root::Main);
    }
}
