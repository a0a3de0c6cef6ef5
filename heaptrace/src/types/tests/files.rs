//! What a reader finds in debug information that compilers and packagers keep in several files, or write in other forms.

use std::path::{Path, PathBuf};

use super::*;
use crate::join::LocationId;
use crate::reader::Job;
use crate::symbolize::OnDisk;
use crate::symbolize::tests::{calls, compile, module, profile, run, with_folders};
use crate::types::protocol::{Evidence, TypesAnswer, TypesQuestion};

const SOURCE: &str = r#"
typedef __SIZE_TYPE__ size_t;
extern "C" void *malloc(size_t);
void *volatile sink;
namespace shop {
struct Order { long id; double px; char sym[12]; Order(int n); };
__attribute__((noinline)) Order::Order(int n) : id(n) {}
template <typename T> struct Shelf {
    T *items;
    __attribute__((noinline)) void fill(int n) { items = (T *)malloc(n * sizeof(T)); }
};
}
struct Book { shop::Order *first; shop::Shelf<shop::Order> *shelf; } book;
static void *wrapped(size_t n) { void *p = malloc(n); if (!p) __builtin_trap(); return p; }
__attribute__((noinline)) void take(shop::Shelf<int> *of) { sink = of; }
int main(int argc, char **) {
    book.first = new shop::Order(argc);
    book.shelf = (shop::Shelf<shop::Order> *)wrapped(8);
    book.shelf->fill(argc);
    take((shop::Shelf<int> *)malloc(8));
    return book.shelf->items == 0;
}
"#;

/// What is found at each call of a program, in the order of their addresses.
fn sites(path: &Path) -> Vec<Site> {
    let addresses = calls(path);
    let profile = profile(module(path), &addresses);
    let wanted: Vec<LocationId> = (0..addresses.len() as u32).map(LocationId).collect();
    let mut sites = Vec::new();
    with_folders(vec![]).ask_about(
        &profile,
        &OnDisk::default(),
        (Job::Types, &wanted),
        |offsets, has_debug, has_shared| TypesQuestion {
            offsets,
            has_debug,
            has_shared,
        },
        |_, answer: TypesAnswer| sites.extend(answer),
    );
    sites
}

/// The sites of the program, built with these options, in a folder.
fn built(dir: &Path, options: &[&str]) -> (PathBuf, Vec<Site>) {
    let path = compile(dir, "g++", SOURCE, options);
    let sites = sites(&path);
    (path, sites)
}

/// Check that the table of virtual functions that is stored in a block tells its class, by symbols alone.
#[test]
fn tables_of_virtual_functions_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let source = r#"
struct Shape { virtual ~Shape() {} virtual int kind() { return 1; } };
namespace app { struct Square : Shape { long side[3]; int kind() override { return 2; } }; }
Shape *shape;
int main(int argc, char **) { shape = new app::Square(); return shape->kind() == argc; }
"#;
    let sites = sites(&compile(dir.path(), "g++", source, &[]));
    let mut found = sites.iter().filter_map(|it| it.constructed.as_ref());
    assert_eq!(
        found.next(),
        Some(&(sized("app::Square", 0), Evidence::Vtable)),
        "{sites:#?}"
    );
}

/// Check that the constructor of a base in another file does not tell an object's class, but the table that is stored afterwards.
#[test]
fn constructors_of_bases_are_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let source = r#"
struct Base { Base(int); virtual int kind(); long own[4]; };
struct Derived : Base { long more[3]; Derived(int n) : Base(n) {} };
Base *sink[2];
void make(int n) { sink[0] = new Base(n); sink[1] = new Derived(n); }
"#;
    let flags = ["-g", "-shared", "-fPIC"];
    let sites = sites(&compile(dir.path(), "g++", source, &flags));
    let is_new = |it: &&Site| {
        let target = it.target.as_ref();
        target.is_some_and(|it| it.name.starts_with("operator new"))
    };
    let found = sites.iter().filter(is_new);
    let found = found.filter_map(|it| it.constructed.as_ref());
    let names: Vec<&str> = found.map(|(of, _)| of.name.as_str()).collect();
    assert_eq!(names, ["Base", "Derived"], "{sites:#?}");
}

/// Check that the sites of a program are the same with all debug information in one file, in files of units, in a package, compressed, and with types in
/// units of their own, and that they are what the program allocates.
#[test]
fn debug_information_is_read_in_all_its_forms() {
    let dir = tempfile::tempdir().unwrap();
    let (_, expected) = built(dir.path(), &["-g"]);
    let named = |of: &Option<SizedType>| of.as_ref().map(|it| (it.name.clone(), it.bytes));
    let stored: Vec<_> = expected.iter().filter_map(|it| named(&it.stored)).collect();
    for of in [
        ("shop::Shelf<shop::Order>", 8),
        ("shop::Order", 32),
        ("shop::Shelf<int>", 8),
    ] {
        assert!(
            stored.contains(&(of.0.to_owned(), of.1)),
            "{of:?}: {stored:#?}"
        );
    }
    assert!(
        expected.iter().any(|it| it.constructed.is_some()),
        "{expected:#?}"
    );
    let forms: [&[&str]; 7] = [
        &["-g", "-gdwarf-4"],
        &["-g", "-gsplit-dwarf"],
        &["-g", "-gsplit-dwarf", "-gdwarf-4"],
        &["-g", "-gsplit-dwarf", "-fdebug-types-section"],
        &["-g", "-gsplit-dwarf", "-fdebug-types-section", "-gdwarf-4"],
        &["-g", "-fdebug-types-section"],
        &["-g", "-gz"],
    ];
    for form in forms {
        let dir = tempfile::tempdir().unwrap();
        let (path, found) = built(dir.path(), form);
        let mut pairs = found.iter().zip(&expected);
        let other = pairs.find(|(found, expected)| found != expected);
        assert_eq!(other, None, "{form:?}");
        if !form.contains(&"-gsplit-dwarf") {
            continue;
        }
        let units = std::fs::read_dir(dir.path()).unwrap();
        let units = units.map(|it| it.unwrap().path());
        let unit = units.filter(|it| it.extension().is_some_and(|it| it == "dwo"));
        let [unit] = unit.collect::<Vec<_>>().try_into().unwrap();
        let package = dir.path().join("fixture.dwp");
        let [from, to] = [&unit, &package].map(|path| path.to_str().unwrap());
        // binutils makes no packages of version 5.
        if !form.contains(&"-gdwarf-4") {
            continue;
        }
        run("dwp", &["-o", to, from]);
        std::fs::remove_file(&unit).unwrap();
        assert_eq!(sites(&path), expected, "{form:?}, in a package");
        std::fs::remove_file(&package).unwrap();
        let without = sites(&path);
        assert!(
            without.iter().all(|it| it.stored.is_none()),
            "{form:?}: {without:#?}"
        );
    }
}
