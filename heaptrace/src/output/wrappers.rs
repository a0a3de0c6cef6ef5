//! Which frame of a stack is the user's: the innermost one that is no allocator wrapper and no library plumbing.
//!
//! Stage: output. Only the frames on the innermost side are skipped. A function that a library calls back is the
//! user's, however deep in the library its caller is.

use std::sync::LazyLock;

use super::frame::StackFrame;
use super::function_name::{bare, leading_brackets, path, type_and_trait};
use super::glob::Glob;
use super::name_list::NameList;
use super::wrapper_names::{
    FILES, FUNCTIONS, JAVA_METHODS, JAVASCRIPT_FILES, PATHS, PYTHON_FILES, STARTS, TRAITS,
};
use crate::join::Language;

/// The largest nesting of `<<<T as A>::B as C>::D as E>::f` that is followed; a crafted name can nest without end.
const MAX_LEADING: u32 = 4;

/// The functions that are skipped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wrappers {
    /// Patterns of the user, beyond the list.
    globs: Vec<Glob>,
    /// Whether no function is skipped.
    are_shown: bool,
}

/// The list, without additions.
pub(super) static LISTED: Wrappers = Wrappers {
    globs: Vec::new(),
    are_shown: false,
};

/// A part of the list.
type Patterns = LazyLock<NameList>;

static IN_FUNCTIONS: Patterns = LazyLock::new(|| NameList::new(FUNCTIONS));
static IN_PATHS: Patterns = LazyLock::new(|| NameList::new(PATHS));
static IN_TRAITS: Patterns = LazyLock::new(|| NameList::new(TRAITS));
static IN_FILES: Patterns = LazyLock::new(|| NameList::new(FILES));
static IN_PYTHON_FILES: Patterns = LazyLock::new(|| NameList::new(PYTHON_FILES));
static IN_JAVASCRIPT_FILES: Patterns = LazyLock::new(|| NameList::new(JAVASCRIPT_FILES));
static IN_JAVA_METHODS: Patterns = LazyLock::new(|| NameList::new(JAVA_METHODS));
static IN_STARTS: Patterns = LazyLock::new(|| NameList::new(STARTS));

impl Wrappers {
    /// The list and these patterns of functions.
    pub fn with(patterns: &[String]) -> Self {
        Self {
            globs: patterns.iter().map(|it| Glob::new(it)).collect(),
            are_shown: false,
        }
    }

    /// No wrappers: every stack begins at its innermost frame.
    pub fn shown() -> Self {
        Self {
            globs: Vec::new(),
            are_shown: true,
        }
    }

    /// Whether wrappers are shown like other functions.
    pub(super) fn are_shown(&self) -> bool {
        self.are_shown
    }

    /// The part that a frame has in a stack.
    pub(super) fn part(&self, frame: &StackFrame<'_>) -> Part {
        if self.are_shown {
            return Part::User;
        }
        if let Some(language) = frame.language {
            return self.part_of(language, frame);
        }
        let Some(function) = frame.function else {
            return Part::User;
        };
        let is_in_library = frame.file.is_some_and(|file| IN_FILES.has(file));
        let path = path(function);
        if is_in_library || is_wrapper(path, MAX_LEADING) || self.is_added(function, path) {
            Part::Wrapper
        } else if IN_STARTS.has(without_suffix(path)) {
            Part::Start
        } else {
            Part::User
        }
    }

    /// The part of a function that an interpreter runs. The list has names of machine code, and these can be the same.
    fn part_of(&self, language: Language, frame: &StackFrame<'_>) -> Part {
        let (patterns, text) = match language {
            Language::Python => (&IN_PYTHON_FILES, frame.file),
            Language::JavaScript => (&IN_JAVASCRIPT_FILES, frame.file),
            Language::Java => (&IN_JAVA_METHODS, frame.function),
            Language::Jit => (&IN_PYTHON_FILES, None),
        };
        let is_in_library = text.is_some_and(|text| patterns.has(text));
        let mut globs = self.globs.iter();
        let is_added = frame
            .function
            .is_some_and(|name| globs.any(|it| it.matches(name)));
        if is_in_library || is_added {
            Part::Wrapper
        } else {
            Part::User
        }
    }

    /// Whether a pattern of the user matches a name, with or without its types.
    fn is_added(&self, function: &str, path: &str) -> bool {
        let names = [function, bare(function), path];
        let is_match = |glob: &Glob| names.iter().any(|name| glob.matches(name));
        self.globs.iter().any(is_match)
    }
}

/// The part that a frame has in a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// It allocates for its caller.
    Wrapper,
    /// A process or a thread begins in it.
    Start,
    /// Any other function.
    User,
}

/// The index of the user's frame, from the parts of frames, innermost first. It is 0 if there is no such frame.
pub(super) fn user_frame(parts: impl IntoIterator<Item = Part>) -> usize {
    let outside = parts
        .into_iter()
        .enumerate()
        .find(|(_, part)| *part != Part::Wrapper);
    match outside {
        Some((index, Part::User)) => index,
        _ => 0,
    }
}

/// Whether the path of a function is in the list.
fn is_wrapper(path: &str, leading: u32) -> bool {
    if let Some((inner, _)) = leading_brackets(path) {
        return leading > 0 && is_wrapper_method(inner, leading);
    }
    if path.contains("::") {
        IN_PATHS.has(path)
    } else {
        IN_FUNCTIONS.has(without_suffix(path))
    }
}

/// Whether a method of `Type` or of `Type as Trait` is plumbing.
fn is_wrapper_method(inner: &str, leading: u32) -> bool {
    let (of, by) = type_and_trait(inner);
    let of = of.trim_start_matches(['&', '*', '[', '(']);
    let of = ["mut ", "const ", "dyn "]
        .iter()
        .fold(of, |of, word| of.strip_prefix(word).unwrap_or(of));
    // A primitive type, or a parameter: `T`, `str`, `[u8]`.
    let is_named = of.contains("::");
    let is_plumbing = is_wrapper(of, leading - 1);
    match by {
        None => is_plumbing,
        Some(by) if IN_TRAITS.has(by) => true,
        Some(by) => IN_PATHS.has(by) && (is_plumbing || !is_named),
    }
}

/// A name of C without what compilers and linkers add: `xmalloc` of `xmalloc.part.0` and `xmalloc@@V1`.
fn without_suffix(name: &str) -> &str {
    let end = name.find(['.', '@']).filter(|at| *at > 0);
    end.map_or(name, |at| &name[..at])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::LocationId;

    fn frame<'a>(function: &'a str, file: &'a str) -> StackFrame<'a> {
        StackFrame {
            location: LocationId(0),
            language: None,
            function: Some(function).filter(|it| !it.is_empty()),
            module: None,
            address: 0,
            file: Some(file).filter(|it| !it.is_empty()),
            line: 0,
            inlined: false,
        }
    }

    fn part(function: &str) -> Part {
        LISTED.part(&frame(function, ""))
    }

    /// Check that wrappers and plumbing of each language are recognised by their own path.
    #[test]
    fn wrappers_are_recognised() {
        for name in [
            "xmalloc",
            "xmalloc.part.0",
            "__strdup@@GLIBC_2.2.5",
            "zmalloc_usable",
            "sdsnewlen",
            "_sdsnewlen",
            "g_malloc0",
            "ngx_palloc_large",
            "CRYPTO_zalloc",
            "av_mallocz",
            "sqlite3MallocZero",
            "_PyObject_Malloc",
            "_PyMem_RawMalloc",
            "PyType_GenericAlloc",
            "operator new(unsigned long)",
            "operator new[](unsigned long, std::nothrow_t const&)",
            "shop::Shelf::operator new(unsigned long)",
            "std::vector<int, std::allocator<int> >::push_back(int const&)",
            "void std::vector<shop::Item>::_M_realloc_insert<shop::Item>(shop::Item&&)",
            "std::__cxx11::basic_string<char>::_M_create(unsigned long&, unsigned long)",
            "__gnu_cxx::new_allocator<char>::allocate(unsigned long, void const*)",
            "boost::container::vector<int>::priv_insert()",
            "QArrayData::allocate(unsigned long)",
            "v8::internal::Malloced::operator new(unsigned long)",
            "char* node::UncheckedMalloc<char>(unsigned long)",
            "os::malloc(unsigned long, MEMFLAGS)",
            "alloc::vec::Vec<T,A>::push",
            "<alloc::vec::Vec<T> as core::clone::Clone>::clone",
            "<alloc::vec::Vec<shop::Item>>::push",
            "<alloc::string::String as core::convert::From<&str>>::from",
            "<T as alloc::slice::hack::ConvertVec>::to_vec",
            "<shop::Item as alloc::slice::hack::ConvertVec>::to_vec",
            "<str as alloc::borrow::ToOwned>::to_owned",
            "<&str as core::convert::Into<alloc::string::String>>::into",
            "<shop::Arena as core::alloc::global::GlobalAlloc>::alloc",
            "alloc::slice::<impl [T]>::to_vec",
            "hashbrown::raw::RawTable<T,A>::reserve_rehash",
            "__rust_alloc",
            "__rdl_alloc",
            "__rustc::__rust_alloc",
            "<<alloc::vec::Vec<T> as core::iter::IntoIterator>::IntoIter as core::iter::Iterator>::next",
        ] {
            assert_eq!(part(name), Part::Wrapper, "{name}");
        }
    }

    /// Check that a function of the user is not hidden by the library's types in its name.
    #[test]
    fn functions_of_users_are_kept() {
        for name in [
            "",
            "main",
            "std",
            "sdsl::vector::f()",
            "xml_parse",
            "shop::Shelf<std::vector<int> >::put(std::map<int, int> const&)",
            "std::vector<int> shop::make<int>(int)",
            "std::string shop::name[abi:cxx11](int)",
            "main::{lambda(std::vector<int>&)#1}::operator()(std::vector<int>&) const",
            "shop::Item::operator std::string() const",
            "<shop::Item as core::clone::Clone>::clone",
            "<alloc::vec::Vec<T> as shop::Extend>::grow",
            "<T as shop::Trait>::f",
            "<dyn shop::Trait>::f",
            "<shop::Item>::new",
            "shop::main::{{closure}}",
            "createStringObject",
            "_PyBytes_FromSize",
        ] {
            assert_eq!(part(name), Part::User, "{name}");
        }
        assert_eq!(part("__libc_start_call_main"), Part::Start);
        let nested = "<".repeat(1 << 14) + "std::a" + &" as b>".repeat(1 << 14);
        assert_eq!(part(&nested), Part::User);
    }

    /// Check that a constructor that debug information names without its namespace is recognised by its file.
    #[test]
    fn files_of_libraries_are_recognised() {
        for (file, expected) in [
            ("/usr/include/c++/12/bits/basic_string.h", Part::Wrapper),
            ("/usr/include/c++/v1/vector", Part::Wrapper),
            ("/rustc/0a1b/library/alloc/src/vec/mod.rs", Part::Wrapper),
            ("/home/me/src/basic_string.h", Part::User),
        ] {
            assert_eq!(
                LISTED.part(&frame("basic_string", file)),
                expected,
                "{file}"
            );
        }
    }

    /// Check that only the innermost run of wrappers is skipped, and that a stack without a user's function
    /// begins at its innermost frame.
    #[test]
    fn only_the_innermost_wrappers_are_skipped() {
        let index = |names: &[&str]| user_frame(names.iter().map(|name| part(name)));
        assert_eq!(
            index(&["operator new(unsigned long)", "std::f()", "run", "main"]),
            2
        );
        // A callback of the user is called by the library.
        assert_eq!(index(&["compare(int)", "std::sort<int>(int)", "main"]), 0);
        assert_eq!(
            index(&["xmalloc", "compare(int)", "std::sort<int>(int)", "main"]),
            1
        );
        assert_eq!(index(&["xmalloc", "", "main"]), 1);
        assert_eq!(index(&["operator new(unsigned long)", "std::f()"]), 0);
        assert_eq!(index(&["xmalloc", "start_thread", "clone3"]), 0);
        assert_eq!(index(&["xmalloc", "__libc_start_call_main", "main"]), 0);
        assert_eq!(index(&[]), 0);
    }

    /// Check that patterns of the user match with and without types, and that all wrappers can be shown.
    #[test]
    fn wrappers_of_users_are_added() {
        let name = "void* shop::grab<int>(unsigned long)";
        for pattern in [
            "shop::grab*",
            "shop::grab<int>",
            "void* shop::grab<int>",
            name,
        ] {
            let wrappers = Wrappers::with(&[pattern.to_owned()]);
            assert_eq!(wrappers.part(&frame(name, "")), Part::Wrapper, "{pattern}");
            assert_eq!(wrappers.part(&frame("xmalloc", "")), Part::Wrapper);
            assert_eq!(wrappers.part(&frame("shop::put()", "")), Part::User);
        }
        assert_eq!(Wrappers::shown().part(&frame("xmalloc", "")), Part::User);
    }
}
