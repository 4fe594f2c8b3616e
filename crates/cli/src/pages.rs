//! `superpage pages`, hidden: the manual pages and completions that packages and `make install`
//! install.
//!
//! A verb, so that they are those of the very binary that is installed, and need no second build.

use crate::Failure;
use crate::export::write_below;
use clap::{Args, Command};
use clap_complete::{Shell, generate};
use clap_mangen::Man;
use std::path::PathBuf;
use std::process::ExitCode;

/// Write manual pages, and completions for bash, zsh and fish, into a folder laid out like
/// /usr/share
#[derive(Args)]
pub(crate) struct Pages {
    /// The folder, such as /usr/local/share
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Where each shell looks for completions, below `share`.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions/superpage"),
    (Shell::Zsh, "zsh/site-functions/_superpage"),
    (Shell::Fish, "fish/vendor_completions.d/superpage.fish"),
];

impl Pages {
    pub(crate) fn run(&self, command: &Command) -> Result<ExitCode, Failure> {
        let mut whole = command.clone().disable_help_subcommand(true);
        whole.build();
        self.manual(whole)?;
        for (shell, path) in COMPLETIONS {
            let mut text = Vec::new();
            generate(shell, &mut command.clone(), "superpage", &mut text);
            write_below(&self.folder, path, &text).map_err(Failure::Usage)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The manual page of a command, and of all below it.
    fn manual(&self, command: Command) -> Result<(), Failure> {
        command.get_subcommands().filter(|verb| !verb.is_hide_set()).try_for_each(|verb| self.manual(verb.clone()))?;
        let (page, mut text) = (Man::new(command), Vec::new());
        page.render(&mut text).expect("memory takes all");
        write_below(&self.folder, &format!("man/man1/{}", page.get_filename()), &text).map_err(Failure::Usage)
    }
}
