//! Finds where in its source a frame is, and which functions the optimiser has put into its code.
//!
//! Part of `v8`. The memory is untrusted. Must not know names.

use heaptrace_common::wire::{V8Frame, is_v8_object};

use super::bytecodes::compiled_from;
use super::heap::{Heap, Memory};
use super::layouts::{CodeLayout, Layout};
use super::names::{identity, shared};
use super::positions::{Position, position};

/// Longest table of positions, and longest bytecode.
const MAX_BYTES: usize = 64 << 10;

/// Most functions that are put into one another.
const MAX_INLINED: usize = 64;

/// Of an array: where its length and its first element are.
const LENGTH: u64 = 8;
const ELEMENTS: u64 = 16;

/// Of the object that holds instructions: the pointer to their description. Of the object that holds a function for the optimiser: the
/// function.
const HELD: u64 = 8;

/// Instructions of a function begin at a multiple of this.
const ALIGNMENT: u64 = 32;

/// Bytes that are searched at once for the beginning of instructions, and how often.
const SEARCHED: usize = 4 << 10;
const SEARCHES: u64 = 16;

/// Bytes of an entry of the table that says where functions were put: a position, the number of the function, and nothing.
const INLINING_BYTES: usize = 16;

/// A function at work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// The word that names what functions of its source share, as frames have it.
    pub shared: u64,
    /// The position in the source, in characters, if it is known.
    pub position: Option<u32>,
}

/// The functions of a frame, innermost first: the last one is its own, and the others were put into it.
pub fn places<M: Memory>(memory: &M, layout: &Layout, frame: &V8Frame) -> Vec<At> {
    let heap = Heap::new(memory);
    let own = |position| At {
        shared: frame.shared,
        position,
    };
    let code = frame.code & !V8Frame::IS_COMPILED;
    if frame.code & V8Frame::IS_COMPILED == 0 {
        let offset = frame.place.checked_sub(layout.bytecode_first.into());
        return vec![own(
            offset.and_then(|offset| in_bytecode(&heap, layout, code, offset))
        )];
    }
    // The function may have got other code while this frame runs.
    let found = code_offset(&heap, &layout.code, code, frame.place)
        .map(|offset| (code, offset))
        .or_else(|| code_at(&heap, &layout.code, frame.place))
        .and_then(|(code, offset)| in_code(&heap, layout, code, offset, frame));
    found.unwrap_or_else(|| vec![own(None)])
}

/// The position of an offset in bytecode.
fn in_bytecode<M: Memory>(
    heap: &Heap<'_, M>,
    layout: &Layout,
    bytecode: u64,
    offset: u64,
) -> Option<u32> {
    if heap.type_of(bytecode)? != layout.kernel.bytecode_type {
        return None;
    }
    let table = heap.field(bytecode, layout.bytecode_positions.into())?;
    Some(position(&heap.bytes(table, MAX_BYTES)?, offset)?.at)
}

/// The offset of a return address in the code with this description; `None` if it is in other code.
fn code_offset<M: Memory>(
    heap: &Heap<'_, M>,
    layout: &CodeLayout,
    code: u64,
    address: u64,
) -> Option<u64> {
    if heap.type_of(code)? != layout.code_type {
        return None;
    }
    // The description has the address where the instructions are in an object of their own.
    const START: u64 = 40;
    let start = if layout.code_type == layout.holder_type {
        (code - 1).checked_add(layout.first.into())?
    } else {
        heap.field(code, START)?
    };
    let offset = address.checked_sub(start)?;
    let size = heap.field(code, layout.size.into())? as u32;
    (offset > 0 && offset <= size.into()).then_some(offset)
}

/// The description of the code that a return address is in, and the offset in it: the object that holds instructions begins some bytes
/// before the first one.
fn code_at<M: Memory>(heap: &Heap<'_, M>, layout: &CodeLayout, address: u64) -> Option<(u64, u64)> {
    let end = (address.checked_sub(1)? / ALIGNMENT * ALIGNMENT).checked_add(ALIGNMENT)?;
    let first = u64::from(layout.first);
    for search in 1..=SEARCHES {
        let from = end
            .checked_sub(search * SEARCHED as u64)?
            .checked_sub(first)?;
        let bytes = heap.range(from, SEARCHED)?;
        for (index, piece) in bytes.chunks(ALIGNMENT as usize).enumerate().rev() {
            let word = piece.first_chunk::<8>().copied().map(u64::from_le_bytes);
            let holder = from + index as u64 * ALIGNMENT + 1;
            if !word.is_some_and(is_v8_object) || heap.type_of(holder) != Some(layout.holder_type) {
                continue;
            }
            let code = if layout.code_type == layout.holder_type {
                holder
            } else {
                heap.field(holder, HELD)?
            };
            let offset = code_offset(heap, layout, code, address)?;
            return Some((code, offset));
        }
    }
    None
}

/// The functions of a frame whose code was compiled.
fn in_code<M: Memory>(
    heap: &Heap<'_, M>,
    layout: &Layout,
    code: u64,
    offset: u64,
    frame: &V8Frame,
) -> Option<Vec<At>> {
    let origin = heap.field(code, layout.code.origin.into())?;
    let table = heap.field(code, layout.code.positions.into())?;
    let table = heap.bytes(table, MAX_BYTES)?;
    const KIND: u32 = 15;
    let flags = heap.field(code, layout.code.flags.into())? as u32;
    if flags & KIND == layout.code.unoptimised {
        let (object, _) = shared(frame.shared);
        let bytecode = bytecode_of(heap, layout, origin, object)?;
        let length = usize::try_from(heap.number(bytecode, LENGTH)?).ok()?;
        let first = bytecode.checked_add(layout.bytecode_first.into())?;
        let bytes = heap.range(first, length.min(MAX_BYTES))?;
        let offset = compiled_from(&layout.lengths, &bytes, &table, offset)?;
        return Some(vec![At {
            shared: frame.shared,
            position: in_bytecode(heap, layout, bytecode, offset.into()),
        }]);
    }
    // The call is before its return address.
    let innermost = position(&table, offset - 1)?;
    inlined(heap, layout, origin, frame.shared, innermost)
}

/// The bytecode from which code was compiled line by line: the description of the code has it, or, before V8 10, what functions share.
fn bytecode_of<M: Memory>(
    heap: &Heap<'_, M>,
    layout: &Layout,
    origin: u64,
    shared: u64,
) -> Option<u64> {
    const DATA: u64 = 8;
    let data = heap.field(shared, DATA).unwrap_or(0);
    let of_data = |at: u64| heap.field(data, at).unwrap_or(0);
    let candidates = [origin, data, of_data(8), of_data(16)];
    let mut candidates = candidates.into_iter();
    candidates.find(|it| heap.type_of(*it) == Some(layout.kernel.bytecode_type))
}

/// The functions that the optimiser has put around a position, from its data.
fn inlined<M: Memory>(
    heap: &Heap<'_, M>,
    layout: &Layout,
    data: u64,
    own: u64,
    innermost: Position,
) -> Option<Vec<At>> {
    let element = |array: u64, index: u64| {
        let length = u64::try_from(heap.number(array, LENGTH)?).ok()?;
        (index < length).then(|| heap.field(array, ELEMENTS + 8 * index))?
    };
    let mut places = Vec::new();
    let mut here = innermost;
    while let Some(inlining) = here.inlining {
        if places.len() >= MAX_INLINED {
            return None;
        }
        let table = heap.bytes(element(data, layout.code.inlinings.into())?, MAX_BYTES)?;
        let entries = table.as_chunks::<INLINING_BYTES>().0;
        let entry = u128::from_le_bytes(*entries.get(inlining as usize)?);
        let function = (entry >> 64) as u32;
        let functions = element(data, layout.code.functions.into())?;
        // The reference may be one that does not keep the function alive.
        let function = element(functions, function.into())? & !2;
        let held = || identity(heap, layout, heap.field(function, HELD)?);
        places.push(At {
            shared: identity(heap, layout, function).or_else(held)?,
            position: Some(here.at),
        });
        here = Position::unpack(entry as u64 as i64)?;
    }
    places.push(At {
        shared: own,
        position: Some(here.at),
    });
    Some(places)
}
