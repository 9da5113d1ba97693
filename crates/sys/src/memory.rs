//! How the C library's allocator behaves.

/// Lets bursts be followed by memory given back: large blocks straight from the kernel, little kept in reserve.
///
/// A burst of large answers otherwise stays resident. Called once, first thing.
#[cfg(target_env = "gnu")]
#[allow(unsafe_code, reason = "the C library is asked directly")]
pub fn give_back_after_bursts() {
    const LARGE: i32 = 256 << 10;
    const SPARE: i32 = 1 << 20;
    for (parameter, value) in [(libc::M_MMAP_THRESHOLD, LARGE), (libc::M_TRIM_THRESHOLD, SPARE)] {
        // SAFETY: mallopt takes two numbers and touches nothing of ours; it is called before other threads exist.
        // What it does not accept it ignores, and so do we: it is about thrift, not about right answers.
        let _ = unsafe { libc::mallopt(parameter, value) };
    }
}

/// Other C libraries have no such knobs.
#[cfg(not(target_env = "gnu"))]
pub fn give_back_after_bursts() {}
