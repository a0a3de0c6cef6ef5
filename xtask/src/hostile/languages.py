# A Python program that overwrites its own functions' descriptions while it allocates: lengths, and addresses of names and of
# lines. Only addresses that the interpreter does not use itself in between are changed, and put back before it does.
import ctypes
import sys

ROUNDS = 40
made = 0


def allocate(size):
    global made
    made += 1
    return bytes(size)


def word(address):
    return ctypes.c_uint64.from_address(address)


def names_of(code):
    """The addresses of words of the code object that refer to one of its texts or tables."""
    known = {id(it) for it in (code.co_name, code.co_filename, code.co_qualname, code.co_linetable)}
    return [at for at in range(id(code) + 16, id(code) + 192, 8) if word(at).value in known]


code = allocate.__code__
places = names_of(code)
texts = [code.co_name, code.co_filename, code.co_linetable]
assert places, "no names found in the code object"
VALUES = [0, 1, 0x7FFF_FFFF_0000, 0xFFFF_FFFF_FFFF_F000, id(code), id(places), 0x8000_0000_0000_0000]

for round in range(ROUNDS):
    # Another object for each function that is described wrongly, so that each is read anew.
    wrong = allocate.__code__.replace(co_firstlineno=round + 1)
    function = type(allocate)(wrong, globals())
    changed = [word(at) for at in names_of(wrong)]
    before = [it.value for it in changed]
    lengths = [ctypes.c_int64.from_address(id(text) + 16) for text in texts]
    old = [it.value for it in lengths]
    value = VALUES[round % len(VALUES)]
    if round % 2:
        for it in changed:
            it.value = value
    else:
        for it in lengths:
            it.value = value if value < 1 << 63 else -1
    function(100_000 + round)
    for it, was in zip(changed, before):
        it.value = was
    for it, was in zip(lengths, old):
        it.value = was

sys.stdout.write(f"allocations={made}\n")
