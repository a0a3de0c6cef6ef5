//! Lines of the instructions of real functions, compared with what their interpreter says.
//!
//! Part of `python`.

use super::interpreters::interpreters;
use crate::python::line;

/// Prints for each function of some code: its first line, its line table, and the line of each instruction.
const SCRIPT: &str = r#"
import dis, sys, types

SOURCE = '''
import os

def outer(a,
          b=1,
          *rest):
    """Nested, with calls over several lines."""
    def inner(x):
        return [
            y
            for y in range(
                x
            ) if
            y
        ]
    value = inner(
        a
        + b
    ) + inner(
        len(rest))
    with open(
        os.devnull
    ) as file:
        try:
            for line in file:
                value.append(line); value.append(lambda: (
                    line))
        except (OSError,
                ValueError) as error:
            raise RuntimeError(
                "text",
                error) from error
        finally:
            value = (value or
                     [None])
    return {
        "key":
            value,
        **dict(
            other=1)
    }



















''' + "\n" * 300 + '''
class Far:
    attribute = (1,
                 2)
    async def method(self, x): return await self.other(x,
        x + 1) if x else [i
                          async for i in self]
''' + "\nwide = [" + ", ".join("name%d" % i for i in range(400)) + ", " + ",\n\n".join("far%d" % i for i in range(200)) + "]\n"

def lines_of(code):
    last = [None] * (len(code.co_code) // 2)
    if sys.version_info >= (3, 10):
        for start, end, line in code.co_lines():
            for at in range(start // 2, end // 2):
                last[at] = line
    else:
        starts = dict(dis.findlinestarts(code))
        line = code.co_firstlineno
        for at in range(len(last)):
            line = starts.get(2 * at, line)
            last[at] = line
    return ",".join("-" if line is None else str(line) for line in last)

def show(code):
    table = code.co_linetable if sys.version_info >= (3, 10) else code.co_lnotab
    print(code.co_firstlineno, table.hex() or "-", lines_of(code))
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            show(constant)

show(compile(SOURCE, "source", "exec"))
import argparse, inspect, typing
for module in argparse, inspect, typing:
    with open(module.__file__, encoding="utf-8") as file:
        show(compile(file.read(), module.__file__, "exec"))
"#;

fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().as_chunks::<2>().0;
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16);
    digits.iter().map(|pair| byte(pair).unwrap()).collect()
}

/// Check that each instruction of real functions has the line that its interpreter says, in each version on the machine.
#[test]
fn instructions_have_their_interpreters_lines() {
    for interpreter in interpreters() {
        let minor = interpreter.minor;
        let printed = interpreter.run(SCRIPT);
        let (mut compared, mut without) = (0, 0);
        for function in printed.lines() {
            let mut words = function.split(' ');
            let first: i32 = words.next().unwrap().parse().unwrap();
            let table = bytes(words.next().unwrap().trim_matches('-'));
            for (index, expected) in (0..).zip(words.next().unwrap().split(',')) {
                let instruction = if minor == 10 { index } else { index * 2 };
                let found = line(minor, first, &table, instruction);
                if expected == "-" {
                    without += 1;
                    assert_eq!(found, first as u32, "{interpreter:?} {function}");
                } else {
                    compared += 1;
                    let expected: u32 = expected.parse().unwrap();
                    assert_eq!(found, expected, "{interpreter:?} {instruction} {function}");
                }
            }
        }
        println!("{interpreter:?}: {compared} instructions, {without} without a line");
        assert!(compared > 10_000, "{interpreter:?}: {compared}");
    }
}
