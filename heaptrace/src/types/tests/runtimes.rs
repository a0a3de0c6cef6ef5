//! Stacks of CPython and of Node.js, as debug packages, unstripped builds and exported symbols name them.

use super::*;
use crate::types::protocol::Target;

/// Physical functions with what each one calls, innermost first, by the table of symbols.
fn symbols(of: &[(&str, &str)]) -> Chain {
    let mut chain = Chain::default();
    for (call, (function, target)) in of.iter().enumerate() {
        chain.links.push(Link {
            name: (*function).to_owned(),
            is_symbol: true,
            call,
            ..Link::default()
        });
        chain.sites.push(Site {
            symbol: (*function).to_owned(),
            target: (!target.is_empty()).then(|| Target {
                name: (*target).to_owned(),
                result: None,
            }),
            ..Site::default()
        });
    }
    chain
}

/// Functions by debug information, each with its file.
fn functions(of: &[(&str, &str)]) -> Chain {
    let mut chain = Chain::default();
    for (call, (function, file)) in of.iter().enumerate() {
        chain.links.push(Link {
            name: (*function).to_owned(),
            file: (*file).to_owned(),
            call,
            ..Link::default()
        });
        chain.sites.push(Site {
            symbol: (*function).to_owned(),
            ..Site::default()
        });
    }
    chain
}

fn name(chain: &Chain, bytes: u64) -> String {
    let found = decide(chain, &of_size(bytes));
    found
        .inspect(|it| assert_eq!(it.way, Way::Runtime))
        .map_or_else(String::new, |it| it.name)
}

/// Check that objects and the storage of containers are told apart, with debug information.
#[test]
fn objects_of_python_are_named() {
    let object = ("_PyObject_Malloc", "Objects/obmalloc.c");
    let of_gc = ("_PyObject_GC_NewVar", "Modules/gcmodule.c");
    for (stack, bytes, expected) in [
        (
            vec![object, ("PyUnicode_New", "Objects/unicodeobject.c")],
            600,
            "str",
        ),
        (
            vec![object, ("_PyBytes_FromSize", "Objects/bytesobject.c")],
            600,
            "bytes",
        ),
        (
            vec![object, of_gc, ("PyTuple_New", "Objects/tupleobject.c")],
            16040,
            "tuple",
        ),
        (
            vec![object, ("new_keys_object", "Objects/dictobject.c")],
            1000,
            "dict (keys)",
        ),
        (
            vec![("list_resize", "/x/Objects/listobject.c")],
            8000,
            "list (items)",
        ),
        (
            vec![object, ("list_new_prealloc", "Objects/listobject.c")],
            800,
            "list (items)",
        ),
        (
            vec![object, ("set_table_resize", "Objects/setobject.c")],
            512,
            "set or frozenset (table)",
        ),
        // Each of these is no whole table, another program's function, or one that makes objects of several classes.
        (
            vec![object, ("set_table_resize", "Objects/setobject.c")],
            520,
            "",
        ),
        (vec![("list_resize", "src/list.c")], 8000, ""),
        (
            vec![object, of_gc, ("dict_new", "Objects/dictobject.c")],
            64,
            "",
        ),
        (
            vec![
                object,
                ("new_arena", "Objects/obmalloc.c"),
                of_gc,
                ("PyTuple_New", ""),
            ],
            768,
            "",
        ),
        (
            vec![object, ("PyTuple_New", "Objects/tupleobject.c")],
            768,
            "",
        ),
    ] {
        assert_eq!(name(&functions(&stack), bytes), expected, "{stack:?}");
    }
    let list = functions(&[("list_resize", "Objects/listobject.c")]);
    let found = decide(&list, &of_size(8000)).unwrap();
    assert!(found.is_capacity && found.elements(1, 8000) == Some(1000));
}

/// Check that exported symbols alone are enough where each call is known, and that a function without a name in between is not passed over.
#[test]
fn symbols_alone_are_enough_where_calls_are_known() {
    let new = ("_PyObject_GC_New", "PyObject_Malloc");
    for (stack, expected) in [
        (
            vec![("PyBytes_FromStringAndSize", "PyObject_Malloc")],
            "bytes",
        ),
        (vec![("PyList_Append", "PyMem_Realloc")], "list (items)"),
        (vec![new, ("PyList_New", "_PyObject_GC_New")], "list"),
        (
            vec![
                ("PyObject_Malloc", ""),
                ("PyFloat_FromDouble", "PyObject_Malloc"),
            ],
            "float",
        ),
        (
            vec![("PyMem_Realloc", ""), ("list_resize", "PyMem_Realloc")],
            "list (items)",
        ),
        (vec![("list_resize", "realloc")], ""),
        (vec![("PyBytes_FromStringAndSize", "")], ""),
        (vec![("", "malloc"), ("PyBytes_FromStringAndSize", "")], ""),
        (
            vec![("", ""), ("", ""), new, ("PyList_New", "_PyObject_GC_New")],
            "",
        ),
        (vec![new, ("PyList_New", "")], ""),
        (vec![new, ("PyList_New", "PyOther_Function")], ""),
    ] {
        assert_eq!(name(&symbols(&stack), 56), expected, "{stack:?}");
    }
    // It was left by a jump, so that it returns a plain block.
    let mut tail = symbols(&[("PyUnicode_Join", "PyUnicode_New")]);
    tail.links.insert(
        0,
        Link {
            name: "PyUnicode_New".to_owned(),
            is_symbol: true,
            is_tail: true,
            ..Link::default()
        },
    );
    assert_eq!(name(&tail, 600), "");
}

/// Check that memory of buffers is named, and called an `ArrayBuffer` only where it can't be shared.
#[test]
fn buffers_of_javascript_are_named() {
    let allocate = ("node::NodeArrayBufferAllocator::Allocate", "calloc");
    let store = ("v8::internal::BackingStore::Allocate", allocate.0);
    let either = "ArrayBuffer or SharedArrayBuffer (bytes)";
    for (outer, expected) in [
        ("v8::internal::Builtin_ArrayBufferConstructor", either),
        ("v8::ArrayBuffer::NewBackingStore", "ArrayBuffer (bytes)"),
        ("node::Buffer::New", "ArrayBuffer (bytes)"),
        ("Builtins_CreateTypedArray", "ArrayBuffer (bytes)"),
    ] {
        let stack = symbols(&[allocate, store, (outer, store.0)]);
        assert_eq!(name(&stack, 1000), expected, "{outer}");
    }
    let other = symbols(&[("node::Other", "malloc"), allocate]);
    assert_eq!(name(&other, 1000), "");
}
