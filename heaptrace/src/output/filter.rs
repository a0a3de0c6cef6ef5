//! A filter: a kind of name and a pattern for it.
//!
//! Stage: output. Must not know profiles; `select.rs` applies filters to them.

use std::fmt;
use std::str::FromStr;

use super::cgroup::CgroupNames;
use super::frame::StackFrame;
use super::function_name::bare;
use super::glob::Glob;
use super::label::Label;
use super::readable::readable;
use crate::join::Process;
use crate::text::file_name;

/// A filter as on the command line: `function=GLOB`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    label: Label,
    glob: Glob,
}

impl FromStr for Filter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((key, glob)) = text.split_once('=') else {
            return Err(format!("write it as KEY=GLOB, e.g. function={text}"));
        };
        let label = Label::from_name(key).filter(|label| *label != Label::Stack);
        let Some(label) = label else {
            let keys = Label::ALL.map(Label::name);
            return Err(format!(
                "unknown key `{key}`; use one of {}",
                keys[1..].join(", ")
            ));
        };
        if glob.is_empty() {
            return Err(format!("the pattern is empty; write it as {key}=GLOB"));
        }
        Ok(Self {
            label,
            glob: Glob::new(glob),
        })
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.label.name(), self.glob.as_str())
    }
}

impl Filter {
    /// A filter on functions.
    pub(super) fn of_function(pattern: &str) -> Self {
        Self {
            label: Label::Function,
            glob: Glob::new(pattern),
        }
    }

    /// The kind of name that the filter matches.
    pub(super) fn label(&self) -> Label {
        self.label
    }

    /// Whether it selects whole processes.
    pub fn is_of_process(&self) -> bool {
        self.label.is_of_process()
    }

    /// Whether a name matches the pattern.
    pub(super) fn matches(&self, name: &str) -> bool {
        self.glob.matches(name)
    }

    /// Whether a process matches. A container matches also by its full id and by its runtime.
    pub(super) fn matches_process(&self, process: &Process) -> bool {
        let is = |name: &str| !name.is_empty() && self.glob.matches(name);
        match self.label {
            Label::Pid => is(&process.pid.to_string()),
            Label::Container => CgroupNames::of(&process.cgroup)
                .container
                .is_some_and(|it| is(&it.id) || is(it.short()) || is(it.runtime)),
            label => label.of_process(process).is_some_and(|name| is(&name)),
        }
    }

    /// Whether a frame matches. It matches also by a function's name as reports show it, without a function's parameters or a path's
    /// folders, and a program by the name that started it.
    pub(super) fn matches_frame(&self, frame: &StackFrame<'_>) -> bool {
        let Some(name) = self.label.of_frame(frame) else {
            return false;
        };
        if self.glob.matches(&name) {
            return true;
        }
        match self.label {
            Label::Function if frame.language.is_none() => {
                let shown = readable(&name);
                let names = [bare(&name), &shown, bare(&shown)];
                names.iter().any(|name| self.glob.matches(name))
            }
            Label::Line => self.glob.matches(file_name(&name)),
            Label::Module => {
                let started_as = frame.module.map_or("", |module| module.name());
                self.glob.matches(file_name(&name)) || self.glob.matches(started_as)
            }
            _ => false,
        }
    }
}
