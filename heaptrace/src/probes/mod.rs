//! Stage probes: what may be traced, where, and how probes get there.

pub mod capabilities;
pub mod machine;
