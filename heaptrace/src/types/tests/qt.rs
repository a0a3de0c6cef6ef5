//! Stacks of Qt 5 and Qt 6, whose library has symbols alone.

use super::*;

/// A stack, innermost first. `~` is before functions that only a table of symbols names.
fn stack(functions: &[&str]) -> Chain {
    let mut chain = cpp_stack(functions);
    for link in &mut chain.links {
        if let Some(name) = link.name.strip_prefix('~') {
            link.name = name.to_owned();
            link.is_symbol = true;
        }
    }
    chain
}

/// What is found for a stack, whose types have these sizes.
fn found(functions: &[&str], known: &[SizedType], sizes: &Sizes) -> Option<BlockType> {
    let mut chain = stack(functions);
    for link in &mut chain.links {
        link.parameters = known.to_vec();
    }
    decide(&chain, sizes)
}

const VECTOR: [&str; 5] = [
    "~QArrayData::allocate",
    "QTypedArrayData<Order>::allocate",
    "QVector<Order>::realloc",
    "QVector<Order>::append",
    "QStack<Order>::push",
];

/// Check that arrays of both versions are named by their outermost class and counted behind their headers, and that another size excludes them.
#[test]
fn arrays_are_named() {
    let order = [sized("Order", 40)];
    let of_5 = found(&VECTOR, &order, &of_size(24 + 5 * 40)).unwrap();
    assert_eq!(
        (&*of_5.name, &*of_5.element, of_5.way),
        ("QStack<Order>", "Order", Way::Frames)
    );
    assert_eq!((of_5.elements(1, 224), of_5.is_capacity), (Some(5), true));
    assert_eq!(found(&VECTOR, &order, &of_size(24 + 5 * 40 + 4)), None);
    let of_6 = found(
        &[
            "~QArrayData::reallocateUnaligned",
            "QTypedArrayData<Order>::reallocateUnaligned",
            "QtPrivate::QPodArrayOps<Order>::reallocate",
            "QArrayDataPointer<Order>::reallocateAndGrow",
            "QList<Order>::emplaceBack<Order>",
            "main",
        ],
        &order,
        &of_size(18 + 3 * 40),
    );
    let of_6 = of_6.unwrap();
    assert_eq!(
        (&*of_6.name, of_6.elements(1, 138)),
        ("QList<Order>", Some(3))
    );
}

/// Check that an array inside of an array is its own, and that nothing is named where other functions may be inlined.
#[test]
fn arrays_are_told_apart() {
    let of = |functions: &[&str]| shown(found(functions, &[], &Sizes::default()));
    assert_eq!(
        of(&[
            "~QArrayData::allocate",
            "QTypedArrayData<short>::allocate",
            "QVector<short>::QVector",
            "QVector<QVector<short> >::append",
            "main",
        ]),
        pair("QVector<short>", "short")
    );
    let by_symbol = ["~QArrayData::allocate", "~QVector<Order>::realloc", "main"];
    assert_eq!(found(&by_symbol, &[], &Sizes::default()), None);
}

/// Check that texts are known by QtCore's symbols, if nothing but one function of its own is between, and that other functions are not believed.
#[test]
fn texts_are_known_by_symbols() {
    let of = |functions: &[&str], size| found(functions, &[], &of_size(size));
    let text = of(&["~QArrayData::allocate", "~QString::QString", "main"], 58).unwrap();
    assert_eq!(
        (&*text.name, &*text.element, text.way),
        ("QString", "QChar", Way::Symbol)
    );
    assert_eq!(
        of(&["~QArrayData::allocate", "~QString::QString"], 57),
        None
    );
    let bytes = [
        "~QArrayData::reallocateUnaligned",
        "~",
        "~QByteArray::append",
    ];
    assert_eq!(shown(of(&bytes, 57)), pair("QByteArray", "char"));
    for other in [
        &["~QArrayData::allocate", "~", "~", "~QString::append"][..],
        &["~QArrayData::allocate", "~QString::toUcs4"],
        &["~QArrayData::allocate", "~", "~QString::QString"],
    ] {
        assert_eq!(of(other, 58), None, "{other:?}");
    }
    let children = [
        "~QListData::realloc_grow",
        "~QListData::append",
        "~",
        "~QObjectPrivate::setParent_helper",
    ];
    assert_eq!(
        shown(of(&children, 48)),
        pair("QList<QObject*>", "QObject*")
    );
}

/// Check that a list of Qt 5 has small elements in itself and pointers to others, which are in nodes, and that nothing is said of what may be either.
#[test]
fn lists_have_elements_or_pointers() {
    let list = |of: &str, bytes| {
        let inner = format!("QList<{of}>::detach_helper");
        let outer = format!("QList<{of}>::reserve");
        let functions = ["~QListData::detach", &inner, &outer, "main"];
        shown(found(&functions, &[sized(of, bytes)], &of_size(16 + 80)))
    };
    assert_eq!(list("Order", 40), pair("QList<Order>", "Order*"));
    assert_eq!(list("Order*", 8), pair("QList<Order*>", "Order*"));
    assert_eq!(list("QString", 8), pair("QList<QString>", "QString"));
    assert_eq!(list("Small", 8), pair("QList<Small>", "QList<Small>::Node"));
    let node = [
        "operator new",
        "QList<Order>::node_construct",
        "QList<Order>::append",
    ];
    let node = |size| found(&node, &[sized("Order", 40)], &of_size(size));
    assert_eq!(shown(node(40)), pair("QList<Order> (nodes)", "Order"));
    assert_eq!(node(80), None);
}

/// Check that the parts of hash tables and maps are told apart.
#[test]
fn parts_of_maps_are_told_apart() {
    let of = |functions: &[&str], size| shown(found(functions, &[], &of_size(size)));
    let hash = ["QMultiHash<int, Order>::insert", "main"];
    let with = |first| [&[first, "QHash<int, Order>::detach"], &hash[..]].concat();
    let pair_of = "std::pair<const int, Order>";
    assert_eq!(
        of(&with("~QHashData::allocateNode"), 56),
        pair("QMultiHash<int, Order> (nodes)", pair_of)
    );
    assert_eq!(
        of(&with("~QHashData::rehash"), 136),
        pair("QMultiHash<int, Order> (buckets)", "bucket")
    );
    let detached = with("~QHashData::detach_helper");
    assert_eq!(
        of(&detached, 48),
        pair("QMultiHash<int, Order> (data)", "QHashData")
    );
    assert_eq!(of(&detached, 136), pair("", ""));
    let set = [
        "~QHashData::allocateNode",
        "QHash<long, QHashDummyValue>::createNode",
    ];
    assert_eq!(of(&set, 24), pair("QSet<long> (nodes)", "long"));
    let map = [
        "QMapData<int, Order>::createNode",
        "QMap<int, Order>::insert",
    ];
    assert_eq!(
        of(&[&["~QMapDataBase::createNode"], &map[..]].concat(), 72),
        pair("QMap<int, Order> (nodes)", pair_of)
    );
    let storage = "QHashPrivate::Span<QHashPrivate::Node<int, Order> >::addStorage";
    assert_eq!(
        of(&["operator new[]", storage], 3840),
        pair("QHash<int, Order> (nodes)", pair_of)
    );
}

/// Check that an object with its counters is told from the counters of one elsewhere.
#[test]
fn shared_pointers_are_named() {
    let of = |class: &str| {
        let function = format!("QtSharedPointer::{class}::create");
        shown(found(
            &["operator new", &function, "main"],
            &[sized("Order", 40)],
            &of_size(56),
        ))
    };
    assert_eq!(
        of("ExternalRefCountWithContiguousData<Order>"),
        pair("QSharedPointer<Order>", "Order")
    );
    assert_eq!(
        of("ExternalRefCountWithCustomDeleter<Order, QtSharedPointer::NormalDeleter>"),
        pair("QSharedPointer<Order> (control block)", "Order")
    );
    let array = [
        "malloc",
        "QVLABase<Order>::reallocate_impl",
        "QVarLengthArray<Order, (long long)2>::resize",
    ];
    assert_eq!(
        shown(found(&array, &[], &of_size(80))),
        pair("QVarLengthArray<Order, 2>", "Order")
    );
}
