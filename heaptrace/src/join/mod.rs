//! Stage join: allocations meet their frees, and become counters per site and per process.

mod update;

pub use update::{
    Allocator, Completeness, Location, LocationId, Module, ModuleId, Process, ProcessId, Quality,
    Site, SiteId, Stack, StackId, Totals, Update,
};
