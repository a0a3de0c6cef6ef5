//! The installer's loop: carries out requests, and remembers what has to be undone.
//!
//! Stage: probes. When the agent is gone, the installer restores all slots, also those of processes that were forked without the
//! agent's notice, and ends. Must not know what the slots are for.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::code::cookie_at;
use super::earlier::{FILE, inode_at};
use super::hand::Task;
use super::mapping::{Mapping, Place};
use super::messages::{
    Answer, LinkPlace, Received, Redirect, Request, Room, Sizes, Slot, receive, send,
};
use super::patch::Patch;
use super::target_memory::{TargetMemory, WrittenSlots};
use super::written_stubs::WrittenStubs;
use crate::probes::helper;
use crate::proc::{maps, processes};

/// Bytes of a page.
const PAGE: u64 = 4096;

/// Most bytes of a mapping.
const MOST_MAPPED: u64 = 1 << 30;

/// A process that has the mapping.
struct Process {
    memory: TargetMemory,
    /// The file of code and data. `None` if an earlier run made it.
    file: Option<File>,
    /// The file's inode.
    inode: u64,
    base: u64,
    sizes: Sizes,
    slots: WrittenSlots,
    /// The addresses of its pages of links.
    links: Vec<u64>,
    stubs: WrittenStubs,
}

/// A hand at work.
struct Running {
    pid: u32,
    hand: libc::pid_t,
    connection: OwnedFd,
    /// What the process is if the hand succeeds, except for the address.
    process: Process,
}

/// All that was installed.
#[derive(Default)]
pub(super) struct Installed {
    processes: HashMap<u32, Process>,
    running: Vec<Running>,
}

impl Installed {
    /// Serves the agent until it is gone, and then restores everything.
    pub(super) fn serve(mut self, agent: &OwnedFd) {
        loop {
            let connections = self.running.iter().map(|it| &it.connection);
            let mut fds: Vec<_> = std::iter::once(agent)
                .chain(connections)
                .map(|fd| PollFd::new(fd, PollFlags::IN))
                .collect();
            // Repeats an interrupted wait.
            if poll(&mut fds, None).is_err() {
                continue;
            }
            let is_ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            // From the last on, because one that has ended is removed.
            for at in (0..self.running.len()).rev() {
                if is_ready.get(at + 1) == Some(&true) {
                    self.hear(at, agent);
                }
            }
            if is_ready.first() == Some(&true) {
                match receive::<Request>(agent) {
                    Received::Message(request, descriptor) => {
                        self.carry_out(request, descriptor, agent);
                    }
                    Received::Nothing | Received::Invalid => {}
                    Received::End => break,
                }
            }
        }
        self.restore_all();
    }

    fn carry_out(&mut self, request: Request, hints: Option<OwnedFd>, agent: &OwnedFd) {
        let answer = match request {
            Request::Map { pid, .. } => match self.start(request, hints) {
                Ok(running) => {
                    self.running.push(running);
                    return;
                }
                Err(why) => Answer::NotMapped { pid, why },
            },
            Request::Fill {
                pid,
                address,
                bytes,
            } => {
                let process = self.processes.get(&pid);
                let ok = process.is_some_and(|it| it.fill(address, &bytes).is_ok());
                Answer::Filled { pid, ok }
            }
            Request::Write { pid, slots } => Answer::Written {
                pid,
                written: self.write(pid, &slots),
            },
            Request::Redirect { pid, stubs } => Answer::Written {
                pid,
                written: self.redirect(pid, &stubs),
            },
            Request::PutBack {
                pid,
                start_time,
                slots,
                stubs,
            } => {
                let memory = TargetMemory::open(pid, start_time);
                let written = memory.map(|it| put_back(&it, &slots, &stubs));
                let written = written.unwrap_or_default();
                Answer::Written { pid, written }
            }
            Request::Adopt {
                pid,
                start_time,
                parent,
            } => {
                let ok = self.adopt(pid, start_time, parent);
                Answer::Adopted { pid, ok }
            }
            Request::Undo { pid } => {
                let process = self.processes.remove(&pid);
                let (slots, stubs) = process.map_or((0, 0), |it| it.restore());
                Answer::Undone { pid, slots, stubs }
            }
        };
        tell(agent, &answer);
    }

    /// Starts a hand that maps.
    fn start(&mut self, request: Request, hints: Option<OwnedFd>) -> Result<Running, String> {
        let text = |error: io::Error| format!("the installer can't prepare it: {error}");
        let Request::Map {
            pid,
            start_time,
            tid,
            signal,
            places,
            old,
            sizes,
            links,
            patience_ms,
        } = request
        else {
            return Err("no request for a mapping".to_owned());
        };
        let hints = hints.ok_or("no descriptor was sent with the request")?;
        let of_links = links.iter().flat_map(|it| match it {
            LinkPlace::FirstFree(places) => places.as_slice(),
            LinkPlace::Old(page) => std::slice::from_ref(page),
        });
        let addresses = places.iter().chain(&old).chain(of_links);
        let addresses: Vec<u64> = addresses.copied().collect();
        if !is_valid(sizes, &addresses) {
            return Err("addresses or lengths are no multiples of a page".to_owned());
        }
        if self.running.iter().any(|it| it.pid == pid) {
            return Err("it is being mapped already".to_owned());
        }
        self.processes.retain(|_, process| process.has_memory());
        if self.processes.contains_key(&pid) {
            return Err("it is mapped already".to_owned());
        }
        let memory = TargetMemory::open(pid, start_time)?;
        let (place, file, inode) = if let Some(base) = old {
            let inode = earlier_inode(pid, base, sizes, &hints).map_err(text)?;
            (Place::Old(base), None, inode)
        } else {
            let file = code_file(sizes).map_err(text)?;
            let ours = File::from(file.try_clone().map_err(text)?);
            let inode = ours.metadata().map_err(text)?.ino();
            (Place::FirstFree { places, file }, Some(ours), inode)
        };
        let process = Process {
            memory: memory.try_clone().map_err(text)?,
            file,
            inode,
            base: 0,
            sizes,
            slots: WrittenSlots::default(),
            links: Vec::new(),
            stubs: WrittenStubs::default(),
        };
        let kind = SocketType::SEQPACKET;
        let pair = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None);
        let (connection, installer) = pair.map_err(|error| text(error.into()))?;
        let task = Task {
            start_time,
            signal,
            patience: Duration::from_millis(patience_ms.into()),
            mapping: Mapping {
                pid,
                tid,
                place,
                sizes,
                memory,
                hints,
                links,
            },
        };
        // SAFETY: this process has one thread; the child never returns from this function.
        match unsafe { libc::fork() } {
            -1 => Err(text(io::Error::last_os_error())),
            0 => {
                let mut keep = task.mapping.descriptors();
                keep.push(installer.as_raw_fd());
                helper::close_all_but(keep);
                task.run(&installer);
                helper::exit();
            }
            hand => Ok(Running {
                pid,
                hand,
                connection,
                process,
            }),
        }
    }

    /// Receives from a hand, and tells the agent.
    fn hear(&mut self, at: usize, agent: &OwnedFd) {
        let Some(running) = self.running.get(at) else {
            return;
        };
        let pid = running.pid;
        let answer = match receive(&running.connection) {
            Received::Message(answer, _) => answer,
            Received::Nothing => return,
            Received::Invalid | Received::End => Answer::NotMapped {
                pid,
                why: "the process that attached to it has ended".to_owned(),
            },
        };
        if !matches!(answer, Answer::Seized { .. }) {
            let mut ended = self.running.remove(at);
            let mut status = 0;
            // SAFETY: waits for a child that has answered and so is about to end.
            unsafe { libc::waitpid(ended.hand, &raw mut status, 0) };
            if let Answer::Mapped { base, links, .. } = &answer {
                ended.process.base = *base;
                ended.process.links.clone_from(links);
                self.processes.insert(pid, ended.process);
            }
        }
        tell(agent, &answer);
    }

    fn write(&mut self, pid: u32, slots: &[Slot]) -> Vec<u64> {
        let process = self.processes.get_mut(&pid);
        process.map_or_else(Vec::new, |it| it.slots.write(&it.memory, slots))
    }

    fn redirect(&mut self, pid: u32, stubs: &[Redirect]) -> Vec<u64> {
        let process = self.processes.get_mut(&pid);
        process.map_or_else(Vec::new, |it| it.stubs.write(&it.memory, stubs, &it.links))
    }

    fn adopt(&mut self, pid: u32, start_time: u64, parent: u32) -> bool {
        self.processes.retain(|_, process| process.has_memory());
        if self.processes.contains_key(&pid) {
            return false;
        }
        let Some(parent) = self.processes.get(&parent) else {
            return false;
        };
        match parent.forked(pid, start_time) {
            Some(child) => {
                self.processes.insert(pid, child);
                true
            }
            None => false,
        }
    }

    /// Restores the slots and stubs of all processes, and of those that were forked from them. A hand that waits for its thread ends by
    /// itself when its connection is closed; a hand that maps writes no slot and no stub.
    fn restore_all(mut self) {
        self.running.clear();
        loop {
            for process in self.processes.values() {
                process.restore();
            }
            let forked = self.forked();
            if forked.is_empty() {
                return;
            }
            self.processes.extend(forked);
        }
    }

    /// The processes that have a mapping of ours, but are not known.
    fn forked(&self) -> Vec<(u32, Process)> {
        if self.processes.is_empty() {
            return Vec::new();
        }
        let mut found = Vec::new();
        for pid in processes::processes().unwrap_or_default() {
            if self.processes.contains_key(&pid) {
                continue;
            }
            let Some(time) = processes::start_time(pid) else {
                continue;
            };
            let text = maps::read(pid).unwrap_or_default();
            // Several processes may have the mapping of one that they all were forked from in an earlier run.
            let ours = maps::parse(&text).filter(|it| it.executable && it.path == FILE);
            let mut origins = ours.flat_map(|mapping| {
                let known = self.processes.values();
                known.filter(move |it| (it.inode, it.base) == (mapping.inode, mapping.start))
            });
            let Some(mut process) = origins.next().and_then(|it| it.forked(pid, time)) else {
                continue;
            };
            for origin in origins {
                process.slots.add(&origin.slots);
                process.stubs.add(&origin.stubs);
            }
            found.push((pid, process));
        }
        found
    }
}

impl Process {
    /// Whether the program still runs in which the mapping is.
    fn has_memory(&self) -> bool {
        self.memory.word(self.base).is_ok()
    }

    /// Writes into code, data or the mark. Code is written to the file, because probes are put on what the file has.
    fn fill(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        let Sizes {
            code, data, hints, ..
        } = self.sizes;
        let outside = || io::Error::from(io::ErrorKind::InvalidInput);
        let offset = address.checked_sub(self.base).ok_or_else(outside)?;
        let end = offset.checked_add(bytes.len() as u64).ok_or_else(outside)?;
        let is_mark = offset >= code + data + hints && end <= self.sizes.total();
        if end > code + data && !is_mark || offset < code && end > code {
            return Err(outside());
        }
        if offset < code {
            match &self.file {
                Some(file) => file.write_all_at(bytes, offset)?,
                // Threads may be executing code of an earlier run.
                None if address == cookie_at(self.base) && bytes.len() == size_of::<u64>() => {
                    self.memory.write(address, bytes)?;
                }
                None => return Err(outside()),
            }
        } else {
            self.memory.write(address, bytes)?;
        }
        // A page of code that the process has a copy of does not show the file's.
        match self.memory.read_bytes(address, bytes.len())? == bytes {
            true => Ok(()),
            false => Err(outside()),
        }
    }

    /// Restores its slots and stubs. Returns their numbers.
    fn restore(&self) -> (u32, u32) {
        let slots = self.slots.restore(&self.memory);
        (slots, self.stubs.restore(&self.memory))
    }

    /// A process that was forked from this one. `None` if it has ended, or has no such mapping.
    fn forked(&self, pid: u32, start_time: u64) -> Option<Self> {
        let forked = Self {
            memory: TargetMemory::open(pid, start_time).ok()?,
            file: self.file.as_ref().map(File::try_clone).transpose().ok()?,
            inode: self.inode,
            base: self.base,
            sizes: self.sizes,
            slots: self.slots.clone(),
            links: self.links.clone(),
            stubs: self.stubs.clone(),
        };
        forked.has_memory().then_some(forked)
    }
}

/// Writes slots and stubs without remembering them. Returns the addresses of those that are as they should be now.
fn put_back(memory: &TargetMemory, slots: &[Slot], stubs: &[Patch]) -> Vec<u64> {
    let mut written = WrittenSlots::default().write(memory, slots);
    let mut all = WrittenStubs::default();
    let stubs = stubs.iter().filter(|it| all.patch(memory, it));
    written.extend(stubs.map(|it| it.address));
    written
}

/// Answers. An error means that the agent is gone, which the next round sees.
fn tell(agent: &OwnedFd, answer: &Answer) {
    let _ = send(agent, answer, &[], Room::Wait);
}

/// The inode of the code of an earlier run's mapping, if it is all there.
fn earlier_inode(pid: u32, base: u64, sizes: Sizes, hints: &OwnedFd) -> io::Result<u64> {
    let path = fs::read_link(format!("/proc/self/fd/{}", hints.as_raw_fd()))?;
    let inode = inode_at(&maps::of(pid)?, base, sizes, &path.to_string_lossy());
    inode.ok_or_else(|| io::Error::other(format!("no mapping of an earlier run is at {base:#x}")))
}

fn is_valid(sizes: Sizes, addresses: &[u64]) -> bool {
    let Sizes {
        code,
        data,
        hints,
        mark,
    } = sizes;
    let lengths = [code, data, hints, mark];
    let is_length = |length: &u64| (1..=MOST_MAPPED).contains(length);
    let is_multiple = |value: &u64| value.is_multiple_of(PAGE);
    lengths.iter().all(is_length)
        && addresses.iter().all(|it| *it > 0 && it >> 47 == 0)
        && lengths.iter().chain(addresses).all(is_multiple)
}

/// The file of code and data. It exists in memory only.
fn code_file(sizes: Sizes) -> io::Result<OwnedFd> {
    let make = |flags| memfd_create("heaptrace-fast", MemfdFlags::CLOEXEC | flags);
    let file = match make(MemfdFlags::EXEC) {
        // Linux before 6.3 doesn't know the flag.
        Err(rustix::io::Errno::INVAL) => make(MemfdFlags::empty()),
        made => made,
    }?;
    ftruncate(&file, sizes.code + sizes.data)?;
    Ok(file)
}
