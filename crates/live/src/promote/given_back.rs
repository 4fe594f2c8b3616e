//! Pages that a program has given back by `MADV_FREE`, and that the kernel has not taken yet. A
//! promotion copies them with the rest, and makes them the program's again.

use superpage_linux::pagemap::Frames;

/// What sees such pages: `/proc/kpageflags`, which only root may read.
#[derive(Debug, Default)]
pub(super) struct GivenBack {
    frames: Option<Frames>,
    /// Whether any program of this system has given pages back that way since the boot.
    any: bool,
}

impl GivenBack {
    /// The flags of frames, if there may be such pages. Reads `/proc/vmstat` as long as there are
    /// none.
    pub(super) fn frames(&mut self) -> Option<&Frames> {
        if !self.any {
            self.any = procfs::vmstat().is_ok_and(|counts| counts.get("pglazyfree").is_some_and(|pages| *pages > 0));
            self.frames = if self.any { Frames::open() } else { None };
        }
        self.frames.as_ref()
    }
}
