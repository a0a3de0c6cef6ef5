# Commands of heaptrace for gdb. Print this file with `heaptrace who --gdb-commands`, and load it with `source` in gdb.
#
# heaptrace who EXPR [FILE]   who owns the address that an expression has, by a recording (default: heaptrace.data)
#
# The recording is made beside gdb by `heaptrace record --blocks --pid PID`, or was made before. It may still be going on: it
# knows what was allocated up to its last update. The variable HEAPTRACE names the program to run, if it is not in the PATH.

import os
import subprocess

import gdb


class Heaptrace(gdb.Command):
    """Commands of heaptrace: heaptrace who EXPR [FILE]."""

    def __init__(self):
        super().__init__("heaptrace", gdb.COMMAND_DATA, prefix=True)


class HeaptraceWho(gdb.Command):
    """Show who owns an address: heaptrace who EXPR [FILE].

EXPR is an expression whose value is an address, as p, $rdi or &list->next.
FILE is a recording of this process, made by `heaptrace record --blocks`; it must
not contain spaces. Without it, heaptrace.data in the present folder is read."""

    def __init__(self):
        super().__init__("heaptrace who", gdb.COMMAND_DATA, gdb.COMPLETE_EXPRESSION)

    def invoke(self, argument, from_tty):
        expression, name = self.divide(argument.strip())
        if not expression:
            raise gdb.GdbError("heaptrace who EXPR [FILE]: an expression is missing")
        address = self.address(gdb.parse_and_eval(expression))
        program = os.environ.get("HEAPTRACE", "heaptrace")
        words = [program, "who", hex(address), name]
        pid = gdb.selected_inferior().pid
        if pid > 0:
            words += ["--pid", str(pid)]
        try:
            done = subprocess.run(
                words, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", errors="replace"
            )
        except OSError as error:
            raise gdb.GdbError("can't run %s: %s; set the variable HEAPTRACE to its path" % (program, error))
        gdb.write(done.stdout)
        if done.returncode != 0:
            raise gdb.GdbError(done.stderr.strip())

    @staticmethod
    def address(value):
        """The address that a value is, or that an array has. No type is looked up: its name depends on the language."""
        if value.type.strip_typedefs().code in (gdb.TYPE_CODE_REF, gdb.TYPE_CODE_RVALUE_REF):
            value = value.referenced_value()
        if value.type.strip_typedefs().code == gdb.TYPE_CODE_ARRAY:
            value = value.address
        return int(value) & 0xFFFFFFFFFFFFFFFF

    @staticmethod
    def divide(argument):
        """The expression and the file, which is the last word if there is such a file."""
        before, _, last = argument.rpartition(" ")
        if before and os.path.exists(last):
            return before, os.path.abspath(last)
        return argument, os.path.abspath("heaptrace.data")


Heaptrace()
HeaptraceWho()
