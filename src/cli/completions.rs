//! `bellwether completions`: a completion script for a shell.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::{CommandLine, Failure, print};

const EXAMPLES: &str = "\
Examples:
  bellwether completions bash > /etc/bash_completion.d/bellwether
  bellwether completions zsh > \"${fpath[1]}/_bellwether\"
  bellwether completions fish > ~/.config/fish/completions/bellwether.fish";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Completions {
    /// Which shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

impl Completions {
    pub(super) fn run(self) -> Result<(), Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut CommandLine::command(), "bellwether", &mut script);
        print(format_args!("{}", String::from_utf8_lossy(&script).trim_end()))?;
        Ok(())
    }
}
