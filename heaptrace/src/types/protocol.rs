//! The question to a reader about the types at call sites, and its answer.
//!
//! Stage: types. Plain values that are sent between two processes; the tracer checks them against the limits here.

use serde::{Deserialize, Serialize};

/// Most functions that are inlined at one address.
pub(super) const MAX_INLINED: usize = 128;

/// Most types that a function is made for.
pub(super) const MAX_PARAMETERS: usize = 8;

/// The longest name.
pub(super) const MAX_NAME: usize = 16 << 10;

/// Asks about call sites. The files are the module, its debug file, and the supplementary file, as far as they are at hand.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TypesQuestion {
    /// Offsets in the module's file, each of the last byte of a call.
    pub(crate) offsets: Vec<u64>,
    /// Whether the debug information is in a debug file.
    pub(crate) has_debug: bool,
    /// Whether a supplementary file follows.
    pub(crate) has_shared: bool,
}

/// A type and its size, 0 if that is unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct SizedType {
    pub(super) name: String,
    pub(super) bytes: u64,
    /// Whether it ends with an array without a bound.
    pub(super) is_open: bool,
    /// Whether it has virtual functions, so that a pointer to it may point to another type.
    pub(super) is_virtual: bool,
}

/// A function at an address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Function {
    /// Its name with template arguments, without parameters. C++: with its scope.
    pub(super) name: String,
    /// The scope of a Rust function.
    pub(super) scope: String,
    pub(super) is_rust: bool,
    pub(super) parameters: Vec<SizedType>,
}

/// The function that a call leads to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Target {
    pub(super) name: String,
    /// What the result of the function points to.
    pub(super) result: Option<SizedType>,
}

/// How a constructor was recognized.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Evidence {
    /// It is called with the block.
    Called,
    /// The block's first word is set to the table of its functions.
    Vtable,
    /// It is inlined behind the call.
    Inlined,
}

/// What is known of a call and of the functions around it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Site {
    /// The functions at the call, innermost first; empty without debug information.
    pub(super) functions: Vec<Function>,
    /// The name of the function in the table of symbols.
    pub(super) symbol: String,
    /// How many calls of allocators that function has; 0 if that is not known.
    pub(super) allocator_calls: u8,
    pub(super) target: Option<Target>,
    /// The type that the compiler noted for a `new` expression.
    pub(super) noted: Option<SizedType>,
    /// The class whose constructor gets the result.
    pub(super) constructed: Option<(SizedType, Evidence)>,
    /// What the result is stored as.
    pub(super) stored: Option<SizedType>,
    /// Whether the function returns the result.
    pub(super) is_returned: bool,
}

/// One for each offset of the question.
pub(super) type TypesAnswer = Vec<Site>;

/// Whether an answer keeps to the limits.
pub(super) fn is_sound(answer: &TypesAnswer) -> bool {
    answer.iter().all(|site| {
        let of_functions = site.functions.iter().all(|function| {
            function.name.len() <= MAX_NAME
                && function.scope.len() <= MAX_NAME
                && function.parameters.len() <= MAX_PARAMETERS
                && function.parameters.iter().all(is_short)
        });
        let results = site.target.iter().filter_map(|it| it.result.as_ref());
        let constructed = site.constructed.iter().map(|(of, _)| of);
        site.functions.len() <= MAX_INLINED
            && of_functions
            && site.symbol.len() <= MAX_NAME
            && site.target.iter().all(|it| it.name.len() <= MAX_NAME)
            && results
                .chain(&site.noted)
                .chain(constructed)
                .chain(&site.stored)
                .all(is_short)
    })
}

fn is_short(of: &SizedType) -> bool {
    of.name.len() <= MAX_NAME
}
