//! Generates programs that say the type of each block: every container with every element, in namespaces, at several sizes.
//!
//! Part of the harness. Nothing is random.

use std::fmt::Write as _;

mod objects;
mod qt;
mod symbols;

pub use objects::objects;
pub use qt::{in_version, qt};
pub use symbols::symbols;

/// Elements in C++. None allocates by itself.
const CPP_ELEMENTS: [&str; 14] = [
    "int",
    "double",
    "unsigned long",
    "void*",
    "Plain",
    "Plain*",
    "app::Order",
    "app::net::Packet<int>",
    "app::net::Packet<app::Order>",
    "app::Outer::Inner",
    "std::string",
    "std::vector<short>",
    "std::pair<int, app::Order>",
    "app::Handle<Plain, 3>",
];

const CPP_HEAD: &str = "#include <vector>
#include <string>
#include <list>
#include <forward_list>
#include <map>
#include <set>
#include <unordered_map>
#include <deque>
#include <queue>
#include <stack>
#include <memory>
#include <utility>
#define CASE extern \"C\" __attribute__((noinline)) void
template<class T> static inline void esc(T&& p){ asm volatile(\"\" :: \"r\"(&p) : \"memory\"); }
struct Plain { long a[3]; int b; };
namespace app {
struct Order { long id; double px; int qty; char sym[12]; };
struct Outer { struct Inner { char text[72]; }; Inner inner; };
template<class T, int N> struct Handle { T* to[N]; };
namespace net { template<class T> struct Packet { T body; unsigned char head[20]; }; }
}
";

/// For each container: statements with `E` for the element, and what they allocate.
const CPP_CONTAINERS: [(&str, &str); 16] = [
    ("std::vector<E> v; v.push_back(E()); esc(v);", "*=E|"),
    ("std::vector<E> v; v.reserve(n); esc(v);", "*=E|"),
    ("std::vector<E> v(n); esc(v);", "*=E|"),
    ("std::vector<E> v; v.resize(n + 3); esc(v);", "*=E|"),
    ("std::list<E> v; v.push_back(E()); esc(v);", "*=E|"),
    ("std::forward_list<E> v; v.push_front(E()); esc(v);", "*=E|"),
    (
        "std::map<int, E> v; v[n] = E(); esc(v);",
        "*=std::pair<const int, E>|",
    ),
    (
        "std::multimap<short, E> v; v.insert({short(n), E()}); esc(v);",
        "*=std::pair<const short, E>|",
    ),
    (
        "std::unordered_map<long, E> v; v[n] = E(); esc(v);",
        "<17=bucket| ; 104=bucket| ; *=std::pair<const long, E>|",
    ),
    (
        "std::deque<E> v; v.push_back(E()); esc(v);",
        "<100=E*| ; *=E|",
    ),
    ("std::queue<E> v; v.push(E()); esc(v);", "<100=E*| ; *=E|"),
    (
        "std::stack<E, std::vector<E>> v; v.push(E()); esc(v);",
        "*=E|",
    ),
    ("auto v = std::make_shared<E>(); esc(v);", "*=E|"),
    ("auto v = std::make_unique<E>(); esc(v);", "*=E|"),
    ("auto v = new E(); esc(v);", "*=E|"),
    ("auto v = new E[n]; esc(v);", "*=E|"),
];

/// A program in C++.
pub fn cpp() -> String {
    let mut source = CPP_HEAD.to_owned();
    let mut calls = String::new();
    let mut number = 0;
    for element in CPP_ELEMENTS {
        for (statements, truth) in CPP_CONTAINERS {
            number += 1;
            let body = statements
                .replace("E>", &format!("{element}>"))
                .replace("<E,", &format!("<{element},"));
            let body = body
                .replace("E(", &format!("{}(", "El"))
                .replace("E[", &format!("{}[", "El"));
            let truth = truth.replace('E', element);
            let _ = writeln!(
                source,
                "CASE case_{number}(int n){{ (void)n; using El = {element}; {body} }} // T: case_{number} {truth}"
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

/// Members of structures in C.
const C_MEMBERS: [&str; 10] = [
    "int a; char* b;",
    "long a[5];",
    "double x, y, z;",
    "struct s0* next; long k[3];",
    "char name[57]; int n;",
    "unsigned char b[7];",
    "float f; short g; long h[6];",
    "void* p[9];",
    "struct s1 one; int two;",
    "int grid[6][3]; long z;",
];

/// For each way to take a block: declarations outside of the function, its parameters, its statements. `S` is the structure, `N` its number.
const C_PATTERNS: [(&str, &str, &str); 14] = [
    ("", "int n", "S* p = malloc(sizeof *p); ESC(p); (void)n;"),
    ("", "int n", "S* p = calloc(n, sizeof *p); ESC(p);"),
    (
        "",
        "int n",
        "S* p = malloc(n * sizeof(S)); if (!p) return; ESC(p);",
    ),
    (
        "static struct { long k; S* at; } h_N;",
        "int n",
        "h_N.at = malloc(sizeof(S)); ESC(&h_N); (void)n;",
    ),
    ("S* g_N;", "int n", "g_N = malloc(n * sizeof(S)); ESC(g_N);"),
    ("", "int n", "S* p = xmalloc(sizeof *p); ESC(p); (void)n;"),
    ("", "int n", "S* p = xtail(n * sizeof *p); ESC(p);"),
    ("", "int n", "S* p = xinline(sizeof *p); ESC(p); (void)n;"),
    (
        "NI S* make_N(void) { S* p = malloc(sizeof *p); if (!p) return 0; ESC(p); return p; }",
        "int n",
        "void* p = make_N(); ESC(p); (void)n;",
    ),
    (
        "NI S* tail_N(void) { return malloc(sizeof(S)); }",
        "int n",
        "void* p = tail_N(); ESC(p); (void)n;",
    ),
    (
        "NI void take_N(S* p) { ESC(p); ESC(sizeof *p); }",
        "int n",
        "take_N(malloc(sizeof(S))); ESC(n);",
    ),
    (
        "",
        "int n",
        "S* p; if ((p = malloc(sizeof *p)) == NULL) return; ESC(p); (void)n;",
    ),
    (
        "",
        "int n",
        "S* p = 0; p = realloc(p, n * sizeof *p); ESC(p);",
    ),
    (
        "NI void fill_N(S** out) { *out = malloc(sizeof **out); }",
        "int n",
        "S* p; fill_N(&p); ESC(p); (void)n;",
    ),
];

/// A program in C.
pub fn c() -> String {
    let mut source = "#include <stdlib.h>
#define CASE __attribute__((noinline)) void
#define NI static __attribute__((noinline))
#define ESC(p) __asm__ volatile(\"\" :: \"r\"(p) : \"memory\")
__attribute__((noinline)) void* xmalloc(size_t n) { void* p = malloc(n); if (!p) abort(); return p; }
__attribute__((noinline)) void* xtail(size_t n) { return malloc(n); }
static inline void* xinline(size_t n) { void* p = malloc(n); if (!p) abort(); return p; }
"
    .to_owned();
    for (number, members) in C_MEMBERS.iter().enumerate() {
        let _ = writeln!(source, "struct s{number} {{ {members} }};");
    }
    let mut calls = String::new();
    let mut number = 0;
    for structure in 0..C_MEMBERS.len() {
        for (outside, parameters, body) in C_PATTERNS {
            number += 1;
            let put = |text: &str| {
                let text = text.replace("_N", &format!("_{number}"));
                text.split('S')
                    .collect::<Vec<_>>()
                    .join(&format!("struct s{structure}"))
                    .replace(&format!("Estruct s{structure}C"), "ESC")
            };
            let _ = writeln!(
                source,
                "{} CASE case_{number}({parameters}) {{ {} }} // T: case_{number} *=s{structure}|",
                put(outside),
                put(body)
            );
            let _ = write!(calls, "case_{number}(n);");
        }
    }
    let _ = writeln!(
        source,
        "int main(int argc, char** argv) {{ int n = argc + 4; (void)argv; {calls} return 0; }}"
    );
    source
}

/// Elements in Rust.
const RUST_ELEMENTS: [&str; 11] = [
    "u8",
    "u64",
    "(u16, f64)",
    "Order",
    "Option<Order>",
    "net::Packet<u32>",
    "net::Packet<Order>",
    "String",
    "Vec<Order>",
    "[u32; 5]",
    "&'static Order",
];

const RUST_CONTAINERS: [(&str, &str); 13] = [
    ("let mut v = Vec::new(); v.push(e()); bb(&v);", "*=E|"),
    ("let v: Vec<T> = Vec::with_capacity(n); bb(&v);", "*=E|"),
    (
        "let v: Vec<T> = (0..n).map(|_| e()).collect(); bb(&v);",
        "*=E|",
    ),
    (
        "let mut v: Vec<T> = Vec::new(); bb(&mut v).reserve(n); bb(&v);",
        "*=E|",
    ),
    ("bb(&Box::new(e()));", "*=E|"),
    ("bb(&Rc::new(e()));", "*=E|"),
    ("bb(&Arc::new(e()));", "*=E|"),
    (
        "let mut v = HashMap::new(); v.insert(n as u32, e()); bb(&v);",
        "*=(u32, E)|",
    ),
    (
        "let mut v = BTreeMap::new(); v.insert(n as i16, e()); bb(&v);",
        "*=(i16, E)|",
    ),
    (
        "let mut v = VecDeque::new(); v.push_back(e()); bb(&v);",
        "*=E|",
    ),
    (
        "let mut v = LinkedList::new(); v.push_back(e()); bb(&v);",
        "*=E|",
    ),
    (
        "let v: Box<[T]> = (0..n).map(|_| e()).collect(); bb(&v);",
        "*=E|",
    ),
    (
        "let v: Rc<[T]> = (0..n).map(|_| e()).collect(); bb(&v);",
        "*=E|",
    ),
];

/// A program in Rust, of a crate named `rs`.
pub fn rust() -> String {
    let mut source = "#![allow(dead_code)]
use std::collections::*; use std::hint::black_box as bb; use std::rc::Rc; use std::sync::Arc;
#[derive(Clone, Copy)] pub struct Order { id: u64, px: u64, qty: u32, sym: [u8; 12] }
static ORDER: Order = Order { id: 1, px: 2, qty: 3, sym: [4; 12] };
mod net { #[derive(Clone, Copy)] pub struct Packet<T> { pub body: T, pub head: [u8; 20] } }
trait Make { fn make() -> Self; }
impl Make for u8 { fn make() -> Self { 1 } }
impl Make for u64 { fn make() -> Self { 1 } }
impl Make for (u16, f64) { fn make() -> Self { (1, 2.0) } }
impl Make for Order { fn make() -> Self { ORDER } }
impl Make for Option<Order> { fn make() -> Self { Some(ORDER) } }
impl Make for net::Packet<u32> { fn make() -> Self { net::Packet { body: 1, head: [2; 20] } } }
impl Make for net::Packet<Order> { fn make() -> Self { net::Packet { body: ORDER, head: [2; 20] } } }
impl Make for String { fn make() -> Self { String::new() } }
impl Make for Vec<Order> { fn make() -> Self { Vec::new() } }
impl Make for [u32; 5] { fn make() -> Self { [7; 5] } }
impl Make for &'static Order { fn make() -> Self { &ORDER } }
"
    .to_owned();
    let mut calls = String::new();
    let mut number = 0;
    for element in RUST_ELEMENTS {
        for (body, truth) in RUST_CONTAINERS {
            number += 1;
            let shown = element.replace("'static ", "");
            // The block of an array is one of its elements.
            let truth = match body.starts_with("bb(&Box") && element == "[u32; 5]" {
                true => "*=u32|".to_owned(),
                false => truth.replace('E', &shown),
            };
            let _ = writeln!(
                source,
                "#[inline(never)] #[unsafe(no_mangle)] pub fn case_{number}(n: usize) {{ type T = {element}; fn e() -> T {{ T::make() }} bb(n); {body} }} // T: case_{number} {truth}",
                body = body.replace("e()", "bb(e())"),
            );
            let _ = write!(calls, "case_{number}(n);");
        }
    }
    let source = source.replace("T::make()", "<T as Make>::make()");
    format!("{source}fn main() {{ let n = std::env::args().count() + 4; {calls} }}\n")
}
