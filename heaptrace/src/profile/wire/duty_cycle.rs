//! The message of a process's duty cycle.
//!
//! Stage: profile.

use prost::Message;

use crate::join;

/// [`join::DutyCycle`], as a message.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct DutyCycle {
    #[prost(uint64, tag = "1")]
    from_ns: u64,
    #[prost(uint64, tag = "2")]
    unprobed_ns: u64,
    #[prost(uint32, tag = "3")]
    overhead: u32,
    #[prost(uint32, tag = "4")]
    reached: u32,
}

impl From<join::DutyCycle> for DutyCycle {
    fn from(duty_cycle: join::DutyCycle) -> Self {
        Self {
            from_ns: duty_cycle.from_ns,
            unprobed_ns: duty_cycle.unprobed_ns,
            overhead: duty_cycle.overhead,
            reached: duty_cycle.reached,
        }
    }
}

impl From<DutyCycle> for join::DutyCycle {
    fn from(duty_cycle: DutyCycle) -> Self {
        Self {
            from_ns: duty_cycle.from_ns,
            unprobed_ns: duty_cycle.unprobed_ns,
            overhead: duty_cycle.overhead,
            reached: duty_cycle.reached,
        }
    }
}
