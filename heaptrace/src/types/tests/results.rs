//! What becomes of the result of a call.

use super::*;
use crate::types::protocol::{Evidence, Target};

/// Calls, innermost first, each with the function that it leads to.
fn calls(of: &[(&str, &str)]) -> Chain {
    let mut chain = Chain::default();
    for (function, target) in of {
        chain.sites.push(Site {
            symbol: (*function).to_owned(),
            target: Some(Target {
                name: (*target).to_owned(),
                result: None,
            }),
            ..Site::default()
        });
    }
    chain
}

/// Check that the type of what takes the block counts, where it divides the block, and that a structure may have a tail.
#[test]
fn what_takes_a_block_tells_its_type() {
    let mut chain = calls(&[("main", "malloc")]);
    chain.sites[0].stored = Some(sized("conn", 48));
    let found = decide(&chain, &of_size(96)).unwrap();
    assert_eq!((found.name.as_str(), found.way), ("conn", Way::Dataflow));
    assert_eq!(found.elements(1, 96), Some(2));
    assert_eq!(decide(&chain, &of_size(50)), None);
    chain.sites[0].stored.as_mut().unwrap().is_open = true;
    assert_eq!(decide(&chain, &of_size(50)).unwrap().element_bytes, 0);
    assert_eq!(decide(&chain, &of_size(40)), None);
}

/// Check that a result is followed through functions that return it, and not further.
#[test]
fn results_are_followed_outwards() {
    let mut chain = calls(&[("xmalloc", "malloc"), ("main", "xmalloc")]);
    chain.sites[1].stored = Some(sized("point", 24));
    assert_eq!(decide(&chain, &of_size(24)), None);
    chain.sites[0].is_returned = true;
    assert_eq!(decide(&chain, &of_size(24)).unwrap().element, "point");
}

/// Check that `new` is exact: a base class does not take the place of a class, and a class with virtual functions may be another one.
#[test]
fn pointers_to_bases_tell_nothing() {
    let mut chain = calls(&[("main", "operator new")]);
    chain.sites[0].stored = Some(sized("Shape", 16));
    assert_eq!(
        decide(&chain, &of_size(48)),
        None,
        "it divides, but is not exact"
    );
    let base = SizedType {
        is_virtual: true,
        ..sized("Shape", 48)
    };
    chain.sites[0].stored = Some(base);
    assert_eq!(decide(&chain, &of_size(48)), None);
    chain.sites[0].constructed = Some((sized("Square", 48), Evidence::Vtable));
    let found = decide(&chain, &of_size(48)).unwrap();
    assert_eq!(
        (found.name.as_str(), found.way),
        ("Square", Way::Constructor)
    );
}

/// Check that a class of the standard library whose size is not known does not count: it may be the first member of the block's class.
#[test]
fn members_are_no_classes() {
    for evidence in [Evidence::Called, Evidence::Vtable] {
        let mut chain = calls(&[("main", "operator new")]);
        chain.sites[0].constructed = Some((sized("std::ostringstream", 0), evidence));
        assert_eq!(decide(&chain, &of_size(400)), None);
        chain.sites[0].constructed = Some((sized("app::Session", 0), evidence));
        assert_eq!(decide(&chain, &of_size(400)).unwrap().name, "app::Session");
    }
}

/// Check that arrays of `new[]` may begin with their length, and that the compiler's note is believed first.
#[test]
fn arrays_have_headers() {
    let mut chain = calls(&[("main", "operator new[]")]);
    chain.sites[0].constructed = Some((sized("Session", 40), Evidence::Called));
    let found = decide(&chain, &of_size(208)).unwrap();
    assert_eq!((found.name.as_str(), found.header_bytes), ("Session[]", 8));
    assert_eq!(found.elements(1, 208), Some(5));
    chain.sites[0].noted = Some(sized("Other", 104));
    let found = decide(&chain, &of_size(208)).unwrap();
    assert_eq!(
        (found.element.as_str(), found.way),
        ("Other", Way::AllocType)
    );
}

/// Check that the C library's copies of text are text.
#[test]
fn copies_of_text_are_text() {
    let chain = calls(&[("strdup", "malloc"), ("main", "strdup")]);
    assert_eq!(decide(&chain, &of_size(8)).unwrap().element, "char");
}
