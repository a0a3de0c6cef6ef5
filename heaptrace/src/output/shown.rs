//! Which frames of a stack are shown, by their language.
//!
//! Stage: output. Filters select allocations; this selects frames, and every allocation stays counted. Knows no format.

use std::borrow::Cow;

use super::function_name::path;
use crate::join::{Language, LocationId};
use crate::profile::{Profile, Symbols};

/// The function of CPython that runs Python functions. In an optimised build, parts of it have suffixes.
const PYTHON_LOOP: &str = "_PyEval_EvalFrameDefault";

/// The languages that frames can have; `None` is machine code.
const LANGUAGES: [Option<Language>; 5] = [
    None,
    Some(Language::Python),
    Some(Language::JavaScript),
    Some(Language::Java),
    Some(Language::Jit),
];

/// The location that stands for a stack of which nothing is shown, of the first language. Those of the others follow downwards.
/// A profile never has so many locations.
const HIDDEN: u32 = u32::MAX;

/// The languages whose frames are shown.
///
/// An interpreter's own loop is left out beside the functions that it runs: each run of these would be followed by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShownLanguages {
    /// Whether each language is shown, in the order of [`LANGUAGES`].
    are_shown: [bool; LANGUAGES.len()],
}

impl Default for ShownLanguages {
    fn default() -> Self {
        Self {
            are_shown: [true; LANGUAGES.len()],
        }
    }
}

impl ShownLanguages {
    /// Machine code alone, with that of interpreters.
    pub const NATIVE: Self = Self {
        are_shown: [true, false, false, false, false],
    };

    fn only(language: Option<Language>) -> Self {
        Self {
            are_shown: LANGUAGES.map(|it| it == language),
        }
    }

    /// The language with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        let mut languages = LANGUAGES.into_iter();
        let language = languages.find(|language| language_name(*language) == name)?;
        Some(Self::only(language))
    }

    /// The names of all languages.
    pub fn names() -> [&'static str; LANGUAGES.len()] {
        LANGUAGES.map(language_name)
    }

    /// These languages and others.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            are_shown: LANGUAGES.map(|it| self.has(it) || other.has(it)),
        }
    }

    /// The choice in words, if frames of this profile may be left out by it: `only python frames`.
    pub(super) fn words(self, profile: &Profile) -> Option<String> {
        let mut functions = profile.functions.iter();
        let is_whole = self.has(None) && functions.all(|it| self.has(Some(it.language)));
        let shown = LANGUAGES.into_iter().filter(|it| self.has(*it));
        let names: Vec<_> = shown.map(language_name).collect();
        (!is_whole).then(|| format!("only {} frames", names.join(" and ")))
    }

    /// Whether frames of a language are shown.
    fn has(self, language: Option<Language>) -> bool {
        let mut shown = LANGUAGES.into_iter().zip(self.are_shown);
        shown.any(|(it, is_shown)| it == language && is_shown)
    }

    /// The locations of a stack that are shown. A stack without any has one that stands for all.
    pub(super) fn of_stack<'a>(
        self,
        profile: &Profile,
        symbols: &Symbols,
        locations: &'a [LocationId],
    ) -> Cow<'a, [LocationId]> {
        let is_whole = self.has(None) && !is_interpreted(profile, locations);
        if is_whole || locations.is_empty() {
            return locations.into();
        }
        let mut shown = Vec::with_capacity(locations.len());
        // The language that the stack's functions have.
        let languages = locations.iter().filter_map(|id| language_of(profile, *id));
        let mut interpreted = languages.filter(|it| it.is_interpreted());
        let run = interpreted.next().filter(|run| self.has(Some(*run)));
        let mut before = None;
        for id in locations {
            let language = language_of(profile, *id);
            let is_left_out = language.is_none()
                && run.is_some_and(|run| is_runtimes_own(run, before == Some(run), symbols, *id));
            if self.has(language) && !is_left_out {
                shown.push(*id);
            }
            before = language;
        }
        if shown.is_empty()
            && let Some(innermost) = locations.first()
        {
            shown.push(hidden(language_of(profile, *innermost)));
        }
        shown.into()
    }
}

/// The name of a language, as on the command line and in JSON.
pub(super) fn language_name(language: Option<Language>) -> &'static str {
    match language {
        None => "native",
        Some(Language::Python) => "python",
        Some(Language::JavaScript) => "javascript",
        Some(Language::Java) => "java",
        Some(Language::Jit) => "jit",
    }
}

/// Whether a function of a stack is in a language.
pub(super) fn is_interpreted(profile: &Profile, locations: &[LocationId]) -> bool {
    let mut locations = locations.iter();
    !profile.functions.is_empty() && locations.any(|id| language_of(profile, *id).is_some())
}

/// The language of a location; `None` for machine code.
pub(super) fn language_of(profile: &Profile, id: LocationId) -> Option<Language> {
    let function = profile.locations.get(id.0 as usize)?.function?;
    let function = profile.functions.get(function.0 as usize)?;
    Some(function.language)
}

/// The location that stands for a stack of this language.
fn hidden(language: Option<Language>) -> LocationId {
    let number = LANGUAGES.iter().position(|it| *it == language);
    LocationId(HIDDEN - number.unwrap_or(0) as u32)
}

/// The number of locations of a profile, with those that stand for stacks.
pub(super) fn slots(profile: &Profile) -> usize {
    profile.locations.len() + LANGUAGES.len()
}

/// The index of a location in a list of [`slots`] entries.
pub(super) fn slot(profile: &Profile, id: LocationId) -> usize {
    match hidden_label(id) {
        None => id.0 as usize,
        Some(_) => profile.locations.len() + (HIDDEN - id.0) as usize,
    }
}

/// The language and the label of a location that stands for a stack; `None` for any other location.
pub(super) fn hidden_label(id: LocationId) -> Option<(Option<Language>, &'static str)> {
    let language = *LANGUAGES.get((HIDDEN - id.0) as usize)?;
    let label = match language {
        None => "[native]",
        Some(Language::Python) => "[python]",
        Some(Language::JavaScript) => "[javascript]",
        Some(Language::Java) => "[java]",
        Some(Language::Jit) => "[jit]",
    };
    Some((language, label))
}

/// Whether code does nothing but run functions of a language. It may follow one directly. In a program without symbols, it has no
/// name.
fn is_runtimes_own(language: Language, follows: bool, symbols: &Symbols, id: LocationId) -> bool {
    // The last function is the one that all others are inlined into.
    let function = symbols.frames(id).last().and_then(|it| it.function);
    let name = function.map(|function| symbols.text(function));
    match language {
        Language::Python => follows && name.is_none_or(is_python_loop_name),
        Language::JavaScript => name.map_or(follows, is_javascript_glue),
        Language::Java | Language::Jit => false,
    }
}

/// What V8's own pieces of code have in front of their names.
const BUILT_IN: &str = "Builtins_";

/// Those pieces that only lead from a function to the next one, or to machine code and back.
const GLUE: [&str; 10] = [
    "InterpreterEntryTrampoline",
    "InterpreterPushArgs",
    "BaselineOutOfLinePrologue",
    "JSEntry",
    "JSRunMicrotasksEntry",
    "JSConstructStub",
    "JSBuiltinsConstructStub",
    "CEntry",
    "HandleApiCall",
    "CallApiCallback",
];

fn is_javascript_glue(name: &str) -> bool {
    let built_in = name.strip_prefix(BUILT_IN);
    built_in.is_some_and(|name| GLUE.iter().any(|glue| name.starts_with(glue)))
}

fn is_python_loop_name(name: &str) -> bool {
    let rest = path(name).strip_prefix(PYTHON_LOOP);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '@']))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that languages and names map one to one, and that several languages are shown together.
    #[test]
    fn languages_have_names() {
        let all = ShownLanguages::names().map(|name| ShownLanguages::from_name(name).unwrap());
        assert_eq!(all[0], ShownLanguages::NATIVE);
        let together = all.into_iter().reduce(ShownLanguages::and);
        assert_eq!(together, Some(ShownLanguages::default()));
        assert!(!all[1].has(None) && all[1].has(Some(Language::Python)));
        assert_eq!(ShownLanguages::from_name("Python"), None);
    }

    /// Check that the code of V8 that only leads from function to function is recognised.
    #[test]
    fn the_glue_of_javascript_is_recognised() {
        for (name, expected) in [
            ("Builtins_InterpreterEntryTrampoline", true),
            ("Builtins_JSEntryTrampoline", true),
            ("Builtins_CEntry_Return1_ArgvOnStack_BuiltinExit", true),
            ("Builtins_ArrayMap", false),
            ("InterpreterEntryTrampoline", false),
            ("", false),
        ] {
            assert_eq!(is_javascript_glue(name), expected, "{name}");
        }
    }

    /// Check that the loop of Python is recognised with what compilers add to its name, and no other function.
    #[test]
    fn the_loop_of_python_is_recognised() {
        for (name, expected) in [
            ("_PyEval_EvalFrameDefault", true),
            ("_PyEval_EvalFrameDefault.cold", true),
            ("_PyEval_EvalFrameDefault.constprop.0.cold", true),
            ("_PyEval_EvalFrameDefault [clone .cold]", true),
            ("_PyEval_EvalFrameDefault@@V1", true),
            ("_PyEval_EvalFrame", false),
            ("_PyEval_EvalFrameDefaults", false),
            ("_PyEval_Vector", false),
            ("", false),
        ] {
            assert_eq!(is_python_loop_name(name), expected, "{name}");
        }
    }

    /// Check that each language has its own location that stands for a stack, and that no real location does.
    #[test]
    fn locations_that_stand_for_stacks_have_labels() {
        for (language, label) in [
            (None, "[native]"),
            (Some(Language::Python), "[python]"),
            (Some(Language::JavaScript), "[javascript]"),
            (Some(Language::Java), "[java]"),
            (Some(Language::Jit), "[jit]"),
        ] {
            assert_eq!(hidden_label(hidden(language)), Some((language, label)));
        }
        assert_eq!(hidden_label(LocationId(0)), None);
        assert_eq!(hidden_label(LocationId(1 << 31)), None);
    }
}
