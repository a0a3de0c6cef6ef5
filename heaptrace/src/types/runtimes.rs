//! What a runtime allocates, by its own functions: CPython's objects and their storage, and the memory behind JavaScript's buffers.
//!
//! Stage: types. A function counts only if nothing but allocators lies between it and the block, so that it can't be a block of a function that it
//! calls. Must not know objects in memory.

use super::chain::{Chain, Link, Sizes};
use super::parsed::is_plain_allocator;
use super::protocol::Site;
use crate::profile::{BlockType, Way};

/// How a function of CPython gets a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Via {
    /// As plain memory, or as an object that the collector of cycles does not know.
    Memory,
    /// As an object, by a function that makes objects.
    Object,
}

/// What a function of CPython allocates.
struct Rule {
    function: &'static str,
    /// The file that it is in, for functions that other programs may have, too.
    file: &'static str,
    via: Via,
    name: &'static str,
    /// The size of an element of a container; 0 if blocks are whole objects.
    element_bytes: u64,
}

const fn rule(function: &'static str, via: Via, name: &'static str) -> Rule {
    Rule {
        function,
        file: "",
        via,
        name,
        element_bytes: 0,
    }
}

const fn within(file: &'static str, rule: Rule) -> Rule {
    Rule { file, ..rule }
}

/// The references of a container.
const fn items(element_bytes: u64, rule: Rule) -> Rule {
    Rule {
        element_bytes,
        ..rule
    }
}

/// Functions of CPython 3.8 to 3.13, each of which allocates one kind of block. Functions that make objects of derived classes, too, are not here:
/// `dict_new` makes instances of `OrderedDict`.
const RULES: [Rule; 34] = [
    rule("PyUnicode_New", Via::Memory, "str"),
    rule("PyUnicode_Concat", Via::Memory, "str"),
    rule("_PyBytes_FromSize", Via::Memory, "bytes"),
    rule("PyBytes_FromStringAndSize", Via::Memory, "bytes"),
    rule("PyBytes_FromString", Via::Memory, "bytes"),
    rule("_PyBytes_Resize", Via::Memory, "bytes"),
    within("bytesobject.c", rule("bytes_repeat", Via::Memory, "bytes")),
    rule("PyByteArray_Resize", Via::Memory, "bytearray (bytes)"),
    rule("_PyLong_New", Via::Memory, "int"),
    rule("PyFloat_FromDouble", Via::Memory, "float"),
    items(8, rule("PyList_Append", Via::Memory, LIST_ITEMS)),
    items(
        8,
        rule("_PyList_AppendTakeRefListResize", Via::Memory, LIST_ITEMS),
    ),
    items(8, rule("PyList_New", Via::Memory, LIST_ITEMS)),
    rule("PyList_New", Via::Object, "list"),
    items(
        8,
        within("listobject.c", rule("list_resize", Via::Memory, LIST_ITEMS)),
    ),
    items(
        8,
        within(
            "listobject.c",
            rule("list_new_prealloc", Via::Memory, LIST_ITEMS),
        ),
    ),
    rule("PyTuple_New", Via::Object, "tuple"),
    within("tupleobject.c", rule("tuple_alloc", Via::Object, "tuple")),
    rule("PyTuple_Pack", Via::Object, "tuple"),
    rule("_PyTuple_FromArray", Via::Object, "tuple"),
    rule("_PyTuple_FromArraySteal", Via::Object, "tuple"),
    within(
        "dictobject.c",
        rule("new_keys_object", Via::Memory, "dict (keys)"),
    ),
    within(
        "dictobject.c",
        rule("clone_combined_dict_keys", Via::Memory, "dict (keys)"),
    ),
    within("dictobject.c", rule("new_dict", Via::Object, "dict")),
    items(
        16,
        within(
            "setobject.c",
            rule("set_table_resize", Via::Memory, "set or frozenset (table)"),
        ),
    ),
    rule("_PyCode_New", Via::Object, "code"),
    rule("PyFunction_New", Via::Object, "function"),
    rule("PyFunction_NewWithQualName", Via::Object, "function"),
    rule("_PyFunction_FromConstructor", Via::Object, "function"),
    rule("PyCell_New", Via::Object, "cell"),
    rule("PyMethod_New", Via::Object, "method"),
    within(
        "arraymodule.c",
        rule("array_resize", Via::Memory, "array.array (items)"),
    ),
    within(
        "arraymodule.c",
        rule("newarrayobject", Via::Memory, "array.array (items)"),
    ),
    within(
        "_collectionsmodule.c",
        rule("newblock", Via::Memory, "collections.deque (block)"),
    ),
];

const LIST_ITEMS: &str = "list (items)";

/// The type of the blocks of a stack, if a runtime allocates them for something that it has a name for.
pub(super) fn decide(chain: &Chain, sizes: &Sizes) -> Option<BlockType> {
    python(chain, sizes).or_else(|| javascript(chain))
}

fn python(chain: &Chain, sizes: &Sizes) -> Option<BlockType> {
    let mut via = Via::Memory;
    let mut has_python = false;
    for link in &chain.links {
        let name = plain(&link.name);
        if let Some(kind) = python_allocator(name) {
            has_python = true;
            if kind == Via::Object {
                via = Via::Object;
            }
        } else if !is_plain_allocator(name) {
            let mut rules = RULES.iter();
            let found = rules.find(|it| it.function == name && it.via == via)?;
            let is_its = match (found.file, link.file.as_str()) {
                ("", _) => true,
                (_, "") => has_python,
                (own, file) => file.rsplit('/').next() == Some(own),
            };
            // What left the stack by a tail call returns the block as it is, and makes no object of it.
            let is_known = is_its && !link.is_tail && is_called_directly(chain, link);
            return is_known.then(|| of_python(found, sizes))?;
        }
    }
    None
}

/// Whether no function without a name lies between a function and the allocator: it could have left the stack by a tail call.
fn is_called_directly(chain: &Chain, function: &Link) -> bool {
    let is_direct = |(call, site): (usize, &Site)| {
        let target = site.target.as_ref().map_or("", |it| it.name.as_str());
        let target = plain(target);
        if target.is_empty() {
            // Allocators of Python call others by pointers. Inlined functions have names.
            let is_inner = call < function.call;
            return !function.is_symbol
                || is_inner && python_allocator(plain(&site.symbol)).is_some();
        }
        let below = call.checked_sub(1).and_then(|it| chain.sites.get(it));
        is_plain_allocator(target)
            || python_allocator(target).is_some()
            || below.is_some_and(|it| plain(&it.symbol) == target)
    };
    let mut calls = chain.sites.iter().enumerate().take(function.call + 1);
    calls.all(is_direct)
}

fn of_python(rule: &Rule, sizes: &Sizes) -> Option<BlockType> {
    let is_container = rule.element_bytes > 0;
    if is_container && !sizes.may_be_several(0, rule.element_bytes) {
        return None;
    }
    let element = match is_container {
        true => "object",
        false => rule.name,
    };
    Some(BlockType {
        name: rule.name.to_owned(),
        element: element.to_owned(),
        element_bytes: rule.element_bytes,
        header_bytes: 0,
        is_capacity: is_container,
        way: Way::Runtime,
    })
}

/// What CPython's own allocating functions return.
fn python_allocator(name: &str) -> Option<Via> {
    match name {
        "PyMem_Malloc"
        | "PyMem_Calloc"
        | "PyMem_Realloc"
        | "PyMem_RawMalloc"
        | "PyMem_RawCalloc"
        | "PyMem_RawRealloc"
        | "_PyMem_RawMalloc"
        | "_PyMem_RawCalloc"
        | "_PyMem_RawRealloc"
        | "PyObject_Malloc"
        | "PyObject_Calloc"
        | "PyObject_Realloc"
        | "_PyObject_Malloc"
        | "_PyObject_Calloc"
        | "_PyObject_Realloc"
        | "_PyObject_MallocWithType"
        | "_PyObject_ReallocWithType"
        | "pymalloc_realloc" => Some(Via::Memory),
        "_PyObject_New"
        | "_PyObject_NewVar"
        | "_PyObject_GC_New"
        | "_PyObject_GC_NewVar"
        | "_PyObject_GC_Alloc"
        | "_PyObject_GC_Malloc"
        | "gc_alloc" => Some(Via::Object),
        _ => None,
    }
}

/// The name of a function without what compilers add to parts of it: `list_resize.part.0`.
fn plain(name: &str) -> &str {
    let end = name.find(['.', '@', ' ']).filter(|at| *at > 0);
    end.map_or(name, |end| name.get(..end).unwrap_or(name))
}

/// The memory of buffers, which Node.js allocates outside of V8's heap.
fn javascript(chain: &Chain) -> Option<BlockType> {
    let name = |link: &Link| without_parameters(&link.name).to_owned();
    let is_allocator = |name: &str| is_plain_allocator(name) || name.starts_with("node::Unchecked");
    let at = chain.links.iter().position(|it| !is_allocator(&name(it)))?;
    let outwards = chain.links.get(at..)?;
    let is_buffer = outwards.first().is_some_and(|it| {
        matches!(
            name(it).as_str(),
            "node::NodeArrayBufferAllocator::Allocate"
                | "node::NodeArrayBufferAllocator::AllocateUninitialized"
                | "node::NodeArrayBufferAllocator::Reallocate"
        )
    });
    if !is_buffer {
        return None;
    }
    // The constructor of both is one function.
    let is_unshared = outwards.iter().any(|it| {
        let name = name(it);
        name.starts_with("v8::ArrayBuffer::New")
            || name.starts_with("node::Buffer::")
            || name == "Builtins_CreateTypedArray"
    });
    let of = match is_unshared {
        true => "ArrayBuffer (bytes)",
        false => "ArrayBuffer or SharedArrayBuffer (bytes)",
    };
    Some(BlockType {
        name: of.to_owned(),
        element: "byte".to_owned(),
        element_bytes: 1,
        header_bytes: 0,
        is_capacity: true,
        way: Way::Runtime,
    })
}

fn without_parameters(name: &str) -> &str {
    let end = name.find('(').filter(|at| *at > 0);
    end.map_or(name, |end| name.get(..end).unwrap_or(name))
}
