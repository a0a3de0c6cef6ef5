//! The options of `heaptrace types`.
//!
//! Part of the command line. Turns clap's types into plain ones.

use clap::Args;

use super::choices::{by, format, metric};
use super::input_args::{Input, Naming, Wrapping};
use super::invocation::{Action, Format, Ranking};
use crate::output::{Label, Metric};

#[derive(Debug, Args)]
pub(super) struct Types {
    #[command(flatten)]
    pub(super) input: Input,
    /// Output format: text for people, json for programs
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = format())]
    format: Format,
    /// What is listed: whole types (std::vector<Order>), or what they hold (Order)
    #[arg(long, value_name = "KEY", default_value = "type", value_parser = by(&[Label::Type, Label::Element]))]
    by: Label,
    /// The number to sort by [default: live-bytes; left-bytes once all processes have ended]
    #[arg(long, visible_alias = "sort", value_name = "METRIC", value_parser = metric())]
    pub(super) metric: Option<Metric>,
    /// Number of types to show [default: 10; all of them in json]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    top: Option<u32>,
    #[command(flatten)]
    wrapping: Wrapping,
    #[command(flatten)]
    naming: Naming,
}

impl From<Types> for Action {
    fn from(types: Types) -> Self {
        Self::Types {
            input: types.input.of(&types.naming),
            format: types.format,
            ranking: Ranking {
                by: Some(types.by),
                metric: types.metric,
                top: types.top.map(|top| top as usize),
                details: false,
                histogram: false,
            },
            wrappers: types.wrapping.into(),
        }
    }
}
