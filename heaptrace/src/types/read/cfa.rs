//! The base of the stack frame at an address, by the unwind information.
//!
//! Stage: types. Runs in a reader. Reads one row at a time, by the search table. Must not know variables.

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EhFrameOffset, LittleEndian, ParsedEhFrameHdr,
    UnwindContext, UnwindSection as _,
};
use object::{Object as _, ObjectSection as _};

use super::units::Slice;

/// The unwind information of a file.
pub(super) struct Frames<'d> {
    frames: EhFrame<Slice<'d>>,
    header: ParsedEhFrameHdr<Slice<'d>>,
    bases: BaseAddresses,
}

impl<'d> Frames<'d> {
    /// That of a file; `None` if it has no search table.
    pub(super) fn of(bytes: &'d [u8]) -> Option<Self> {
        let file = object::File::parse(bytes).ok()?;
        let section = |name| {
            let section = file.section_by_name(name)?;
            Some((section.address(), section.data().ok()?))
        };
        let (at_frames, frames) = section(".eh_frame")?;
        let (at_header, header) = section(".eh_frame_hdr")?;
        let text = section(".text").map_or(0, |(address, _)| address);
        let bases = BaseAddresses::default()
            .set_eh_frame(at_frames)
            .set_eh_frame_hdr(at_header)
            .set_text(text);
        let header = EhFrameHdr::new(header, LittleEndian)
            .parse(&bases, 8)
            .ok()?;
        Some(Self {
            frames: EhFrame::new(frames, LittleEndian),
            header,
            bases,
        })
    }

    /// The register and the offset that make the base of the frame.
    pub(super) fn base(&self, address: u64) -> Option<(u16, i64)> {
        let found = self.header.table()?.lookup(address, &self.bases).ok()?;
        let begin = self.header.eh_frame_ptr().direct().ok()?;
        // A table can lie.
        let offset = found.direct().ok()?.checked_sub(begin)?;
        let offset = EhFrameOffset(usize::try_from(offset).ok()?);
        let (frames, bases) = (&self.frames, &self.bases);
        let entry = frames.fde_from_offset(bases, offset, EhFrame::cie_from_offset);
        let entry = entry.ok().filter(|it| it.contains(address))?;
        let mut context = UnwindContext::new();
        let row = entry
            .unwind_info_for_address(frames, bases, &mut context, address)
            .ok()?;
        match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => Some((register.0, *offset)),
            CfaRule::Expression(_) => None,
        }
    }
}
