//! What a reader can be asked, and how questions and answers are written.
//!
//! No stage of the flow. Both sides take the other's bytes for anything: lengths are bounded before memory is taken.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// What a reader is asked to find out. Each stage's question and answer are types of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Job {
    /// The build id of a file.
    Identify = 1,
    /// Which other files a program needs to be started.
    Needs = 2,
    /// Which allocators are in a file.
    Inspect = 3,
    /// What the unwind table of a file would be made from.
    Fingerprint = 4,
    /// The unwind table of a file.
    Table = 5,
    /// Where a file's debug information is.
    Facts = 6,
    /// The names of addresses.
    Names = 7,
}

impl Job {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Identify,
        Self::Needs,
        Self::Inspect,
        Self::Fingerprint,
        Self::Table,
        Self::Facts,
        Self::Names,
    ];

    /// The one with a number.
    pub(super) fn numbered(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|job| *job as u32 == number)
    }

    /// Most bytes of an answer.
    pub(super) fn most_bytes(self) -> usize {
        match self {
            Self::Identify | Self::Fingerprint => 4 << 10,
            Self::Needs | Self::Facts => 1 << 20,
            Self::Inspect => 16 << 20,
            // A table with the most rows and pages that there can be.
            Self::Table => 80 << 20,
            Self::Names => 64 << 20,
        }
    }
}

/// The bytes of a question or an answer; none where it can't be written, which no answer is.
pub fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_allocvec(value).unwrap_or_default()
}

/// What these bytes say, if they say one thing of this kind and nothing more.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Some(value),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that numbers name jobs, each its own.
    #[test]
    fn jobs_have_numbers() {
        for job in Job::ALL {
            assert_eq!(Job::numbered(job as u32), Some(job));
        }
        assert_eq!(Job::numbered(0), None);
    }

    /// Check that what is cut, too long or claims more than there is says nothing.
    #[test]
    fn nothing_is_believed() {
        let bytes = encode(&vec!["one".to_owned(), "two".to_owned()]);
        assert_eq!(decode::<Vec<String>>(&bytes).unwrap().len(), 2);
        for end in 0..bytes.len() {
            assert!(decode::<Vec<String>>(&bytes[..end]).is_none());
        }
        let longer = [bytes.as_slice(), &[0]].concat();
        assert!(decode::<Vec<String>>(&longer).is_none());
        // A length of 2^63, and nothing behind it.
        let claim = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
        assert!(decode::<Vec<u64>>(&claim).is_none());
    }
}
