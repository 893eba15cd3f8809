/* dlsym, as programs and libraries call it to find the driver. It asks kfit_dlsym (route.c), and returns what that found,
 * or jumps on with all as it came: RTLD_NEXT and RTLD_DEFAULT mean something by the return address, which must stay
 * the caller's, at any optimisation level. */
        .text
        .globl  dlsym
        .protected dlsym /* our own calls are not another interposer's to answer */
        .type   dlsym, @function
        .balign 16
dlsym:
        .cfi_startproc
        endbr64
        pushq   %rdi
        .cfi_adjust_cfa_offset 8
        pushq   %rsi
        .cfi_adjust_cfa_offset 8
        movq    16(%rsp), %rdx
        subq    $8, %rsp
        .cfi_adjust_cfa_offset 8
        call    kfit_dlsym
        addq    $8, %rsp
        .cfi_adjust_cfa_offset -8
        popq    %rsi
        .cfi_adjust_cfa_offset -8
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        testq   %rax, %rax
        je      1f
        jmp     *%rax
1:      movq    %rdx, %rax
        ret
        .cfi_endproc
        .size   dlsym, . - dlsym

        .section .note.GNU-stack, "", @progbits
