//! The names that a report groups by and a filter matches.
//!
//! Stage: output. Returns names as they are; the caller escapes them for printing.

use std::borrow::Cow;

use super::cgroup::CgroupNames;
use super::frame::StackFrame;
use super::shown::language_name;
use crate::join::{Kind, Process};

/// A kind of name, as on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Label {
    /// The whole call stack.
    Stack,
    /// A function of the stack.
    Function,
    /// A source line of the stack.
    Line,
    /// A file with code of the stack.
    Module,
    /// The language of a function of the stack.
    Language,
    /// The kind of memory: allocator blocks or mappings.
    Kind,
    /// The name of the thread, if threads were recorded.
    Thread,
    /// The name of the process; processes of the same name are one group.
    Process,
    /// One process, by its id.
    Pid,
    /// The control group of the process.
    Cgroup,
    /// The container that its control group belongs to.
    Container,
    /// The systemd unit that its control group belongs to.
    Unit,
    /// The type of the blocks.
    Type,
    /// The type of what the blocks hold.
    Element,
}

impl Label {
    /// Every kind, in the order of the help texts.
    pub const ALL: [Self; 14] = [
        Self::Stack,
        Self::Function,
        Self::Line,
        Self::Module,
        Self::Language,
        Self::Kind,
        Self::Thread,
        Self::Process,
        Self::Pid,
        Self::Cgroup,
        Self::Container,
        Self::Unit,
        Self::Type,
        Self::Element,
    ];

    /// The name for `--by` and `--filter`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stack => "stack",
            Self::Function => "function",
            Self::Line => "line",
            Self::Module => "module",
            Self::Language => "language",
            Self::Kind => "kind",
            Self::Thread => "thread",
            Self::Process => "process",
            Self::Pid => "pid",
            Self::Cgroup => "cgroup",
            Self::Container => "container",
            Self::Unit => "unit",
            Self::Type => "type",
            Self::Element => "element",
        }
    }

    /// The kind with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|label| label.name() == name)
    }

    /// Whether it names frames of a stack, and not the calling process or thread.
    pub fn is_of_stack(self) -> bool {
        matches!(
            self,
            Self::Stack | Self::Function | Self::Line | Self::Module | Self::Language
        )
    }

    /// Whether it names the process, or a group that the whole process belongs to.
    pub fn is_of_process(self) -> bool {
        matches!(
            self,
            Self::Process | Self::Pid | Self::Cgroup | Self::Container | Self::Unit
        )
    }

    /// Whether it names what the blocks are.
    pub fn is_of_type(self) -> bool {
        matches!(self, Self::Type | Self::Element)
    }

    /// Whether it needs symbols.
    pub fn is_named(self) -> bool {
        matches!(
            self,
            Self::Stack | Self::Function | Self::Line | Self::Language
        )
    }

    /// The plural, for a heading.
    pub(super) fn plural(self) -> &'static str {
        match self {
            Self::Stack => "stacks",
            Self::Function => "functions",
            Self::Line => "lines",
            Self::Module => "modules",
            Self::Language => "languages",
            Self::Kind => "kinds of memory",
            Self::Thread => "thread names",
            Self::Process => "process names",
            Self::Pid => "processes",
            Self::Cgroup => "control groups",
            Self::Container => "containers",
            Self::Unit => "units",
            Self::Type => "types",
            Self::Element => "element types",
        }
    }

    /// The text for a site that has no such name.
    pub(super) fn none(self) -> &'static str {
        match self {
            Self::Container => "[no container]",
            Self::Unit => "[no unit]",
            Self::Thread => "[no thread recorded]",
            Self::Cgroup => "[unknown]",
            _ => "[no name]",
        }
    }

    /// The process's name of this kind; `None` if it has none.
    pub(super) fn of_process(self, process: &Process) -> Option<String> {
        let name = match self {
            Self::Process => process.command.clone(),
            Self::Pid => match process.merged {
                0 => format!("{} ({})", process.command, process.pid),
                many => format!("{} ({many} ended)", process.command),
            },
            Self::Cgroup => process.cgroup.clone(),
            Self::Container => {
                let container = CgroupNames::of(&process.cgroup).container?;
                format!("{} {}", container.runtime, container.short())
            }
            Self::Unit => CgroupNames::of(&process.cgroup).unit?,
            Self::Stack
            | Self::Function
            | Self::Line
            | Self::Module
            | Self::Language
            | Self::Kind
            | Self::Thread
            | Self::Type
            | Self::Element => return None,
        };
        Some(name).filter(|name| !name.is_empty())
    }

    /// The frame's name of this kind; `None` if it has none.
    pub(super) fn of_frame<'a>(self, frame: &StackFrame<'a>) -> Option<Cow<'a, str>> {
        match self {
            Self::Function => Some(frame.name()),
            Self::Line => match (frame.file, frame.line) {
                (Some(file), 0) => Some(file.into()),
                (Some(file), line) => Some(format!("{file}:{line}").into()),
                // Code that was built without line information still has function names.
                (None, _) => Self::Function.of_frame(frame),
            },
            // What an interpreter runs has a source file in place of a file with code.
            Self::Module if frame.language.is_some() => frame.file.map(Into::into),
            Self::Module => frame.module.map(|module| module.path.as_str().into()),
            Self::Language => Some(language_name(frame.language).into()),
            _ => None,
        }
    }
}

/// The name of a kind of memory.
pub(super) fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Heap => "heap",
        Kind::Mapped => "mmap",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that names and kinds map one to one, and that every kind names a process or a frame.
    #[test]
    fn names_and_kinds_map_one_to_one() {
        let process = Process {
            pid: 7,
            command: "sh".to_owned(),
            cgroup: format!("/system.slice/docker-{}.scope", "a1".repeat(32)),
            ..Process::default()
        };
        let found = Label::ALL.map(|label| {
            assert_eq!(Label::from_name(label.name()), Some(label));
            let name = label.of_process(&process);
            let is_of_process = !label.is_of_stack()
                && !label.is_of_type()
                && !matches!(label, Label::Thread | Label::Kind);
            assert_eq!(name.is_some(), is_of_process, "{label:?}");
            name.unwrap_or_default()
        });
        let cgroup = process.cgroup.as_str();
        let unit = &cgroup["/system.slice/".len()..];
        let names = ["sh", "sh (7)", cgroup, "docker a1a1a1a1a1a1", unit];
        assert_eq!(found[7..12], names);
        assert_eq!(Label::from_name("types"), None);
    }

    /// Check that a process without a control group has no container and no unit.
    #[test]
    fn processes_without_a_group_have_no_container() {
        for label in [Label::Process, Label::Cgroup, Label::Container, Label::Unit] {
            assert_eq!(label.of_process(&Process::default()), None, "{label:?}");
        }
    }
}
