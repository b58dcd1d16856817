/* A thread's registers, all of them loaded with known values, kept over a loop or over one inlined system call, and stored again.

   Compilers keep values in vector registers across an inlined `syscall` instruction, because the kernel leaves them alone; across
   a call of a function they do not. A debugger that stops the thread there must leave them alone too. */

#ifndef VICTIM_REGISTERS_H
#define VICTIM_REGISTERS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { RAX, RBX, RDX, RSI, RDI, RBP, R8, R9, R10, R11, R12, R13, R14, R15, GENERAL };

struct held {
    uint64_t in[GENERAL];   /* what they are loaded with */
    uint64_t loops;         /* turns of the loop; 0: a system call instead, RAX its number */
    uint64_t wide;          /* load YMM, not XMM registers */
    uint64_t out[16];       /* what they hold afterwards */
    uint8_t vectors_in[16][32], vectors_out[16][32];
    double x87_in, x87_out; /* on the x87 stack */
    uint32_t mxcsr_in, mxcsr_out, mxcsr_usual, unused;
};

#ifdef __x86_64__

_Static_assert(offsetof(struct held, loops) == 112 && offsetof(struct held, out) == 128, "as the assembly has it");
_Static_assert(offsetof(struct held, vectors_in) == 256 && offsetof(struct held, vectors_out) == 768, "as the assembly has it");
_Static_assert(offsetof(struct held, x87_in) == 1280 && offsetof(struct held, mxcsr_in) == 1296, "as the assembly has it");

void held_run(struct held *held);

#define HELD_16(WHAT) \
    WHAT(0) WHAT(1) WHAT(2) WHAT(3) WHAT(4) WHAT(5) WHAT(6) WHAT(7) WHAT(8) WHAT(9) WHAT(10) WHAT(11) WHAT(12) WHAT(13) WHAT(14) WHAT(15)
#define LOAD_XMM(N) "movdqu 256+32*" #N "(%rdi), %xmm" #N "\n"
#define LOAD_YMM(N) "vmovdqu 256+32*" #N "(%rdi), %ymm" #N "\n"
#define STORE_XMM(N) "movdqu %xmm" #N ", 768+32*" #N "(%rcx)\n"
#define STORE_YMM(N) "vmovdqu %ymm" #N ", 768+32*" #N "(%rcx)\n"
#define PUSH(REGISTER) "push %" REGISTER "\n .cfi_adjust_cfa_offset 8\n"
#define SAVE(REGISTER) PUSH(REGISTER) " .cfi_rel_offset " REGISTER ", 0\n"
#define POP(REGISTER) "pop %" REGISTER "\n .cfi_adjust_cfa_offset -8\n"

__asm__(
    ".text\n .globl held_run\n .type held_run, @function\n"
    "held_run:\n .cfi_startproc\n"
    SAVE("rbx") SAVE("rbp") SAVE("r12") SAVE("r13") SAVE("r14") SAVE("r15") PUSH("rdi")
    "cmpq $0, 120(%rdi)\n je 1f\n"
    HELD_16(LOAD_YMM)
    "jmp 2f\n"
    "1:\n"
    HELD_16(LOAD_XMM)
    "2: fldl 1280(%rdi)\n"
    "ldmxcsr 1296(%rdi)\n"
    "mov 112(%rdi), %rcx\n"
    "mov 0(%rdi), %rax\n mov 8(%rdi), %rbx\n mov 16(%rdi), %rdx\n mov 24(%rdi), %rsi\n mov 40(%rdi), %rbp\n mov 48(%rdi), %r8\n"
    "mov 56(%rdi), %r9\n mov 64(%rdi), %r10\n mov 72(%rdi), %r11\n mov 80(%rdi), %r12\n mov 88(%rdi), %r13\n mov 96(%rdi), %r14\n"
    "mov 104(%rdi), %r15\n mov 32(%rdi), %rdi\n"
    "jrcxz 4f\n"
    "3: dec %rcx\n jnz 3b\n jmp 5f\n"
    "4: syscall\n"
    "5: mov (%rsp), %rcx\n"
    "mov %rax, 128(%rcx)\n mov %rbx, 136(%rcx)\n mov %rdx, 144(%rcx)\n mov %rsi, 152(%rcx)\n mov %rdi, 160(%rcx)\n mov %rbp, 168(%rcx)\n"
    "mov %r8, 176(%rcx)\n mov %r9, 184(%rcx)\n mov %r10, 192(%rcx)\n mov %r11, 200(%rcx)\n mov %r12, 208(%rcx)\n mov %r13, 216(%rcx)\n"
    "mov %r14, 224(%rcx)\n mov %r15, 232(%rcx)\n"
    "fstpl 1288(%rcx)\n stmxcsr 1300(%rcx)\n ldmxcsr 1304(%rcx)\n"
    "cmpq $0, 120(%rcx)\n je 6f\n"
    HELD_16(STORE_YMM)
    "vzeroupper\n jmp 7f\n"
    "6:\n"
    HELD_16(STORE_XMM)
    "7:\n"
    POP("rdi") POP("r15") POP("r14") POP("r13") POP("r12") POP("rbp") POP("rbx")
    "ret\n .cfi_endproc\n .size held_run, .-held_run\n");

/* Known values, other ones each time; the arguments of a system call are set by the caller afterwards. */
static inline void held_prepare(struct held *held, uint64_t seed)
{
    uint8_t *bytes = &held->vectors_in[0][0];
    unsigned i;

    memset(held, 0, sizeof *held);
    held->wide = (uint64_t)__builtin_cpu_supports("avx2");
    for (i = 0; i < GENERAL; i++)
        held->in[i] = seed * 0x9E3779B97F4A7C15ULL + i * 0x0101010101010101ULL;
    for (i = 0; i < sizeof held->vectors_in; i++)
        bytes[i] = (uint8_t)(seed * 31 + i * 7 + 1);
    held->x87_in = (double)seed + 0.25;
    __asm__ volatile("stmxcsr %0" : "=m"(held->mxcsr_usual));
    held->mxcsr_in = held->mxcsr_usual | 0x6000; /* rounds towards zero */
}

/* How many registers are not what they were: rax, which a system call sets, rcx and after a system call r11 left out. */
static inline unsigned held_wrong(const struct held *held)
{
    unsigned wrong = 0, i;

    for (i = 0; i < GENERAL; i++)
        if (held->out[i] != held->in[i] && (held->loops || (i != RAX && i != R11)))
            wrong++;
    for (i = 0; i < 16; i++)
        if (memcmp(held->vectors_in[i], held->vectors_out[i], held->wide ? 32 : 16))
            wrong++;
    wrong += held->x87_in != held->x87_out;
    wrong += (held->mxcsr_in & 0xffc0) != (held->mxcsr_out & 0xffc0);
    return wrong;
}

#endif
#endif
