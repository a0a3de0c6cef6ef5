//! Types that libraries of containers use inside, which are no types of a program.
//!
//! Stage: types. Must not know what allocates.

use super::text::{Segment, segments};

/// Whether a C++ type is a library's own, such as a node or a block of counters.
pub(super) fn is_internal(name: &str) -> bool {
    let parts = segments(name);
    let inner = parts.get(1..).unwrap_or_default();
    match parts.first().map(|it| it.name) {
        Some("std" | "__gnu_cxx") => inner.last().is_some_and(|it| it.name.starts_with('_')),
        // Elements of its maps in an array are pairs of its own.
        Some("boost") if inner.last().is_some_and(|it| it.name == "pair") => false,
        Some("boost" | "absl") => inner.iter().any(is_detail),
        Some(of_qt) if of_qt.starts_with('Q') => is_of_qt(of_qt, inner),
        _ => false,
    }
}

/// Whether a type of Qt is storage without what is in it, or a block of counters.
fn is_of_qt(first: &str, inner: &[Segment<'_>]) -> bool {
    match first {
        "QArrayData" | "QTypedArrayData" | "QListData" | "QHashData" | "QMapDataBase"
        | "QMapNodeBase" | "QtSharedPointer" => true,
        "QHashPrivate" => inner.last().is_some_and(|it| it.name == "Entry"),
        _ => false,
    }
}

fn is_detail(part: &Segment<'_>) -> bool {
    matches!(part.name, "detail" | "dtl" | "container_internal")
}

/// The element of a node of Boost's containers.
pub(super) fn element_of_node(name: &str) -> Option<String> {
    let parts = segments(name);
    let is_boost = parts.first().is_some_and(|it| it.name == "boost");
    let last = parts
        .last()
        .filter(|_| is_boost && parts.iter().any(is_detail))?;
    let is_node = matches!(
        last.name,
        "list_node" | "slist_node" | "tree_node" | "base_node" | "node" | "ptr_node"
    );
    let element = last.arguments.first().filter(|_| is_node)?;
    Some((*element).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that nodes of libraries are told from their elements and from types of programs.
    #[test]
    fn nodes_are_internal() {
        let internal = [
            "std::__1::__tree_node<std::__1::__value_type<int, Order>, void*>",
            "std::_Sp_counted_ptr<Widget*, (__gnu_cxx::_Lock_policy)2>",
            "boost::unordered::detail::ptr_node<std::pair<int const, Order> >",
            "absl::debian3::container_internal::AlignedType<8ul>",
            "QTypedArrayData<Order>",
            "QListData::Data",
            "QHashPrivate::Span<QHashPrivate::Node<int, Order> >::Entry",
            "QtSharedPointer::ExternalRefCountWithContiguousData<Order>",
        ];
        for name in internal {
            assert!(is_internal(name), "{name}");
        }
        for name in [
            "std::vector<_Order>",
            "std::string",
            "detail::Order",
            "_Order",
            "absl::Time",
            "boost::container::dtl::pair<int, Order>",
            "QVector<Order>",
            "QArrayDataOfMine",
        ] {
            assert!(!is_internal(name), "{name}");
        }
        assert_eq!(
            element_of_node("boost::container::dtl::list_node<app::Order, void*>").as_deref(),
            Some("app::Order")
        );
        assert_eq!(element_of_node("app::detail::node<int>"), None);
    }
}
