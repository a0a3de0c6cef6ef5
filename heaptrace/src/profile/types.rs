//! The types of blocks: what each stack allocates, as its debug information or its functions tell.
//!
//! Stage: profile. This is only the table: another stage finds the types. Names are those of the traced program: raw, to be escaped by
//! every output.

use std::collections::BTreeMap;

use super::model::Profile;
use crate::join::{BlockSizes, Kind, StackId};

/// By which way a type was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Way {
    /// By the names of the functions of the stack: `std::allocator<Order>::allocate`.
    Frames,
    /// By what the compiler noted at the call of the allocator.
    AllocType,
    /// By the constructor, or the table of virtual functions, that the block gets.
    Constructor,
    /// By the variable, the member or the result that takes the block.
    Dataflow,
    /// By the symbol of the function that allocates, without debug information.
    Symbol,
    /// By the table of virtual functions in the memory of the block.
    Vtable,
    /// By the runtime of the language, whose object the block is.
    Runtime,
}

impl Way {
    /// Every way, in the order of the data file.
    pub const ALL: [Self; 7] = [
        Self::Frames,
        Self::AllocType,
        Self::Constructor,
        Self::Dataflow,
        Self::Symbol,
        Self::Vtable,
        Self::Runtime,
    ];

    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Frames => "frames",
            Self::AllocType => "alloc_type",
            Self::Constructor => "constructor",
            Self::Dataflow => "dataflow",
            Self::Symbol => "symbol",
            Self::Vtable => "vtable",
            Self::Runtime => "runtime",
        }
    }
}

/// The type of the blocks of a stack.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockType {
    /// The name for people: the container, and which part of it the block is: `std::map<int, Order> (nodes)`. Raw.
    pub name: String,
    /// The type of what the block holds one or several of: `Order`. Raw.
    pub element: String,
    /// The size of an element; 0 if it is unknown.
    pub element_bytes: u64,
    /// The bytes of a block before or behind its elements: a count, links, a control block.
    pub header_bytes: u64,
    /// Whether a block has room for elements, and need not hold as many: the storage of a vector.
    pub is_capacity: bool,
    /// How it was found.
    pub way: Way,
}

impl BlockType {
    /// The elements in blocks with these bytes together. `None` if the size of an element is unknown, or if there is no whole number of
    /// them.
    pub fn elements(&self, blocks: u64, bytes: u64) -> Option<u64> {
        let headers = self.header_bytes.checked_mul(blocks)?;
        let of_elements = bytes.checked_sub(headers)?;
        let elements = of_elements.checked_div(self.element_bytes)?;
        (elements.checked_mul(self.element_bytes)? == of_elements).then_some(elements)
    }
}

/// The live blocks that began with an object of a class when they were inspected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveClass {
    /// The class, raw; empty for blocks that began with no object of a known class.
    pub name: String,
    /// The number of blocks.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The types of the blocks of stacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Types {
    /// The types, each once.
    pub types: Vec<BlockType>,
    /// For each stack whose type is known, its index. A stack is a place in code, whichever process runs it.
    pub of_stacks: BTreeMap<StackId, u32>,
    /// The live blocks of all stacks that were inspected, by class. Empty if none were.
    pub classes: Vec<LiveClass>,
}

impl Types {
    /// The type of what a stack allocates, if it is known.
    pub fn of(&self, stack: StackId) -> Option<&BlockType> {
        self.types.get(*self.of_stacks.get(&stack)? as usize)
    }

    /// Takes over the types of stacks that have none, and classes if there are none.
    pub fn complete(&mut self, other: &Self) {
        if self.classes.is_empty() {
            self.classes.clone_from(&other.classes);
        }
        let known = (0..).zip(&self.types);
        let mut ids: BTreeMap<BlockType, u32> = known.map(|(id, it)| (it.clone(), id)).collect();
        for stack in other.of_stacks.keys() {
            let Some(found) = other.of(*stack).filter(|_| self.of(*stack).is_none()) else {
                continue;
            };
            let id = *ids.entry(found.clone()).or_insert_with(|| {
                self.types.push(found.clone());
                self.types.len() as u32 - 1
            });
            self.of_stacks.insert(*stack, id);
        }
    }
}

impl Profile {
    /// The smallest and the largest block of each stack, in the order of the stacks. `None` if they are unknown, as for mappings and in older
    /// files.
    pub fn block_sizes(&self) -> Vec<Option<BlockSizes>> {
        let mut all: Vec<Option<Option<BlockSizes>>> = vec![None; self.stacks.len()];
        for site in self.sites.iter().filter(|it| it.kind == Kind::Heap) {
            let sizes = site.block_sizes;
            if let Some(known) = all.get_mut(site.stack.0 as usize) {
                let before = known.unwrap_or(sizes);
                *known = Some(before.zip(sizes).map(|(a, b)| a.and(b)));
            }
        }
        all.into_iter().map(Option::flatten).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block_type(name: &str, element_bytes: u64, header_bytes: u64) -> BlockType {
        BlockType {
            name: name.to_owned(),
            element: "Order".to_owned(),
            element_bytes,
            header_bytes,
            is_capacity: false,
            way: Way::Frames,
        }
    }

    /// Check that elements are counted only if the blocks hold a whole number of them, and that no number overflows.
    #[test]
    fn whole_elements_are_counted() {
        let plain = block_type("Order[]", 40, 0);
        let with_header = block_type("Order[]", 40, 8);
        for (of, blocks, bytes, expected) in [
            (&plain, 1, 200, Some(5)),
            (&plain, 2, 200, Some(5)),
            (&plain, 1, 201, None),
            (&plain, 0, 0, Some(0)),
            (&with_header, 1, 208, Some(5)),
            (&with_header, 2, 216, Some(5)),
            (&with_header, 3, 8, None),
            (&with_header, u64::MAX, u64::MAX, None),
            (&block_type("?", 0, 0), 1, 200, None),
        ] {
            assert_eq!(of.elements(blocks, bytes), expected, "{blocks}, {bytes}");
        }
    }

    /// Check that the names of ways are those of JSON, each once.
    #[test]
    fn ways_have_names() {
        let names = Way::ALL.map(Way::name);
        let expected = "frames alloc_type constructor dataflow symbol vtable runtime";
        assert_eq!(names.join(" "), expected);
        assert!(Way::ALL.is_sorted());
    }

    /// Check that types are taken over only for stacks without one, and that each type is stored once.
    #[test]
    fn missing_types_are_taken_over() {
        let types = |all: &[(u32, &str)]| {
            let mut types = Types::default();
            for (index, (stack, name)) in (0..).zip(all) {
                types.types.push(block_type(name, 40, 0));
                types.of_stacks.insert(StackId(*stack), index);
            }
            types
        };
        let mut known = types(&[(1, "a"), (2, "b")]);
        known.complete(&types(&[(2, "c"), (3, "a"), (4, "d")]));
        let names: Vec<_> = (0..5)
            .map(|stack| known.of(StackId(stack)).map_or("", |it| it.name.as_str()))
            .collect();
        assert_eq!(names, ["", "a", "b", "a", "d"]);
        assert_eq!(known.types.len(), 3);
        // A type that is not in the table is none.
        known.of_stacks.insert(StackId(0), 9);
        assert_eq!(known.of(StackId(0)), None);
    }
}
