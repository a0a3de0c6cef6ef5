//! Tests of readable names, on names that compilers made.
//!
//! Stage: output.

use super::{DEEPEST, LONG, readable};
use crate::symbolize::demangle;

/// Check that names of GCC and rustc are what people wrote, as far as they fit.
#[test]
fn names_are_as_people_write_them() {
    for (mangled, expected) in [
        // Names that have nothing to leave out.
        ("main", "main"),
        ("_Znwm", "operator new(unsigned long)"),
        ("_ZlsRSoRK4Item", "operator<<(std::ostream&, Item const&)"),
        (
            "_ZN4shop4ItemltERKS0_",
            "shop::Item::operator<(shop::Item const&)",
        ),
        // Defaults of the standard library, and its own names.
        (
            "_ZNSt5dequeIlSaIlEE16_M_push_back_auxIJRKlEEEvDpOT_",
            "void std::deque<long>::_M_push_back_aux<long const&>(long const&)",
        ),
        (
            "_Z6taggedB2v2RNSt7__cxx1112basic_stringIwSt11char_traitsIwESaIwEEE",
            "tagged(std::wstring&)",
        ),
        (
            "_ZN4shop12_GLOBAL__N_13hidESt8functionIFvNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEEE",
            "shop::(anonymous namespace)::hid(std::function<void (std::string)>)",
        ),
        (
            "_ZN4shop5ShelfINSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEESaIS6_EE3putERKSt6vectorIS6_S7_E",
            "shop::Shelf<std::string>::put(std::vector<std::string> const&)",
        ),
        (
            "_ZNSt8_Rb_treeIlSt4pairIKllESt10_Select1stIS2_ESt4lessIlESaIS2_EE24_M_get_insert_unique_posERS1_",
            "std::_Rb_tree<long, std::pair<long const, long>>::_M_get_insert_unique_pos(long const&)",
        ),
        // A choice of the user stays.
        (
            "_ZNSt8_Rb_treeIiSt4pairIKiiESt10_Select1stIS2_ESt7greaterIiESaIS2_EE24_M_get_insert_unique_posERS1_",
            "std::_Rb_tree<int, std::pair<int const, int>, std::greater<int>>::_M_get_insert_unique_pos(int const&)",
        ),
        (
            "_ZN4shop7sort_byISt6vectorIiSaIiEESt4lessIiEEEiRT_T0_",
            "int shop::sort_by<std::vector<int>, std::less<int>>(std::vector<int>&, std::less<int>)",
        ),
        (
            "_ZNSt14priority_queueISt4pairIiiESt6vectorIS1_SaIS1_EESt4lessIS1_EE4pushEOS1_",
            "std::priority_queue<std::pair<int, int>>::push(std::pair<int, int>&&)",
        ),
        (
            "_ZNSt23_Sp_counted_ptr_inplaceI4ItemSaIvELN9__gnu_cxx12_Lock_policyE2EE10_M_destroyEv",
            "std::_Sp_counted_ptr_inplace<Item, 2>::_M_destroy()",
        ),
        // Long names lose their inner arguments, and then outer ones.
        (
            "_ZNSt6vectorIiSaIiEE17_M_realloc_insertIJRKiEEEvN9__gnu_cxx17__normal_iteratorIPiS1_EEDpOT_",
            "void std::vector<int>::_M_realloc_insert<int const&>(__gnu_cxx::__normal_iterator<int*, std::vector<int>>, int const&)",
        ),
        (
            "_ZNSt10_HashtableINSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEESt4pairIKS5_St6vectorIiSaIiEEESaISB_ENSt8__detail10_Select1stESt8equal_toIS5_ESt4hashIS5_ENSD_18_Mod_range_hashingENSD_20_Default_ranged_hashENSD_20_Prime_rehash_policyENSD_17_Hashtable_traitsILb1ELb0ELb1EEEE21_M_insert_unique_nodeEmmPNSD_10_Hash_nodeISB_Lb1EEEm",
            "std::_Hashtable<std::string, std::pair<…>>::_M_insert_unique_node(unsigned long, unsigned long, std::__detail::_Hash_node<…>*, unsigned long)",
        ),
        // Names of Rust, older and newer ones.
        (
            "_ZN79_$LT$hashbrown..raw..RawTable$LT$T$C$A$GT$$u20$as$u20$core..ops..drop..Drop$GT$4drop17h2a735b6f1382370cE",
            "<hashbrown::raw::RawTable<T, A> as core::ops::drop::Drop>::drop",
        ),
        (
            "_ZN9hashbrown11rustc_entry62_$LT$impl$u20$hashbrown..map..HashMap$LT$K$C$V$C$S$C$A$GT$$GT$11rustc_entry17h88b9fb11fbc1f899E",
            "hashbrown::map::HashMap<K, V, S, A>::rustc_entry",
        ),
        (
            "_ZN4core3fmt3num52_$LT$impl$u20$core..fmt..Debug$u20$for$u20$usize$GT$3fmt17h88b9fb11fbc1f899E",
            "<usize as core::fmt::Debug>::fmt",
        ),
        (
            "_RNvMs1_NtCsgvbsrvnw3yD_9hashbrown3mapINtB5_7HashMapNtNtCslNYArtu3iFV_5alloc6string6StringuNtNtNtCsjrHSEGnQ3l9_3std4hash6random11RandomStateE6insertCs6GmmlP4bgsG_1r",
            "hashbrown::map::HashMap<alloc::string::String, ()>::insert",
        ),
        (
            "_RINvNtNtCsjrHSEGnQ3l9_3std3sys9backtrace28___rust_begin_short_backtraceNCNvCs6GmmlP4bgsG_1r4mains_0uEB1b_",
            "std::sys::backtrace::__rust_begin_short_backtrace::<r::main::{closure#1}, ()>",
        ),
    ] {
        assert_eq!(readable(&demangle(mangled)), expected, "{mangled}");
    }
}

/// Check that what versions and compilers add to names is left out, and that what looks alike is kept.
#[test]
fn additions_are_left_out() {
    for (name, expected) in [
        (
            "std::__1::vector<int, std::__1::allocator<int> >::f()",
            "std::vector<int>::f()",
        ),
        ("mystd::__1::f<int>()", "mystd::__1::f<int>()"),
        ("absl::lts_20220623::Mutex::Lock()", "absl::Mutex::Lock()"),
        ("fmt::v9::format()", "fmt::format()"),
        ("fmt::vx::format()", "fmt::vx::format()"),
        ("shop::{impl#12}::put", "shop::put"),
        ("alloc::vec::{{impl}}::new", "alloc::vec::new"),
        ("shop::{impl#x}::put", "shop::{impl#x}::put"),
        ("shop::put::h0123456789abcdef", "shop::put"),
        ("shop::hash::h0123", "shop::hash::h0123"),
        (
            "std::vector<int, Pool<int> >::f()",
            "std::vector<int, Pool<int>>::f()",
        ),
        (
            "std::map<long, int, std::less<int> >::f()",
            "std::map<long, int, std::less<int>>::f()",
        ),
        (
            "std::unique_ptr<A, std::default_delete<A> >::reset(A*)",
            "std::unique_ptr<A>::reset(A*)",
        ),
        ("f<(a > b), std::allocator<int>>()", "f<(a > b)>()"),
        (
            "bool operator< <int>(int, int)",
            "bool operator< <int>(int, int)",
        ),
        (
            "main::{lambda(int)#1}::operator()(int) const",
            "main::{lambda(int)#1}::operator()(int) const",
        ),
        (
            "go.(*Table[go.shape.int]).put",
            "go.(*Table[go.shape.int]).put",
        ),
        ("f<>::g", "f<>::g"),
    ] {
        assert_eq!(readable(name), expected);
    }
}

/// Check that any text has a readable form, soon, and that a name that is nested too deep stays as it is.
#[test]
fn any_text_is_readable() {
    let crafted = |part: &str| part.repeat((1 << 14) / part.len());
    for part in [
        "<",
        ">",
        "(",
        ")",
        "a<",
        "a>",
        "[abi:",
        "{impl#1",
        "std::__1",
        "::h",
        "a::<impl b>::",
        "<<a>::b>",
        "日本<",
        "operator",
        "std::basic_string<char>",
        "a::",
        ",",
    ] {
        let name = crafted(part);
        assert!(readable(&name).len() <= 2 * name.len(), "{part}");
        let closed = crafted("<") + &crafted(part) + &crafted(">");
        assert!(readable(&closed).len() <= 2 * closed.len(), "{part}");
    }
    let nested = |depth| format!("{}int{}", "a<".repeat(depth), ">".repeat(depth));
    assert_eq!(readable(&nested(DEEPEST / 2)), nested(DEEPEST / 2));
    let deep = nested(DEEPEST + 1);
    assert!(deep.len() > LONG);
    assert_eq!(readable(&deep), "a<a<a<a<a<…>>>>>");
}
