//! The message of how a process ended.
//!
//! Stage: profile.

use prost::Message;

use crate::join::{self, EndCause};

const EXEC: u32 = 1;
const EXIT: u32 = 2;
const SIGNAL: u32 = 3;
const OUT_OF_MEMORY: u32 = 4;

/// [`join::End`], as a message.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct ProcessEnd {
    #[prost(uint32, tag = "1")]
    cause: u32,
    /// The exit status, or the number of the signal.
    #[prost(uint32, tag = "2")]
    number: u32,
    #[prost(bool, tag = "3")]
    has_core: bool,
    #[prost(uint64, tag = "4")]
    at_ns: u64,
}

impl From<join::End> for ProcessEnd {
    fn from(end: join::End) -> Self {
        let (cause, number, has_core) = match end.cause {
            EndCause::Exec => (EXEC, 0, false),
            EndCause::Exit(status) => (EXIT, status, false),
            EndCause::Signal { number, has_core } => (SIGNAL, number, has_core),
            EndCause::OutOfMemory => (OUT_OF_MEMORY, 0, false),
        };
        Self {
            cause,
            number: number.into(),
            has_core,
            at_ns: end.at_ns,
        }
    }
}

impl ProcessEnd {
    /// `None` for a cause that this version does not know.
    pub(super) fn into_plain(self) -> Option<join::End> {
        let number = u8::try_from(self.number).ok()?;
        let cause = match self.cause {
            EXEC => EndCause::Exec,
            EXIT => EndCause::Exit(number),
            SIGNAL => EndCause::Signal {
                number,
                has_core: self.has_core,
            },
            OUT_OF_MEMORY => EndCause::OutOfMemory,
            _ => return None,
        };
        Some(join::End {
            cause,
            at_ns: self.at_ns,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that every cause is read as it was written, and that an unknown one is not known.
    #[test]
    fn ends_are_read_as_written() {
        let signal = |number, has_core| EndCause::Signal { number, has_core };
        for cause in [
            EndCause::Exec,
            EndCause::Exit(0),
            EndCause::Exit(255),
            signal(11, true),
            signal(64, false),
            EndCause::OutOfMemory,
        ] {
            let end = join::End { cause, at_ns: 7 };
            assert_eq!(ProcessEnd::from(end).into_plain(), Some(end));
        }
        let unknown = |cause, number| ProcessEnd {
            cause,
            number,
            ..ProcessEnd::default()
        };
        assert_eq!(unknown(0, 0).into_plain(), None);
        assert_eq!(unknown(5, 0).into_plain(), None);
        assert_eq!(unknown(EXIT, 256).into_plain(), None);
    }
}
