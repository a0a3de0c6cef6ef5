//! Finds what a fast path would change in a process, and what it would leave as it is.
//!
//! Stage: probes. Changes nothing. Must not know how results are displayed.

use std::collections::HashSet;

use super::eligible::{self, Refusal};
use super::slots::{Slots, slots_of};
use crate::probes::allocators::{Found, OnReturn};
use crate::proc::maps::{self, Mapping};
use crate::reader::Reader;

/// The functions whose calls can be led past the probes.
pub const FUNCTIONS: [&str; 11] = [
    "malloc",
    "free",
    "calloc",
    "realloc",
    "memalign",
    "aligned_alloc",
    "posix_memalign",
    "valloc",
    "pvalloc",
    "reallocarray",
    "cfree",
];

/// How many of these functions are the common ones, which stand at the beginning.
const COMMON: usize = 4;

/// What a fast path would change in a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// The files that call such functions.
    pub modules: Vec<Module>,
    /// Whether any file calls each of the functions through a slot that would be changed.
    pub called: [bool; FUNCTIONS.len()],
}

/// A file that a process has mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Its path in the process's file system.
    pub path: String,
    /// How many of its slots would be changed.
    pub slots: usize,
    /// The functions that have a slot in the file which would not be changed, because its code also reads it or never calls
    /// it.
    pub skipped: Vec<&'static str>,
}

/// Functions that keep their full cost, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slow {
    /// The names of one function.
    pub names: Vec<String>,
    /// The file that it is in.
    pub path: String,
    /// The reason.
    pub reason: &'static str,
}

/// Finds what a fast path would change in a process, or why it can't have one.
pub fn survey(reader: &mut Reader, pid: u32) -> Result<Survey, Refusal> {
    eligible::check(pid)?;
    let thread = maps::living_thread(pid);
    let text = maps::read(thread).map_err(|_| Refusal::NoMemory)?;
    let mappings: Vec<Mapping> = maps::parse(&text).filter(|it| it.inode != 0).collect();
    let mut seen = HashSet::new();
    let mut survey = Survey::default();
    let mut all = Vec::new();
    for mapping in mappings.iter().filter(|it| it.executable) {
        let file = (mapping.device, mapping.inode);
        if !seen.insert(file) {
            continue;
        }
        let Ok(opened) = maps::open_mapped(thread, mapping) else {
            continue;
        };
        // The reader's list of unreadable files has the reason of a failure.
        let Ok(found) = slots_of(reader, &mapping.path, &opened.file, &FUNCTIONS) else {
            continue;
        };
        let of_file = mappings.iter().filter(|it| (it.device, it.inode) == file);
        let of_file: Vec<Mapping> = of_file.cloned().collect();
        survey.add(&mapping.path, &found, &of_file);
        all.push(found);
    }
    eligible::check_library(pid, &all)?;
    if survey.called.contains(&true) {
        Ok(survey)
    } else {
        Err(Refusal::NoSlots)
    }
}

impl Survey {
    fn add(&mut self, path: &str, found: &Slots, mappings: &[Mapping]) {
        let slots = found.in_process(mappings);
        for slot in &slots {
            if let Some(called) = self.called.get_mut(usize::from(slot.name)) {
                *called = true;
            }
        }
        let names = found.skipped_names.iter();
        let skipped: Vec<&str> = names
            .filter_map(|name| FUNCTIONS.get(usize::from(*name)).copied())
            .collect();
        if !slots.is_empty() || !skipped.is_empty() {
            self.modules.push(Module {
                path: path.to_owned(),
                slots: slots.len(),
                skipped,
            });
        }
    }

    /// The probed functions of a process that keep their full cost.
    pub fn slow(&self, found: &Found) -> Vec<Slow> {
        let mut slow = Vec::new();
        for allocator in &found.allocators {
            for function in &allocator.functions {
                // These are system calls, whose cost hides that of a probe.
                if function.hook.on_return == OnReturn::Mapped {
                    continue;
                }
                let is_named = |name: &&str| function.names.iter().any(|other| other == name);
                let known = FUNCTIONS.iter().position(is_named);
                let is_called = known.is_some_and(|name| {
                    name >= COMMON || self.called.get(name).is_some_and(|called| *called)
                });
                let reason = if known.is_none() {
                    "only functions of the malloc family have a fast path"
                } else if function.skipped.is_none() {
                    "its first instructions can't be copied"
                } else if !is_called {
                    "no file calls it through a slot that can be changed"
                } else {
                    continue;
                };
                slow.push(Slow {
                    names: function.names.clone(),
                    path: allocator.path.clone(),
                    reason,
                });
            }
        }
        slow
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;
    use crate::jobs::reader_of_tests;
    use crate::probes::allocators::{self, Effort, LookFor};

    /// Check that a process of an ordinary program would be changed, and that its C library's functions would be fast.
    #[test]
    fn ordinary_processes_are_surveyed() {
        let mut child = Command::new("bash")
            .args(["-c", "read line"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut reader = reader_of_tests();
        let pid = child.id();
        let found = (0..100).find_map(|_| {
            // The program may still be starting.
            std::thread::sleep(std::time::Duration::from_millis(20));
            survey(&mut reader, pid).ok()
        });
        let wanted = LookFor::default();
        let all = allocators::of_process(&mut reader, pid, wanted, Effort::Quick, |_| false);
        child.kill().unwrap();
        child.wait().unwrap();
        let found = found.unwrap();
        assert!(found.called[..2].iter().all(|called| *called));
        let is_bash = |it: &&Module| it.path.ends_with("/bash");
        assert!(found.modules.iter().find(is_bash).unwrap().slots >= 3);
        let all = all.unwrap();
        assert_eq!(found.slow(&all), []);
        // Without any slot, the common functions stay slow.
        let slow = Survey::default().slow(&all);
        let names: Vec<&str> = slow
            .iter()
            .flat_map(|it| &it.names)
            .map(String::as_str)
            .collect();
        for name in &FUNCTIONS[..COMMON] {
            assert!(names.contains(name), "{names:?}");
        }
    }

    /// Check that functions of other families, and those whose code can't be copied, are reported with the reason.
    #[test]
    fn slow_functions_have_a_reason() {
        let own = std::process::id();
        let wanted = LookFor {
            mappings: true,
            ..LookFor::default()
        };
        let mut reader = reader_of_tests();
        let found = allocators::of_process(&mut reader, own, wanted, Effort::Quick, |_| false);
        let mut found = found.unwrap();
        let survey = Survey {
            called: [true; FUNCTIONS.len()],
            ..Survey::default()
        };
        let is_libc = |it: &&mut allocators::Allocator| it.path.contains("/libc.");
        let libc = found.allocators.iter_mut().find(is_libc).unwrap();
        for function in &mut libc.functions {
            match function.names[0].as_str() {
                "malloc" => function.skipped = None,
                "free" => function.names = vec!["je_free".to_owned()],
                _ => {}
            }
        }
        let slow = survey.slow(&found);
        let reason = |name: &str| {
            let has_name = |it: &&Slow| it.names.iter().any(|other| other == name);
            slow.iter().find(has_name).map(|it| it.reason)
        };
        assert!(reason("malloc").unwrap().contains("can't be copied"));
        assert!(reason("je_free").unwrap().contains("malloc family"));
        assert_eq!((reason("calloc"), reason("mmap")), (None, None));
    }
}
