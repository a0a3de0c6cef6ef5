//! framehop, an independent unwinder, as a second opinion on every step and walk.

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{
    Error, ExplicitModuleSectionInfo, FrameAddress, MayAllocateDuringUnwind, Module, Unwinder as _,
};
use heaptrace_common::unwind::{Memory, Registers};
use object::{Object as _, ObjectSection as _};

/// framehop with the loaded files.
pub(crate) struct Peer {
    unwinder: UnwinderX86_64<Vec<u8>, MayAllocateDuringUnwind>,
    cache: CacheX86_64<MayAllocateDuringUnwind>,
}

/// framehop's result for a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opinion {
    /// There is no caller.
    Outermost,
    /// The caller's registers.
    Caller(Registers),
    /// framehop can't find the caller.
    None(Error),
}

impl Peer {
    /// Without any files.
    pub(crate) fn new() -> Self {
        Self {
            unwinder: UnwinderX86_64::new(),
            cache: CacheX86_64::new(),
        }
    }

    /// Adds a file that is mapped at addresses `bias` above its own. framehop gets no code: it would guess from that, and
    /// here only the unwind information counts.
    pub(crate) fn add(&mut self, file: &object::File<'_>, bias: u64, (start, end): (u64, u64)) {
        let section = |name| {
            let section = file.section_by_name(name)?;
            let range = section.address()..section.address() + section.size();
            Some((range, section.data().ok()?.to_vec()))
        };
        let (eh_frame_svma, eh_frame) = section(".eh_frame").unzip();
        let (eh_frame_hdr_svma, eh_frame_hdr) = section(".eh_frame_hdr").unzip();
        let sections = ExplicitModuleSectionInfo {
            base_svma: 0,
            text_svma: section(".text").map(|text| text.0),
            got_svma: section(".got").map(|got| got.0),
            eh_frame_svma,
            eh_frame,
            eh_frame_hdr_svma,
            eh_frame_hdr,
            ..ExplicitModuleSectionInfo::default()
        };
        let module = Module::new(String::new(), start..end, bias, sections);
        self.unwinder.add_module(module);
    }

    /// Goes from a frame to its caller. If `exact`, the frame's address is that of the next instruction to run, and not
    /// that after a call.
    pub(crate) fn step(
        &mut self,
        from: Registers,
        exact: bool,
        memory: &mut impl Memory,
    ) -> Opinion {
        let mut registers = UnwindRegsX86_64::new(from.ip, from.sp, from.bp);
        let address = if exact {
            FrameAddress::from_instruction_pointer(from.ip)
        } else {
            match FrameAddress::from_return_address(from.ip) {
                Some(address) => address,
                None => return Opinion::Outermost,
            }
        };
        let mut read = |address| memory.read(address).ok_or(());
        let stepped =
            self.unwinder
                .unwind_frame(address, &mut registers, &mut self.cache, &mut read);
        match stepped {
            Ok(Some(ip)) => Opinion::Caller(Registers {
                ip,
                sp: registers.sp(),
                bp: registers.bp(),
            }),
            Ok(None) => Opinion::Outermost,
            Err(error) => Opinion::None(error),
        }
    }
}
