//! The names of frames, as the kernel program has sent them. They are read while the process lives, each once.
//!
//! Part of `hotspot`.

use std::collections::HashMap;
use std::sync::Arc;

use heaptrace_common::wire::JavaFrame;

use super::machine::Machine;
use super::memory::Memory;
use super::method::Method;
use super::scopes::{Scope, scopes};

/// Most bytes of names and tables of lines that are kept for a process. Beyond, they are read anew.
const MAX_BYTES: usize = 16 << 20;

/// Most frames that are kept for a process.
const MAX_FRAMES: usize = 1 << 16;

/// Longest name of a blob.
const BLOB_NAME: usize = 64;

/// The blobs with code of a Java method: compiled from bytecode, or a bridge to a native method.
const COMPILED: &str = "nmethod";
const NATIVE: &str = "native nmethod";

/// A frame of a Java method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    method: Arc<Method>,
    /// The line; 0 if it is not known.
    pub line: u32,
}

impl Frame {
    /// The class and the name of the method.
    pub fn name(&self) -> &str {
        &self.method.name
    }

    /// The name of the source file; empty if that is not known.
    pub fn file(&self) -> &str {
        &self.method.file
    }
}

/// What a frame is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Named {
    /// Code of these methods, innermost first.
    Java(Arc<[Frame]>),
    /// Code that the virtual machine has generated for itself.
    Own,
    /// It could not be read, or is something else by now.
    Unknown,
}

/// The names of a process.
#[derive(Debug, Default)]
pub struct Names {
    frames: HashMap<JavaFrame, Named>,
    methods: HashMap<u64, Arc<Method>>,
    bytes: usize,
}

impl Names {
    /// The name of a frame.
    pub fn named<M: Memory>(&mut self, memory: &M, machine: &Machine, frame: JavaFrame) -> Named {
        if let Some(named) = self.frames.get(&frame) {
            return named.clone();
        }
        let named = self.read(memory, machine, frame).unwrap_or(Named::Unknown);
        if named != Named::Unknown {
            if self.frames.len() >= MAX_FRAMES {
                self.frames.clear();
            }
            self.frames.insert(frame, named.clone());
        }
        named
    }

    fn read<M: Memory>(
        &mut self,
        memory: &M,
        machine: &Machine,
        frame: JavaFrame,
    ) -> Option<Named> {
        let layout = &machine.layout;
        let (cookie, place) = ((frame.place >> 32) as u32, frame.place as u32);
        if frame.code == 0 {
            return None;
        }
        if frame.code & JavaFrame::BLOB == 0 {
            let constant = self.constant(memory, machine, frame.code)?;
            let method = self.method(memory, machine, constant)?;
            if (constant >> 3) as u32 != cookie {
                return None;
            }
            let line = method.line(layout, place);
            return Some(Named::Java([Frame { method, line }].into()));
        }
        let blob = frame.code & !JavaFrame::BLOB;
        let at = |offset: u16| blob.wrapping_add(offset.into());
        let name = memory.word(at(layout.blob_name))?;
        let is_native = match memory.text(name, BLOB_NAME)?.as_str() {
            COMPILED => false,
            NATIVE => true,
            _ => return Some(Named::Own),
        };
        let mut found = match is_native {
            true => Vec::new(),
            false => scopes(memory, layout, blob, place)?,
        };
        if found.is_empty() {
            found.push(Scope {
                method: memory.word(at(layout.compiled_method))?,
                position: None,
            });
        }
        let frames = found.into_iter().map(|scope| {
            let constant = self.constant(memory, machine, scope.method)?;
            let method = self.method(memory, machine, constant)?;
            let line = scope.position.map_or(0, |at| method.line(layout, at));
            Some(Frame { method, line })
        });
        let frames: Arc<[Frame]> = frames.collect::<Option<_>>()?;
        // The code may have been replaced since the stack was sent.
        (memory.half(at(layout.compile_id))? == cookie).then_some(Named::Java(frames))
    }

    /// The part of a method that never changes.
    fn constant<M: Memory>(&self, memory: &M, machine: &Machine, method: u64) -> Option<u64> {
        memory.word(method.wrapping_add(machine.layout.method_constant.into()))
    }

    fn method<M: Memory>(
        &mut self,
        memory: &M,
        machine: &Machine,
        constant: u64,
    ) -> Option<Arc<Method>> {
        if let Some(method) = self.methods.get(&constant) {
            return Some(Arc::clone(method));
        }
        let method = Arc::new(Method::read(memory, &machine.layout, constant)?);
        self.bytes += method.bytes();
        if self.bytes > MAX_BYTES {
            self.methods.clear();
            self.bytes = method.bytes();
        }
        self.methods.insert(constant, Arc::clone(&method));
        Some(method)
    }
}
