//! Makes a random program from a seed.
//!
//! Part of differential. It must not know how programs are built and run.

use heaptrace_tests::Random;

use super::feature::{Feature, Features};
use super::program::{Action, Around, How, Language, Node, Program, Through};
use super::variant::Build;

/// No action is deeper than this.
const DEPTH: u32 = 5;

/// The number of actions of a program, about.
const ACTIONS: usize = 40;

/// The most times that an action runs, because of the threads around it.
const MOST_THREADS: u32 = 12;

/// What the place of an action allows.
#[derive(Clone, Copy)]
struct Place {
    depth: u32,
    threads: u32,
    in_signal: bool,
    in_coroutine: bool,
    in_process: u32,
    in_library: bool,
}

pub(super) struct Generator<'a> {
    random: &'a mut Random,
    features: &'a Features,
    language: Language,
    is_static: bool,
    is_packed: bool,
    next: u32,
    left: usize,
}

/// The language of the next program.
pub(super) fn language(random: &mut Random, features: &Features) -> Language {
    match random.below(10) {
        0..3 if features.has(Feature::Cpp) => Language::Cpp,
        3..5 if features.has(Feature::Rust) => Language::Rust,
        _ => Language::C,
    }
}

/// A random program to be built so. A static one loads no libraries.
pub(super) fn program(
    random: &mut Random,
    features: &Features,
    language: Language,
    build: &Build,
    has_flood: bool,
) -> Program {
    let left = 4 + random.below(ACTIONS);
    let mut generator = Generator {
        random,
        features,
        language,
        is_static: build.is_static(),
        is_packed: build.is_packed(language),
        next: 1,
        left,
    };
    let place = Place {
        depth: 0,
        threads: 1,
        in_signal: false,
        in_coroutine: false,
        in_process: 0,
        in_library: false,
    };
    let before = (0..generator.random.below(3)).map(|_| generator.leaf(place));
    let before = before.collect();
    let waiting = if features.has(Feature::Threads) {
        let count = generator.random.below(3);
        let inside = Place {
            depth: 3,
            threads: MOST_THREADS,
            ..place
        };
        let body = |it: &mut Generator<'_>| it.around(Around::Waiting, inside);
        (0..count).map(|_| body(&mut generator)).collect()
    } else {
        Vec::new()
    };
    let mut after = Vec::new();
    while generator.left > 0 {
        after.push(generator.node(place));
    }
    if has_flood {
        after.push(generator.flood());
    }
    generator.last(&mut after, place);
    Program {
        language,
        before,
        waiting,
        after,
    }
}

impl Generator<'_> {
    fn number(&mut self) -> u32 {
        self.next += 1;
        self.next - 1
    }

    fn has(&self, feature: Feature) -> bool {
        self.features.has(feature)
    }

    fn node(&mut self, place: Place) -> Node {
        self.left = self.left.saturating_sub(1);
        if place.depth >= DEPTH || self.left == 0 || self.random.below(10) < 4 {
            return self.leaf(place);
        }
        let inside = Place {
            depth: place.depth + 1,
            ..place
        };
        let is_cpp = self.language == Language::Cpp;
        let is_rust = self.language == Language::Rust;
        match self.random.below(13) {
            0 if self.has(Feature::Threads) && place.threads < MOST_THREADS => {
                let count = 1 + self.random.below(4) as u32;
                let inside = Place {
                    threads: place.threads * count,
                    in_signal: false,
                    in_coroutine: false,
                    ..inside
                };
                self.around(Around::Threads(count), inside)
            }
            1 if self.has(Feature::Signals) && !place.in_signal => {
                let alternate_stack = self.random.one_in(2);
                let inside = Place {
                    in_signal: true,
                    ..inside
                };
                self.around(Around::Signal { alternate_stack }, inside)
            }
            2 if self.has(Feature::Fork) && place.in_process < 2 && place.threads < 5 => {
                let inside = Place {
                    in_process: place.in_process + 1,
                    ..inside
                };
                let mut node = self.around(Around::Fork, inside);
                if let Some(body) = node.children_mut() {
                    self.last(body, inside);
                }
                node
            }
            // A process begins in the program itself.
            3 if self.has(Feature::Exec)
                && !place.in_library
                && place.in_process < 2
                && place.threads < 5 =>
            {
                let vfork = self.has(Feature::Vfork) && self.random.one_in(2);
                let inside = Place {
                    in_process: place.in_process + 1,
                    threads: place.threads,
                    in_signal: false,
                    in_coroutine: false,
                    ..inside
                };
                let mut node = self.around(Around::Spawn { vfork }, inside);
                if let Some(body) = node.children_mut() {
                    self.last(body, inside);
                }
                node
            }
            4 if self.has(Feature::Dlopen) && !self.is_static && !is_rust => self.plugins(inside),
            5 if self.has(Feature::Longjmp) && !is_rust => self.around(Around::Jump, inside),
            6 if self.has(Feature::Exceptions) && (is_cpp || is_rust) => {
                self.around(Around::Throw, inside)
            }
            // That stacks end where such a coroutine began can't be seen, which the documents name as a limit.
            7 if self.has(Feature::Coroutines)
                && !self.is_packed
                && !place.in_signal
                && !place.in_coroutine =>
            {
                let inside = Place {
                    in_coroutine: true,
                    ..inside
                };
                self.around(Around::Coroutine, inside)
            }
            8 if self.has(Feature::Callbacks) => self.around(Around::Callback, inside),
            9 if self.has(Feature::Recursion) => {
                let depth = 1 + self.random.below(14) as u32;
                self.around(Around::Recursion(depth), inside)
            }
            10 if !is_rust => {
                let bytes = 1 + self.random.below(9000) as u32;
                self.around(Around::Alloca(bytes), inside)
            }
            _ => self.around(Around::Call, inside),
        }
    }

    /// Threads that allocate and free more than a small ring holds.
    fn flood(&mut self) -> Node {
        let how = match self.language {
            Language::Rust => How::RustVec,
            _ => How::Malloc,
        };
        let allocate = Action::Allocate {
            how,
            through: Through::Nothing,
            base: 24,
            step: 8,
            times: 400,
        };
        let free = Action::Free {
            count: 400,
            newest: true,
        };
        let threads = self.number();
        let body = [allocate, free].map(|action| Node {
            id: self.number(),
            action,
        });
        Node {
            id: threads,
            action: Action::Around(Around::Threads(8), body.into()),
        }
    }

    /// Adds what can only be the last action of a process: to execute another program.
    fn last(&mut self, body: &mut Vec<Node>, place: Place) {
        let is_inside = place.in_signal || place.in_coroutine || place.in_library;
        let may = place.threads == 1 && !is_inside;
        if self.has(Feature::Exec) && may && self.random.one_in(8) {
            let inside = Place {
                depth: place.depth.max(DEPTH - 2),
                ..place
            };
            // Threads that wait would be killed in their middle.
            if place.in_process > 0 {
                body.push(self.around(Around::Execute, inside));
            }
        }
    }

    fn around(&mut self, around: Around, inside: Place) -> Node {
        let id = self.number();
        let count = 1 + self.random.below(4);
        let body = (0..count).map(|_| self.node(inside)).collect();
        Node {
            id,
            action: Action::Around(around, body),
        }
    }

    /// Libraries; in half of the cases all of the same shape, so that one is mapped where another was.
    fn plugins(&mut self, inside: Place) -> Node {
        let id = self.number();
        let inside = Place {
            depth: inside.depth + 1,
            in_library: true,
            ..inside
        };
        let first = self.around(Around::Library, inside);
        let count = self.random.below(4);
        let same = self.random.one_in(2);
        let mut libraries = vec![first];
        for _ in 0..count {
            let next = match libraries.first() {
                Some(first) if same => {
                    let mut copy = first.clone();
                    self.renumber(&mut copy);
                    copy
                }
                _ => self.around(Around::Library, inside),
            };
            libraries.push(next);
        }
        Node {
            id,
            action: Action::Plugins(libraries),
        }
    }

    fn renumber(&mut self, node: &mut Node) {
        node.id = self.number();
        if let Some(children) = node.children_mut() {
            for child in children {
                self.renumber(child);
            }
        }
    }

    fn leaf(&mut self, place: Place) -> Node {
        let id = self.number();
        if self.random.one_in(4) {
            let action = Action::Free {
                count: 1 + self.random.below(300) as u32,
                newest: self.random.one_in(2),
            };
            return Node { id, action };
        }
        let how = self.how();
        let (base, step) = match self.random.below(6) {
            0 => (self.random.below(3) as u32, 0),
            1..4 => (1 + self.random.below(200) as u32, 1),
            4 => (200 + self.random.below(4000) as u32, 16),
            _ => (4096 + self.random.below(300_000) as u32, 4096),
        };
        // A block of Rust has at least a byte.
        let least = u32::from(how.is_rust() || how.is_cpp());
        let most = if base > 4096 { 8 } else { 400 };
        let times = 1 + self.random.below(most) as u32 / place.threads;
        let through = match self.random.below(5) {
            0 if self.has(Feature::TailCalls) => Through::TailCall,
            1 => Through::Wrapper,
            2 => Through::Pointer,
            _ => Through::Nothing,
        };
        let action = Action::Allocate {
            how,
            through: if how.is_simple() {
                through
            } else {
                Through::Nothing
            },
            base: base.max(least),
            step,
            times,
        };
        Node { id, action }
    }

    fn how(&mut self) -> How {
        const RUST: [How; 5] = [
            How::RustBox,
            How::RustVec,
            How::RustGrow,
            How::RustZeroed,
            How::RustAligned,
        ];
        const CPP: [How; 6] = [
            How::New,
            How::NewArray,
            How::NewAligned,
            How::NewNothrow,
            How::NewSized,
            How::Vector,
        ];
        const C: [How; 10] = [
            How::Malloc,
            How::Malloc,
            How::Calloc,
            How::Realloc,
            How::Realloc,
            How::ReallocNull,
            How::AlignedAlloc,
            How::PosixMemalign,
            How::Memalign,
            How::Strdup,
        ];
        const RARE: [How; 5] = [
            How::ReallocZero,
            How::ReallocArray,
            How::MallocFails,
            How::CallocFails,
            How::ReallocFails,
        ];
        let table: &[How] = match self.language {
            Language::Rust => &RUST,
            Language::Cpp if self.random.one_in(2) => &CPP,
            _ if self.random.one_in(5) => &RARE,
            _ => &C,
        };
        let how = table[self.random.below(table.len())];
        let fails = matches!(how, How::MallocFails | How::CallocFails | How::ReallocFails);
        if fails && !self.has(Feature::Failures) {
            return How::Malloc;
        }
        how
    }
}
