//! Tables of virtual functions in real files.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Object as _, ObjectSegment as _, ObjectSymbol as _};

use crate::reader::{decode, encode};
use crate::types::live_protocol::{ClassesAnswer, ClassesQuestion, MAX_PLACES};
use crate::types::read::answer_classes;

/// Classes without bases, with one, with several, with a virtual one, of a template, and one that other files can't refer to.
const SOURCE: &str = r"
namespace shop {
struct Shape { virtual ~Shape() {} virtual int area() { return 0; } long id = 1; };
struct Square : Shape { int area() override { return 2; } long side[3] = {}; };
struct Named { virtual ~Named() {} virtual int name() { return 3; } long text = 2; };
struct Label : Square, Named { int name() override { return 4; } };
struct Lazy : virtual Named { int name() override { return 5; } };
template <class T> struct Box : Shape { T value{}; };
}
namespace { struct Hidden : shop::Shape { int area() override { return 7; } }; }
shop::Shape *all[8];
shop::Named *named;
int main() {
    all[0] = new shop::Shape; all[1] = new shop::Square; all[2] = new shop::Label;
    all[3] = new shop::Box<long>; all[4] = new Hidden; named = new shop::Lazy;
    int sum = named->name();
    for (int i = 0; i < 5; i++) sum += all[i]->area();
    return sum == 0;
}
";

/// The classes of objects that the program makes, with the symbol of each table, and where objects point to in it.
const CLASSES: [(&str, &str, u64); 7] = [
    ("shop::Shape", "_ZTVN4shop5ShapeE", 16),
    ("shop::Square", "_ZTVN4shop6SquareE", 16),
    ("shop::Named", "_ZTVN4shop5NamedE", 16),
    ("shop::Label", "_ZTVN4shop5LabelE", 16),
    ("shop::Lazy", "_ZTVN4shop4LazyE", 24),
    ("shop::Box<long>", "_ZTVN4shop3BoxIlEE", 16),
    (
        "(anonymous namespace)::Hidden",
        "_ZTVN12_GLOBAL__N_16HiddenE",
        16,
    ),
];

fn compile(folder: &Path, options: &[&str]) -> PathBuf {
    let source = folder.join("shop.cc");
    std::fs::write(&source, SOURCE).unwrap();
    let program = folder.join("shop");
    let mut command = Command::new("g++");
    command.args(options).arg("-o").arg(&program).arg(source);
    assert!(command.status().unwrap().success(), "{command:?}");
    program
}

/// Where objects of each class point to, as an offset in the file.
fn tables(program: &Path) -> BTreeMap<u64, String> {
    let bytes = std::fs::read(program).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let offset = |address: u64| {
        let mut segments = file.segments();
        segments.find_map(|it| {
            let within = address.checked_sub(it.address())?;
            let (begin, size) = it.file_range();
            (within < size).then_some(begin + within)
        })
    };
    let found = CLASSES.iter().filter_map(|(class, name, to)| {
        let symbol = file.symbols().find(|it| it.name() == Ok(name))?;
        Some((offset(symbol.address() + to).unwrap(), (*class).to_owned()))
    });
    found.collect()
}

/// Every place of a file that is taken for a table.
fn found(program: &Path) -> BTreeMap<u64, String> {
    let length = std::fs::metadata(program).unwrap().len();
    let offsets: Vec<u64> = (0..length).step_by(4).collect();
    let mut found = BTreeMap::new();
    for part in offsets.chunks(MAX_PLACES) {
        let question = ClassesQuestion {
            offsets: part.to_vec(),
        };
        let file = File::open(program).unwrap();
        let answer: ClassesAnswer = decode(&answer_classes(&encode(&question), &[file])).unwrap();
        assert_eq!(answer.len(), part.len());
        let named = part.iter().copied().zip(answer);
        found.extend(named.filter(|(_, name)| !name.is_empty()));
    }
    found
}

/// Check that exactly the tables of a program's classes are found in it, with position-independent code and without, also when it is stripped;
/// and without type information by symbols alone, or not at all.
#[test]
fn tables_are_found_and_nothing_else() {
    for (options, is_known_when_stripped) in [
        (&["-O1"] as &[&str], true),
        (&["-O0", "-no-pie", "-fno-pie"], true),
        (&["-O2", "-Wl,-z,now"], true),
        (&["-O1", "-fno-rtti"], false),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let program = compile(folder.path(), options);
        let expected = tables(&program);
        assert!(expected.len() >= 5, "{options:?}: {expected:?}");
        assert_eq!(found(&program), expected, "{options:?}");
        let status = Command::new("strip").arg(&program).status().unwrap();
        assert!(status.success());
        let known: Vec<_> = found(&program).into_values().collect();
        let all: Vec<_> = expected.into_values().collect();
        match is_known_when_stripped {
            true => assert_eq!(known, all, "{options:?}, stripped"),
            false => assert_eq!(known, [] as [&str; 0], "{options:?}, stripped"),
        }
    }
}
