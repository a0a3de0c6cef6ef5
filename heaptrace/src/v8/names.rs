//! Reads what a function of JavaScript is: its name, its script and its lines.
//!
//! Part of `v8`. The memory is untrusted. Must not know frames.

use heaptrace_common::wire::{V8_MAP, V8Frame, v8_cookie};

use super::heap::{Heap, Memory, small_number};
use super::layouts::{Layout, ScopeForm};
use super::lines::Lines;

/// Longest name of a function or a script, in characters.
const MAX_NAME: usize = 1 << 10;

/// Longest source of a script, in characters.
const MAX_SOURCE: usize = 16 << 20;

/// The name of a function that has none, as debuggers show it.
const ANONYMOUS: &str = "(anonymous)";

/// What is behind the pointer to what functions share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A function of V8's own, which is machine code and has a name of its own there.
    BuiltIn,
    /// A function of a script.
    Named(Named),
}

/// A function of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its name; raw.
    pub name: String,
    /// Where it begins in the source, in characters, if that is known.
    pub start: Option<u32>,
    /// Its script.
    pub script: Script,
}

/// A script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// Its path or its URL; raw, empty if it has none.
    pub name: String,
    /// The pointer to it.
    pub object: u64,
    /// The pointer to its source.
    pub source: u64,
    /// The number of lines before its first one.
    pub before: u32,
}

/// Reads the map, the name and the script of what functions share, as a cookie.
pub(super) fn cookie<M: Memory>(heap: &Heap<'_, M>, layout: &Layout, shared: u64) -> Option<u16> {
    Some(v8_cookie(
        heap.field(shared, V8_MAP)?,
        heap.field(shared, layout.kernel.shared_name.into())?,
        heap.field(shared, layout.kernel.shared_script.into())?,
    ))
}

/// The cookie of what is at a pointer now.
#[cfg(any(test, feature = "fuzz"))]
pub(super) fn cookie_of<M: Memory>(memory: &M, layout: &Layout, shared: u64) -> Option<u16> {
    cookie(&Heap::new(memory), layout, shared)
}

/// The word that names what functions share, as frames have it; `None` if the object is none.
pub(super) fn identity<M: Memory>(heap: &Heap<'_, M>, layout: &Layout, shared: u64) -> Option<u64> {
    let is_shared = heap.type_of(shared)? == layout.kernel.shared_type;
    let cookie = cookie(heap, layout, shared).filter(|_| is_shared)?;
    Some(shared | u64::from(cookie) << V8Frame::COOKIE)
}

/// The pointer in a word with a cookie, and the cookie.
pub const fn shared(word: u64) -> (u64, u16) {
    (word << 16 >> 16, (word >> 48) as u16)
}

/// Reads a function by the pointer to what functions of its source share, and its cookie. `None` if another object is there by now.
pub fn function<M: Memory>(
    memory: &M,
    layout: &Layout,
    shared: u64,
    expected: u16,
) -> Option<Found> {
    let heap = Heap::new(memory);
    let is_same = || cookie(&heap, layout, shared) == Some(expected);
    if heap.type_of(shared)? != layout.kernel.shared_type || !is_same() {
        return None;
    }
    let script = heap.field(shared, layout.kernel.shared_script.into())?;
    if heap.type_of(script)? != layout.script_type {
        return Some(Found::BuiltIn);
    }
    let named = heap.field(shared, layout.kernel.shared_name.into())?;
    let (name, start) = if small_number(named).is_some() {
        (None, None)
    } else if heap.is_string(named) {
        (Some(heap.name(named, MAX_NAME)?), None)
    } else if heap.type_of(named)? == layout.scope_type {
        scope(&heap, layout.scope, named)?
    } else {
        (None, None)
    };
    let name = name.filter(|name| !name.is_empty());
    let found = Named {
        name: name.unwrap_or_else(|| ANONYMOUS.to_owned()),
        start,
        script: Script {
            name: script_name(&heap, script)?,
            object: script,
            source: heap.field(script, SCRIPT_SOURCE)?,
            before: heap
                .number(script, SCRIPT_LINE)
                .and_then(|line| line.try_into().ok())
                .unwrap_or(0),
        },
    };
    // The collector may have moved something else there meanwhile.
    is_same().then_some(Found::Named(found))
}

/// Of a script: its source.
const SCRIPT_SOURCE: u64 = 8;

/// Of a script: its name.
const SCRIPT_NAME: u64 = 16;

/// Of a script: the number of its first line.
const SCRIPT_LINE: u64 = 24;

/// The path of a script, empty if it has none. Modules have URLs: that of a file becomes its path.
fn script_name<M: Memory>(heap: &Heap<'_, M>, script: u64) -> Option<String> {
    let name = heap.field(script, SCRIPT_NAME)?;
    heap.type_of(name)?;
    if !heap.is_string(name) {
        return Some(String::new());
    }
    let name = heap.name(name, MAX_NAME)?;
    Some(match name.strip_prefix("file://") {
        Some(path) => unescaped(path),
        None => name,
    })
}

/// A path of a URL as it is in the file system.
fn unescaped(path: &str) -> String {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.first_chunk::<2>().filter(|_| *first == b'%');
        let code = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let code = code.and_then(|code| u8::from_str_radix(code, 16).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Of the description of a scope: where its parts are, in words.
mod slot {
    pub(super) const FLAGS: u64 = 1;
    pub(super) const LOCALS: u64 = 3;
    pub(super) const AFTER_COUNTS: u64 = 4;
    /// From so many names on, they are in a table.
    pub(super) const MOST_INSIDE: u64 = 75;
    /// Most names in the description itself.
    pub(super) const MOST_LOCALS: u64 = 1 << 16;
}

/// Bits that tell which parts the description of a scope has.
mod flags {
    pub(super) const SAVED_CLASS_VARIABLE: u32 = 1 << 10;
    pub(super) const FUNCTION_VARIABLE: u32 = 3 << 12;
    pub(super) const INFERRED_NAME: u32 = 1 << 14;
}

/// The name of the function that a scope is of, and its beginning.
fn scope<M: Memory>(
    heap: &Heap<'_, M>,
    form: ScopeForm,
    object: u64,
) -> Option<(Option<String>, Option<u32>)> {
    let field = |at: u64| heap.field(object, 8 * at);
    let flags = field(slot::FLAGS)?;
    let flags = if form == ScopeForm::Recent {
        flags as u32
    } else {
        (flags >> 32) as u32
    };
    let locals = u64::try_from(heap.number(object, 8 * slot::LOCALS)?).ok()?;
    let mut at = slot::AFTER_COUNTS;
    let mut start = None;
    if form == ScopeForm::Recent {
        start = heap.number(object, 8 * at);
        at += 2;
    }
    let has_table = form != ScopeForm::Plain && locals >= slot::MOST_INSIDE;
    let names = if has_table { 1 } else { locals };
    if locals > slot::MOST_LOCALS {
        return None;
    }
    at += names + locals;
    at += u64::from(flags & flags::SAVED_CLASS_VARIABLE != 0);
    let text = |at: u64| {
        let name = heap.name(field(at)?, MAX_NAME)?;
        (!name.is_empty()).then_some(name)
    };
    // V8 9.4 has one more number there for a class, without a flag that tells it.
    let is_number = |at: u64| field(at).is_some_and(|it| small_number(it).is_some());
    if is_number(at) && field(at + 1).is_some_and(|it| heap.is_string(it)) {
        at += 1;
    }
    let mut name = None;
    if flags & flags::FUNCTION_VARIABLE != 0 {
        name = text(at);
        at += 2;
    }
    if flags & flags::INFERRED_NAME != 0 {
        name = name.or_else(|| text(at));
        at += 1;
    }
    if form != ScopeForm::Recent {
        start = heap.number(object, 8 * at);
    }
    let start = start.and_then(|start| start.try_into().ok());
    Some((name, start))
}

/// The lines of a script. `None` if its source can't be read.
pub fn lines_of<M: Memory>(memory: &M, script: &Script) -> Option<Lines> {
    let heap = Heap::new(memory);
    if heap.length(script.source)? > MAX_SOURCE {
        return None;
    }
    Some(Lines::of(&heap.text(script.source, MAX_SOURCE)?))
}
