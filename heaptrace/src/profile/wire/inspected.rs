//! The message of what the memory of live blocks tells of their types.
//!
//! Stage: profile. Ids are stored as differences. Knows nothing of chunks.

use prost::Message;

use super::error::WireError;
use crate::join::{Inspected, InspectedStack, StackId};

/// The longest name of a class, in bytes.
const LONGEST: usize = 64 << 10;

/// Values of each stack.
const OF_STACK: usize = 6;

/// [`Inspected`], as a message.
#[derive(Clone, PartialEq, Message)]
pub(super) struct InspectedMessage {
    #[prost(uint64, tag = "1")]
    at_ns: u64,
    #[prost(uint64, tag = "2")]
    read: u64,
    #[prost(uint64, tag = "3")]
    unread: u64,
    #[prost(string, repeated, tag = "4")]
    classes: Vec<String>,
    /// The ids of blocks in rising order, each as its distance from the one before.
    #[prost(uint64, repeated, tag = "5")]
    blocks: Vec<u64>,
    /// The class of each block.
    #[prost(uint32, repeated, tag = "6")]
    of_blocks: Vec<u32>,
    /// For each stack: its id, the class and 1 (0 if none is known), the number of blocks, their bytes, and the smallest and the largest size.
    #[prost(uint64, repeated, tag = "7")]
    stacks: Vec<u64>,
}

impl From<&Inspected> for InspectedMessage {
    fn from(it: &Inspected) -> Self {
        let mut before = 0;
        let distances = it
            .blocks
            .iter()
            .map(|(id, _)| id.wrapping_sub(std::mem::replace(&mut before, *id)));
        let stacks = it.stacks.iter().flat_map(|it| {
            [
                u64::from(it.stack.0),
                it.class.map_or(0, |class| u64::from(class) + 1),
                it.blocks,
                it.bytes,
                it.smallest,
                it.largest,
            ]
        });
        Self {
            at_ns: it.at_ns,
            read: it.read,
            unread: it.unread,
            classes: it.classes.clone(),
            blocks: distances.collect(),
            of_blocks: it.blocks.iter().map(|(_, class)| *class).collect(),
            stacks: stacks.collect(),
        }
    }
}

impl TryFrom<InspectedMessage> for Inspected {
    type Error = WireError;

    fn try_from(message: InspectedMessage) -> Result<Self, WireError> {
        if message.classes.iter().any(|it| it.len() > LONGEST) {
            return Err(WireError::TooMany {
                what: "characters of a class's name",
            });
        }
        let known = message.classes.len();
        let checked = |class: u32| match (class as usize) < known {
            true => Ok(class),
            false => Err(WireError::Unknown {
                what: "class",
                value: class,
            }),
        };
        if message.blocks.len() != message.of_blocks.len() {
            return Err(WireError::Malformed);
        }
        let mut id = 0_u64;
        let blocks = message.blocks.iter().zip(message.of_blocks);
        let blocks = blocks.map(|(distance, class)| {
            id = id.checked_add(*distance).ok_or(WireError::Malformed)?;
            Ok((id, checked(class)?))
        });
        let blocks = blocks.collect::<Result<_, WireError>>()?;
        let (stacks, rest) = message.stacks.as_chunks::<OF_STACK>();
        if !rest.is_empty() {
            return Err(WireError::Malformed);
        }
        let small = |value: u64| u32::try_from(value).map_err(|_| WireError::Malformed);
        let stacks = stacks
            .iter()
            .map(|[stack, class, blocks, bytes, smallest, largest]| {
                let class = class.checked_sub(1);
                Ok(InspectedStack {
                    stack: StackId(small(*stack)?),
                    class: class.map(|it| checked(small(it)?)).transpose()?,
                    blocks: *blocks,
                    bytes: *bytes,
                    smallest: *smallest,
                    largest: *largest,
                })
            });
        Ok(Self {
            at_ns: message.at_ns,
            read: message.read,
            unread: message.unread,
            blocks,
            stacks: stacks.collect::<Result<_, WireError>>()?,
            classes: message.classes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inspected() -> Inspected {
        let stack = |stack, class| InspectedStack {
            stack: StackId(stack),
            class,
            blocks: 3,
            bytes: 1 << 40,
            smallest: 8,
            largest: u64::MAX,
        };
        Inspected {
            at_ns: 5,
            read: 7,
            unread: 9,
            classes: vec!["Circle".to_owned(), "Square".to_owned()],
            blocks: vec![(3, 1), (4, 0), (1 << 50, 1)],
            stacks: vec![stack(0, None), stack(u32::MAX, Some(1))],
        }
    }

    fn read(message: &InspectedMessage) -> Result<Inspected, WireError> {
        let bytes = message.encode_to_vec();
        InspectedMessage::decode(bytes.as_slice())
            .unwrap()
            .try_into()
    }

    /// Check that what was found is read as it was written.
    #[test]
    fn classes_are_read_as_written() {
        let message = InspectedMessage::from(&inspected());
        assert_eq!(read(&message).unwrap(), inspected());
    }

    /// Check that unknown classes, columns of different lengths, ids without end and incomplete stacks are errors.
    #[test]
    fn damaged_classes_are_errors() {
        let is_refused = |change: fn(&mut InspectedMessage)| {
            let mut message = InspectedMessage::from(&inspected());
            change(&mut message);
            read(&message).is_err()
        };
        assert!(!is_refused(|_| ()));
        assert!(is_refused(|it| it.of_blocks[0] = 2));
        assert!(is_refused(|it| it.stacks[1] = 3));
        assert!(is_refused(|it| it.stacks[0] = 1 << 32));
        assert!(is_refused(|it| it.stacks.truncate(11)));
        assert!(is_refused(|it| it.of_blocks.truncate(2)));
        assert!(is_refused(|it| it.blocks[1] = u64::MAX));
        assert!(is_refused(|it| it.classes[0] = "n".repeat(LONGEST + 1)));
    }
}
