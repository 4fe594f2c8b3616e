//! The parts of one simulation of a grid, checked before anything runs.

mod host;
mod ladder;

pub(crate) use host::HostSetup;
pub(crate) use ladder::{ladder, only};

use crate::kernel_model::KernelModel;
use crate::observe::Observed;
use crate::words::words;
use crate::{Error, Files, Fragment, Observer};
use std::sync::Arc;
use superpage_mmu::Machine;
use superpage_pages::{ExactBytes, Ladder, PageSize};
use superpage_vm::Policy;

/// The conditions that all simulations of a grid share.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conditions {
    /// The only superpage sizes in use; `None`: all of the machine's.
    pub sizes: Option<Vec<PageSize>>,
    /// Bytes of memory; `None`: the machine file's value.
    pub memory: Option<u64>,
    /// Bytes of swap space; `None`: twice the memory, as FreeBSD's installer sets it.
    pub swap: Option<u64>,
    /// Which extents hold an immovable page before the run.
    pub fragment: Fragment,
    /// The seed of their positions.
    pub seed: u64,
    /// Whether files have been read before the run.
    pub files: Files,
    /// The hash function for digests.
    pub digest: Digest,
    /// Where a policy's background and the page daemon run; `None`: on another core, unless the
    /// machine has one alone.
    pub background: Option<BackgroundOn>,
    /// How much faster the clock of a policy's background goes.
    pub time_scale: TimeScale,
    /// The policies of the hosts of guests, by each of which every policy is run, `base` always
    /// among them; if there are none, hosts map all memory by pages of the size that the machine
    /// file says.
    pub host_policies: Vec<String>,
    /// Models of kernels, with each of which every policy is run ([`KernelModel::named`]); if there
    /// are none, the kernel touches nothing.
    pub kernels: Vec<String>,
}

/// The parts of one simulation: checked, and not yet started.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// Shared by all setups of a grid: a sweep has millions of them.
    pub(crate) machine: Arc<Machine>,
    pub(crate) ladder: Ladder,
    /// The policy's name in rows.
    pub(crate) name: String,
    pub(crate) policy: Policy,
    pub(crate) frames: u64,
    pub(crate) swap_pages: u64,
    pub(crate) fragment: Fragment,
    pub(crate) seed: u64,
    pub(crate) files: Files,
    pub(crate) digest: Digest,
    /// Whose time background work takes.
    pub(crate) background: BackgroundOn,
    pub(crate) time_scale: TimeScale,
    /// The host, if it has a policy of its own.
    pub(crate) host: Option<HostSetup>,
    /// What the kernel itself touches, if that is in the stream.
    pub(crate) kernel: Option<KernelModel>,
    /// Base pages of the regions by which TLB misses are counted; `None`: they are not.
    pub(crate) miss_region: Option<u64>,
    /// Whoever looks on.
    pub(crate) observed: Option<Observed>,
}

words! {
    /// The hash function for digests, if a policy uses them: it determines their cost.
    #[derive(Default)]
    pub enum Digest {
        /// A fast hash of today.
        #[default]
        Fast = "fast",
        /// SHA-1, as Navarro et al. propose, section 4.7.
        Sha1 = "sha-1",
    }
}

/// How many times as fast as modelled time the clock of a policy's background goes: what its
/// authors let run for minutes comes to something in a program of a second. Its work takes as many
/// times as long on that clock, so that a budget is the same share of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct TimeScale(u32);

impl TimeScale {
    const MOST: u32 = 1_000_000;

    /// So many times as fast, as far as that goes.
    pub(crate) fn times(self, by: u32) -> TimeScale {
        TimeScale(self.0.saturating_mul(by).min(TimeScale::MOST))
    }

    /// Modelled time on that clock, in nanoseconds.
    pub(crate) fn nanoseconds(self, seconds: f64) -> u64 {
        (seconds * 1e9 * f64::from(self.0)) as u64
    }

    /// A time of that clock in modelled seconds.
    pub(crate) fn seconds(self, nanoseconds: u64) -> f64 {
        nanoseconds as f64 / 1e9 / f64::from(self.0)
    }
}

impl Default for TimeScale {
    fn default() -> TimeScale {
        TimeScale(1)
    }
}

impl std::str::FromStr for TimeScale {
    type Err = String;

    fn from_str(text: &str) -> Result<TimeScale, String> {
        let scale = text.parse().ok().filter(|scale| (1..=TimeScale::MOST).contains(scale));
        scale.map(TimeScale).ok_or_else(|| format!("{text}: expected a whole number from 1 to {}", TimeScale::MOST))
    }
}

impl std::fmt::Display for TimeScale {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

words! {
    /// Where a policy's background and the page daemon run, and so whose time they take.
    #[derive(Default)]
    pub enum BackgroundOn {
        /// On another core. The program pays for shootdowns that reach it and for promotions that
        /// its faults wait for.
        #[default]
        Core = "core",
        /// On the program's core: all of it is the program's time.
        Program = "program",
    }
}

impl Setup {
    /// The machine's name.
    pub fn machine(&self) -> &str {
        &self.machine.name
    }

    /// The policy as the user wrote it.
    pub fn policy(&self) -> &str {
        &self.name
    }

    /// The policy of the host as the user wrote it, if the host has one.
    pub fn host_policy(&self) -> Option<&str> {
        self.host.as_ref().map(|host| host.name.as_str())
    }

    /// This setup under a policy that is not one of the built-in ones, such as [`Policy::of`]
    /// returns. The ladder stays: the sizes that the policy names ([`Policy::sizes`]) are not
    /// applied.
    #[must_use]
    pub fn with_policy(self, policy: Policy) -> Setup {
        Setup { name: policy.definition().name.into(), policy, ..self }
    }

    /// This setup with somebody who looks on.
    #[must_use]
    pub fn observed(self, observer: Arc<dyn Observer>) -> Setup {
        Setup { observed: Some(Observed(observer)), ..self }
    }

    /// The values of the machine file that nobody has published and that matter with or without
    /// lines, as `key = value`. With a model of the kernel, its own in place of the costs that it
    /// replaces.
    pub(crate) fn assumed(&self, lines: bool) -> Vec<String> {
        let of_lines =
            |key: &str| key.starts_with("instruction-cache") || key == "memory.overlap" || key == "memory.streams";
        let replaced = |key: &str| self.kernel.is_some() && (key == "costs.fault" || key == "costs.switch");
        let those = self.machine.assumed().iter().filter(|(key, _)| (lines || !of_lines(key)) && !replaced(key));
        let of_kernel = self.kernel.iter().flat_map(|kernel| kernel.assumed.iter().cloned());
        those.map(|(key, value)| format!("{key} = {value}")).chain(of_kernel).collect()
    }

    pub(crate) fn new(
        machine: Arc<Machine>,
        ladder: Ladder,
        name: &str,
        policy: Policy,
        conditions: &Conditions,
    ) -> Result<Setup, Error> {
        // A run of the stream stays on one trace page, and so on one page here only if that is not
        // smaller.
        if ladder.base().shift() < superpage_trace::TRACE_PAGE_SHIFT {
            return Err(Error::Usage(format!(
                "machine {}: its base page of {} is smaller than the 4K pages of event streams: give it one of at least 4K",
                machine.name,
                ladder.base()
            )));
        }
        let fragment = &conditions.fragment;
        let asked = fragment.memory(conditions.memory, &machine)?;
        let memory = asked.unwrap_or(machine.memory.size);
        // The smallest superpage in use, or the base page if there is none.
        let least = ladder.sizes()[usize::from(ladder.len() > 1)];
        if memory < least.bytes() {
            let text = ExactBytes(memory);
            let kind = if ladder.len() > 1 { "superpage" } else { "base page" };
            return Err(Error::Usage(format!(
                "memory of {text} is less than one {kind} of {least} on {}: give at least that (--memory, or the axis memory of a sweep)",
                machine.name
            )));
        }
        let Conditions { seed, files, digest, .. } = *conditions;
        fragment.check(&machine)?;
        if let Some(size) = fragment.size.filter(|size| fragment.share > 0.0 && memory < size.bytes()) {
            let (text, name) = (ExactBytes(memory), &machine.name);
            return Err(Error::Usage(format!(
                "machine {name}: fragment {fragment}: memory of {text} has no extent of {size}; give at least that (--memory, or the axis memory of a sweep)"
            )));
        }
        let frames = memory >> ladder.base().shift();
        if let Some(pool) = policy.answers.place.pool {
            let fits = pool.check(&ladder, frames);
            fits.map_err(|error| Error::Usage(format!("machine {}: policy {name}: {error}", machine.name)))?;
        }
        let swap_pages = conditions.swap.unwrap_or(2 * memory) >> ladder.base().shift();
        let own = if machine.clock.cores == Some(1) { BackgroundOn::Program } else { BackgroundOn::Core };
        Ok(Setup {
            machine,
            ladder,
            name: name.into(),
            policy,
            frames,
            swap_pages,
            fragment: fragment.clone(),
            seed,
            files,
            digest,
            background: conditions.background.unwrap_or(own),
            time_scale: conditions.time_scale,
            host: None,
            kernel: None,
            miss_region: None,
            observed: None,
        })
    }

    /// This setup with a model of the kernel, which takes some of the memory.
    ///
    /// # Errors
    /// [`Error::Usage`]: the kernel cannot run on the machine.
    pub(crate) fn with_kernel(mut self, kernel: &KernelModel) -> Result<Setup, Error> {
        kernel.check_fits(&self.machine, self.ladder.base(), self.frames)?;
        self.frames -= kernel.pages();
        self.kernel = Some(kernel.clone());
        Ok(self)
    }

    /// This setup on a host with this policy.
    pub(crate) fn on_host(mut self, host: &(String, Policy)) -> Result<Setup, Error> {
        self.host = Some(HostSetup::new(&self.machine, host, self.frames)?);
        Arc::make_mut(&mut self.machine).host.iter_mut().for_each(|host| host.managed = true);
        Ok(self)
    }
}
