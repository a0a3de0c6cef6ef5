//! What `heaptrace who` does for a data file and for a running process alike: addresses by number, what is mapped there, and the answer.
//!
//! Part of the command line. Must not know where blocks come from.

use std::io::{self, BufWriter, Write as _};

use super::invocation::{Format, Question};
use super::question::Asked;
use super::report::{self, Screen};
use crate::output::{self, AskedAddress, Place, ReportInput, Who};
use crate::proc::maps::Mapping;

/// The addresses that were asked about by their numbers.
pub(super) fn by_number(asked: &[Asked]) -> Vec<AskedAddress> {
    let addresses = asked.iter().filter_map(|it| match it {
        Asked::Address(address) => Some(AskedAddress {
            address: *address,
            name: String::new(),
            place: Place::Unknown,
            memory: Vec::new(),
        }),
        Asked::Register(_) => None,
    });
    addresses.collect()
}

/// What is mapped at an address.
pub(super) fn place(mappings: &[Mapping], address: u64) -> Place {
    let mut mappings = mappings.iter();
    let found = mappings.find(|it| (it.start..it.end).contains(&address));
    let what = found.map(|it| match it.path.as_str() {
        "" => "memory without a file".to_owned(),
        "[heap]" => "the heap that grows by brk ([heap])".to_owned(),
        path => path.to_owned(),
    });
    what.map_or(Place::Unmapped, Place::Mapped)
}

/// Prints the answer.
pub(super) fn print(
    question: &Question,
    input: &ReportInput<'_>,
    who: &Who<'_>,
    screen: Screen,
) -> anyhow::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    match question.format {
        Format::Text => {
            let options = report::options(question.ranking, input.profile, screen);
            output::write_who(input, who, &options, &mut out)?;
        }
        Format::Json => output::write_who_json(input, who, &mut out)?,
    }
    Ok(out.flush()?)
}
