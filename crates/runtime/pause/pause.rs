//! The pause process: holds a pod's namespaces, reaps orphans, exits on SIGTERM.
//!
//! Static, without standard library and heap, because it runs once per pod.
#![no_std]
#![no_main]

use core::arch::{asm, global_asm};

const SIGINT: u64 = 2;
const SIGTERM: u64 = 15;
const SIGCHLD: u64 = 17;
const SIG_BLOCK: usize = 0;
const WNOHANG: usize = 1;
/// Signals that are awaited instead of handled, one bit each.
const AWAITED: u64 = 1 << (SIGINT - 1) | 1 << (SIGTERM - 1) | 1 << (SIGCHLD - 1);

#[cfg(target_arch = "x86_64")]
mod number {
    pub const SIGPROCMASK: usize = 14;
    pub const WAIT4: usize = 61;
    pub const SIGTIMEDWAIT: usize = 128;
    pub const EXIT_GROUP: usize = 231;
}

#[cfg(target_arch = "aarch64")]
mod number {
    pub const EXIT_GROUP: usize = 94;
    pub const SIGPROCMASK: usize = 135;
    pub const SIGTIMEDWAIT: usize = 137;
    pub const WAIT4: usize = 260;
}

#[cfg(target_arch = "x86_64")]
global_asm!(".globl _start", "_start:", "xor ebp, ebp", "and rsp, -16", "call {main}", main = sym main);
#[cfg(target_arch = "aarch64")]
global_asm!(".globl _start", "_start:", "mov x29, xzr", "bl {main}", main = sym main);

extern "C" fn main() -> ! {
    let set = AWAITED;
    let set = &set as *const u64 as usize;
    // Blocked signals stay pending, even for the first process of a PID namespace, until they are waited for.
    syscall(number::SIGPROCMASK, [SIG_BLOCK, set, 0, size_of::<u64>()]);
    loop {
        match syscall(number::SIGTIMEDWAIT, [set, 0, 0, size_of::<u64>()]) as u64 {
            SIGCHLD => while syscall(number::WAIT4, [usize::MAX, 0, WNOHANG, 0]) > 0 {},
            SIGINT | SIGTERM => exit(0),
            // Interrupted: wait again.
            _ => {}
        }
    }
}

fn exit(code: usize) -> ! {
    loop {
        syscall(number::EXIT_GROUP, [code, 0, 0, 0]);
    }
}

#[cfg(target_arch = "x86_64")]
fn syscall(number: usize, arguments: [usize; 4]) -> isize {
    let [a, b, c, d] = arguments;
    let result;
    // SAFETY: the pointers passed are null or point to `main`'s own variable.
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => result, in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d,
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

#[cfg(target_arch = "aarch64")]
fn syscall(number: usize, arguments: [usize; 4]) -> isize {
    let [a, b, c, d] = arguments;
    let result;
    // SAFETY: the pointers passed are null or point to `main`'s own variable.
    unsafe {
        asm!("svc 0", in("x8") number, inlateout("x0") a => result, in("x1") b, in("x2") c, in("x3") d,
            options(nostack));
    }
    result
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    exit(1)
}
