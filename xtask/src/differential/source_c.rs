//! Prints a program in C or C++.
//!
//! Part of differential. It must not know how a source is built.

use std::fmt::Write as _;

use super::program::{Action, Around, How, Node, Program, Through};
use super::source::{Source, call, parts};

struct Printer {
    is_cpp: bool,
    /// The functions of the file at hand.
    text: String,
    libraries: Vec<(u32, String)>,
}

/// Prints a program.
pub(super) fn print(program: &Program, is_cpp: bool) -> Source {
    let mut printer = Printer {
        is_cpp,
        text: head(is_cpp),
        libraries: Vec::new(),
    };
    let before = printer.body(&program.before);
    let after = printer.body(&program.after);
    let mut waiting = String::new();
    for node in &program.waiting {
        printer.function(node);
        let _ = writeln!(waiting, "    d_wait_for_gate({});", node.name());
    }
    let mut text = printer.text;
    text.push_str("int main(int argc, char **argv) {\n    int part = d_begin(argc, argv);\n");
    if is_cpp {
        text.push_str("    know_releases();\n");
    }
    text.push_str("    switch (part) {\n");
    for node in parts(program) {
        let _ = writeln!(
            text,
            "    case {}:\n    {}();\n    break;",
            node.id,
            node.name()
        );
    }
    let _ = write!(
        text,
        "    default:\n{before}{waiting}    d_gate();\n{after}    }}\n    d_end();\n    return 0;\n}}\n"
    );
    Source {
        main: text,
        libraries: printer.libraries,
    }
}

fn head(is_cpp: bool) -> String {
    if !is_cpp {
        return "#include \"runtime.h\"\n\n".to_owned();
    }
    "#include \"runtime.h\"\n\n#include <new>\n#include <vector>\n\n\
     struct alignas(64) Aligned { char bytes[64]; };\n\
     static void release(void *at, size_t, size_t) { operator delete(at); }\n\
     static void release_array(void *at, size_t, size_t) { operator delete[](at); }\n\
     static void release_aligned(void *at, size_t, size_t align) { operator delete(at, std::align_val_t(align)); }\n\
     static void release_sized(void *at, size_t size, size_t) { operator delete(at, size); }\n\
     __attribute__((unused)) static void know_releases() {\n    d_releases[D_DELETE] = release;\n    \
     d_releases[D_DELETE_ARRAY] = release_array;\n    d_releases[D_DELETE_ALIGNED] = release_aligned;\n    \
     d_releases[D_DELETE_SIZED] = release_sized;\n}\n\n"
        .to_owned()
}

impl Printer {
    /// Prints the functions of a body, and returns the calls to them.
    fn body(&mut self, body: &[Node]) -> String {
        let mut calls = String::new();
        for node in body {
            self.function(node);
            let _ = writeln!(calls, "    {};", call(node));
        }
        calls
    }

    fn function(&mut self, node: &Node) {
        match &node.action {
            Action::Allocate {
                how,
                through,
                base,
                step,
                times,
            } => {
                let inside = self.allocation(node.id, *how, *through);
                self.define(
                    node,
                    &format!(
                        "    for (size_t turn = 0; turn < {times}; turn++) {{\n        \
                         size_t n = d_size({base}, {step}, turn);\n{inside}    }}\n"
                    ),
                );
            }
            Action::Free { count, newest } => {
                self.define(
                    node,
                    &format!("    d_free_some({count}, {});\n", i32::from(*newest)),
                );
            }
            Action::Plugins(libraries) => {
                let mut calls = String::new();
                for library in libraries {
                    let outer = std::mem::replace(&mut self.text, head(self.is_cpp));
                    self.function(library);
                    let text = std::mem::replace(&mut self.text, outer);
                    self.libraries.push((library.id, text));
                    let _ = writeln!(
                        calls,
                        "    d_library({}, \"{}\");",
                        library.id,
                        library.name()
                    );
                }
                self.define(node, &calls);
            }
            Action::Around(around, body) => {
                let calls = self.body(body);
                self.around(node, *around, &calls);
            }
        }
    }

    fn around(&mut self, node: &Node, around: Around, calls: &str) {
        let (id, name) = (node.id, node.name());
        let inner = format!("h{id:03}_");
        match around {
            Around::Recursion(_) => {
                let text = format!(
                    "    if (depth > 0)\n        {name}(depth - 1);\n    else {{\n{calls}    }}\n"
                );
                self.define_with(&name, "int depth", &text);
            }
            Around::Alloca(bytes) => {
                let text = format!(
                    "    volatile char *space = (volatile char *)alloca(d_size({bytes}, 0, 0));\n    \
                     space[0] = 1;\n{calls}    space[0] = 2;\n"
                );
                self.define(node, &text);
            }
            Around::Fork => {
                let text = format!(
                    "    int pid = d_fork({id});\n    if (pid == 0) {{\n{calls}    d_fork_end();\n    }}\n    \
                     d_wait(pid);\n"
                );
                self.define(node, &text);
            }
            Around::Jump => {
                self.define_with(
                    &inner,
                    "void",
                    &format!("{calls}    longjmp(*d_jump, 1);\n"),
                );
                let text = format!(
                    "    jmp_buf here, *volatile outer = d_jump;\n    if (setjmp(here) == 0) {{\n        \
                     d_jump = &here;\n        {inner}();\n    }}\n    d_jump = outer;\n"
                );
                self.define(node, &text);
            }
            Around::Throw => {
                self.define_with(&inner, "void", &format!("{calls}    throw {id};\n"));
                let text =
                    format!("    try {{\n        {inner}();\n    }} catch (int) {{\n    }}\n");
                self.define(node, &text);
            }
            Around::Coroutine => {
                let calls = calls.replace(";\n", ";\n    d_yield();\n");
                self.define(node, &calls);
            }
            Around::Call
            | Around::Threads(_)
            | Around::Signal { .. }
            | Around::Spawn { .. }
            | Around::Execute
            | Around::Callback
            | Around::Library
            | Around::Waiting => self.define(node, calls),
        }
    }

    fn define(&mut self, node: &Node, text: &str) {
        self.define_with(&node.name(), "void", text);
    }

    fn define_with(&mut self, name: &str, parameters: &str, text: &str) {
        let linkage = if self.is_cpp { "extern \"C\" " } else { "" };
        let _ = write!(
            self.text,
            "{linkage}D_FUNCTION void {name}({parameters}) {{\n{text}    D_END;\n}}\n\n"
        );
    }

    /// The lines that allocate `n` bytes once.
    fn allocation(&mut self, id: u32, how: How, through: Through) -> String {
        let old = "        struct d_block old = d_take(D_FREE);\n";
        let direct = |call: &str| call.to_owned();
        match how {
            How::Malloc => self.simple(id, through, "malloc(n)", "D_FREE", 0),
            How::Calloc => self.simple(id, through, "calloc(n, 1)", "D_FREE", 0),
            How::ReallocNull => self.simple(id, through, "realloc(NULL, n)", "D_FREE", 0),
            How::Memalign => self.simple(id, through, "memalign(32, n)", "D_FREE", 32),
            How::AlignedAlloc => self.simple(id, through, "aligned_alloc(64, n)", "D_FREE", 64),
            How::MallocFails => self.simple(
                id,
                through,
                "malloc((size_t)PTRDIFF_MAX - 4096 + n % 16)",
                "D_FREE",
                0,
            ),
            How::CallocFails => direct(&format!(
                "        d_keep({id}, calloc((size_t)PTRDIFF_MAX / 2, d_size(2, 0, 0)), n, D_FREE, 0);\n"
            )),
            How::Realloc | How::ReallocZero => {
                // What a size of 0 does to nothing differs, so it is given to blocks alone.
                let zero = if how == How::ReallocZero {
                    "        n = 0;\n        if (old.at == NULL)\n            continue;\n"
                } else {
                    ""
                };
                let call = self.passed(id, through, "realloc(p, n)", "old.at");
                format!(
                    "{old}{zero}        void *p = {call};\n        d_reallocated({id}, &old, p, n);\n"
                )
            }
            How::ReallocArray => direct(&format!(
                "{old}        void *p = reallocarray(old.at, n, 3);\n        d_reallocated({id}, &old, p, n * 3);\n"
            )),
            How::ReallocFails => direct(&format!(
                "{old}        void *p = realloc(old.at, (size_t)PTRDIFF_MAX - 4096 + n % 16);\n        \
                 d_reallocated({id}, &old, p, n + 1);\n"
            )),
            How::PosixMemalign => direct(&format!(
                "        void *p = NULL;\n        if (posix_memalign(&p, 128, n) != 0)\n            p = NULL;\n        \
                 d_keep({id}, p, n, D_FREE, 128);\n"
            )),
            How::Strdup => direct(&format!(
                "        static char text[400000];\n        __asm__ volatile(\"\" : : \"r\"(text) : \"memory\");\n        \
                 n %= sizeof text;\n        char *end = text + sizeof text - 1 - n;\n        \
                 memset(end, 'x', n);\n        \
                 d_keep({id}, strdup(end), n + 1, D_FREE, 0);\n"
            )),
            How::New => self.simple(id, through, "operator new(n)", "D_DELETE", 0),
            How::NewArray => self.simple(id, through, "operator new[](n)", "D_DELETE_ARRAY", 0),
            How::NewNothrow => direct(&format!(
                "        d_keep({id}, new (std::nothrow) char[n], n, D_DELETE_ARRAY, 0);\n"
            )),
            How::NewSized => direct(&format!(
                "        d_keep({id}, operator new(n), n, D_DELETE_SIZED, 0);\n"
            )),
            How::NewAligned => direct(&format!(
                "        n = sizeof(Aligned);\n        d_keep({id}, new Aligned, n, D_DELETE_ALIGNED, 64);\n"
            )),
            // It grows twice, exactly as it is told.
            How::Vector => direct(&format!(
                "        std::vector<char> v;\n        v.reserve(n);\n        __asm__ volatile(\"\" : : \"r\"(v.data()) : \"memory\");\n        \
                 v.reserve(n + 24);\n        __asm__ volatile(\"\" : : \"r\"(v.data()) : \"memory\");\n        \
                 d_came_and_went({id}, n);\n        d_came_and_went({id}, n + 24);\n"
            )),
            How::RustBox | How::RustVec | How::RustGrow | How::RustZeroed | How::RustAligned => {
                String::new()
            }
        }
    }

    fn simple(&mut self, id: u32, through: Through, call: &str, kind: &str, align: u32) -> String {
        let call = self.passed(id, through, call, "NULL");
        format!("        d_keep({id}, {call}, n, {kind}, {align});\n")
    }

    /// The call, through another function if it is wanted. That function gets a pointer and the size.
    fn passed(&mut self, id: u32, through: Through, call: &str, pointer: &str) -> String {
        let direct = call.replace("(p, ", &format!("({pointer}, "));
        if through == Through::Nothing {
            return direct;
        }
        let name = format!("h{id:03}_");
        let linkage = if self.is_cpp { "extern \"C\" " } else { "" };
        let text = match through {
            Through::TailCall => format!("    return {call};\n"),
            _ => format!("    void *volatile block = {call};\n    return block;\n"),
        };
        let _ = write!(
            self.text,
            "{linkage}D_FUNCTION void *{name}(void *p, size_t n) {{\n    (void)p;\n{text}}}\n\n"
        );
        if through == Through::Pointer {
            let _ = write!(
                self.text,
                "static void *(*volatile h{id:03}_pointer)(void *, size_t) = {name};\n\n"
            );
            return format!("h{id:03}_pointer({pointer}, n)");
        }
        format!("{name}({pointer}, n)")
    }
}
