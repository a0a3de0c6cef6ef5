//! The options of all commands that can select allocations.
//!
//! Part of the command line. Turns clap's types into plain ones. Must not know the language: the output stage does.

use std::path::PathBuf;

use clap::Args;

use super::invocation::Filters;
use crate::output::{Expression, Problem};

/// The language in short. clap wraps long lines at the width of the terminal, so tables are narrow and paragraphs are one line.
const LANGUAGE: &str = "\
Show only allocations that match, e.g. function=main or 'process=nginx and not module=libssl*'. If given several times, all must match.

KEY=GLOB      a whole name matches: * is any characters, ? is one
KEY~REGEX     a part of a name matches
KEY>=NUMBER   also >, <, <=, =, and =10..20 for a range
KEY!=, KEY!~  `not` before the condition
not A, A and B, A or B, (A)
              not binds most tightly, then and
NAME          what a file of --filters gives this name

function, module, file, line, language
              a frame of the stack, any of them; line is a number,
              FILE:LINE, or FILE:10..20
process, pid, cgroup, container, unit
              the process
thread        its name, if recorded with --threads
kind          heap or mmap
size          the mean size of a stack's blocks, e.g. size>=64KiB;
              of a recording with --blocks, that of each block
age, time     how old a block is, and when in the run it was
              allocated, e.g. age>30s, time=1m..2m (with --blocks)
type          the type of the blocks, e.g. type=std::vector<*
element       the type of what they hold, e.g. element=Order

Only line, pid, size, age and time are numbers. Upper and lower case differ. A value ends at ` and `, ` or `, or at the closing parenthesis of a group; \
quote one that has these words or a single parenthesis: function=\"salt and pepper\". Conditions that are joined by `and` may match in \
different frames, and `not function=X` selects stacks in which no frame matches. The module of a function of Python or JavaScript is its \
source file. Conditions on single blocks need a recording with --blocks, which \
knows what was not freed, or with --events, which knows the totals, too; peaks are not known then. A freed block is as old as it was at its free. Blocks whose type is not known have the type (unknown), mappings have (mapped memory). With conditions on processes, bytes at the peak are those at the peak of each process, at its own time.

Examples:
  --filter 'function=parse_* and not process=cron*'
  --filter '(module=libssl* or module=libcrypto*) and size>=4KiB'
  --filter 'file=pool.c and function~^(grow|refill)_ and pid!=1'";

#[derive(Debug, Args)]
pub(super) struct Filtering {
    /// Show only allocations that match, e.g. function=main or 'process=nginx and not module=libssl*'
    #[arg(long, value_name = "EXPRESSION", long_help = LANGUAGE, value_parser = expression)]
    filter: Vec<Expression>,
    /// Read named filters from this file, for use by name in --filter.
    ///
    /// Each line is NAME = EXPRESSION; lines that begin with # are comments. Expressions may use the other names. With `web = process=nginx
    /// or process=php*` and `tls = module=libssl*`, 'web and tls' is what both select, 'web or tls' what either does. May be given
    /// several times.
    #[arg(long, value_name = "FILE", requires = "filter")]
    filters: Vec<PathBuf>,
}

fn expression(text: &str) -> Result<Expression, String> {
    text.parse().map_err(|problem: Problem| problem.to_string())
}

impl Filtering {
    /// Why the filters can't be used together, if they can't.
    pub(super) fn contradiction(&self) -> Option<String> {
        let named = self.filter.iter().find(|it| it.has_names());
        let named = named.filter(|_| self.filters.is_empty())?;
        Some(format!(
            "`{named}` has the name of a filter, but no file of filters is given; give it with --filters FILE. A condition is \
             KEY=GLOB, e.g. function=main"
        ))
    }
}

impl From<Filtering> for Filters {
    fn from(filtering: Filtering) -> Self {
        Self {
            expressions: filtering.filter,
            files: filtering.filters,
        }
    }
}
