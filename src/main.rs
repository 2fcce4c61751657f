//! The `bellwether` command.

fn main() {}
