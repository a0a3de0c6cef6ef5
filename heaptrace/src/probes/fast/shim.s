# The fast path's code, as it is mapped into a process. x86-64, position independent, general registers only.
#
# Each entry below takes the place of an allocator function in a linkage slot. It counts the bytes of the call down, and
# jumps to the copy of the function's first instructions (its "pass"), which goes on behind the probe. A call that must
# be seen jumps to the function itself, whose probe traps. Every jump has the stack as it was at the call, so the code
# never stands in a stack, and an exception passes it by.
#
# It keeps rdi, rsi, rdx, rcx and all registers that a called function must keep. r8 to r11 and rax are free: no such
# function takes a fifth argument.
#
# To the kernel program it passes: r10 the run's cookie, mixed with the stack pointer and the return address, r11 the mean
# of a sampled call or 0, r9 the countdown. What is left of them after the call must not count for another one: that has
# another stack pointer or return address, or comes through this code. Where a function may end in a tail call of another
# one, its pass clears r10, and notes the return address and the stack pointer, by which the kernel program recognizes that
# call.

# In a run that records every call, other entries stand in the slots, at the end of this file.

    .equ COUNTDOWN, 0x80         # in the thread's block, behind fs
    .equ RANDOM, 0x88
    .equ MEAN_OF_COUNTDOWN, 0x90

    .section .rodata.heaptrace_fast, "a", @progbits
    .p2align 12
    .globl heaptrace_fast_begin
heaptrace_fast_begin:

# Counts a call down: rax holds its bytes. Jumps to `slow` if it is sampled, or this is the thread's first.
.macro COUNT_DOWN slow
    cmp rax, 1
    adc rax, 0                   # 0 bytes count as one
    sub qword ptr fs:[COUNTDOWN], rax
    jb \slow
.endm

.macro PASS index
    jmp heaptrace_fast_begin + {PASSES} + {PASS_BYTES} * \index
.endm

.macro SEEN index
    mov r10, qword ptr [rip + heaptrace_fast_begin + {COOKIE}]
    xor r10, rsp
    xor r10, qword ptr [rsp]
    jmp qword ptr [rip + heaptrace_fast_begin + {FUNCTIONS} + 8 * \index]
.endm

.macro DECIDE_AND_GO index
    call decide
    jc 9f
    PASS \index
9:  SEEN \index
.endm

# Jumps to `may` if the page of the block at rdi has a recorded block. r8 is the hint array from there on.
.macro LOOK_AT_PAGE may
    mov rax, rdi
    shr rax, {PAGE_SHIFT}
    and eax, {PAGE_SLOTS} - 1
    lea r8, [rip + heaptrace_fast_begin + {HINTS}]
    cmp qword ptr [r8 + rax * 8], 0
    jne \may
.endm

# Jumps to `no` if the block at rdi is not recorded. r8 must be the hint array.
.macro LOOK_AT_BLOCK no
    mov rax, rdi
    shr rax, {ALIGNMENT_SHIFT}
    imul r9d, eax, {HASH_FACTOR}
    shr r9d, 32 - {ADDRESS_BITS}
    mov r9, qword ptr [r8 + r9 * 8 + 8 * {PAGE_SLOTS}]
    mov r11, r9
    shr r11, {COUNT_SHIFT}
    jz \no
    cmp r11, 1
    jne 8f
    shl r11, {COUNT_SHIFT}
    add rax, r11
    cmp rax, r9
    jne \no
8:
.endm

# A function whose argument `size` is the number of bytes.
.macro ALLOCATES index, size
    .p2align 5
entry_\index:
    mov rax, \size
    COUNT_DOWN 1f
    PASS \index
1:  DECIDE_AND_GO \index
.endm

.macro FREES index
    .p2align 5
entry_\index:
    LOOK_AT_PAGE 1f
2:  PASS \index
1:  LOOK_AT_BLOCK 2b
    mov r9, qword ptr fs:[COUNTDOWN]
    xor r11d, r11d
    SEEN \index
.endm

    ALLOCATES 0, rdi             # malloc
    FREES 1                      # free

    .p2align 5
entry_2:                         # calloc
    mov rax, rdi
    mul rsi
    jo 3f
    COUNT_DOWN 1f
    PASS 2
1:  DECIDE_AND_GO 2
3:  xor r10d, r10d               # too large a product: the probe sees that it fails
    jmp qword ptr [rip + heaptrace_fast_begin + {FUNCTIONS} + 8 * 2]

    .p2align 5
entry_3:                         # realloc
    test rdi, rdi
    jz 4f
    mov rax, rsi
    COUNT_DOWN 1f
5:  LOOK_AT_PAGE 2f
6:  PASS 3
2:  LOOK_AT_BLOCK 6b
    mov r9, qword ptr fs:[COUNTDOWN]
    xor r11d, r11d               # not sampled, but its old block is recorded
    SEEN 3
1:  call decide
    jnc 5b
    SEEN 3
4:  mov rdi, rsi                 # without a block it is malloc, and some would call their malloc past this code
    jmp entry_0

    ALLOCATES 4, rsi             # memalign
    ALLOCATES 5, rsi             # aligned_alloc
    ALLOCATES 6, rdx             # posix_memalign
    ALLOCATES 7, rdi             # operator new(size)
    ALLOCATES 8, rdi             # operator new[](size)
    ALLOCATES 9, rdi             # operator new(size, nothrow)
    ALLOCATES 10, rdi            # operator new[](size, nothrow)
    ALLOCATES 11, rdi            # operator new(size, alignment)
    ALLOCATES 12, rdi            # operator new[](size, alignment)
    FREES 13                     # operator delete(block)
    FREES 14                     # operator delete[](block)
    FREES 15                     # operator delete(block, size)
    FREES 16                     # operator delete[](block, size)
    FREES 17                     # operator delete(block, alignment)
    FREES 18                     # operator delete[](block, alignment)
    FREES 19                     # operator delete(block, size, alignment)

# The countdown ran out in a call of rax bytes. Carry is set if the call is sampled; then r11 is the mean that it is
# sampled under, and r9 the new countdown.
    .p2align 4
decide:
    push rcx
    push rdx
    mov r8, rax
    mov r10, qword ptr fs:[RANDOM]
    test r10, r10
    jz 2f
1:  mov r11, qword ptr fs:[MEAN_OF_COUNTDOWN]
    call draw
    mov qword ptr fs:[COUNTDOWN], rax
    mov r9, rax
    stc
    jmp 3f
2:  # The thread's first call. It has no countdown yet, so one is drawn, and decides.
    movabs r10, 0x9e3779b97f4a7c15
    mov rax, r10
    lock xadd qword ptr [rip + heaptrace_fast_begin + {SEED}], rax
    xor rax, qword ptr fs:[0x10]
    imul rax, r10
    mov r10, rax
    shr rax, 32
    xor r10, rax
    or r10, 1
    call draw
    sub rax, r8
    jb 1b
    mov qword ptr fs:[COUNTDOWN], rax
    clc
3:  pop rdx
    pop rcx
    ret

# A random distance in whole bytes, in rax, exponential with the process's mean. r10 is the random state. Uses rcx, rdx
# and r9.
    .p2align 4
draw:
    mov rax, r10
    shr rax, 12
    xor r10, rax
    mov rax, r10
    shl rax, 25
    xor r10, rax
    mov rax, r10
    shr rax, 27
    xor r10, rax
    mov qword ptr fs:[RANDOM], r10
    movabs rax, 0x2545f4914f6cdd1d
    imul rax, r10
    or rax, 1
    bsr r9, rax
    mov ecx, 63
    sub ecx, r9d                 # leading zeros
    shl rax, cl
    add rax, rax                 # the fraction behind the leading one
    mov rdx, rax
    shr rdx, 56
    shl rax, 8
    shr rax, 32
    lea r9, [rip + heaptrace_fast_begin + {LOGARITHMS}]
    mov r9, qword ptr [r9 + rdx * 8]
    mov edx, r9d
    shr r9, 32
    imul rax, r9
    shr rax, 32
    add rax, rdx                 # log2 of the number from 1 to 2, 32 bits behind the point
    inc ecx
    shl rcx, 32
    sub rcx, rax                 # minus log2 of a number below 1
    mov rax, rcx
    mov ecx, 2977044472          # ln 2
    mul rcx
    shrd rax, rdx, 32
    mov rcx, qword ptr [rip + heaptrace_fast_begin + {MEAN}]
    mov qword ptr fs:[MEAN_OF_COUNTDOWN], rcx
    mul rcx
    shrd rax, rdx, 32
    ret

# The entries of a run that records every call. Each function has at most one probe, on a `nop` of five bytes, which newer kernels
# make a call instead of a trap. There r8 and r9 are where the allocator's code begins and ends.
#
# A forked child has that call in its copy of this page, but not what the kernel calls by it (Linux 6.18), and would crash. So
# a forked child never gets to a probe: its mark is 0, by a page that the kernel wipes at a fork. It calls the function itself.

.macro IN_CHILD to
    cmp qword ptr [rip + heaptrace_fast_begin + {MARK}], 0
    je \to
.endm

.macro AT_PROBE index
    mov r8, qword ptr [rip + heaptrace_fast_begin + {ALLOCATOR}]
    mov r9, qword ptr [rip + heaptrace_fast_begin + {ALLOCATOR} + 8]
    IN_CHILD 8f
probe_\index:
    .byte 0x0f, 0x1f, 0x44, 0x00, 0x00
8:
.endm

.macro FUNCTION index
    jmp qword ptr [rip + heaptrace_fast_begin + {FUNCTIONS} + 8 * \index]
.endm

# Makes the call, so that the block is there at the probe. The stack is as at the call then, and rdi, rsi and rdx are the
# arguments again. Only functions that throw no exceptions: none could pass this frame.
.macro RECORDS index
    .p2align 5
recorded_\index:
    IN_CHILD 7f
    push rdi
    push rsi
    push rdx
    call heaptrace_fast_begin + {PASSES} + {PASS_BYTES} * \index
    pop rdx
    pop rsi
    pop rdi
    mov qword ptr fs:[{PASSED_FROM}], 0
    AT_PROBE \index
    ret
7:  FUNCTION \index
.endm

.macro RECORDS_FREE index
    .p2align 5
recorded_\index:
    IN_CHILD 7f
    AT_PROBE \index
    PASS \index
7:  FUNCTION \index
.endm

# Where the entry is, and where its probe is. Zeros for functions whose own probes see every call.
.macro RECORDED index
    .quad recorded_\index - heaptrace_fast_begin, probe_\index - heaptrace_fast_begin
.endm

    RECORDS 0                    # malloc
    RECORDS_FREE 1               # free
    RECORDS 2                    # calloc
    RECORDS 4                    # memalign
    RECORDS 5                    # aligned_alloc
    RECORDS 6                    # posix_memalign
    .irp index, 13, 14, 15, 16, 17, 18, 19
    RECORDS_FREE \index          # operator delete
    .endr

    .globl heaptrace_fast_end
heaptrace_fast_end:
# An error here means that the code does not fit before its tables.
    .org heaptrace_fast_begin + {FIXED}

# Where each entry is.
    .p2align 3
    .globl heaptrace_fast_entries
heaptrace_fast_entries:
    .irp index, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19
    .quad entry_\index - heaptrace_fast_begin
    .endr

    .globl heaptrace_fast_recorded
heaptrace_fast_recorded:
    RECORDED 0
    RECORDED 1
    RECORDED 2
    .quad 0, 0                   # realloc: its old block must be taken before the call
    RECORDED 4
    RECORDED 5
    RECORDED 6
    .rept 6
    .quad 0, 0                   # operator new: it may throw
    .endr
    .irp index, 13, 14, 15, 16, 17, 18, 19
    RECORDED \index
    .endr
    .text
