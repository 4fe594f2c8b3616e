//! A live Linux as a target of policies: the parameters that it adds, and the policies that only it
//! has.

use superpage_vm::{Answers, Definition, LIMITS, Made, Need, Parameter, Target, Values};

const SLOWDOWN: Parameter = Parameter {
    name: "slowdown",
    values: Values::Share,
    default: "",
    help: "the most by which promotion may slow a process; if not given 0.02, under run and compare of-command if more",
    needs: &[],
};

/// The parameter for a command that is run or compared, which a daemon does not have.
pub const OF_COMMAND: &str = "of-command";

const OF_A_COMMAND: Parameter = Parameter {
    name: OF_COMMAND,
    values: Values::Share,
    default: "0.1",
    help: "run, compare: of what the command uses, used beyond cpu and burst, and how much it may be slowed by",
    needs: &[],
};

const SHARED: Parameter = Parameter {
    name: "shared",
    values: Values::Words(&["on", "off"]),
    default: "on",
    help: "whether memory files (memfd, /dev/shm) are promoted too",
    needs: &[],
};

/// A live Linux as a target of policies.
pub const LINUX: Target = Target {
    name: "a live Linux",
    has: &[Need::Settings, Need::Copying],
    own: &[&NOW, &TEXT],
    limits: &[LIMITS[0], LIMITS[1], LIMITS[2], OF_A_COMMAND, SLOWDOWN, SHARED],
    // It directs promotions as a configuration does, of root too.
    read: Some(|path| superpage_output::read_own_text(path.as_ref()).map_err(|error| error.to_string())),
};

static NOW: Definition = Definition {
    name: "now",
    paper: "",
    help: "the system as it is: nothing is changed",
    parameters: &[],
    needs: &[Need::Settings],
    make: |_| Made::answers(Answers::BASE),
};

static TEXT: Definition = Definition {
    name: "text",
    paper: "",
    help: "base pages, and huge pages for the program's code, for the command alone",
    parameters: &[Parameter {
        name: "way",
        values: Values::Words(&["remap", "file", "auto"]),
        default: "remap",
        help: "as a copy, as its pages in the page cache (where they stay), or whichever is possible",
        needs: &[],
    }],
    needs: &[Need::Settings],
    make: |_| Made::answers(Answers::BASE),
};
