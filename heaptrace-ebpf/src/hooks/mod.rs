//! The programs, one file per hook family.

mod alloc;
mod arguments;
mod empty;
mod free;
mod lifecycle;
mod mapping;
mod realloc;
mod returned;

use aya_ebpf::EbpfContext;

use crate::{hits, own_stack};

/// What every program of a probe does first.
#[inline(always)]
fn hit(ctx: &impl EbpfContext) {
    own_stack::keep(ctx);
    hits::count();
}
