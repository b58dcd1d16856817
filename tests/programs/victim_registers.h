/* A thread's registers, all of them loaded with known values, kept over a loop or over one inlined system call, and stored again.

   Compilers keep values in vector registers across an inlined `syscall` instruction, because the kernel leaves them alone; across
   a call of a function they do not. A debugger that stops the thread there must leave them alone too. */

#ifndef VICTIM_REGISTERS_H
#define VICTIM_REGISTERS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __x86_64__

enum { RAX, RBX, RDX, RSI, RDI, RBP, R8, R9, R10, R11, R12, R13, R14, R15, GENERAL };
enum { NUMBER = RAX, RESULT = RAX, FIRST = RDI, SECOND = RSI, THIRD = RDX, FOURTH = R10 }; /* of a system call */

struct held {
    uint64_t in[GENERAL];   /* what they are loaded with */
    uint64_t loops;         /* turns of the loop; 0: a system call instead, RAX its number */
    uint64_t wide;          /* load YMM, not XMM registers */
    uint64_t out[16];       /* what they hold afterwards */
    uint8_t vectors_in[16][32], vectors_out[16][32];
    double x87_in, x87_out; /* on the x87 stack */
    uint32_t mxcsr_in, mxcsr_out, mxcsr_usual, unused;
};

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

/* As a loop, with so many turns. */
static inline void held_loop(struct held *held, uint64_t turns)
{
    held->loops = turns;
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

#elif defined(__aarch64__)

#include <sys/auxv.h>

enum { GENERAL = 29 }; /* x0 to x28 */
enum { NUMBER = 8, RESULT = 0, FIRST = 0, SECOND = 1, THIRD = 2, FOURTH = 3 };

struct held {
    uint64_t in[32];
    uint64_t loops;         /* turns of the loop; 0: a system call instead */
    uint64_t wide;          /* with all of SVE's registers, which a system call does not keep */
    uint64_t out[32];
    uint64_t fpcr_in, fpcr_out, fpcr_usual, unused;
    uint8_t vectors_in[32 * 256], vectors_out[32 * 256], predicates_in[16 * 32], predicates_out[16 * 32];
};

_Static_assert(offsetof(struct held, loops) == 256 && offsetof(struct held, out) == 272, "as the assembly has it");
_Static_assert(offsetof(struct held, fpcr_in) == 528 && offsetof(struct held, vectors_in) == 560, "as the assembly has it");
_Static_assert(offsetof(struct held, vectors_out) == 8752 && offsetof(struct held, predicates_in) == 16944, "as the assembly has it");

void held_run(struct held *held);

#define HELD_16(WHAT) \
    WHAT(0) WHAT(1) WHAT(2) WHAT(3) WHAT(4) WHAT(5) WHAT(6) WHAT(7) WHAT(8) WHAT(9) WHAT(10) WHAT(11) WHAT(12) WHAT(13) WHAT(14) WHAT(15)
#define HELD_32(WHAT) \
    HELD_16(WHAT) \
    WHAT(16) WHAT(17) WHAT(18) WHAT(19) WHAT(20) WHAT(21) WHAT(22) WHAT(23) WHAT(24) WHAT(25) WHAT(26) WHAT(27) WHAT(28) WHAT(29) WHAT(30) WHAT(31)
#define LOAD_Q(N) "ldr q" #N ", [x1, #16*" #N "]\n"
#define STORE_Q(N) "str q" #N ", [x1, #16*" #N "]\n"
#define LOAD_Z(N) "ldr z" #N ", [x1, #" #N ", mul vl]\n"
#define STORE_Z(N) "str z" #N ", [x1, #" #N ", mul vl]\n"
#define LOAD_P(N) "ldr p" #N ", [x2, #" #N ", mul vl]\n"
#define STORE_P(N) "str p" #N ", [x2, #" #N ", mul vl]\n"
#define PAIR(WHAT, BASE, A, B) WHAT " x" #A ", x" #B ", [x30, #" #BASE "+8*" #A "]\n"
#define PAIRS(WHAT, BASE) \
    PAIR(WHAT, BASE, 0, 1) PAIR(WHAT, BASE, 2, 3) PAIR(WHAT, BASE, 4, 5) PAIR(WHAT, BASE, 6, 7) PAIR(WHAT, BASE, 8, 9) PAIR(WHAT, BASE, 10, 11) \
    PAIR(WHAT, BASE, 12, 13) PAIR(WHAT, BASE, 14, 15) PAIR(WHAT, BASE, 16, 17) PAIR(WHAT, BASE, 18, 19) PAIR(WHAT, BASE, 20, 21) \
    PAIR(WHAT, BASE, 22, 23) PAIR(WHAT, BASE, 24, 25) PAIR(WHAT, BASE, 26, 27)

__asm__(
    ".arch armv8.2-a+sve\n .text\n .globl held_run\n .type held_run, %function\n"
    "held_run:\n .cfi_startproc\n"
    "stp x29, x30, [sp, #-192]!\n .cfi_def_cfa_offset 192\n .cfi_offset 29, -192\n .cfi_offset 30, -184\n"
    "stp x19, x20, [sp, #16]\n stp x21, x22, [sp, #32]\n stp x23, x24, [sp, #48]\n stp x25, x26, [sp, #64]\n stp x27, x28, [sp, #80]\n"
    "stp d8, d9, [sp, #96]\n stp d10, d11, [sp, #112]\n stp d12, d13, [sp, #128]\n stp d14, d15, [sp, #144]\n str x0, [sp, #160]\n"
    "mov x30, x0\n ldr x3, [x30, #264]\n add x1, x30, #560\n mov x2, #16944\n add x2, x30, x2\n cbz x3, 1f\n"
    HELD_32(LOAD_Z) HELD_16(LOAD_P)
    "b 2f\n"
    "1:\n"
    HELD_32(LOAD_Q)
    "2: ldr x3, [x30, #528]\n msr fpcr, x3\n"
    PAIRS("ldp", 0)
    "ldr x28, [x30, #224]\n ldr x30, [x30, #256]\n"
    "cbz x30, 4f\n"
    "3: sub x30, x30, #1\n cbnz x30, 3b\n b 5f\n"
    "4: svc #0\n"
    "5: ldr x30, [sp, #160]\n"
    PAIRS("stp", 272)
    "str x28, [x30, #496]\n"
    "mrs x3, fpcr\n str x3, [x30, #536]\n ldr x3, [x30, #544]\n msr fpcr, x3\n"
    "ldr x3, [x30, #264]\n mov x1, #8752\n add x1, x30, x1\n mov x2, #17456\n add x2, x30, x2\n cbz x3, 6f\n"
    HELD_32(STORE_Z) HELD_16(STORE_P)
    "b 7f\n"
    "6:\n"
    HELD_32(STORE_Q)
    "7: ldp x19, x20, [sp, #16]\n ldp x21, x22, [sp, #32]\n ldp x23, x24, [sp, #48]\n ldp x25, x26, [sp, #64]\n ldp x27, x28, [sp, #80]\n"
    "ldp d8, d9, [sp, #96]\n ldp d10, d11, [sp, #112]\n ldp d12, d13, [sp, #128]\n ldp d14, d15, [sp, #144]\n"
    "ldp x29, x30, [sp], #192\n"
    "ret\n .cfi_endproc\n .size held_run, .-held_run\n");

/* Known values, other ones each time; the arguments of a system call are set by the caller afterwards, before it the loops. */
static inline void held_prepare(struct held *held, uint64_t seed)
{
    unsigned i;

    memset(held, 0, sizeof *held);
    for (i = 0; i < GENERAL; i++)
        held->in[i] = seed * 0x9E3779B97F4A7C15ULL + i * 0x0101010101010101ULL;
    for (i = 0; i < sizeof held->vectors_in; i++)
        held->vectors_in[i] = (uint8_t)(seed * 31 + i * 7 + 1);
    for (i = 0; i < sizeof held->predicates_in; i++)
        held->predicates_in[i] = (uint8_t)(seed * 13 + i * 5 + 1);
    __asm__ volatile("mrs %0, fpcr" : "=r"(held->fpcr_usual));
    held->fpcr_in = held->fpcr_usual | 0xc00000; /* rounds towards zero */
}

/* As a loop, with so many turns. */
static inline void held_loop(struct held *held, uint64_t turns)
{
    held->loops = turns;
    held->wide = getauxval(AT_HWCAP) >> 22 & 1;
}

/* How many registers are not what they were: the result of a system call, and its number, which is another one where it was interrupted,
   left out. */
static inline unsigned held_wrong(const struct held *held)
{
    unsigned wrong = 0, i;

    for (i = 0; i < GENERAL; i++)
        if (held->out[i] != held->in[i] && (held->loops || (i != RESULT && i != NUMBER)))
            wrong++;
    if (held->wide) {
        uint64_t vector;
        __asm__("cntb %0" : "=r"(vector));
        wrong += memcmp(held->vectors_in, held->vectors_out, 32 * vector) != 0;
        wrong += memcmp(held->predicates_in, held->predicates_out, 2 * vector) != 0;
    } else
        wrong += memcmp(held->vectors_in, held->vectors_out, 32 * 16) != 0;
    return wrong + (held->fpcr_in != held->fpcr_out);
}

#endif
#if defined(__x86_64__) || defined(__aarch64__)
#define HELD
#endif
#endif
