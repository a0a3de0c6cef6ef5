//! Tests of the filter language: what is read, what is refused and where, and what named filters stand for.

use super::definitions::Definitions;
use super::expression::Expression;
use super::resolved::{Filter, together};

/// An expression, and how it is read: with parentheses where they are needed.
const READ: [(&str, &str); 33] = [
    ("function=main", "function=main"),
    ("  function = main ", "function=main"),
    ("function=a=b", "function=a=b"),
    ("not function=a and module=b", "not function=a and module=b"),
    (
        "function=a or module=b and pid=7",
        "function=a or (module=b and pid=7)",
    ),
    (
        "(function=a or module=b) and pid=7",
        "(function=a or module=b) and pid=7",
    ),
    ("((function=a))", "function=a"),
    (
        "not (function=a or not module=b)",
        "not (function=a or not module=b)",
    ),
    ("function!=a", "not function=a"),
    ("function!~^a", "not function~^a"),
    ("not not kind=heap", "not not kind=heap"),
    ("function=a\nand\tpid=7", "function=a and pid=7"),
    // What old command lines have: names with spaces, pairs of parentheses and words.
    (
        "function=operator new(unsigned long)",
        "function=operator new(unsigned long)",
    ),
    (
        "function=f(int (*)(char), g)",
        "function=f(int (*)(char), g)",
    ),
    (
        "(function=operator()(int) const or pid=1)",
        "function=operator()(int) const or pid=1",
    ),
    (
        "function=shop::Shelf<*>::put",
        "function=shop::Shelf<*>::put",
    ),
    ("function=f(* and pid=1", "function=\"f(*\" and pid=1"),
    ("function=operator not", "function=operator not"),
    // Quotes.
    (
        "function=\"a and b\" and pid=1",
        "function=\"a and b\" and pid=1",
    ),
    ("function='say \"hi\"'", "function=say \"hi\""),
    (
        r#"function="say \"hi\" \\ \d" "#,
        r#"function=say "hi" \ \d"#,
    ),
    ("function='a) '", "function=\"a) \""),
    ("process='=a'", "process=\"=a\""),
    // Regular expressions and numbers.
    (
        "function~^(alloc|free)_[a-z]+$ or line=7",
        "function~^(alloc|free)_[a-z]+$ or line=7",
    ),
    ("size>=1MiB and size < 2GB", "size>=1MiB and size<2GB"),
    ("size=4KiB..8KiB", "size=4KiB..8KiB"),
    ("line=10..20", "line=10..20"),
    ("age>30s and not time<1h30m", "age>30s and not time<1h30m"),
    ("time=500ms..2m", "time=500ms..2m"),
    ("line=pool.c:10..20", "line=pool.c:10..20"),
    ("line=pool.c:31", "line=pool.c:31"),
    ("pid=1.. and pid!=7", "pid=1.. and not pid=7"),
    (
        "web or not (tls or x-1) and a",
        "web or (not (tls or x-1) and a)",
    ),
];

/// Check that expressions are read as they are meant, also as they were before there was a language, and that what is written for
/// programs is read as the same expression.
#[test]
fn expressions_are_read() {
    for (text, expected) in READ {
        let read: Expression = text.parse().unwrap_or_else(|why| panic!("{text}: {why}"));
        let written = read.tree().to_string();
        assert_eq!(written, expected, "{text}");
        let again: Expression = written
            .parse()
            .unwrap_or_else(|why| panic!("{written}: {why}"));
        assert_eq!(again.tree(), read.tree(), "{text}");
    }
}

/// Check that a mistake is explained and marked at its place, counted in characters.
#[test]
fn mistakes_are_marked() {
    for (text, why, marked) in [
        ("", "a condition is missing", (0, 1)),
        ("funtion=x", "did you mean `function`?", (0, 7)),
        ("pid=1 and Proces=x", "did you mean `process`?", (10, 6)),
        ("colour=x", "use one of function, module, file", (0, 6)),
        ("typ=x", "did you mean `type`?", (0, 3)),
        ("pid=1 and age>30x", "is not a unit of time", (14, 3)),
        ("time~5s", "is a number", (5, 2)),
        ("age=5m..1s", "5m is more than 1s", (4, 6)),
        ("age", "needs an operator", (0, 3)),
        ("age>", "write it as age>=30s", (4, 1)),
        ("function", "needs an operator", (0, 8)),
        ("function=", "the pattern is empty", (9, 1)),
        ("function= and pid=1", "the pattern is empty", (10, 1)),
        ("size>=", "the number is empty", (6, 1)),
        ("pid=5..2", "the range is empty", (4, 4)),
        ("function==a", "write = for a glob", (8, 2)),
        ("function=~a", "write = for a glob", (8, 2)),
        ("function>a", "is a name", (9, 1)),
        ("size~a", "is a number", (5, 1)),
        ("size>=many", "does not begin with a number", (6, 4)),
        ("size=2KiB..1KiB", "the range is empty", (5, 10)),
        ("line>=a", "no whole number", (6, 1)),
        ("kind=mapped", "use one of heap, mmap", (5, 6)),
        ("language=c", "use one of native, python", (9, 1)),
        ("function~a(b", "this is no regular expression", (9, 3)),
        (
            "function~(a{1000}){1000}",
            "this is no regular expression",
            (9, 15),
        ),
        ("function=\"a", "quote is not closed", (9, 1)),
        ("(function=a", "this ( has no )", (0, 1)),
        ("(pid=1 and (pid=2)", "this ( has no )", (0, 1)),
        ("function=a)", "this ) has no (", (10, 1)),
        ("pid=1 and", "a condition is missing here", (9, 1)),
        ("and pid=1", "a condition is missing before `and`", (0, 3)),
        (
            "pid=1 and or pid=2",
            "a condition is missing before `or`",
            (10, 2),
        ),
        ("()", "a condition is missing before this )", (1, 1)),
        ("pid=1 module=b", "is missing before `module`", (6, 6)),
        ("pid='1' module=b", "is missing here", (8, 1)),
        ("*main", "begins with a key", (0, 1)),
        ("std::f", "is missing here", (3, 1)),
        (
            "module=日本 and funktion=x",
            "did you mean `function`?",
            (14, 8),
        ),
        ("\tfunction=a and \u{1b}=x", "begins with a key", (15, 1)),
    ] {
        let problem = text.parse::<Expression>().unwrap_err().to_string();
        let lines: Vec<_> = problem.lines().collect();
        let [first, shown, marks] = lines[..] else {
            panic!("{problem}");
        };
        assert!(first.contains(why), "{text}: {problem}");
        assert!(!shown.contains('\u{1b}'), "{problem:?}");
        let start = marks.chars().take_while(|c| *c == ' ').count() - 4;
        assert_eq!((start, marks.trim().len()), marked, "{problem}");
    }
}

/// Check that a mistake in a long expression is shown with a part of it, and that nothing is too long or too deep.
#[test]
fn long_expressions_are_bounded() {
    let long = format!(
        "{}colour=x{}",
        "pid=1 and ".repeat(20),
        " and pid=2".repeat(20)
    );
    let problem = long.parse::<Expression>().unwrap_err().to_string();
    let lines: Vec<_> = problem.lines().collect();
    assert!(lines[1].chars().count() <= 80, "{problem}");
    assert!(lines[1].trim().starts_with('…') && lines[1].ends_with('…'));
    let at = lines[2].find('^').unwrap();
    let shown: String = lines[1].chars().skip(at).take(6).collect();
    assert_eq!((shown.as_str(), lines[2].trim()), ("colour", "^^^^^^"));
    let deep = |n: usize| "(".repeat(n) + "pid=1" + &")".repeat(n);
    assert!(deep(40).parse::<Expression>().is_ok());
    for text in [deep(100_000), deep(100), "not ".repeat(100) + "pid=1"] {
        let problem = text.parse::<Expression>().unwrap_err().to_string();
        assert!(problem.contains("too deep") || problem.contains("64 KiB"));
    }
    let many = vec!["pid=1"; 1_001].join(" or ");
    let problem = many.parse::<Filter>().unwrap_err();
    assert!(problem.contains("more than 1000 conditions"), "{problem}");
}

fn definitions(text: &str) -> Result<Definitions, String> {
    let mut definitions = Definitions::default();
    definitions.add("my.filters", text)?;
    definitions.check()?;
    Ok(definitions)
}

/// Check that named filters are joined in any order, and that they are shown by name to people, and in full to programs.
#[test]
fn names_stand_for_expressions() {
    let text = "# what serves\n\nboth = web and tls\n  web = process=nginx or process=php*\ntls=module=libssl*\n";
    let definitions = definitions(text).unwrap();
    let filter = |text: &str| definitions.filter(&text.parse().unwrap());
    let made = filter("not both or web").unwrap();
    assert_eq!(made.to_string(), "not both or web");
    let web = "(process=nginx or process=php*)";
    assert_eq!(
        made.in_full(),
        format!("not ({web} and module=libssl*) or {web}")
    );
    let again: Filter = made.in_full().parse().unwrap();
    assert_eq!(again.in_full(), made.in_full());
    let error = filter("web and tlss").unwrap_err();
    assert!(
        error.contains("did you mean `tls`?") && error.ends_with("        ^^^^"),
        "{error}"
    );
    assert!(filter("main").unwrap_err().contains("function=main"));
    let all = ["web", "tls", "web or tls"].map(|it| filter(it).unwrap());
    assert_eq!(together(&all), "web and tls and (web or tls)");
    assert_eq!(together(&all[2..]), "web or tls");
    // `web` is about processes alone, also behind its name.
    let parts = |text: &str| {
        let filter = filter(text).unwrap();
        (filter.selects_processes(), filter.selects_sites())
    };
    assert_eq!(parts("web"), (true, false));
    assert_eq!(parts("web and tls"), (true, true));
    assert_eq!(parts("web or tls"), (false, true));
    assert_eq!(parts("not (web and pid=1)"), (true, false));
}

/// Check that a wrong file of filters is refused with the line, also where no expression uses it.
#[test]
fn wrong_files_are_refused() {
    for (text, why) in [
        (
            "web = pid=1\nweb = pid=2",
            "line 2: `web` has a definition in my.filters, line 1",
        ),
        ("\nnothing", "line 2: write it as NAME = EXPRESSION"),
        (
            "process=nginx",
            "line 1: `process` is a word of the language",
        ),
        ("a b = pid=1", "line 1: write it as NAME"),
        ("web = colour=x", "line 1: unknown key `colour`"),
        ("a = b\nb = c or pid=1\nc = not a", "`a` stands for itself"),
        ("a = a", "`a` stands for itself"),
        ("a = b", "there is no filter `b`"),
    ] {
        let error = definitions(text).unwrap_err();
        assert!(error.contains(why), "{text}: {error}");
    }
    // Each name doubles the conditions.
    let mut text = "a0 = pid=1\n".to_owned();
    for n in 1..15 {
        text += &format!("a{n} = a{0} or a{0}\n", n - 1);
    }
    assert!(
        definitions(&text)
            .unwrap_err()
            .contains("more than 1000 conditions")
    );
    let chain: String = (0..40).map(|n| format!("a{n} = a{}\n", n + 1)).collect();
    let error = definitions(&(chain + "a40 = pid=1")).unwrap_err();
    assert!(error.contains("names stand for each other"), "{error}");
}
