#include <stddef.h>
#include <stdio.h>
#include <signal.h>
#include <asm/ucontext.h>
struct rt_sigframe { siginfo_t info; struct ucontext uc; };
#define SAY(name, field) printf("%s %zu\n", name, offsetof(struct rt_sigframe, field))
int main(void)
{
    SAY("flags", uc.uc_flags); SAY("stack_flags", uc.uc_stack.ss_flags); SAY("mask", uc.uc_sigmask);
    SAY("x0", uc.uc_mcontext.regs); SAY("sp", uc.uc_mcontext.sp); SAY("pc", uc.uc_mcontext.pc); SAY("pstate", uc.uc_mcontext.pstate);
    SAY("records", uc.uc_mcontext.__reserved);
    printf("magic %u\nbytes %zu\nstatus %zu\nvectors %zu\n", FPSIMD_MAGIC, sizeof(struct fpsimd_context),
        offsetof(struct fpsimd_context, fpsr), offsetof(struct fpsimd_context, vregs));
    return 0;
}
