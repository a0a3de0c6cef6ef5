//! The message of a function that an interpreter runs.
//!
//! Stage: profile.

use prost::Message;

use super::error::WireError;
use crate::join::{self, Language};

/// [`join::Function`] as a message.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Function {
    #[prost(uint32, tag = "1")]
    language: u32,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(string, tag = "3")]
    file: String,
}

impl From<&join::Function> for Function {
    fn from(function: &join::Function) -> Self {
        Self {
            language: match function.language {
                Language::Python => 1,
                Language::JavaScript => 2,
                Language::Jit => 4,
                Language::Java => 3,
            },
            name: function.name.clone(),
            file: function.file.clone(),
        }
    }
}

impl TryFrom<Function> for join::Function {
    type Error = WireError;

    fn try_from(function: Function) -> Result<Self, WireError> {
        Ok(Self {
            language: match function.language {
                1 => Language::Python,
                2 => Language::JavaScript,
                4 => Language::Jit,
                3 => Language::Java,
                value => {
                    return Err(WireError::Unknown {
                        what: "language",
                        value,
                    });
                }
            },
            name: function.name,
            file: function.file,
        })
    }
}
