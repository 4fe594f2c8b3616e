//! `superpage pages`, hidden: the manual pages and completions that packages and `make install` install.
//!
//! A verb, so that they are those of the very binary that is installed, and need no second build.

use crate::Failure;
use clap::{Args, Command};
use clap_complete::{Shell, generate};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Write manual pages, and completions for bash, zsh and fish, into a folder laid out like /usr/share
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
        let manual = self.folder.join("man/man1");
        let made = make(&manual)
            .and_then(|()| clap_mangen::generate_to(command.clone(), &manual).map_err(|error| cannot(&manual, &error)));
        made?;
        for (shell, path) in COMPLETIONS {
            let (mut text, path) = (Vec::new(), self.folder.join(path));
            generate(shell, &mut command.clone(), "superpage", &mut text);
            make(path.parent().expect("it lies in a folder"))?;
            fs::write(&path, text).map_err(|error| cannot(&path, &error))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn make(folder: &Path) -> Result<(), Failure> {
    fs::create_dir_all(folder).map_err(|error| cannot(folder, &error))
}

fn cannot(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Usage(format!("cannot write {}: {error}; name a folder that this user may write to", path.display()))
}
