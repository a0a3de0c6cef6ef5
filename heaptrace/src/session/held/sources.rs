//! What completes stacks: unwind tables, and virtual machines.
//!
//! Part of the session. Must not know stacks.

use crate::session::java::Java;
use crate::unwind::Tables;

/// What completes stacks.
pub(in crate::session) struct Sources<'a> {
    pub(in crate::session) tables: &'a Tables,
    pub(in crate::session) java: &'a mut Java,
}
