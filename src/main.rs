//! The `bellwether` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    bellwether::cli::run()
}
