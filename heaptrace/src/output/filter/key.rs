//! The keys of the filter language: what a condition is about.
//!
//! Stage: output.

use crate::output::label::Label;

/// What a condition is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Function,
    Module,
    File,
    Line,
    Language,
    Process,
    Pid,
    Cgroup,
    Container,
    Unit,
    Thread,
    Kind,
    Size,
    Age,
    Time,
    Type,
    Element,
}

/// What has to be known to test a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::output) enum Scope {
    /// The frames of a stack: one of them must match.
    Frame,
    /// The process.
    Process,
    /// The site itself: its thread, its kind of memory, its numbers.
    Site,
    /// A single block.
    Block,
}

/// How alike a word and a key are, from 0 to 1, if the one is most likely a misspelling of the other.
const ALIKE: f64 = 0.8;

impl Key {
    /// Every key, in the order of the help texts.
    pub(super) const ALL: [Self; 17] = [
        Self::Function,
        Self::Module,
        Self::File,
        Self::Line,
        Self::Language,
        Self::Process,
        Self::Pid,
        Self::Cgroup,
        Self::Container,
        Self::Unit,
        Self::Thread,
        Self::Kind,
        Self::Size,
        Self::Age,
        Self::Time,
        Self::Type,
        Self::Element,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Size => "size",
            Self::Age => "age",
            Self::Time => "time",
            other => other.label().map_or("", Label::name),
        }
    }

    /// The kind of name that it is; `None` for one that sites are not grouped by.
    pub(super) fn label(self) -> Option<Label> {
        match self {
            Self::Function => Some(Label::Function),
            Self::Module => Some(Label::Module),
            Self::Line => Some(Label::Line),
            Self::Language => Some(Label::Language),
            Self::Process => Some(Label::Process),
            Self::Pid => Some(Label::Pid),
            Self::Cgroup => Some(Label::Cgroup),
            Self::Container => Some(Label::Container),
            Self::Unit => Some(Label::Unit),
            Self::Thread => Some(Label::Thread),
            Self::Kind => Some(Label::Kind),
            Self::Type => Some(Label::Type),
            Self::Element => Some(Label::Element),
            Self::File | Self::Size | Self::Age | Self::Time => None,
        }
    }

    pub(super) fn scope(self) -> Scope {
        match self {
            Self::Function | Self::Module | Self::File | Self::Line | Self::Language => {
                Scope::Frame
            }
            Self::Process | Self::Pid | Self::Cgroup | Self::Container | Self::Unit => {
                Scope::Process
            }
            Self::Thread | Self::Kind | Self::Size | Self::Type | Self::Element => Scope::Site,
            Self::Age | Self::Time => Scope::Block,
        }
    }

    /// Whether it needs symbols.
    pub(super) fn is_named(self) -> bool {
        matches!(
            self,
            Self::Function | Self::File | Self::Line | Self::Type | Self::Element
        )
    }

    /// Whether it can be compared with numbers.
    pub(super) fn is_number(self) -> bool {
        matches!(self, Self::Line | Self::Pid) || !self.is_name()
    }

    /// Whether it can be compared with patterns.
    pub(super) fn is_name(self) -> bool {
        !matches!(self, Self::Size | Self::Age | Self::Time)
    }

    pub(super) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|key| key.name() == name)
    }

    /// The keys as a list for people.
    pub(super) fn list() -> String {
        Self::ALL.map(Self::name).join(", ")
    }

    /// The key that a word is most likely a misspelling of.
    pub(super) fn like(word: &str) -> Option<Self> {
        let word = word.to_lowercase();
        let keys = Self::ALL.into_iter();
        keys.map(|key| (strsim::jaro(&word, key.name()), key))
            .filter(|(alike, _)| *alike >= ALIKE)
            .max_by(|(a, _), (b, _)| a.total_cmp(b))
            .map(|(_, key)| key)
    }
}

/// Why a word that people may try as a key is none, and what to do instead.
pub(super) fn why_not(word: &str) -> Option<&'static str> {
    match word {
        "stack" => Some(
            "a stack has no name of its own; function, module, file and line match if any frame of the stack does",
        ),
        _ => None,
    }
}

/// Whether a word stands for itself in the language, and can't be a name.
pub(super) fn is_reserved(word: &str) -> bool {
    matches!(word, "and" | "or" | "not") || is_key(word)
}

/// Whether a word is a key, or one that people may try as a key.
pub(super) fn is_key(word: &str) -> bool {
    Key::from_name(word).is_some() || why_not(word).is_some()
}
