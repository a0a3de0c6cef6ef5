//! Names from debug information that is in several files.
//!
//! Stage: symbolize. Runs in a reader. With split DWARF, the program's own DWARF has the lines of a unit; its functions are in a file of its
//! own (`.dwo`), or in a package of them (`.dwp`). A reader can't open these: it says which it needs, the tracer passes them, and each
//! is used only if it has the unit's id. With dwz, a debug file shares entries with others, in a supplementary file. blazesym knows no `.dwo`
//! files, and does not read names in supplementary files, so addr2line looks up the names of these programs. Must not know where the files are.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::sync::Arc;

use addr2line::{Context, Frame, SplitDwarfLoad};
use gimli::{Dwarf, DwarfFileType, DwarfPackage, DwoId, Reader as _, SectionId, UnitType};

use super::demangle::{MAX_NAME, demangle, is_mangled};
use super::image::{Image, Section, empty};
use super::panics::catch_panic;
use super::protocol::{FoundFrame, MAX_INLINED, MAX_PATH, MAX_WANTED, UnitsAnswer, WantedUnit};
use crate::open::Identity;

/// Most bytes of a program's files that are mapped or decompressed.
pub(super) const MAX_HELD: u64 = 1 << 30;

/// Most programs that are kept.
const MAX_PROGRAMS: usize = 64;

/// Most units of a program, and most types of its packages, that are handed out for more than names.
const MAX_PASSED: usize = 1 << 14;

/// What was passed of a program's debug information.
#[derive(Debug, Default)]
pub(crate) struct Passed {
    /// The units, by their ids.
    pub(crate) units: Vec<(DwoId, Arc<Dwarf<Section>>)>,
    /// What has units of types beside these.
    pub(crate) types: Vec<Arc<Dwarf<Section>>>,
}

/// The programs that a reader was asked about; `None` for one whose debug information is in one file.
#[derive(Default)]
pub(super) struct Programs(HashMap<Identity, Option<Box<Program>>>);

impl Programs {
    /// Does something with the program of a file; `None` if its debug information is in one file.
    pub(super) fn with<T>(
        &mut self,
        file: &File,
        shared: Option<&File>,
        act: impl FnOnce(&mut Program) -> T,
    ) -> Option<T> {
        let identity = Identity::of(file).ok()?;
        let open = || {
            let opened = catch_panic(|| Program::of(file, shared));
            opened.flatten().map(Box::new)
        };
        let program = self.0.entry(identity).or_insert_with(open);
        let done = catch_panic(|| Some(act(program.as_deref_mut()?)));
        if done.is_none() {
            // After a panic, it may be inconsistent.
            *program = None;
        }
        self.make_room(identity);
        done.flatten()
    }

    /// Forgets the other programs if all together hold too much.
    fn make_room(&mut self, current: Identity) {
        let held = self.0.values().flatten().map(|it| it.held).sum::<u64>();
        if held > MAX_HELD || self.0.len() > MAX_PROGRAMS {
            self.0.retain(|identity, _| *identity == current);
        }
    }
}

/// A program whose debug information is in several files.
pub(super) struct Program {
    context: Context<Section>,
    dwarf: Arc<Dwarf<Section>>,
    /// The units that were passed, by their ids.
    units: HashMap<DwoId, Arc<Dwarf<Section>>>,
    /// The whole of passed files that have units of types.
    types: Vec<Arc<Dwarf<Section>>>,
    packages: Vec<DwarfPackage<Section>>,
    /// The files that were passed.
    passed: HashSet<Identity>,
    /// Bytes of all its files that are mapped or decompressed.
    held: u64,
}

impl Program {
    /// A program, with the supplementary file that it shares with others; `None` if all its debug information is in this file, or if it can't
    /// be read.
    fn of(file: &File, shared: Option<&File>) -> Option<Self> {
        let image = Image::of(file)?;
        let shared = shared.and_then(Image::of);
        let of_shared = shared.as_ref().map_or(0, |it| it.most_bytes);
        let held = image.most_bytes.saturating_add(of_shared);
        if held > MAX_HELD {
            return None;
        }
        let mut dwarf: Dwarf<Section> =
            Dwarf::load(|id| Ok::<_, gimli::Error>(image.section(id))).ok()?;
        match shared {
            Some(shared) => dwarf
                .load_sup(|id| Ok::<_, gimli::Error>(shared.section(id)))
                .ok()?,
            None if !has_units_elsewhere(&dwarf) => return None,
            None => {}
        }
        let dwarf = Arc::new(dwarf);
        Some(Self {
            context: Context::from_arc_dwarf(Arc::clone(&dwarf)).ok()?,
            dwarf,
            units: HashMap::new(),
            types: Vec::new(),
            packages: Vec::new(),
            passed: HashSet::new(),
            held,
        })
    }

    /// Adds a package.
    pub(super) fn add_package(&mut self, file: &File) {
        if let Some(image) = self.image(file)
            && let Ok(package) =
                DwarfPackage::load(|id| Ok::<_, gimli::Error>(image.part(id)), empty())
        {
            self.packages.push(package);
        }
    }

    /// Adds the units of a file.
    pub(super) fn add_units(&mut self, file: &File) {
        if let Some(image) = self.image(file) {
            let _ = self.add_units_of(&image);
        }
    }

    /// Maps a file, if there is room for it and it is not mapped already.
    fn image(&mut self, file: &File) -> Option<Image> {
        if !self.passed.insert(Identity::of(file).ok()?) {
            return None;
        }
        let image = Image::of(file)?;
        let held = self.held.saturating_add(image.most_bytes);
        if held > MAX_HELD {
            return None;
        }
        self.held = held;
        Some(image)
    }

    fn add_units_of(&mut self, image: &Image) -> gimli::Result<()> {
        let mut whole: Dwarf<Section> = Dwarf::load(|id| Ok::<_, gimli::Error>(image.part(id)))?;
        whole.file_type = DwarfFileType::Dwo;
        whole.make_dwo(&self.dwarf);
        let mut headers = whole.units();
        let mut has_types = false;
        while let Some(header) = headers.next()? {
            if matches!(
                header.type_(),
                UnitType::SplitType { .. } | UnitType::Type { .. }
            ) {
                has_types = true;
                continue;
            }
            let (offset, length) = (header.offset(), header.length_including_self());
            let Some(id) = whole.unit(header)?.dwo_id else {
                continue;
            };
            // addr2line reads the first unit, and there may be types before it.
            let mut info = image.part(SectionId::DebugInfo);
            info.skip(offset.0)?;
            info.truncate(length)?;
            let mut unit: Dwarf<Section> = Dwarf::load(|id| Ok::<_, gimli::Error>(image.part(id)))?;
            unit.make_dwo(&self.dwarf);
            unit.debug_info = info.into();
            self.units.entry(id).or_insert_with(|| Arc::new(unit));
        }
        if has_types {
            self.types.push(Arc::new(whole));
        }
        Ok(())
    }

    /// The units that were passed, alone and in packages.
    pub(super) fn passed(&self) -> Passed {
        let mut passed = Passed {
            types: self.types.clone(),
            ..Passed::default()
        };
        let mut headers = self.dwarf.units();
        while let Ok(Some(header)) = headers.next()
            && passed.units.len() < MAX_PASSED
        {
            let id = match header.type_() {
                UnitType::Skeleton(id) => Some(id),
                _ => self.dwarf.unit(header).ok().and_then(|it| it.dwo_id),
            };
            if let Some(id) = id
                && let Some(unit) = unit(&self.units, &self.packages, &self.dwarf, id)
            {
                passed.units.push((id, unit));
            }
        }
        for package in &self.packages {
            let room = MAX_PASSED.saturating_sub(passed.types.len());
            let rows = (1..=package.tu_index.unit_count()).take(room);
            let types = rows.filter_map(|row| package.tu_sections(row, &self.dwarf).ok());
            passed.types.extend(types.map(Arc::new));
        }
        passed
    }

    /// The units that are needed for addresses and were not passed.
    pub(super) fn wanted(&mut self, addresses: &[u64]) -> UnitsAnswer {
        let mut answer = UnitsAnswer::default();
        let mut ids = HashSet::new();
        for address in addresses {
            for (load, pass) in self.context.preload_units(*address) {
                match unit(&self.units, &self.packages, &self.dwarf, load.dwo_id) {
                    Some(found) => {
                        let _ = pass(Some(found));
                    }
                    None if ids.insert(load.dwo_id) => match described(&load) {
                        Some(unit) if answer.wanted.len() < MAX_WANTED => answer.wanted.push(unit),
                        _ => answer.left_out += 1,
                    },
                    None => {}
                }
            }
        }
        answer
    }

    /// The functions at an address, innermost first; empty if no unit has it. A unit that was not passed until now is given up. `linked` is the
    /// name that the symbol table has there.
    pub(super) fn frames(&mut self, address: u64, linked: Option<&str>) -> Vec<FoundFrame> {
        for (load, pass) in self.context.preload_units(address) {
            let _ = pass(unit(&self.units, &self.packages, &self.dwarf, load.dwo_id));
        }
        self.found(address, linked).unwrap_or_default()
    }

    fn found(&self, address: u64, linked: Option<&str>) -> gimli::Result<Vec<FoundFrame>> {
        let mut found = self.context.find_frames(address).skip_all_loads()?;
        let mut frames: Vec<FoundFrame> = Vec::new();
        let mut outermost = None;
        while let Some(frame) = found.next()? {
            // The frames behind the outermost one that is kept are inlined, too.
            if let Some(inlined) = outermost.replace(frame)
                && frames.len() < MAX_INLINED
            {
                frames.push(plain(&inlined, None, true)?);
            }
        }
        match outermost {
            Some(frame) if frame.function.is_some() => {
                frames.push(plain(&frame, linked, false)?);
                Ok(frames)
            }
            _ => Ok(Vec::new()),
        }
    }
}

/// Whether a unit's debug information is in another file.
fn has_units_elsewhere(dwarf: &Dwarf<Section>) -> bool {
    let mut headers = dwarf.units();
    while let Ok(Some(header)) = headers.next() {
        let is_elsewhere = match header.type_() {
            UnitType::Skeleton(_) => true,
            // Before version 5, an attribute tells.
            _ if header.version() < 5 => dwarf.unit(header).is_ok_and(|it| it.dwo_id.is_some()),
            _ => false,
        };
        if is_elsewhere {
            return true;
        }
    }
    false
}

/// Finds a unit among those that were passed.
fn unit(
    units: &HashMap<DwoId, Arc<Dwarf<Section>>>,
    packages: &[DwarfPackage<Section>],
    parent: &Dwarf<Section>,
    id: DwoId,
) -> Option<Arc<Dwarf<Section>>> {
    units.get(&id).cloned().or_else(|| {
        let mut found = packages
            .iter()
            .filter_map(|package| package.find_cu(id, parent).ok().flatten());
        found.next().map(Arc::new)
    })
}

/// What the program says of the file of a unit; `None` if the paths are too long for any file.
fn described(load: &SplitDwarfLoad<Section>) -> Option<WantedUnit> {
    let path = |path: &Option<Section>| match path {
        Some(path) if path.len() <= MAX_PATH => Some(path.to_slice().ok()?.into_owned()),
        Some(_) => None,
        None => Some(Vec::new()),
    };
    Some(WantedUnit {
        id: load.dwo_id.0,
        folder: path(&load.comp_dir)?,
        name: path(&load.path)?,
    })
}

fn plain(
    frame: &Frame<'_, Section>,
    linked: Option<&str>,
    inlined: bool,
) -> gimli::Result<FoundFrame> {
    let own = match &frame.function {
        Some(function) => function.name.to_string_lossy()?,
        None => Cow::Borrowed(""),
    };
    // DWARF with line tables only has the name `new` for every function `a::b::new`.
    let name = linked.filter(|linked| is_mangled(linked) && !is_mangled(&own));
    let location = frame.location.as_ref();
    let file = location.and_then(|location| location.file);
    Ok(FoundFrame {
        function: demangle(name.unwrap_or(&own)),
        file: file
            .filter(|file| file.len() <= MAX_NAME)
            .map(str::to_owned),
        line: location.and_then(|location| location.line).unwrap_or(0),
        inlined,
    })
}
