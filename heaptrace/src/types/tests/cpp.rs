//! Stacks of C++: libstdc++ and libc++.

use super::*;

fn vector_of_orders(of: &str) -> Vec<String> {
    let with = |text: &str| text.replace('T', of);
    [
        "std::__new_allocator<T>::allocate",
        "std::allocator_traits<std::allocator<T> >::allocate",
        "std::_Vector_base<T, std::allocator<T> >::_M_allocate",
        "std::vector<T, std::allocator<T> >::reserve",
        "main",
    ]
    .map(with)
    .to_vec()
}

fn stack(functions: &[String]) -> Chain {
    let functions: Vec<&str> = functions.iter().map(String::as_str).collect();
    cpp_stack(&functions)
}

/// Check that the container is named, that the number of elements follows from the sizes, and that a size which does not divide excludes the type.
#[test]
fn containers_are_named() {
    let mut chain = stack(&vector_of_orders("Order"));
    chain.links[0].parameters.push(sized("Order", 40));
    let found = decide(&chain, &of_size(200)).unwrap();
    assert_eq!(
        (found.name.as_str(), found.element.as_str()),
        ("std::vector<Order>", "Order")
    );
    assert_eq!((found.element_bytes, found.way), (40, Way::Frames));
    assert!(found.is_capacity);
    assert_eq!(found.elements(1, 200), Some(5));
    assert_eq!(decide(&chain, &of_size(201)), None);
}

/// Check that nodes are told from elements, in both libraries.
#[test]
fn nodes_are_named() {
    let of_libstdcpp = cpp_stack(&[
        "std::__new_allocator<std::_Rb_tree_node<std::pair<int const, Order> > >::allocate",
        "std::allocator_traits<std::allocator<std::_Rb_tree_node<std::pair<int const, Order> > > >::allocate",
        "std::_Rb_tree<int, std::pair<int const, Order>, std::_Select1st<std::pair<int const, Order> >, std::less<int>, std::allocator<std::pair<int const, Order> > >::_M_get_node",
        "std::map<int, Order, std::less<int>, std::allocator<std::pair<int const, Order> > >::operator[]",
        "main",
    ]);
    let of_libcpp = cpp_stack(&[
        "std::__1::allocator<std::__1::__tree_node<std::__1::__value_type<int, Order>, void*> >::allocate",
        "std::__1::allocator_traits<std::__1::allocator<std::__1::__tree_node<std::__1::__value_type<int, Order>, void*> > >::allocate",
        "std::__1::__tree<std::__1::__value_type<int, Order>, C, A>::__construct_node<int>",
        "std::__1::map<int, Order, std::__1::less<int>, std::__1::allocator<std::__1::pair<int const, Order> > >::operator[]",
        "main",
    ]);
    let expected = pair(
        "std::map<int, Order> (nodes)",
        "std::pair<const int, Order>",
    );
    for chain in [of_libstdcpp, of_libcpp] {
        assert_eq!(shown(decide(&chain, &Sizes::default())), expected);
    }
}

/// Check that the pointers of a hash table and of a deque are no elements.
#[test]
fn parts_are_told_apart() {
    let of = |functions: &[&str]| shown(decide(&cpp_stack(functions), &Sizes::default()));
    let table = "std::_Hashtable<int, int, std::allocator<int>, X>";
    let buckets = of(&[
        "std::__new_allocator<std::__detail::_Hash_node_base*>::allocate",
        "std::allocator_traits<std::allocator<std::__detail::_Hash_node_base*> >::allocate",
        "std::__detail::_Hashtable_alloc<std::allocator<std::__detail::_Hash_node<int, false> > >::_M_allocate_buckets",
        &format!("{table}::_M_rehash_aux"),
        "std::unordered_set<int, std::hash<int>, std::equal_to<int>, std::allocator<int> >::reserve",
        "main",
    ]);
    assert_eq!(buckets, pair("std::unordered_set<int> (buckets)", "bucket"));
    let map = of(&[
        "std::__new_allocator<Order*>::allocate",
        "std::allocator_traits<std::allocator<Order*> >::allocate",
        "std::_Deque_base<Order, std::allocator<Order> >::_M_allocate_map",
        "std::deque<Order, std::allocator<Order> >::deque",
        "std::queue<Order, std::deque<Order, std::allocator<Order> > >::queue<std::deque<Order, std::allocator<Order> >, void>",
        "main",
    ]);
    assert_eq!(map, pair("std::queue<Order> (map)", "Order*"));
}

/// Check that the storage of an element of a container is not taken for that of the container.
#[test]
fn inner_containers_keep_their_own_storage() {
    let mut functions = vector_of_orders("long");
    functions.truncate(3);
    functions.extend(
        [
            "std::vector<long, std::allocator<long> >::vector",
            "std::__new_allocator<std::vector<long, std::allocator<long> > >::construct<int>",
            "std::vector<std::vector<long, std::allocator<long> >, std::allocator<std::vector<long, std::allocator<long> > > >::emplace_back<int>",
        ]
        .map(str::to_owned),
    );
    let found = shown(decide(&stack(&functions), &Sizes::default()));
    assert_eq!(found, pair("std::vector<long>", "long"));
}

/// Check that the container decides where a linker or a compiler merged equal functions of its allocator.
#[test]
fn merged_functions_do_not_mislead() {
    let mut functions = vector_of_orders("Order");
    functions[0] = "std::__new_allocator<Widget>::allocate".to_owned();
    let found = shown(decide(&stack(&functions), &Sizes::default()));
    assert_eq!(found, pair("std::vector<Order>", "Order"));
}

/// Check that a function that jumped to the allocator counts, and not the one that called it.
#[test]
fn tail_calls_count() {
    let string = "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >";
    let mut chain = stack(&vector_of_orders(string)[3..]);
    chain.links.insert(
        0,
        Link {
            name: format!("{string}::_M_create"),
            is_symbol: true,
            is_tail: true,
            ..Link::default()
        },
    );
    let found = shown(decide(&chain, &of_size(61)));
    assert_eq!(found, pair("std::string", "char"));
}

/// Check that a buffer of libc++ is the table of a deque if one of its pointers calls it, and a vector's otherwise.
#[test]
fn buffers_of_libcxx_are_of_their_callers() {
    let of = |container: &str, function: &str| {
        let functions = [
            "std::__1::allocator<Order*>::allocate".to_owned(),
            "std::__1::__split_buffer<Order*, std::__1::allocator<Order*>&>::__split_buffer"
                .to_owned(),
            format!("std::__1::{container}::{function}"),
            format!("std::__1::{container}::push_back"),
        ];
        let functions = functions.each_ref().map(String::as_str);
        shown(decide(&cpp_stack(&functions), &Sizes::default()))
    };
    assert_eq!(
        of(
            "deque<Order, std::__1::allocator<Order> >",
            "__add_back_capacity"
        ),
        pair("std::deque<Order> (map)", "Order*")
    );
    assert_eq!(
        of(
            "vector<Order*, std::__1::allocator<Order*> >",
            "__push_back_slow_path<Order*>"
        ),
        pair("std::vector<Order*>", "Order*")
    );
    // Another deque's.
    assert_eq!(
        of("deque<int, std::__1::allocator<int> >", "swap").1,
        "Order*"
    );
}

/// Check that a symbol alone is trusted only if its function calls one allocator.
#[test]
fn symbols_need_a_single_call() {
    let with = |calls| {
        let mut chain = Chain::default();
        chain.sites.push(Site {
            symbol: "std::vector<Order, std::allocator<Order> >::_M_realloc_insert<Order>"
                .to_owned(),
            allocator_calls: calls,
            ..Site::default()
        });
        chain
    };
    let found = decide(&with(1), &Sizes::default()).unwrap();
    assert_eq!(
        (found.name.as_str(), found.way),
        ("std::vector<Order>", Way::Symbol)
    );
    for calls in [0, 2] {
        assert_eq!(decide(&with(calls), &Sizes::default()), None);
    }
}

/// Check that a program's own function with the name of an allocator's is not believed, unless a container calls it.
#[test]
fn own_allocators_count_below_containers() {
    let own = "Pool<Config>::allocate";
    assert_eq!(decide(&cpp_stack(&[own, "main"]), &Sizes::default()), None);
    let found = decide(
        &cpp_stack(&[
            "Own<Order>::allocate",
            "std::allocator_traits<Own<Order> >::allocate",
            "std::_Vector_base<Order, Own<Order> >::_M_allocate",
            "std::vector<Order, Own<Order> >::reserve",
        ]),
        &Sizes::default(),
    );
    assert_eq!(
        shown(found),
        pair("std::vector<Order, Own<Order>>", "Order")
    );
}

/// Check that the allocators of Boost count, that their nodes are named by the element, and that tags of a binary interface are no part of names.
#[test]
fn other_libraries_have_allocators() {
    let boost = cpp_stack(&[
        "boost::container::new_allocator<boost::container::dtl::list_node<Order, void*> >::allocate",
        "boost::container::allocator_traits<boost::container::new_allocator<Order> >::allocate",
        "case_list",
    ]);
    assert_eq!(shown(decide(&boost, &of_size(48))), pair("Order", "Order"));
    let held = cpp_stack(&[
        "boost::container::new_allocator<Order>::allocate",
        "boost::container::vector_alloc_holder<boost::container::new_allocator<Order>, unsigned long>::allocate",
        "main",
    ]);
    assert_eq!(shown(decide(&held, &of_size(96))), pair("Order", "Order"));
    let tagged = cpp_stack(&[
        "std::__1::allocator<Order>::allocate[abi:ne190107]",
        "std::__1::vector<Order, std::__1::allocator<Order> >::reserve[abi:ne190107]",
        "main",
    ]);
    assert_eq!(
        shown(decide(&tagged, &of_size(96))),
        pair("std::vector<Order>", "Order")
    );
}
