//! Demangles C++ and Rust names, with a limit on the length of the result.
//!
//! Stage: symbolize. A few hundred bytes of back references in a mangled name can expand to more text than there is memory,
//! so the text is cut at a limit.

use std::fmt;

/// The longest name, in bytes. The longest real names, of expression templates, are close to it.
pub(super) const MAX_NAME: usize = 16 << 10;

/// The demangled form of a name, or the name itself if it is not mangled.
pub(crate) fn demangle(name: &str) -> String {
    if name.len() <= MAX_NAME {
        if let Ok(symbol) = rustc_demangle::try_demangle(name) {
            // `#` omits the hash, which means nothing to a user.
            return Limited::collect(|out| fmt::Write::write_fmt(out, format_args!("{symbol:#}")))
                .unwrap_or_else(|| name.to_owned());
        }
        if let Some(text) = cpp(name, cpp_demangle::DemangleOptions::new()) {
            return text;
        }
    }
    cut(name.to_owned())
}

/// The demangled form of a name without its parameters and its result, or the name itself if it is not mangled.
pub(crate) fn demangle_bare(name: &str) -> String {
    let options = cpp_demangle::DemangleOptions::new();
    let options = options.no_params().no_return_type();
    let is_cpp = name.len() <= MAX_NAME && rustc_demangle::try_demangle(name).is_err();
    let bare = is_cpp.then(|| cpp(name, options));
    bare.flatten().unwrap_or_else(|| demangle(name))
}

/// Whether a name has the prefix of mangled C++ or Rust names.
pub(super) fn is_mangled(name: &str) -> bool {
    name.starts_with("_Z") || name.starts_with("_R")
}

fn cpp(name: &str, options: cpp_demangle::DemangleOptions) -> Option<String> {
    // Without the prefix, a name could parse as a type: a C function `i` would become `int`.
    if !name.starts_with("_Z") && !name.starts_with("___Z") {
        return None;
    }
    let symbol = cpp_demangle::Symbol::new(name).ok()?;
    Limited::collect(|out| symbol.structured_demangle(out, &options))
}

fn cut(mut name: String) -> String {
    if name.len() > MAX_NAME {
        name.truncate(name.floor_char_boundary(MAX_NAME));
        name.push('…');
    }
    name
}

/// Text up to the limit. More text is an error, which stops the writer.
struct Limited {
    text: String,
    full: bool,
}

impl Limited {
    /// The written text, cut if it was too long; `None` if the writer failed for another reason.
    fn collect(write: impl FnOnce(&mut Self) -> fmt::Result) -> Option<String> {
        let mut out = Self {
            text: String::new(),
            full: false,
        };
        let result = write(&mut out);
        (out.full || result.is_ok() && !out.text.is_empty()).then(|| cut(out.text))
    }
}

impl fmt::Write for Limited {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.text.len() > MAX_NAME {
            self.full = true;
            return Err(fmt::Error);
        }
        self.text.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that names of each language are demangled, and that C names stay unchanged.
    #[test]
    fn names_of_each_language_are_demangled() {
        for (mangled, readable) in [
            ("_Znwm", "operator new(unsigned long)"),
            (
                "_ZNSt6vectorIiSaIiEE9push_backEOi",
                "std::vector<int, std::allocator<int> >::push_back(int&&)",
            ),
            (
                "_ZN5alloc5alloc15exchange_malloc17h0123456789abcdefE",
                "alloc::alloc::exchange_malloc",
            ),
            ("_RNvCs1234_7mycrate3foo", "mycrate::foo"),
            ("i", "i"),
            ("main", "main"),
            ("_Zbroken", "_Zbroken"),
            ("", ""),
        ] {
            assert_eq!(demangle(mangled), readable);
        }
    }

    /// Check that a name whose substitutions double its length at each step is cut at the limit.
    #[test]
    fn exponential_names_are_cut() {
        // f(pair<int,int>, …): each further parameter is a pair of two times the previous parameter.
        let mut name = "_Z1f4pairIiiE".to_owned();
        for last in "0123456789ABCDEFGHIJKLMNOPQRS".chars() {
            name.push_str(&format!("S_IS{last}_S{last}_E"));
        }
        let text = demangle(&name);
        assert!(text.starts_with("f(pair<int, int>, pair<pair<int, int>"));
        assert!(text.len() <= MAX_NAME + 4 && text.len() > MAX_NAME / 2);
        assert_eq!(demangle(&"x".repeat(1 << 20)).len(), MAX_NAME + 3);
    }
}
