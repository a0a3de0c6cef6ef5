//! Turns code addresses into offsets in files, by the mappings of their process at their time.
//!
//! Stage: join. Keeps the address spaces of the processes of interest, their modules, and the code locations in
//! stacks. Knows nothing of blocks.

mod generated;

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use heaptrace_common::trampoline::is_trampoline;
use heaptrace_common::wire::FileKey;

use super::address_spaces::{AddressSpaces, CodeMapping};
use super::interner::Interner;
use super::location_cache::LocationCache;
use super::modules::{Modules, OpenFiles};
use super::processes::name_of;
use super::program_name;
use super::update::{Allocator, Location, LocationId, Module, ModuleId};
use crate::events::sideband::{Change, Mapped, SideEvent};
use crate::open::{self, Expected, FileId, Identity, Opened};
use crate::proc::build_id::Build;
use crate::proc::library_names::is_of_c_library;
use crate::proc::maps;
use crate::unwind;

/// Most allocators that are named as not probed.
const MAX_UNPROBED: usize = 256;

/// Which processes are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// Every process of the machine.
    All,
    /// Processes that were reached, without their children.
    Reached,
    /// The added processes and their descendants.
    Family,
}

/// Code of a file in an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeInFile {
    /// Its offset in the file.
    pub at: u64,
    /// The end of its mapping.
    pub end: u64,
    /// The file's module.
    pub module: ModuleId,
    /// The most probable key of the file's unwind table; `None` if the file could not be opened.
    pub file: Option<FileKey>,
}

/// An allocator's code in a file.
#[derive(Debug)]
struct OwnCode {
    path: String,
    file: FileId,
    /// Offsets in the file, sorted.
    ranges: Vec<(u64, u64)>,
}

/// The addresses of all processes of interest.
#[derive(Debug)]
pub(super) struct Addresses {
    /// Which processes are of interest.
    follow: Follow,
    /// The probed allocators, with their files.
    allocators: Vec<(FileId, Allocator)>,
    /// Allocators that are mapped, but not probed.
    unprobed: BTreeSet<String>,
    /// Code of allocators, if mappings are recorded.
    own_code: Vec<OwnCode>,
    spaces: AddressSpaces,
    modules: Modules,
    locations: Interner<Location>,
    cache: LocationCache,
    /// The names of processes whose program is not mapped yet.
    starting: HashMap<u32, String>,
    /// The process that heaptrace started, and the path of its program.
    launched: Option<(u32, PathBuf)>,
    /// Processes whose first thread has ended, with the time.
    exited: Vec<(u32, u64)>,
    /// The jitdump files that processes have announced.
    jitdumps: HashMap<u32, Vec<Arc<File>>>,
    /// The locations of one stack; kept for its memory.
    looked_at: Vec<LocationId>,
}

impl Addresses {
    pub(super) fn new(follow: Follow) -> Self {
        Self {
            follow,
            allocators: Vec::new(),
            unprobed: BTreeSet::new(),
            own_code: Vec::new(),
            spaces: AddressSpaces::default(),
            modules: Modules::default(),
            locations: Interner::new(),
            cache: LocationCache::default(),
            starting: HashMap::new(),
            launched: None,
            exited: Vec::new(),
            jitdumps: HashMap::new(),
            looked_at: Vec::new(),
        }
    }

    pub(super) fn add_allocator(&mut self, allocator: Allocator, file: FileId) {
        self.allocators.push((file, allocator));
    }

    /// Adds the code in a file that belongs to an allocator.
    pub(super) fn add_own_code(&mut self, path: String, file: FileId, ranges: Vec<(u64, u64)>) {
        self.own_code.push(OwnCode { path, file, ranges });
    }

    /// Whether memory that is mapped from a stack is not the program's, but an allocator's or a thread's stack.
    pub(super) fn is_allocators(&self, pid: u32, time: u64, frames: &[u64]) -> bool {
        if self.own_code.is_empty() {
            return false;
        }
        // A walk ends at the trampoline if a probed function was called and has not returned.
        let is_c_library = |frame: &u64| {
            let mapping = self.spaces.find(pid, time, frame.saturating_sub(1));
            let module = mapping.and_then(|it| it.module);
            module.is_some_and(|it| is_of_c_library(self.modules.path(it)))
        };
        frames.first().is_some_and(is_c_library)
            || frames.iter().any(|frame| is_trampoline(*frame))
            || frames.iter().any(|frame| {
                let address = frame.saturating_sub(1);
                let mapping = self.spaces.find(pid, time, address);
                let Some((mapping, module)) = mapping.and_then(|it| Some((it, it.module?))) else {
                    return false;
                };
                let at = address - mapping.start + mapping.offset;
                self.own_code.iter().any(|code| {
                    self.modules.is_of(module, code.file, &code.path)
                        && code
                            .ranges
                            .iter()
                            .any(|(from, to)| (*from..*to).contains(&at))
                })
            })
    }

    pub(super) fn add_unprobed(&mut self, what: String) {
        if self.unprobed.len() < MAX_UNPROBED {
            self.unprobed.insert(what);
        }
    }

    /// Adds a running process, with its mappings.
    pub(super) fn add_process(&mut self, pid: u32) {
        self.spaces.begin(pid, 0);
        let thread = maps::living_thread(pid);
        let Ok(text) = maps::read(thread) else {
            return;
        };
        let program = program_name::path_of(thread);
        for mapping in maps::parse(&text).filter(|mapping| mapping.executable) {
            if mapping.path.is_empty() {
                self.spaces
                    .map_anonymous(pid, mapping.start, mapping.end, 0);
                continue;
            }
            let mapped = Mapped {
                start: mapping.start,
                end: mapping.end,
                offset: mapping.offset,
                path: mapping.path,
                file: Expected {
                    device: mapping.device,
                    inode: mapping.inode,
                },
                is_shared: mapping.permissions[3] == b's',
            };
            if mapped.is_memory() {
                self.spaces.map_anonymous(pid, mapped.start, mapped.end, 0);
                continue;
            }
            let module = self.map(pid, 0, &mapped, || open_mapped(thread, &mapped));
            if program.as_ref() == Some(&mapped.path) {
                self.start(module, thread, &name_of(thread), &mapped);
            }
        }
    }

    /// Sets the process that heaptrace started, and the path of its program.
    pub(super) fn set_launched(&mut self, pid: u32, path: PathBuf) {
        self.launched = Some((pid, path));
    }

    /// Whether a process was added, or descends from one that was.
    pub(super) fn follows(&self, pid: u32) -> bool {
        self.follow != Follow::All && self.spaces.knows(pid)
    }

    pub(super) fn knows(&self, pid: u32) -> bool {
        self.spaces.knows(pid)
    }

    pub(super) fn may_know(&self, pid: u32) -> bool {
        self.follow == Follow::All || self.spaces.knows(pid)
    }

    pub(super) fn followed(&self) -> Vec<u32> {
        self.spaces.pids()
    }

    /// Whether a file is probed, by the kernel's numbers of it.
    pub(super) fn is_probed(&self, file: &Expected) -> bool {
        self.allocators
            .iter()
            .any(|(probed, _)| probed.may_be(file))
    }

    /// Joins an event of the sideband.
    pub(super) fn sideband(&mut self, event: SideEvent) {
        let SideEvent { time, pid, change } = event;
        match change {
            Change::Forked { parent }
                if self.follow != Follow::Reached && self.spaces.knows(parent) =>
            {
                self.spaces.fork(pid, parent, time);
            }
            Change::Exec { command } if self.may_know(pid) => {
                self.jitdumps.remove(&pid);
                self.spaces.begin(pid, time);
                self.starting.insert(pid, command);
            }
            Change::Mapped(mapped) if self.spaces.knows(pid) => {
                if mapped.is_memory() {
                    self.spaces
                        .map_anonymous(pid, mapped.start, mapped.end, time);
                } else {
                    let module = self.map(pid, time, &mapped, || open_mapped(pid, &mapped));
                    // The kernel maps a program before its libraries.
                    if let Some(name) = self.starting.remove(&pid) {
                        self.start(module, pid, &name, &mapped);
                    }
                }
            }
            Change::Exited => {
                self.starting.remove(&pid);
                self.exited.push((pid, time));
            }
            Change::Forked { .. } | Change::Exec { .. } | Change::Mapped(_) => {}
        }
    }

    /// Forgets processes that ended before a time up to which all events have arrived: no event needs their
    /// mappings any more.
    pub(super) fn settle(&mut self, until: u64, is_running: impl Fn(u32) -> bool) {
        let Self {
            exited,
            spaces,
            jitdumps,
            ..
        } = self;
        exited.retain(|(pid, time)| {
            if *time >= until {
                return true;
            }
            // A process with a record is forgotten when the record ends: only its first thread may have ended.
            if !is_running(*pid) {
                spaces.forget(*pid, *time);
                jitdumps.remove(pid);
            }
            false
        });
    }

    fn map(
        &mut self,
        pid: u32,
        mapped_at: u64,
        mapped: &Mapped,
        open: impl FnOnce() -> Option<Opened>,
    ) -> ModuleId {
        let module = Module {
            path: mapped.path.clone(),
            build_id: Vec::new(),
            text_start: mapped.start,
            text_end: mapped.end,
            text_offset: mapped.offset,
            text_address: None,
            root: root_of(pid),
            started_as: String::new(),
        };
        let module = self.modules.intern(module, mapped.file, open);
        self.note_jitdump(pid, &mapped.path, module);
        self.spaces.map(
            pid,
            CodeMapping {
                start: mapped.start,
                end: mapped.end,
                offset: mapped.offset,
                module: Some(module),
                mapped_at,
            },
        );
        module
    }

    /// Records that a process was started from a module, if it is known by which name.
    fn start(&mut self, module: ModuleId, pid: u32, process_name: &str, mapped: &Mapped) {
        let launched = self
            .launched
            .as_ref()
            .filter(|(its_pid, _)| *its_pid == pid);
        let launched = launched.map(|(_, path)| path.as_path());
        if let Some(name) = program_name::of(pid, process_name, launched, mapped) {
            self.modules.start(module, name);
        }
    }

    /// Appends the locations of return addresses in a process at a time.
    pub(super) fn locate(
        &mut self,
        pid: u32,
        time: u64,
        return_addresses: &[u64],
        found: &mut Vec<LocationId>,
    ) {
        let Self {
            spaces,
            locations,
            cache,
            ..
        } = self;
        let version = spaces.version(pid, time);
        found.extend(return_addresses.iter().map(|return_address| {
            // The call instruction is before the address that it returns to.
            let address = return_address.saturating_sub(1);
            cache.get(version, address, || {
                let mapping = spaces.find(pid, time, address);
                LocationId(locations.intern(&Location {
                    module: mapping.and_then(|it| it.module),
                    address: mapping.map_or(address, |it| address - it.start + it.offset),
                    function: None,
                }))
            })
        }));
    }

    /// The code at an address of a process at a time.
    pub(super) fn code_at(&self, pid: u32, time: u64, address: u64) -> Option<CodeInFile> {
        let mapping = self.spaces.find(pid, time, address)?;
        let module = mapping.module?;
        let file = if self.modules.path(module) == unwind::VDSO {
            Some(FileKey::VDSO)
        } else {
            let identity = self.modules.identity(module);
            identity.map(|identity| unwind::probable_key(&identity))
        };
        Some(CodeInFile {
            at: address - mapping.start + mapping.offset,
            end: mapping.end,
            module,
            file,
        })
    }

    /// The path of a module.
    pub(super) fn path(&self, module: ModuleId) -> &str {
        self.modules.path(module)
    }

    /// The id of a location, which is added if it is new.
    pub(super) fn intern(&mut self, location: &Location) -> LocationId {
        LocationId(self.locations.intern(location))
    }

    /// Whether code of a process was replaced between two times.
    pub(super) fn has_replaced(&self, pid: u32, one: u64, other: u64) -> bool {
        self.spaces
            .has_replaced(pid, (one.min(other), one.max(other)))
    }

    /// Whether return addresses in a process may mean something else at one time than at another.
    pub(super) fn differ(&self, pid: u32, one: u64, other: u64, return_addresses: &[u64]) -> bool {
        let times = (one.min(other), one.max(other));
        let addresses = return_addresses.iter().map(|it| it.saturating_sub(1));
        self.spaces.covered_between(pid, times, addresses)
    }

    /// The probed allocators that a process has mapped at a time. An unknown process is added: it has been
    /// running since before the tracing began.
    pub(super) fn allocators_of(&mut self, pid: u32, time: u64) -> Vec<Allocator> {
        if !self.spaces.knows(pid) {
            self.add_process(pid);
        }
        let mapped: Vec<ModuleId> = self.spaces.modules(pid, time).collect();
        let has = |file: FileId, allocator: &Allocator| {
            let mut mapped = mapped.iter();
            mapped.any(|module| self.modules.is_of(*module, file, &allocator.path))
        };
        self.allocators
            .iter()
            .filter(|(file, allocator)| has(*file, allocator))
            .map(|(_, allocator)| allocator.clone())
            .collect()
    }

    /// Forgets the images of a process that began before a time.
    pub(super) fn forget(&mut self, pid: u32, until: u64) {
        self.jitdumps.remove(&pid);
        self.spaces.forget(pid, until);
    }

    /// Allocators that are mapped, but not probed.
    pub(super) fn unprobed(&self) -> &BTreeSet<String> {
        &self.unprobed
    }

    /// The new modules that need a build id.
    pub(super) fn take_unidentified(&mut self) -> Vec<(ModuleId, String, Arc<File>)> {
        self.modules.take_unidentified()
    }

    /// Sets the build of a module that no update has handed out yet.
    pub(super) fn identify(&mut self, module: ModuleId, build: Build) {
        self.modules.identify(module, build);
    }

    /// The modules and locations that are new since the last call.
    pub(super) fn take_new(&mut self) -> (Vec<Module>, Vec<Location>) {
        (self.modules.take_new(), self.locations.take_new())
    }

    /// The modules that have another `started_as` since the last call.
    pub(super) fn take_started(&mut self) -> Vec<(ModuleId, String)> {
        self.modules.take_started()
    }

    /// Executable mappings that were not kept.
    pub(super) fn mappings_not_kept(&self) -> u64 {
        self.spaces.not_kept()
    }

    /// The open files of modules.
    pub(super) fn files(&self) -> &OpenFiles {
        self.modules.files()
    }

    /// The open files of modules, when everything is joined.
    pub(super) fn into_files(self) -> OpenFiles {
        self.modules.into_files()
    }
}

/// The root folder of a process, in the agent's view; empty if it is the agent's own.
fn root_of(pid: u32) -> String {
    match std::fs::read_link(format!("/proc/{pid}/root")) {
        Ok(root) if root != Path::new("/") => root.display().to_string(),
        _ => String::new(),
    }
}

/// Opens the file that a process has just mapped. If the process is gone, opens it by its path, if that is
/// still the same file.
fn open_mapped(pid: u32, mapped: &Mapped) -> Option<Opened> {
    if mapped.path == unwind::VDSO {
        let file = unwind::vdso()?.file;
        let identity = Identity::of(&file).ok()?;
        return Some(Opened { file, identity });
    }
    if mapped.file.inode == 0 {
        return None;
    }
    open::mapped(pid, mapped.start, mapped.end, Some(mapped.file))
        .or_else(|_| open::left_behind(Path::new(&mapped.path), mapped.file))
        .ok()
}
