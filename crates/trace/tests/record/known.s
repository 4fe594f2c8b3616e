# A program of which every access is known. Pages: code on two, data on three.
    .globl _start
    .text
    .balign 4096
_start:
    mov $1000, %ecx             # 1 instruction
1:  mov first(%rip), %rax       # 4 instructions, a load and a store a round
    mov %rax, second(%rip)
    dec %ecx
    jnz 1b
    mov $500, %ecx              # 1 instruction
2:  mov first(%rip), %rax       # 4 instructions a round: load, load, store on one page
    add %rax, first+64(%rip)
    dec %ecx
    jnz 2b
    mov second-4(%rip), %rax    # 1 instruction: half of it on each of two pages
    jmp 3f                      # 1 instruction
    .balign 4096
    .skip 4094
3:  mov $60, %eax               # 5 bytes: begins two bytes before the end of the second page
    xor %edi, %edi
    syscall
    .data
    .balign 4096
first:
    .skip 4096
second:
    .skip 4096
