//! The message of a process's memory map.
//!
//! Stage: profile. Addresses are stored as differences, and each run of pages as one number. Knows nothing of chunks.

use prost::Message;

use super::error::WireError;
use crate::join::{self, StackId};
use crate::proc::residency::{self, MappingKind, PageState, Residency};

/// The bits of a run's number that say what is in its pages.
const STATE_BITS: u32 = 3;

/// [`join::MemoryMap`], as a message.
#[derive(Clone, PartialEq, Message)]
pub(super) struct MemoryMapMessage {
    #[prost(uint64, tag = "1")]
    at_ns: u64,
    #[prost(uint64, tag = "2")]
    took_ns: u64,
    #[prost(uint64, tag = "3")]
    resident: u64,
    #[prost(string, optional, tag = "4")]
    unknown_pages: Option<String>,
    #[prost(uint64, tag = "5")]
    left_out: u64,
    #[prost(message, repeated, tag = "6")]
    mappings: Vec<Mapping>,
    /// For each part that the program mapped: its distance from the end of the part before, its length, and its stack.
    #[prost(uint64, repeated, tag = "7")]
    mapped: Vec<u64>,
    #[prost(uint64, tag = "8")]
    mapped_left_out: u64,
}

#[derive(Clone, PartialEq, Message)]
struct Mapping {
    /// From the end of the mapping before.
    #[prost(uint64, tag = "1")]
    distance: u64,
    #[prost(uint64, tag = "2")]
    length: u64,
    #[prost(uint32, tag = "3")]
    kind: u32,
    #[prost(string, tag = "4")]
    name: String,
    #[prost(uint64, tag = "5")]
    resident: u64,
    #[prost(uint64, tag = "6")]
    private: u64,
    #[prost(uint64, tag = "7")]
    swapped: u64,
    #[prost(uint64, tag = "8")]
    huge: u64,
    #[prost(uint64, repeated, tag = "9")]
    runs: Vec<u64>,
}

impl From<&join::MemoryMap> for MemoryMapMessage {
    fn from(map: &join::MemoryMap) -> Self {
        let residency = &map.residency;
        let mut end = 0_u64;
        let mappings = residency.mappings.iter().map(|it| {
            let distance = it.start.wrapping_sub(end);
            end = it.end;
            Mapping::new(it, distance)
        });
        let mappings = mappings.collect();
        let mut end = 0_u64;
        let mapped = map.mapped.iter().flat_map(|it| {
            let distance = it.start.wrapping_sub(end);
            end = it.end;
            [distance, it.end.wrapping_sub(it.start), it.stack.0.into()]
        });
        Self {
            at_ns: map.at_ns,
            took_ns: map.took_ns,
            resident: residency.resident,
            unknown_pages: residency.unknown_pages.clone(),
            left_out: residency.left_out,
            mappings,
            mapped: mapped.collect(),
            mapped_left_out: map.mapped_left_out,
        }
    }
}

impl TryFrom<MemoryMapMessage> for join::MemoryMap {
    type Error = WireError;

    fn try_from(message: MemoryMapMessage) -> Result<Self, WireError> {
        let mut end = 0_u64;
        let mappings = message.mappings.into_iter().map(|it| {
            let mapping = it.into_plain(end)?;
            end = mapping.end;
            Ok(mapping)
        });
        let mappings = mappings.collect::<Result<_, WireError>>()?;
        let (parts, rest) = message.mapped.as_chunks::<3>();
        if !rest.is_empty() {
            return Err(WireError::Malformed);
        }
        let mut end = 0_u64;
        let mapped = parts.iter().map(|[distance, length, stack]| {
            let (start, after) = range(end, *distance, *length)?;
            end = after;
            Ok(join::MappedPart {
                start,
                end: after,
                stack: StackId(u32::try_from(*stack).map_err(|_| WireError::Malformed)?),
            })
        });
        Ok(Self {
            at_ns: message.at_ns,
            took_ns: message.took_ns,
            mapped: mapped.collect::<Result<_, WireError>>()?,
            mapped_left_out: message.mapped_left_out,
            residency: Residency {
                resident: message.resident,
                mappings,
                unknown_pages: message.unknown_pages,
                left_out: message.left_out,
            },
        })
    }
}

impl Mapping {
    fn new(it: &residency::Mapping, distance: u64) -> Self {
        let runs = it
            .runs
            .iter()
            .map(|run| (u64::from(run.pages) << STATE_BITS) | run.state as u64);
        Self {
            distance,
            length: it.end.wrapping_sub(it.start),
            kind: it.kind as u32,
            name: it.name.clone(),
            resident: it.resident,
            private: it.private,
            swapped: it.swapped,
            huge: it.huge,
            runs: runs.collect(),
        }
    }

    fn into_plain(self, before: u64) -> Result<residency::Mapping, WireError> {
        let (start, end) = range(before, self.distance, self.length)?;
        let kind = MappingKind::ALL.get(self.kind as usize);
        let runs = self.runs.into_iter().map(|run| {
            let state = (run & ((1 << STATE_BITS) - 1)) as usize;
            Ok(residency::Run {
                pages: u32::try_from(run >> STATE_BITS).map_err(|_| WireError::Malformed)?,
                state: *PageState::ALL.get(state).ok_or(WireError::Unknown {
                    what: "state of a page",
                    value: state as u32,
                })?,
            })
        });
        Ok(residency::Mapping {
            start,
            end,
            kind: *kind.ok_or(WireError::Unknown {
                what: "kind of mapping",
                value: self.kind,
            })?,
            name: self.name,
            resident: self.resident,
            private: self.private,
            swapped: self.swapped,
            huge: self.huge,
            runs: runs.collect::<Result<_, WireError>>()?,
        })
    }
}

/// The addresses of what follows another address.
fn range(before: u64, distance: u64, length: u64) -> Result<(u64, u64), WireError> {
    let start = before.checked_add(distance).ok_or(WireError::Malformed)?;
    let end = start.checked_add(length).ok_or(WireError::Malformed)?;
    Ok((start, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map() -> join::MemoryMap {
        let runs = PageState::ALL.iter().zip(1..);
        let runs = runs.map(|(state, pages)| residency::Run {
            pages,
            state: *state,
        });
        let mapping = |start, kind| residency::Mapping {
            start,
            end: start + 0xf000,
            kind,
            name: "[heap]".to_owned(),
            resident: 4096,
            private: 8192,
            swapped: 12288,
            huge: 1 << 21,
            runs: runs.clone().collect(),
        };
        let kinds = MappingKind::ALL.iter().zip(1..);
        join::MemoryMap {
            at_ns: 7,
            took_ns: 9,
            residency: Residency {
                resident: 1 << 40,
                mappings: kinds.map(|(kind, at)| mapping(at << 16, *kind)).collect(),
                unknown_pages: Some("why".to_owned()),
                left_out: 11,
            },
            mapped: vec![
                join::MappedPart {
                    start: 0x1000,
                    end: 0x3000,
                    stack: StackId(1),
                },
                join::MappedPart {
                    start: 0x3000,
                    end: 0x4000,
                    stack: StackId(0),
                },
            ],
            mapped_left_out: 12,
        }
    }

    fn read(message: &MemoryMapMessage) -> Result<join::MemoryMap, WireError> {
        let bytes = message.encode_to_vec();
        MemoryMapMessage::decode(bytes.as_slice())
            .unwrap()
            .try_into()
    }

    /// Check that a map is read as it was written.
    #[test]
    fn maps_are_read_as_written() {
        assert_eq!(read(&MemoryMapMessage::from(&map())).unwrap(), map());
    }

    /// Check that addresses that no process can have, unknown states and kinds, and incomplete parts are errors.
    #[test]
    fn damaged_maps_are_errors() {
        let damaged = |change: fn(&mut MemoryMapMessage)| {
            let mut message = MemoryMapMessage::from(&map());
            change(&mut message);
            read(&message).unwrap_err()
        };
        let far = damaged(|it| it.mappings[1].length = u64::MAX);
        assert!(matches!(far, WireError::Malformed));
        let part = damaged(|it| it.mapped.truncate(4));
        assert!(matches!(part, WireError::Malformed));
        let pages = damaged(|it| it.mappings[0].runs.push(u64::MAX << STATE_BITS));
        assert!(matches!(pages, WireError::Malformed));
        let state = damaged(|it| it.mappings[0].runs.push(7)).to_string();
        assert!(state.contains("unknown state of a page 7"), "{state}");
        let kind = damaged(|it| it.mappings[0].kind = 77).to_string();
        assert!(kind.contains("unknown kind of mapping 77"), "{kind}");
    }
}
