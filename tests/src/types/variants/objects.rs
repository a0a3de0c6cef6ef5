//! Generates a program that makes objects by `new`, of classes with constructors in several forms.
//!
//! Part of the harness. Nothing is random.

use std::fmt::Write as _;

const HEAD: &str = "#define CASE extern \"C\" __attribute__((noinline)) void
#define NI __attribute__((noinline))
template<class T> static inline void esc(T&& p){ asm volatile(\"\" :: \"r\"(&p) : \"memory\"); }
void* kept;
struct Root { long tag; virtual ~Root() {} virtual int kind() const { return 0; } };
Root* root;
";

/// Members, so that the classes have several sizes.
const MEMBERS: [&str; 8] = [
    "long a;",
    "char text[23]; int b;",
    "double d[3];",
    "void* p; short s[5];",
    "long v[9]; char c;",
    "float f[2][4];",
    "unsigned long u[2]; bool b;",
    "int one; long many[6];",
];

/// For each form of a class `C`, with members `M`: the class, what a function does with `n`, and what the blocks are. Pointers are kept as `void*` or as pointers to a
/// base, so that what takes a block does not tell its type.
const FORMS: [(&str, &str, &str); 11] = [
    (
        "struct C { M NI C(int n); }; C::C(int n) { esc(n); esc(*this); }",
        "kept = new C(n);",
        "C",
    ),
    (
        "class C { M public: NI C(int n); NI ~C(); }; C::C(int n) { esc(n); esc(*this); } C::~C() { esc(*this); }",
        "C* p = new C(n); esc(p);",
        "C",
    ),
    (
        "struct C { M virtual int kind() const { return 1; } virtual ~C() {} };",
        "kept = new C(); (void)n;",
        "C",
    ),
    (
        "struct C : Root { M int kind() const override { return 2; } };",
        "root = new C(); (void)n;",
        "C",
    ),
    (
        "struct C : Root { M NI C(int n); int kind() const override { return 3; } }; C::C(int n) { esc(n); esc(*this); }",
        "root = new C(n);",
        "C",
    ),
    (
        "struct C_base : Root { M int kind() const override { return 4; } }; struct C : C_base { int kind() const override { return 5; } };",
        "root = new C(); (void)n;",
        "C",
    ),
    (
        "struct C_side { long side; virtual ~C_side() {} }; struct C : Root, C_side { M };",
        "root = new C(); (void)n;",
        "C",
    ),
    (
        "namespace app { namespace C_space { struct C { M NI C(int n); }; C::C(int n) { esc(n); esc(*this); } } }",
        "kept = new app::C_space::C(n);",
        "app::C_space::C",
    ),
    (
        "struct C_outer { struct C : Root { M int kind() const override { return 6; } }; };",
        "root = new C_outer::C(); (void)n;",
        "C_outer::C",
    ),
    (
        "template<class T> struct C : Root { T of; M int kind() const override { return 7; } };",
        "root = new C<long>(); (void)n;",
        "C<long>",
    ),
    (
        "struct C { M NI C(); }; C::C() { esc(*this); }",
        "kept = new C[n];",
        "C",
    ),
];

/// A program in C++, which needs no header.
pub fn objects() -> String {
    let mut source = HEAD.to_owned();
    let mut calls = String::new();
    let mut number = 0;
    for (form, (class, body, truth)) in FORMS.iter().enumerate() {
        for (members, of) in MEMBERS.iter().enumerate() {
            number += 1;
            let name = format!("K{form}x{members}");
            let put = |text: &str| {
                // Only words of their own, and beginnings of names, stand for something.
                let words = text.split_inclusive(|it: char| !it.is_alphanumeric() && it != '_');
                let words = words.map(|word| {
                    let end = word.find(|it: char| !it.is_alphanumeric() && it != '_');
                    let (plain, rest) = word.split_at(end.unwrap_or(word.len()));
                    match plain.strip_prefix('C') {
                        Some(tail) if tail.is_empty() || tail.starts_with('_') => {
                            format!("{name}{tail}{rest}")
                        }
                        _ if plain == "M" => format!("{of}{rest}"),
                        _ => word.to_owned(),
                    }
                });
                words.collect::<String>()
            };
            let _ = writeln!(
                source,
                "{} CASE case_{number}(int n) {{ {} }} // T: case_{number} *={}|",
                put(class),
                put(body),
                put(truth)
            );
            let _ = write!(calls, "case_{number}(n);");
        }
    }
    let _ = writeln!(
        source,
        "int main(int argc, char**) {{ int n = argc + 4; {calls} return 0; }}"
    );
    source
}
