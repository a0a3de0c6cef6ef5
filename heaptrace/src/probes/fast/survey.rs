//! What `--fast` would do with a process now: the plan that a run would make, in words for people.
//!
//! Stage: probes. Changes nothing. Must not know how results are displayed.

use std::sync::Arc;

use super::code::{FUNCTIONS, Way};
use super::eligible;
use super::plan::{self, Module, Plan, Unplanned};
use super::slots::{Slots, slots_of};
use crate::probes::allocators::{Allocator, Found, OnReturn, ProbedFunction};
use crate::reader::Reader;

/// How many of these functions programs call often. They stand at the beginning.
const COMMON: usize = 4;

/// What a run would do with a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// The file of the allocator whose functions get an entry.
    pub provider: String,
    /// The files that call such functions.
    pub callers: Vec<Caller>,
    /// The functions of that allocator that could have an entry, but would stay as they are.
    pub slow: Vec<Slow>,
    /// The functions that never have an entry.
    pub others: Vec<Others>,
}

/// A file that calls allocator functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Its path in the process's file system.
    pub path: String,
    /// How many of its slots would be changed.
    pub changed: usize,
    /// How many of its slots may be changed. Those above hold the address of a function that gets an entry.
    pub changeable: usize,
    /// How many of its linkage stubs would be changed. Their slots are also read, and keep their values.
    pub stubs: usize,
    /// How many linkage stubs of such slots it has.
    pub all_stubs: usize,
    /// The functions that have a slot in the file which is never changed, because its code also reads it, and by which other code
    /// than stubs calls.
    pub skipped: Vec<&'static str>,
}

/// A function whose calls all hit its probe, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slow {
    /// Its names.
    pub names: Vec<String>,
    /// The reason.
    pub reason: &'static str,
}

/// Functions of a file whose calls all hit their probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Others {
    /// The file.
    pub path: String,
    /// The first name of each.
    pub names: Vec<String>,
}

/// Finds what a run would do with a process, or why it would leave it as it is. `found` are its allocators.
pub fn survey(reader: &mut Reader, pid: u32, found: &Found) -> Result<Survey, Unplanned> {
    eligible::check(pid)?;
    let modules: Vec<(Module, Arc<Slots>)> = plan::modules(pid)
        .into_iter()
        .filter_map(|module| {
            // The reader's list of unreadable files has the reason of a failure.
            let slots = slots_of(reader, &module.path, &module.file, &FUNCTIONS).ok()?;
            Some((module, Arc::new(slots)))
        })
        .collect();
    let plan = plan::plan(pid, Way::Sampled, &modules, |file| {
        let allocator = found.allocators.iter().find(|it| it.id == file);
        allocator.map_or(&[], |it| it.functions.as_slice())
    })?;
    Ok(Survey::new(&plan, &modules, found))
}

impl Survey {
    fn new(plan: &Plan, modules: &[(Module, Arc<Slots>)], found: &Found) -> Self {
        let callers = modules.iter().map(|(module, slots)| Caller {
            path: module.path.clone(),
            changed: plan
                .slots
                .iter()
                .filter(|it| module.contains(it.at))
                .count(),
            changeable: slots.in_process(&module.mappings).len(),
            stubs: plan
                .stubs
                .stubs
                .iter()
                .filter(|it| module.contains(it.slot))
                .count(),
            all_stubs: slots.stubs_in_process(&module.mappings).len(),
            skipped: slots
                .skipped_names
                .iter()
                .filter_map(|name| FUNCTIONS.get(usize::from(*name)).copied())
                .collect(),
        });
        let mut survey = Self {
            callers: callers
                .filter(|it| it.changeable > 0 || it.all_stubs > 0 || !it.skipped.is_empty())
                .collect(),
            ..Self::default()
        };
        let provider = modules.get(plan.provider).map(|(module, _)| module);
        for allocator in &found.allocators {
            let is_provider = provider.is_some_and(|it| it.id == allocator.id);
            if is_provider {
                survey.provider.clone_from(&allocator.path);
            }
            survey.add(plan, allocator, is_provider);
        }
        survey
    }

    /// Adds the functions of an allocator that keep their full cost.
    fn add(&mut self, plan: &Plan, allocator: &Allocator, is_provider: bool) {
        let mut others = Vec::new();
        for function in &allocator.functions {
            // These are system calls, whose cost hides that of a probe.
            if function.hook.on_return == OnReturn::Mapped {
                continue;
            }
            let is_named = |name: &&str| function.names.iter().any(|other| other == name);
            let number = FUNCTIONS.iter().position(is_named);
            if let Some(number) = number.filter(|_| is_provider) {
                self.slow
                    .extend(reason(plan, function, number).map(|it| Slow {
                        names: function.names.clone(),
                        reason: it,
                    }));
            } else {
                others.extend(function.names.first().cloned());
            }
        }
        if !others.is_empty() {
            self.others.push(Others {
                path: allocator.path.clone(),
                names: others,
            });
        }
    }
}

/// Why all calls of a function of the provider would go on to hit its probe. `None` if they would not.
fn reason(plan: &Plan, function: &ProbedFunction, number: usize) -> Option<&'static str> {
    if function.skipped.is_none() {
        return Some("its first instructions can't be copied");
    }
    if !plan.functions.iter().any(|it| it.number == number) {
        return Some(
            "its first instructions are not those of its file (another tracer's breakpoint?)",
        );
    }
    let slots = plan.slots.iter().map(|it| it.function);
    let stubs = plan.stubs.stubs.iter().map(|it| it.function);
    let has_slot = slots.chain(stubs).any(|it| it == number);
    (number < COMMON && !has_slot).then_some("no slot that may be changed holds its address now")
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::process::{Child, Command, Stdio};

    use super::*;
    use crate::jobs::reader_of_tests;
    use crate::probes::allocators::{self, Effort, LookFor};
    use crate::probes::fast::code::Function;

    /// A process of an ordinary program, with its allocators and what a run would do with it.
    fn ordinary() -> (Found, Survey) {
        let mut child = Command::new("bash")
            .args(["-c", "read line"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut reader = reader_of_tests();
        let mut of = |child: &Child| {
            let wanted = LookFor {
                mappings: true,
                ..LookFor::default()
            };
            let pid = child.id();
            let found = allocators::of_process(
                &mut reader,
                pid,
                wanted,
                Effort::Quick,
                &mut HashSet::new(),
            )
            .ok()?;
            let survey = survey(&mut reader, pid, &found).ok()?;
            Some((found, survey))
        };
        let both = (0..100).find_map(|_| {
            // The program may still be starting.
            std::thread::sleep(std::time::Duration::from_millis(20));
            of(&child)
        });
        child.kill().unwrap();
        child.wait().unwrap();
        both.unwrap()
    }

    /// Check that the slots of an ordinary program would be changed, that its C library's common functions would be fast, and
    /// that the rare ones are named.
    #[test]
    fn ordinary_processes_are_surveyed() {
        let (_, survey) = ordinary();
        assert!(survey.provider.contains("/libc."), "{survey:?}");
        let is_bash = |it: &&Caller| it.path.ends_with("/bash");
        let bash = survey.callers.iter().find(is_bash).unwrap();
        assert!(
            bash.changed >= 3 && bash.changed <= bash.changeable,
            "{bash:?}"
        );
        let is_slow = |name: &str| {
            survey
                .slow
                .iter()
                .any(|it| it.names.iter().any(|it| it == name))
        };
        assert!(!is_slow("malloc") && !is_slow("free"), "{survey:?}");
        let others = &survey.others[0];
        assert_eq!(others.path, survey.provider);
        assert!(others.names.iter().any(|it| it == "pvalloc"), "{others:?}");
        assert!(!others.names.iter().any(|it| it == "malloc" || it == "mmap"));
    }

    /// Check that each function of the allocator that stays slow has its reason, and that functions of other files and families
    /// are listed with their file.
    #[test]
    fn slow_functions_have_a_reason() {
        let (mut found, _) = ordinary();
        let is_libc = |it: &&mut Allocator| it.path.contains("/libc.");
        let libc = found.allocators.iter_mut().find(is_libc).unwrap();
        for function in &mut libc.functions {
            match function.names[0].as_str() {
                "malloc" => function.skipped = None,
                "free" => function.names = vec!["je_free".to_owned()],
                _ => {}
            }
        }
        let mut survey = Survey::default();
        let has_calloc = |it: &&ProbedFunction| it.names.iter().any(|it| it == "calloc");
        let calloc = libc.functions.iter().find(has_calloc).unwrap();
        let plan = Plan {
            functions: vec![Function {
                number: 2,
                address: 0,
                skipped: calloc.skipped.clone().unwrap(),
                allocator: (0, 0),
                entry_program: "malloc_entry",
                may_call_others: false,
            }],
            ..Plan::default()
        };
        survey.add(&plan, libc, true);
        let reason = |name: &str| {
            let has_name = |it: &&Slow| it.names.iter().any(|other| other == name);
            survey.slow.iter().find(has_name).map(|it| it.reason)
        };
        assert!(reason("malloc").unwrap().contains("can't be copied"));
        assert!(reason("realloc").unwrap().contains("another tracer"));
        assert!(reason("calloc").unwrap().contains("no slot"));
        assert_eq!((reason("je_free"), reason("mmap")), (None, None));
        assert!(survey.others[0].names.contains(&"je_free".to_owned()));
        // The functions of another file have no entry at all.
        let mut other = Survey::default();
        other.add(&plan, libc, false);
        assert_eq!(other.slow, []);
        assert!(other.others[0].names.iter().any(|it| it == "malloc"));
    }
}
