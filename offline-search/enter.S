/* uint64_t enter(const void *entry, void *const args[6])
 *
 * Calls entry on the candidate's stack and comes back whatever it did to its registers: all that is needed to
 * return lies behind %gs, to which candidates hold no pointer (gate 0 refuses segment overrides). Its return
 * address is the only address of ours it sees, and that page holds nothing but this copy.
 */
    .text
    .globl kfit_enter_begin, kfit_enter_end
    .hidden kfit_enter_begin, kfit_enter_end
    .p2align 6
kfit_enter_begin:
    push %rbx
    push %rbp
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, %gs:0
    mov %gs:8, %rsp
    mov %rdi, %rax
    mov 8(%rsi), %r10
    mov 16(%rsi), %rdx
    mov 24(%rsi), %rcx
    mov 32(%rsi), %r8
    mov 40(%rsi), %r9
    mov 0(%rsi), %rdi
    mov %r10, %rsi
    xor %ebx, %ebx
    xor %ebp, %ebp
    xor %r10d, %r10d
    xor %r11d, %r11d
    xor %r12d, %r12d
    xor %r13d, %r13d
    xor %r14d, %r14d
    xor %r15d, %r15d
    testb $1, %gs:16
    jz 1f
    vzeroall
1:  call *%rax
    mov %gs:0, %rsp
    pushfq
    cld
    pop %rax
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbp
    pop %rbx
    ret
kfit_enter_end:
    .section .note.GNU-stack, "", @progbits
