//! The messages of the types of blocks.
//!
//! Stage: profile. They follow the names in the message of a symbol table, which older readers pass over.

use prost::Message;

use super::error::WireError;
use crate::join::StackId;
use crate::profile::types::{self, Types, Way};

/// Most stacks of a record, so that no record is too large for a part.
const MOST_STACKS: usize = 1 << 16;

/// The longest name, in bytes. The stage that finds types makes shorter ones.
const LONGEST: usize = 64 << 10;

/// [`types::BlockType`], as a message.
#[derive(Clone, PartialEq, Message)]
pub(super) struct BlockType {
    #[prost(string, tag = "1")]
    name: String,
    /// Empty if it is the name.
    #[prost(string, tag = "2")]
    element: String,
    #[prost(uint64, tag = "3")]
    element_bytes: u64,
    #[prost(uint64, tag = "4")]
    header_bytes: u64,
    #[prost(bool, tag = "5")]
    is_capacity: bool,
    #[prost(uint32, tag = "6")]
    way: u32,
}

/// Stacks of one type.
#[derive(Clone, PartialEq, Message)]
pub(super) struct StacksOfType {
    /// The index of the type.
    #[prost(uint32, tag = "1")]
    of: u32,
    /// The stacks in rising order, each as its distance from the one before.
    #[prost(uint32, repeated, tag = "2")]
    stacks: Vec<u32>,
}

/// [`types::LiveClass`], as a message.
#[derive(Clone, PartialEq, Message)]
pub(super) struct LiveClass {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(uint64, tag = "2")]
    blocks: u64,
    #[prost(uint64, tag = "3")]
    bytes: u64,
}

impl From<&types::LiveClass> for LiveClass {
    fn from(it: &types::LiveClass) -> Self {
        Self {
            name: it.name.clone(),
            blocks: it.blocks,
            bytes: it.bytes,
        }
    }
}

impl TryFrom<LiveClass> for types::LiveClass {
    type Error = WireError;

    fn try_from(it: LiveClass) -> Result<Self, WireError> {
        if it.name.len() > LONGEST {
            return Err(WireError::TooMany {
                what: "characters of a class's name",
            });
        }
        Ok(Self {
            name: it.name,
            blocks: it.blocks,
            bytes: it.bytes,
        })
    }
}

impl From<&types::BlockType> for BlockType {
    fn from(it: &types::BlockType) -> Self {
        let element = match it.element == it.name {
            true => "",
            false => &it.element,
        };
        Self {
            name: it.name.clone(),
            element: element.to_owned(),
            element_bytes: it.element_bytes,
            header_bytes: it.header_bytes,
            is_capacity: it.is_capacity,
            way: it.way as u32,
        }
    }
}

impl TryFrom<BlockType> for types::BlockType {
    type Error = WireError;

    fn try_from(it: BlockType) -> Result<Self, WireError> {
        if it.name.len() > LONGEST || it.element.len() > LONGEST {
            return Err(WireError::TooMany {
                what: "characters of a type's name",
            });
        }
        let way = Way::ALL.get(it.way as usize);
        Ok(Self {
            element: match it.element.is_empty() {
                true => it.name.clone(),
                false => it.element,
            },
            name: it.name,
            element_bytes: it.element_bytes,
            header_bytes: it.header_bytes,
            is_capacity: it.is_capacity,
            way: *way.ok_or(WireError::Unknown {
                what: "way to a type",
                value: it.way,
            })?,
        })
    }
}

impl StacksOfType {
    /// The records of all stacks.
    pub(super) fn all(types: &Types) -> Vec<Self> {
        let mut by_type = vec![Vec::new(); types.types.len()];
        for (stack, of) in &types.of_stacks {
            if let Some(stacks) = by_type.get_mut(*of as usize) {
                stacks.push(stack.0);
            }
        }
        let mut records = Vec::new();
        for (of, stacks) in (0..).zip(by_type) {
            for stacks in stacks.chunks(MOST_STACKS) {
                let mut before = 0;
                let distances = stacks
                    .iter()
                    .map(|stack| stack - std::mem::replace(&mut before, *stack));
                let stacks = distances.collect();
                records.push(Self { of, stacks });
            }
        }
        records
    }

    /// Adds the stacks to types that are read already. Returns how many there are.
    pub(super) fn add_to(self, types: &mut Types) -> Result<usize, WireError> {
        if self.of as usize >= types.types.len() {
            return Err(WireError::Unknown {
                what: "type",
                value: self.of,
            });
        }
        if self.stacks.len() > MOST_STACKS {
            return Err(WireError::TooMany {
                what: "stacks of a type",
            });
        }
        let mut stack = 0_u32;
        for distance in &self.stacks {
            stack = stack.checked_add(*distance).ok_or(WireError::TooMany {
                what: "stacks of a type",
            })?;
            types.of_stacks.insert(StackId(stack), self.of);
        }
        Ok(self.stacks.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn types() -> Types {
        let block_type = |name: &str, element: &str, way| types::BlockType {
            name: name.to_owned(),
            element: element.to_owned(),
            element_bytes: 40,
            header_bytes: 8,
            is_capacity: way == Way::Frames,
            way,
        };
        let mut types = Types {
            types: Way::ALL
                .map(|way| block_type("std::vector<Order>", "Order", way))
                .to_vec(),
            of_stacks: (0..200_000).map(|id| (StackId(3 * id), id % 7)).collect(),
            classes: ["", "Order"]
                .map(|name| types::LiveClass {
                    name: name.to_owned(),
                    blocks: 3,
                    bytes: 1 << 50,
                })
                .to_vec(),
        };
        types.types.push(block_type("Order", "Order", Way::Symbol));
        types.of_stacks.insert(StackId(u32::MAX), 7);
        types
    }

    /// Check that types and their stacks are read as they were written, and that no record is larger than a part may be.
    #[test]
    fn types_are_read_as_written() {
        let written = types();
        let mut read = Types::default();
        for it in &written.types {
            let bytes = BlockType::from(it).encode_to_vec();
            let it = BlockType::decode(&*bytes).unwrap();
            read.types.push(it.try_into().unwrap());
        }
        for record in StacksOfType::all(&written) {
            let bytes = record.encode_to_vec();
            assert!(bytes.len() < 1 << 20);
            let record = StacksOfType::decode(&*bytes).unwrap();
            record.add_to(&mut read).unwrap();
        }
        for it in &written.classes {
            let bytes = LiveClass::from(it).encode_to_vec();
            let it = LiveClass::decode(&*bytes).unwrap();
            read.classes.push(it.try_into().unwrap());
        }
        assert_eq!(read, written);
    }

    /// Check that types which no writer makes are refused.
    #[test]
    fn wrong_types_are_refused() {
        let good = BlockType::from(&types().types[0]);
        let refused = |it: BlockType| types::BlockType::try_from(it).is_err();
        assert!(!refused(good.clone()));
        assert!(refused(BlockType {
            way: 7,
            ..good.clone()
        }));
        assert!(refused(BlockType {
            name: "n".repeat(LONGEST + 1),
            ..good
        }));
        let refused = |of, stacks| StacksOfType { of, stacks }.add_to(&mut types()).is_err();
        assert!(!refused(7, vec![u32::MAX, 0]));
        assert!(refused(8, vec![1]));
        assert!(refused(0, vec![u32::MAX, 1]));
        assert!(refused(0, vec![0; MOST_STACKS + 1]));
    }
}
