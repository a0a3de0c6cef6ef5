//! Indexes of the tables of a run.
//!
//! Stage: join. Knows nothing of what is in the tables.

/// Index of a [`Module`](super::update::Module) in the module table of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModuleId(pub u32);

/// Index of a [`Location`](super::update::Location) in the location table of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LocationId(pub u32);

/// Index of a [`Function`](super::update::Function) in the function table of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FunctionId(pub u32);

/// Index of a [`Stack`](super::update::Stack) in the stack table of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackId(pub u32);

/// Index of a [`Process`](super::update::Process) in the process table of the run.
///
/// A process is one program image here: `exec` begins a new record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessId(pub u32);

/// Index of a [`Site`](super::update::Site) in the site table of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SiteId(pub u32);

/// Index of a thread's name in the name table of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadNameId(pub u32);

/// Index of a [`Generation`](super::update::Generation) in the generation table of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GenerationId(pub u32);
