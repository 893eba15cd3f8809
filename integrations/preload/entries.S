/* The entry points: each names itself and goes to `enter`, which saves the argument registers, asks
 * kfit_hooked (hooks.c), and jumps to the original it answers with, or returns if the work is done.
 *
 * Assembly, so that the original gets its caller's registers, stack and return address as they were, at any
 * optimisation level: what lies on the stack beyond the arguments (Fortran's hidden lengths, or the caller's
 * own variables if it passes none) is neither read nor written, and another interposer sees the true caller. */
#include "hooks.h"

#define FRAME 0x58 /* struct frame of hooks.c up to the return address; keeps the stack 16-byte aligned */

        .text
        .set    hook, 0
        .macro  entry name
        .globl  \name
        .type   \name, @function
        .balign 16
\name:
        .cfi_startproc
        endbr64
        movl    $hook, %eax
        jmp     enter
        .cfi_endproc
        .size   \name, . - \name
        .set    hook, hook + 1
        .endm

#define ENTRY(function, interface, operation, type, kfit_type) entry function;
        KFIT_HOOK_LIST(ENTRY)

        .type   enter, @function
        .balign 16
enter:
        .cfi_startproc
        subq    $FRAME, %rsp
        .cfi_adjust_cfa_offset FRAME
        movq    %rdi, (%rsp)
        movq    %rsi, 8(%rsp)
        movq    %rdx, 16(%rsp)
        movq    %rcx, 24(%rsp)
        movq    %r8, 32(%rsp)
        movq    %r9, 40(%rsp)
        movaps  %xmm0, 48(%rsp)
        movaps  %xmm1, 64(%rsp)
        movq    %rsp, %rdi
        movl    %eax, %esi
        call    kfit_hooked
        movq    (%rsp), %rdi
        movq    8(%rsp), %rsi
        movq    16(%rsp), %rdx
        movq    24(%rsp), %rcx
        movq    32(%rsp), %r8
        movq    40(%rsp), %r9
        movaps  48(%rsp), %xmm0
        movaps  64(%rsp), %xmm1
        addq    $FRAME, %rsp
        .cfi_adjust_cfa_offset -FRAME
        testq   %rax, %rax
        je      1f
        jmp     *%rax
1:      ret
        .cfi_endproc
        .size   enter, . - enter

        .section .note.GNU-stack, "", @progbits
