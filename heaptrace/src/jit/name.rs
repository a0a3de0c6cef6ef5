//! Takes names apart that V8 writes: `JS:*parse file:///srv/app.js:12:5` is `parse` in a file, from line 12 on.
//!
//! Part of `jit`. V8 and .NET compile a function several times, and mark each time how: without the marker, all of them are one
//! function. Names of other runtimes stay as they are.

use super::message::MAX_NAME;

/// What V8 calls code of JavaScript, before the marker of the compiler.
const KINDS: [&str; 5] = ["JS:", "LazyCompile:", "Function:", "Script:", "Eval:"];

/// The markers: interpreter, and compilers that optimise less or more.
const MARKERS: [char; 4] = ['~', '^', '+', '*'];

/// How .NET marks, behind the name, which compiler has made a method, and how.
const TIERS: [&str; 10] = [
    "[PreJIT]",
    "[PreStub]",
    "[Unknown]",
    "[MinOptJitted]",
    "[Optimized]",
    "[QuickJitted]",
    "[OptimizedTier1]",
    "[OptimizedTier1OSR]",
    "[InstrumentedTier]",
    "[InstrumentedTierOptimized]",
];

/// How places of JavaScript begin.
const PLACES: [&str; 6] = [
    " /",
    " file:",
    " node:",
    " http:",
    " https:",
    " evalmachine.",
];

/// Stands at the end of a text that was cut.
const CUT: char = '…';

/// The parts of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parts {
    pub(super) name: String,
    pub(super) file: String,
    pub(super) line: u32,
    /// Whether V8 wrote the name.
    pub(super) is_of_v8: bool,
}

/// Takes a name apart, as far as its parts are certain.
pub(super) fn parts(bytes: &[u8]) -> Parts {
    let text = String::from_utf8_lossy(bytes);
    let whole = |name: &str, is_of_v8| Parts {
        name: cut(name),
        file: String::new(),
        line: 0,
        is_of_v8,
    };
    let kind = KINDS.iter().find(|kind| text.starts_with(**kind));
    let Some(marked) = kind.and_then(|kind| text.strip_prefix(kind)) else {
        let untiered = TIERS.iter().find_map(|tier| text.strip_suffix(*tier));
        // A method's name ends with its arguments.
        let method = untiered.filter(|it| it.ends_with(')'));
        return whole(method.unwrap_or(&text), false);
    };
    let unmarked = marked.strip_prefix(MARKERS).unwrap_or(marked);
    let unmarked = unmarked.strip_prefix('\'').unwrap_or(unmarked);
    match placed(unmarked) {
        Some((name, file, line)) => Parts {
            name: cut(name),
            file: cut(file),
            line,
            is_of_v8: true,
        },
        None => whole(unmarked, true),
    }
}

/// The name, the file and the line in `name file:line:column`; `None` if it is not certain where the file begins.
fn placed(text: &str) -> Option<(&str, &str, u32)> {
    let (rest, _column) = number_behind_colon(text)?;
    let (rest, line) = number_behind_colon(rest)?;
    let mut begins = PLACES
        .iter()
        .flat_map(|begin| rest.match_indices(begin).map(|(at, _)| at));
    let at = match (begins.next(), begins.next()) {
        (Some(at), None) => at,
        (Some(_), Some(_)) => return None,
        (None, _) => {
            let mut blanks = rest.match_indices(' ').map(|(at, _)| at);
            let at = blanks.next()?;
            if blanks.next().is_some() {
                return None;
            }
            at
        }
    };
    let (name, file) = rest.split_at_checked(at)?;
    let file = file.get(1..)?;
    (!file.is_empty()).then_some((name, file, line))
}

fn number_behind_colon(text: &str) -> Option<(&str, u32)> {
    let (rest, digits) = text.rsplit_once(':')?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    Some((rest, digits.parse().ok().filter(|_| is_number)?))
}

/// A text of at most [`MAX_NAME`] bytes.
pub(super) fn cut(text: &str) -> String {
    if text.len() <= MAX_NAME {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(MAX_NAME - CUT.len_utf8());
    let mut short = text.get(..end).unwrap_or_default().to_owned();
    short.push(CUT);
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that names of V8 and .NET lose their marker, that those of V8 are taken apart where that is certain, and that other names
    /// stay as they are.
    #[test]
    fn names_of_v8_are_taken_apart() {
        for (text, name, file, line) in [
            ("JS:~f /srv/app.js:12:5", "f", "/srv/app.js", 12),
            ("JS:*f /srv/app.js:12:5", "f", "/srv/app.js", 12),
            ("JS:+'f /srv/my app.js:12:5", "f", "/srv/my app.js", 12),
            ("JS:^get size node:net:7:1", "get size", "node:net", 7),
            ("JS:~ file:///a.mjs:1:1", "", "file:///a.mjs", 1),
            ("LazyCompile:*g app.js:3:9", "g", "app.js", 3),
            ("JS:~get x app.js:3:9", "get x app.js:3:9", "", 0),
            ("JS:~f /a /b:3:9", "f /a /b:3:9", "", 0),
            ("Function:~f", "f", "", 0),
            ("JS:~f /srv/app.js:12", "f /srv/app.js:12", "", 0),
            ("Builtin:ArrayMap", "Builtin:ArrayMap", "", 0),
            ("int Foo.bar(int, long)", "int Foo.bar(int, long)", "", 0),
            ("void [app] A::B()[QuickJitted]", "void [app] A::B()", "", 0),
            (
                "void [app] A::B()[OptimizedTier1]",
                "void [app] A::B()",
                "",
                0,
            ),
            ("sort[Optimized]", "sort[Optimized]", "", 0),
            (
                "int [app] A::B(int32)[x]",
                "int [app] A::B(int32)[x]",
                "",
                0,
            ),
        ] {
            let found = parts(text.as_bytes());
            assert_eq!(
                (found.name.as_str(), found.file.as_str(), found.line),
                (name, file, line),
                "{text}"
            );
        }
    }

    /// Check that long texts are cut at a character, and that bytes that are no text do no harm.
    #[test]
    fn long_names_are_cut() {
        let found = parts("é".repeat(4000).as_bytes());
        assert!(found.name.len() <= MAX_NAME && found.name.ends_with("é…"));
        assert_eq!(parts(b"a\xff").name, "a\u{fffd}");
    }
}
