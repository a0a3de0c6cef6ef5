//! Stacks of Rust.

use super::*;

const RAW_VEC: &str = "/rustc/1/library/alloc/src/raw_vec/mod.rs";
const VEC: &str = "/rustc/1/library/alloc/src/vec/mod.rs";

/// A stack of functions with their files; an empty file is the program's own.
fn stack(functions: &[(&str, &str)]) -> Chain {
    let mut chain = Chain {
        sites: vec![Site::default()],
        ..Chain::default()
    };
    let mut call = 0;
    for (name, file) in functions {
        if *name == "|" {
            chain.sites.push(Site::default());
            call += 1;
            continue;
        }
        let file = if file.is_empty() {
            "src/main.rs"
        } else {
            *file
        };
        chain.links.push(Link {
            name: (*name).to_owned(),
            file: file.to_owned(),
            is_rust: true,
            call,
            ..Link::default()
        });
    }
    chain
}

fn of(functions: &[(&str, &str)]) -> (String, String) {
    shown(decide(&stack(functions), &Sizes::default()))
}

/// Check that the element is found through functions that are for every element, and that adaptors are named.
#[test]
fn elements_are_found() {
    let grown = [
        ("finish_grow<alloc::alloc::Global>", RAW_VEC),
        ("grow_one<rs::Order, alloc::alloc::Global>", RAW_VEC),
        ("push<rs::Order, alloc::alloc::Global>", VEC),
    ];
    let mut vector = grown.to_vec();
    vector.push(("main", ""));
    assert_eq!(of(&vector), pair("Vec<rs::Order>", "rs::Order"));
    let mut heap = grown.to_vec();
    heap.push((
        "push<rs::Order, alloc::alloc::Global>",
        "/rustc/1/library/alloc/src/collections/binary_heap/mod.rs",
    ));
    assert_eq!(of(&heap).0, "BinaryHeap<rs::Order>");
    let text = [
        ("with_capacity_in<u8, alloc::alloc::Global>", RAW_VEC),
        ("with_capacity<u8>", VEC),
        ("with_capacity", "/rustc/1/library/alloc/src/string.rs"),
        ("main", ""),
    ];
    assert_eq!(of(&text), pair("String", "u8"));
}

/// Check that a vector in a vector keeps its own element.
#[test]
fn inner_vectors_keep_their_element() {
    let inner = [
        ("with_capacity_in<u8, alloc::alloc::Global>", RAW_VEC),
        (
            "to_vec_in<u8, alloc::alloc::Global>",
            "/library/alloc/src/slice.rs",
        ),
        (
            "clone<alloc::vec::Vec<u8, alloc::alloc::Global>, alloc::alloc::Global>",
            VEC,
        ),
    ];
    assert_eq!(of(&inner), pair("Vec<u8>", "u8"));
}

/// Check that the vector decides where a function of its storage was merged with that of another one, and only if it is another call.
#[test]
fn merged_functions_do_not_mislead() {
    let inner = ("grow_one<&rs::Packet, alloc::alloc::Global>", RAW_VEC);
    let outer = ("push<&rs::Other, alloc::alloc::Global>", VEC);
    assert_eq!(of(&[inner, ("|", ""), outer]).1, "&rs::Other");
    assert_eq!(of(&[inner, outer]).1, "&rs::Packet");
}

/// Check boxes, counted values, slices, trees, lists and hash tables.
#[test]
fn parts_of_the_library_are_known() {
    let boxed = "/rustc/1/library/alloc/src/boxed.rs";
    let raw = "/rust/deps/hashbrown-0.16.1/src/raw.rs";
    let map = "/rust/deps/hashbrown-0.16.1/src/map.rs";
    let node = "alloc::collections::btree::node::LeafNode";
    for (functions, name, element) in [
        (
            vec![("new<rs::Order>", boxed)],
            "Box<rs::Order>",
            "rs::Order",
        ),
        (vec![("new<[usize; 3]>", boxed)], "Box<[usize; 3]>", "usize"),
        (
            vec![("new<alloc::rc::RcInner<rs::Order>>", boxed)],
            "Rc<rs::Order>",
            "rs::Order",
        ),
        (
            vec![("allocate_for_slice<u8>", "/library/alloc/src/sync.rs")],
            "Arc<[u8]>",
            "u8",
        ),
        (
            vec![(
                "allocate_for_layout<[[u32; 5]], f, g>",
                "/library/alloc/src/rc.rs",
            )],
            "Rc<[[u32; 5]]>",
            "[u32; 5]",
        ),
        (
            vec![("new<alloc::rc::RcInner<[u32; 5]>>", boxed)],
            "Rc<[u32; 5]>",
            "[u32; 5]",
        ),
        (
            vec![(
                "try_new_uninit_in<alloc::collections::btree::node::LeafNode<u64, rs::Order>, A>",
                boxed,
            )],
            "BTreeMap<u64, rs::Order>",
            "(u64, rs::Order)",
        ),
        (
            vec![
                ("prepare_resize<alloc::alloc::Global>", raw),
                ("reserve_rehash<(u32, ()), alloc::alloc::Global, f>", raw),
                ("insert<u32, (), std::hash::random::RandomState, A>", map),
            ],
            "HashSet<u32>",
            "u32",
        ),
        (
            vec![
                ("reserve_rehash<(u32, alloc::string::String), A, f>", raw),
                ("insert<u32>", map),
            ],
            "HashMap<u32, String>",
            "(u32, String)",
        ),
    ] {
        assert_eq!(of(&functions), pair(name, element));
    }
    let set = format!("new_in<{node}<u32, alloc::collections::btree::set_val::SetValZST>, A>");
    assert_eq!(of(&[(set.as_str(), boxed)]), pair("BTreeSet<u32>", "u32"));
}

/// Check that functions of a program are not taken for the library's, whatever their names.
#[test]
fn own_functions_tell_nothing() {
    assert_eq!(
        of(&[("push<rs::Order, alloc::alloc::Global>", "")]),
        pair("", "")
    );
    assert_eq!(
        of(&[("new<rs::Order>", "/home/u/mylibrary/alloc/src/boxed.rs")]),
        pair("", "")
    );
    assert_eq!(of(&[("into_iter<rs::Order>", VEC)]), pair("", ""));
}

/// Check that a function of the library which may be merged tells nothing where its caller has no debug information.
#[test]
fn merged_functions_need_a_caller() {
    let mut chain = stack(&[
        ("finish_grow<alloc::alloc::Global>", RAW_VEC),
        (
            "grow_one<alloc::vec::Vec<u8, alloc::alloc::Global>, alloc::alloc::Global>",
            RAW_VEC,
        ),
        ("|", ""),
        ("rs::case", ""),
    ]);
    assert!(decide(&chain, &Sizes::default()).is_some());
    for link in chain.links.iter_mut().filter(|it| it.call == 1) {
        link.is_symbol = true;
    }
    assert_eq!(decide(&chain, &Sizes::default()), None);
}
