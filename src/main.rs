//! The `bellwether` command.

use std::process::ExitCode;

/// The HTTP library takes a buffer of 8 KiB and more several times for each request; the C library's allocator is slow at
/// just these sizes.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    bellwether::cli::run()
}
