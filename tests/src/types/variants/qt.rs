//! Generates programs with Qt's containers.
//!
//! Part of the harness. Nothing is random.

use std::fmt::Write as _;

/// A kind of element.
struct Element {
    name: &'static str,
    /// Whether a list of Qt 5 has pointers to such elements.
    is_behind_pointer: bool,
    /// Whether it may be in a set.
    has_hash: bool,
}

const fn element(name: &'static str, is_behind_pointer: bool, has_hash: bool) -> Element {
    Element {
        name,
        is_behind_pointer,
        has_hash,
    }
}

/// None allocates by itself, and no node with one has the size of another part of its container.
const ELEMENTS: [Element; 15] = [
    element("int", false, true),
    element("double", false, true),
    element("unsigned long", false, true),
    element("Plain*", false, true),
    element("QChar", false, true),
    element("QString", false, true),
    element("QByteArray", false, true),
    element("QVector<short>", false, false),
    element("QMap<int, Plain>", false, false),
    element("Plain", true, false),
    element("app::Order", true, false),
    element("app::net::Packet<int>", true, false),
    element("app::net::Packet<app::Order>", true, false),
    element("app::Outer::Inner", true, false),
    element("std::string", true, false),
];

const HEAD: &str = "#include <string>
#include <QByteArray>
#include <QHash>
#include <QList>
#include <QMap>
#include <QQueue>
#include <QSet>
#include <QSharedPointer>
#include <QStack>
#include <QString>
#include <QVarLengthArray>
#include <QVector>
#define CASE extern \"C\" __attribute__((noinline)) void
template<class T> static inline void esc(T&& p){ asm volatile(\"\" :: \"r\"(&p) : \"memory\"); }
struct Plain { long a[3]; int b; };
namespace app {
struct Key { long a, b, c; bool operator<(const Key& o) const { return a < o.a; } };
struct Order { long id; double px; int qty; char sym[12]; };
struct Outer { struct Inner { char text[72]; }; Inner inner; };
namespace net { template<class T> struct Packet { T body; unsigned char head[28]; }; }
}
";

/// For each container: statements with `El` for the element, and what they allocate, with `E` for it and `P` for what a list of Qt 5 has.
const CONTAINERS: [(&str, &str); 14] = [
    ("QVector<El> v; v.append(El()); esc(v);", "*=E|"),
    ("QVector<El> v; v.reserve(n); esc(v);", "*=E|"),
    ("QVector<El> v(n); esc(v);", "*=E|"),
    ("QVector<El> v; v.resize(n + 3); esc(v);", "*=E|"),
    ("QVector<El> v(n), w = v; w.data(); esc(v); esc(w);", "*=E|"),
    ("QStack<El> v; v.push(El()); esc(v);", "*=E|"),
    (
        "QList<El> v; v.reserve(99); v.append(El()); esc(v);",
        ">700=P| ; *=E|",
    ),
    ("QQueue<El> v; v.reserve(99); esc(v);", ">100=P|"),
    (
        "QHash<long, El> v; v.insert(n, El()); esc(v);",
        "HASH*=std::pair<const long, E>|",
    ),
    (
        "QMap<app::Key, El> v; v.insert(app::Key(), El()); esc(v);",
        "MAP*=std::pair<const app::Key, E>|",
    ),
    (
        "QMap<app::Key, El> v; v[app::Key()]; auto w = v; w[app::Key()]; esc(v); esc(w);",
        "MAP*=std::pair<const app::Key, E>|",
    ),
    ("auto v = QSharedPointer<El>::create(); esc(v);", "*=E|"),
    ("QSharedPointer<El> v(new El()); esc(v);", "*=E|"),
    ("QVarLengthArray<El, 2> v; v.resize(n + 9); esc(v);", "*=E|"),
];

/// What the parts of tables and maps are that hold no elements, by version.
fn with_parts(truth: &str, element: &str, version: u8) -> String {
    let map = match version {
        5 => format!("40=QMapData<app::Key, {element}>| ; "),
        _ => format!("56=QMapData<std::map<app::Key, {element}>>| ; "),
    };
    let hash = parts_of_hash(&format!("long, {element}"), version);
    truth.replace("HASH", &hash).replace("MAP", &map)
}

/// The same of a hash table, by the arguments of its node.
fn parts_of_hash(arguments: &str, version: u8) -> String {
    let node = format!("QHashPrivate::Node<{arguments}>");
    match version {
        5 => "48=QHashData| ; 136=bucket| ; ".to_owned(),
        _ => format!("40=QHashPrivate::Data<{node}>| ; 152=QHashPrivate::Span<{node}>| ; "),
    }
}

/// A program with the containers of a version.
pub fn qt(version: u8) -> String {
    let mut source = HEAD.to_owned();
    let mut calls = String::new();
    let mut number = 0;
    let mut add = |statements: &str, element: &str, truth: &str| {
        number += 1;
        let _ = writeln!(
            source,
            "CASE case_{number}(int n){{ (void)n; using El = {element}; {statements} }} // T: case_{number} {truth}"
        );
        let _ = write!(calls, "case_{number}(n);");
    };
    for of in &ELEMENTS {
        let place = match version {
            // Which of the two is right depends on the size, which may not be known.
            5 if of.is_behind_pointer => format!("{0}*/QList<{0}>::Node", of.name),
            _ => of.name.to_owned(),
        };
        for (statements, truth) in CONTAINERS {
            let truth = with_parts(truth, of.name, version);
            let truth = truth.replace("=P|", &format!("={place}|"));
            let truth = truth.replace("=E|", &format!("={}|", of.name));
            let truth = truth.replace(", E>", &format!(", {}>", of.name));
            add(statements, of.name, &truth);
        }
        if of.has_hash {
            let parts = parts_of_hash(&format!("{}, QHashDummyValue", of.name), version);
            add(
                "QSet<El> v; v.insert(El()); esc(v);",
                of.name,
                &format!("{parts}*={}|", of.name),
            );
        }
    }
    let _ = writeln!(
        source,
        "int main(int argc, char**){{ int n = argc + 4; {calls} return 0; }}"
    );
    in_version(&source, version)
}

/// A program of Qt 5 for a version. Qt 6 has one class in place of two.
pub fn in_version(source: &str, version: u8) -> String {
    match version {
        5 => source.to_owned(),
        _ => source.replace("QVector<", "QList<"),
    }
}
