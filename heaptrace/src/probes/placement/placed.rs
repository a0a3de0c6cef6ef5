//! A placement as it is told and kept: plain values.
//!
//! Stage: probes. What comes from a reader is checked before it is one of these.

use std::fmt;

use heaptrace_common::cookie::{ARGUMENTS, Register};

use super::Placement;

/// Where a probe goes, and what is said of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Bytes behind the function's entry.
    pub offset: u64,
    /// Where the arguments stand there.
    pub registers: [Register; ARGUMENTS],
    /// The instruction there.
    pub instruction: String,
    /// Whether the kernel has to execute the instruction out of line.
    pub is_stepped: bool,
    /// Why there.
    pub reason: String,
}

impl From<Placement> for Placed {
    fn from(placement: Placement) -> Self {
        Self {
            offset: placement.offset,
            registers: placement.registers,
            is_stepped: placement.is_stepped(),
            reason: placement.reason.to_string(),
            instruction: placement.instruction,
        }
    }
}

impl fmt::Display for Placed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "+{}", self.offset)?;
        if !self.instruction.is_empty() {
            write!(f, " ({})", self.instruction)?;
        }
        if self.is_stepped {
            write!(f, ", stepped: {}", self.reason)?;
        }
        Ok(())
    }
}
