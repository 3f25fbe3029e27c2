/* The switch between stacks, in assembly: void sim_switch_stack(void **from, void *to) saves the registers that a
 * function must keep, stores the stack pointer to *from, and goes on where `to` was left. A new fiber goes to
 * sim_first_frame, which calls its entry with its argument from two of those registers. */
#if defined(__x86_64__)
asm(R"(
        .text
        .globl sim_switch_stack
        .type sim_switch_stack, @function
        .p2align 4
sim_switch_stack:
        pushq %rbp
        pushq %rbx
        pushq %r15
        pushq %r14
        pushq %r13
        pushq %r12
        movq %rsp, (%rdi)
        movq %rsi, %rsp
        popq %r12
        popq %r13
        popq %r14
        popq %r15
        popq %rbx
        popq %rbp
        popq %rcx
        jmpq *%rcx
        .size sim_switch_stack, .-sim_switch_stack

        .globl sim_first_frame
        .type sim_first_frame, @function
sim_first_frame:
        movq %r15, %rdi
        callq *%r14
        ud2
        .size sim_first_frame, .-sim_first_frame
)");
#elif defined(__aarch64__)
asm(R"(
        .text
        .globl sim_switch_stack
        .type sim_switch_stack, %function
        .p2align 4
sim_switch_stack:
        sub sp, sp, #160
        stp x19, x20, [sp]
        stp x21, x22, [sp, #16]
        stp x23, x24, [sp, #32]
        stp x25, x26, [sp, #48]
        stp x27, x28, [sp, #64]
        stp x29, x30, [sp, #80]
        stp d8, d9, [sp, #96]
        stp d10, d11, [sp, #112]
        stp d12, d13, [sp, #128]
        stp d14, d15, [sp, #144]
        mov x2, sp
        str x2, [x0]
        mov sp, x1
        ldp x19, x20, [sp]
        ldp x21, x22, [sp, #16]
        ldp x23, x24, [sp, #32]
        ldp x25, x26, [sp, #48]
        ldp x27, x28, [sp, #64]
        ldp x29, x30, [sp, #80]
        ldp d8, d9, [sp, #96]
        ldp d10, d11, [sp, #112]
        ldp d12, d13, [sp, #128]
        ldp d14, d15, [sp, #144]
        add sp, sp, #160
        ret
        .size sim_switch_stack, .-sim_switch_stack

        .globl sim_first_frame
        .type sim_first_frame, %function
sim_first_frame:
        mov x0, x20
        blr x19
        brk #0
        .size sim_first_frame, .-sim_first_frame
)");
#endif
