//! A virtual machine in a process: where its code is, for the walk, and how to find the names of that code.
//!
//! Part of `hotspot`.

use heaptrace_common::limits::CODE_HEAPS;
use heaptrace_common::wire::{CodeHeap, CodeRange, Jvm, JvmLayout, jvm};

use super::image::Image;
use super::layout::{Layout, MEMBERS, SIZES};
use super::memory::Memory;
use super::structs::Structs;

/// A virtual machine.
#[derive(Clone, Debug)]
pub struct Machine {
    /// What the kernel program must know.
    pub jvm: Jvm,
    pub(super) layout: Layout,
}

/// Why a virtual machine could not be described.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotDescribed {
    /// It is about to start: its code cache or its interpreter is not there.
    Yet,
    /// Its version is not known.
    Unknown,
}

/// Describes the virtual machine of a process, whose file is mapped at an address.
pub fn describe<M: Memory>(memory: &M, image: Image, base: u64) -> Result<Machine, NotDescribed> {
    let list = |pointer: u64| memory.word(base.wrapping_add(pointer));
    let (Some(structs), Some(types)) = (list(image.structs), list(image.types)) else {
        return Err(NotDescribed::Yet);
    };
    let structs = Structs::read(memory, structs, types, MEMBERS, SIZES);
    let layout = Layout::new(memory, &structs).ok_or(NotDescribed::Unknown)?;
    let interpreter = interpreter(memory, &structs).ok_or(NotDescribed::Unknown)??;
    let heaps = heaps(memory, &structs).ok_or(NotDescribed::Unknown)??;
    Ok(Machine {
        jvm: Jvm {
            state: jvm::READY,
            pad: 0,
            interpreter,
            heaps,
            archive: archive(memory, &structs).unwrap_or_default(),
            layout: JvmLayout {
                block_head: layout.block_head,
                blob_frame_size: layout.blob_frame_size,
                blob_size: layout.blob_size,
                blob_compile_id: layout.compile_id,
                method_constant: layout.method_constant,
                constant_bytes: layout.constant_bytes,
                frame_instruction: layout.frame_instruction,
                pad: 0,
            },
        },
        layout,
    })
}

/// What is there or not yet; `None` if it is not known where to look.
type Found<T> = Option<Result<T, NotDescribed>>;

fn interpreter<M: Memory>(memory: &M, structs: &Structs) -> Found<CodeRange> {
    let code = structs.address("AbstractInterpreter", "_code")?;
    let buffer = structs.offset("StubQueue", "_stub_buffer")?;
    let limit = structs.offset("StubQueue", "_buffer_limit")?;
    let read = || {
        let queue = memory.word(code).filter(|queue| *queue != 0)?;
        let start = memory.word(queue.wrapping_add(buffer.into()))?;
        let bytes = memory.half(queue.wrapping_add(limit.into()))?;
        Some(CodeRange {
            start,
            end: start.checked_add(bytes.into())?,
        })
    };
    Some(read().ok_or(NotDescribed::Yet))
}

/// The archive of classes, which is mapped before the first class is loaded.
fn archive<M: Memory>(memory: &M, structs: &Structs) -> Option<CodeRange> {
    let word = |member| memory.word(structs.address("MetaspaceObj", member)?);
    let (start, end) = (
        word("_shared_metaspace_base")?,
        word("_shared_metaspace_top")?,
    );
    (start < end).then_some(CodeRange { start, end })
}

fn heaps<M: Memory>(memory: &M, structs: &Structs) -> Found<[CodeHeap; CODE_HEAPS]> {
    let list = HeapList::find(structs)?;
    let space = structs.offset("CodeHeap", "_memory")?;
    let segments = structs.offset("CodeHeap", "_segmap")?;
    let shift = structs.offset("CodeHeap", "_log2_segment_size")?;
    let low = structs.offset("VirtualSpace", "_low_boundary")?;
    let high = structs.offset("VirtualSpace", "_high_boundary")?;
    let first = structs.offset("VirtualSpace", "_low")?;
    let heap = |heap: u64| {
        let space = heap.wrapping_add(space.into());
        let segments = heap.wrapping_add(segments.into());
        let found = CodeHeap {
            start: memory.word(space.wrapping_add(low.into()))?,
            end: memory.word(space.wrapping_add(high.into()))?,
            segments: memory.word(segments.wrapping_add(first.into()))?,
            shift: memory.half(heap.wrapping_add(shift.into()))?.into(),
        };
        (found.start < found.end && found.shift < 32).then_some(found)
    };
    let read = || {
        let mut heaps = [CodeHeap::default(); CODE_HEAPS];
        for (address, found) in list.read(memory)?.into_iter().zip(&mut heaps) {
            *found = heap(address)?;
        }
        Some(heaps)
    };
    Some(read().ok_or(NotDescribed::Yet))
}

/// Where the parts of the code cache are listed.
enum HeapList {
    /// In a growing array, with the offsets of its length and its elements.
    Several { list: u64, count: u16, data: u16 },
    /// There is one part, up to Java 8.
    One(u64),
}

impl HeapList {
    fn find(structs: &Structs) -> Option<Self> {
        if let Some(one) = structs.address("CodeCache", "_heap") {
            return Some(Self::One(one));
        }
        let count = structs
            .offset("GrowableArrayBase", "_len")
            .or_else(|| structs.offset("GenericGrowableArray", "_len"))?;
        Some(Self::Several {
            list: structs.address("CodeCache", "_heaps")?,
            count,
            data: structs.offset("GrowableArray<int>", "_data")?,
        })
    }

    /// The addresses of the parts; `None` if they are not there yet.
    fn read<M: Memory>(&self, memory: &M) -> Option<Vec<u64>> {
        let pointer = |address: u64| memory.word(address).filter(|it| *it != 0);
        match *self {
            Self::One(heap) => Some(vec![pointer(heap)?]),
            Self::Several { list, count, data } => {
                let list = pointer(list)?;
                let count = memory.half(list.wrapping_add(count.into()))? as usize;
                let data = memory.word(list.wrapping_add(data.into()))?;
                if count == 0 || count > CODE_HEAPS {
                    return None;
                }
                let heaps = (0..count as u64).map(|index| pointer(data.wrapping_add(index * 8)));
                heaps.collect()
            }
        }
    }
}
