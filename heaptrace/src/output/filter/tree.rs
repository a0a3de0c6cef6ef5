//! Conditions combined by `and`, `or` and `not`.
//!
//! Stage: output. Must not know what a condition is.

use std::fmt;

/// A combination of leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::output) enum Tree<L> {
    /// Each of these must hold.
    All(Vec<Self>),
    /// One of these must hold.
    Any(Vec<Self>),
    /// This must not hold.
    Not(Box<Self>),
    /// A leaf.
    Leaf(L),
}

impl<L> Tree<L> {
    /// Several trees that must all hold, or one of which must; a single one stays as it is.
    pub(super) fn of(mut parts: Vec<Self>, combine: impl FnOnce(Vec<Self>) -> Self) -> Self {
        match (parts.pop(), parts.is_empty()) {
            (Some(only), true) => only,
            (last, _) => {
                parts.extend(last);
                combine(parts)
            }
        }
    }

    /// Whether the tree holds, if this tells of each leaf whether it does. Asks only as many leaves as it needs to.
    pub(in crate::output) fn holds(&self, leaf: &mut impl FnMut(&L) -> bool) -> bool {
        match self {
            Self::All(parts) => parts.iter().all(|it| it.holds(leaf)),
            Self::Any(parts) => parts.iter().any(|it| it.holds(leaf)),
            Self::Not(part) => !part.holds(leaf),
            Self::Leaf(it) => leaf(it),
        }
    }

    /// Whether this is true of a leaf.
    pub(super) fn has(&self, is: &impl Fn(&L) -> bool) -> bool {
        match self {
            Self::All(parts) | Self::Any(parts) => parts.iter().any(|it| it.has(is)),
            Self::Not(part) => part.has(is),
            Self::Leaf(it) => is(it),
        }
    }

    /// Calls this for each leaf.
    pub(super) fn for_each(&self, see: &mut impl FnMut(&L)) {
        match self {
            Self::All(parts) | Self::Any(parts) => parts.iter().for_each(|it| it.for_each(see)),
            Self::Not(part) => part.for_each(see),
            Self::Leaf(it) => see(it),
        }
    }

    /// The same tree with other leaves, or the first error.
    pub(in crate::output) fn try_map<'a, M, E>(
        &'a self,
        leaf: &mut impl FnMut(&'a L) -> Result<Tree<M>, E>,
    ) -> Result<Tree<M>, E> {
        let all = |parts: &'a [Self], leaf: &mut _| {
            let parts = parts.iter().map(|it| it.try_map(leaf));
            parts.collect::<Result<Vec<_>, _>>()
        };
        Ok(match self {
            Self::All(parts) => Tree::All(all(parts, leaf)?),
            Self::Any(parts) => Tree::Any(all(parts, leaf)?),
            Self::Not(part) => Tree::Not(Box::new(part.try_map(leaf)?)),
            Self::Leaf(it) => leaf(it)?,
        })
    }

    /// The parts that must all hold: those of an `and`, or the tree itself.
    pub(super) fn conjuncts(&self) -> Vec<&Self> {
        match self {
            Self::All(parts) => parts.iter().flat_map(Self::conjuncts).collect(),
            other => vec![other],
        }
    }
}

/// As an expression that is read as the same tree.
impl<L: fmt::Display> fmt::Display for Tree<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut list = |parts: &[Self], between: &str| {
            for (at, part) in parts.iter().enumerate() {
                let before = if at > 0 { between } else { "" };
                match part {
                    // An `and` binds more tightly than an `or`, but an `and` in an `and` keeps its own parentheses.
                    Self::All(_) | Self::Any(_) => write!(f, "{before}({part})")?,
                    _ => write!(f, "{before}{part}")?,
                }
            }
            Ok(())
        };
        match self {
            Self::All(parts) => list(parts, " and "),
            Self::Any(parts) => list(parts, " or "),
            Self::Not(part) => match **part {
                Self::All(_) | Self::Any(_) => write!(f, "not ({part})"),
                _ => write!(f, "not {part}"),
            },
            Self::Leaf(it) => it.fmt(f),
        }
    }
}
