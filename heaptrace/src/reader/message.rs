//! The kinds of questions for a reader, and the encoding of questions and answers.
//!
//! No stage of the flow. Neither side trusts the other's bytes: each length is checked before memory is allocated.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A kind of question. Each stage defines the types of its question and answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Job {
    /// The build id of a file, and where its code is linked.
    Identify = 1,
    /// The files that a program needs at its start.
    Needs = 2,
    /// The allocators in a file.
    Inspect = 3,
    /// A hash of the data from which the unwind table of a file is built.
    Fingerprint = 4,
    /// The unwind table of a file.
    Table = 5,
    /// Build id and location of a file's debug information.
    Facts = 6,
    /// The names of addresses.
    Names = 7,
    /// The slots by which a file calls functions.
    Slots = 8,
    /// The names of generated code in a piece of a perf map or a jitdump file.
    GeneratedCode = 9,
    /// The description that a Java virtual machine has of itself.
    HotSpot = 10,
    /// The units of a program whose debug information is needed, in files of their own.
    Units = 11,
    /// The types at calls of allocators.
    Types = 12,
    /// The version of V8 in a file.
    V8 = 13,
    /// The classes whose tables of virtual functions are at some places.
    Classes = 14,
}

impl Job {
    /// All kinds.
    pub const ALL: [Self; 14] = [
        Self::Identify,
        Self::Needs,
        Self::Inspect,
        Self::Fingerprint,
        Self::Table,
        Self::Facts,
        Self::Names,
        Self::Slots,
        Self::GeneratedCode,
        Self::HotSpot,
        Self::Units,
        Self::Types,
        Self::V8,
        Self::Classes,
    ];

    /// The job with this number.
    pub(super) fn numbered(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|job| *job as u32 == number)
    }

    /// Most bytes of an answer.
    pub(super) fn most_bytes(self) -> usize {
        match self {
            Self::Identify | Self::Fingerprint | Self::HotSpot | Self::V8 => 4 << 10,
            Self::Needs | Self::Facts | Self::Slots => 1 << 20,
            Self::Inspect | Self::GeneratedCode => 16 << 20,
            // Room for a table with the most rows and pages that the limits allow.
            Self::Table => 80 << 20,
            Self::Names | Self::Units | Self::Types | Self::Classes => 64 << 20,
        }
    }
}

/// The bytes of a question or an answer. Empty if the value can't be encoded; no valid answer is empty.
pub fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_allocvec(value).unwrap_or_default()
}

/// Decodes a question or an answer. `None` if the bytes are not exactly one value of this type.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Some(value),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that each job has a number of its own.
    #[test]
    fn jobs_have_distinct_numbers() {
        for job in Job::ALL {
            assert_eq!(Job::numbered(job as u32), Some(job));
        }
        assert_eq!(Job::numbered(0), None);
    }

    /// Check that bytes that are incomplete, too long, or have a wrong length in them are not decoded.
    #[test]
    fn invalid_bytes_are_not_decoded() {
        let bytes = encode(&vec!["one".to_owned(), "two".to_owned()]);
        assert_eq!(decode::<Vec<String>>(&bytes).unwrap().len(), 2);
        for end in 0..bytes.len() {
            assert!(decode::<Vec<String>>(&bytes[..end]).is_none());
        }
        let longer = [bytes.as_slice(), &[0]].concat();
        assert!(decode::<Vec<String>>(&longer).is_none());
        // A length of 2^63 without content.
        let claim = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
        assert!(decode::<Vec<u64>>(&claim).is_none());
    }
}
