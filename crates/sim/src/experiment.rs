//! Experiments: a grid of machines, policies and workloads, planned completely before anything
//! runs, then run in one pass over each stream.

use crate::estimate;
use crate::group::groups;
use crate::piece::{Phases, Piece};
use crate::requests::Course;
use crate::room::Guard;
use crate::simulation::Simulation;
use crate::workers;
use crate::{BackgroundOn, Digest, Error, Files, Fragment, KernelModel, Row, Run, Setup, TimeScale, Watch};
use rayon::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use superpage_mmu::{Machine, Mmu};
use superpage_pages::{Ladder, PageSize};
use superpage_trace::{Info, Source};
use superpage_vm::{Policy, Sizes};

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

/// The simulations of a grid over one workload: every machine with every policy, `base` always
/// among them, and on every host.
///
/// `machines` are names of built-in ones or paths of machine files; `policies` are names, with
/// parameters after a colon. The policy parameter `sizes=64K+512K` leaves only those superpage
/// sizes, for that policy.
///
/// # Errors
/// A name is unknown or does not fit; nothing has run.
pub fn plan(machines: &[String], policies: &[String], conditions: &Conditions) -> Result<Vec<Setup>, Error> {
    let machines = machines.iter().map(|name| crate::machine(name)).collect::<Result<Vec<_>, Error>>()?;
    plan_machines(&machines, policies, conditions)
}

/// Like [`plan`], for machines that are already loaded.
///
/// # Errors
/// As for [`plan`], or two machines have the same name.
pub fn plan_machines(machines: &[Machine], policies: &[String], conditions: &Conditions) -> Result<Vec<Setup>, Error> {
    let named = policies.iter().map(|text| crate::named(text)).collect::<Result<Vec<_>, Error>>()?;
    plan_policies(machines, &named, conditions)
}

/// Like [`plan_machines`], for policies that need not be built-in ones, such as [`Policy::of`]
/// returns, each with its name in rows.
///
/// # Errors
/// As for [`plan_machines`].
pub fn plan_policies(machines: &[Machine], policies: &[Named], conditions: &Conditions) -> Result<Vec<Setup>, Error> {
    let hosts = conditions.host_policies.iter().map(|text| crate::named(text)).collect::<Result<Vec<_>, Error>>()?;
    let hosts = match hosts.is_empty() {
        true => vec![None],
        false => with_base(&hosts)?.into_iter().map(Some).collect(),
    };
    on_hosts(machines, policies, &hosts, conditions)
}

/// Like [`plan_policies`], on a host with this policy alone: rows are compared with those of a plan
/// whose host has `base`. The hosts of the conditions are not used.
///
/// # Errors
/// As for [`plan_machines`].
pub fn plan_on_host(
    machines: &[Machine],
    policies: &[Named],
    host: &Named,
    conditions: &Conditions,
) -> Result<Vec<Setup>, Error> {
    on_hosts(machines, policies, &[Some(host.clone())], conditions)
}

/// A policy with its name in rows.
type Named = (String, Policy);

/// These policies, each once, and `base`, which every comparison names, even if nobody asked for
/// it.
fn with_base(policies: &[Named]) -> Result<Vec<Named>, Error> {
    let mut all: Vec<Named> = Vec::new();
    if !policies.iter().any(|(name, _)| name == "base") {
        all.push(crate::named("base")?);
    }
    for policy in policies {
        if !all.contains(policy) {
            all.push(policy.clone());
        }
    }
    Ok(all)
}

fn on_hosts(
    machines: &[Machine],
    policies: &[Named],
    hosts: &[Option<Named>],
    conditions: &Conditions,
) -> Result<Vec<Setup>, Error> {
    let policies = with_base(policies)?;
    // Rows are compared with `base` by their machine's name.
    for (i, machine) in machines.iter().enumerate() {
        if machines[..i].iter().any(|other| other.name == machine.name) {
            let problem = "give each its own `name`, and name none twice";
            return Err(Error::Usage(format!("two machines are called {}: {problem}", machine.name)));
        }
    }
    let kernels = conditions.kernels.iter().map(|text| KernelModel::named(text).map(Some));
    let mut kernels = kernels.collect::<Result<Vec<_>, Error>>()?;
    if kernels.is_empty() {
        kernels.push(None);
    }
    let mut setups = Vec::new();
    for machine in machines {
        let shared = Arc::new(machine.clone());
        let ladder = match &conditions.sizes {
            Some(sizes) => only(machine, &machine.ladder(), sizes)?,
            None => machine.ladder(),
        };
        for host in hosts {
            for (name, policy) in &policies {
                let ladder = crate::experiment::ladder(machine, &ladder, policy)?;
                let setup = Setup::new(Arc::clone(&shared), ladder, name, policy.clone(), conditions)?;
                for (setup, kernel) in std::iter::repeat_n(setup, kernels.len()).zip(&kernels) {
                    let setup = match kernel {
                        Some(kernel) => setup.with_kernel(kernel)?,
                        None => setup,
                    };
                    setups.push(match host {
                        Some(host) => setup.on_host(host)?,
                        None => setup,
                    });
                }
            }
        }
    }
    Ok(setups)
}

/// The ladder of a kernel with this policy on a machine, of whose sizes these are in use.
pub(crate) fn ladder(machine: &Machine, ladder: &Ladder, policy: &Policy) -> Result<Ladder, Error> {
    match policy.sizes.is_empty() {
        true => with_extents(machine, ladder, policy),
        false => with_extents(machine, &only(machine, ladder, &policy.sizes)?, policy),
    }
}

/// The ladder of a kernel that allocates extents of sizes that the machine has no pages of, between
/// sizes that it has.
fn with_extents(machine: &Machine, ladder: &Ladder, policy: &Policy) -> Result<Ladder, Error> {
    let place = &policy.answers.place;
    let (own, asked) = place.size.extents();
    // Where the program asks for superpages they may be of others.
    let hinted = place.hinted.map(|size| size.extents().0).unwrap_or_default();
    let extents: Sizes = own.iter().chain(hinted.iter()).collect();
    let [base, .., largest] = machine.pages.sizes[..] else { return Ok(*ladder) };
    let fits = |size: &PageSize| *size > base && *size <= largest;
    if let Some(size) = extents.iter().find(|size| asked && !fits(size)) {
        let (name, policy) = (&machine.name, policy.definition().name);
        return Err(Error::Usage(format!(
            "machine {name}: policy {policy} takes extents of {size}, where they can be larger than {base} and up to {largest}"
        )));
    }
    let extents = extents.iter().filter(|size| fits(size) && !machine.pages.sizes.contains(size));
    let mut sizes: Vec<PageSize> = ladder.sizes().iter().copied().chain(extents).collect();
    sizes.sort_unstable();
    Ladder::new(&sizes).map_err(|error| Error::Usage(format!("machine {}: {error}", machine.name)))
}

fn only(machine: &Machine, ladder: &Ladder, sizes: &[PageSize]) -> Result<Ladder, Error> {
    ladder.only(sizes).map_err(|error| Error::Usage(format!("machine {}: {error}; it has {ladder}", machine.name)))
}

/// The progress of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Runs of the stream that were simulated.
    pub runs: u64,
    /// The number of runs in all, if the stream says so.
    pub of: Option<u64>,
}

/// Runs all `setups` over `source` in one pass, and returns a row for each, in their order.
///
/// The setups are those of one plan: rows are compared with `base` by their machine's name.
/// Machines on which the kernel does the same are one simulation: they share it, its mappings and
/// TLBs of the first level that are alike. The simulations are independent; threads run them, one
/// for each core or those of the rayon pool of the caller ([`use_threads`](crate::use_threads)),
/// while the next piece of the stream is prepared. The rows do not depend on the number of threads.
/// When `stop` is set, the run ends at the next piece, or within idle time, with rows that say so.
///
/// # Errors
/// The stream fails, or a setup cannot be built.
pub fn run(
    setups: &[Setup],
    source: &mut dyn Source,
    stop: &AtomicBool,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Vec<Row>, Error> {
    let runs = run_parts(setups, source, stop, progress, &Watch::default())?;
    Ok(runs.into_iter().map(|run| run.row).collect())
}

/// So long the threads work at least before the caller hears of the progress: to wake them takes as
/// long as a batch of one machine.
const TURN: Duration = Duration::from_millis(20);

/// Like [`run`], and also returns the named parts of the stream each by itself, and what `watch`
/// asks for.
///
/// # Errors
/// As for [`run`], or the sampling interval is 0, or what reading the stream takes
/// ([`Info::memory`]) is not left.
pub fn run_parts(
    setups: &[Setup],
    source: &mut dyn Source,
    stop: &AtomicBool,
    progress: &(dyn Fn(Progress) + Sync),
    watch: &Watch,
) -> Result<Vec<Run>, Error> {
    watch.every.map_or(Ok(()), crate::Every::check)?;
    check_setups(setups, source.info(), watch.lines)?;
    let guard = Guard::new();
    guard.check_stream(source.info())?;
    let mut phases = Phases::new(source);
    let info = source.info().clone();
    let begin = |group: Vec<usize>| {
        let group: Vec<(usize, &Setup)> = group.into_iter().map(|place| (place, &setups[place])).collect();
        Simulation::new(&group, &info, watch)
    };
    let mut simulations = groups(setups, watch).into_iter().map(begin).collect::<Result<Vec<_>, Error>>()?;
    let mut shifts: Vec<u32> = setups.iter().map(|setup| setup.ladder.base().shift()).collect();
    shifts.sort_unstable();
    shifts.dedup();

    let mut courses: Vec<Course> = shifts.iter().map(|shift| Course::new(*shift, watch.lines, info.sampling)).collect();
    let mut now = Piece::new(&shifts);
    let mut next = Piece::new(&shifts);
    let mut done = Progress { runs: 0, of: info.runs };
    let mut more = now.fill(source, &mut phases, &mut courses)?;
    let mut complete = true;
    // Each looks before each piece, so that only what one piece needs is allocated after memory ran
    // short.
    let step = |simulation: &mut Simulation, piece: &Piece| {
        if !guard.is_short() {
            simulation.step(piece, stop);
        }
    };
    while more && complete {
        workers::with(|threads| -> Result<(), Error> {
            let begun = Instant::now();
            while more && begun.elapsed() < TURN {
                if stop.load(Ordering::Relaxed) {
                    complete = false;
                    break;
                }
                let filled = match threads {
                    true => {
                        let fill = || next.fill(source, &mut phases, &mut courses);
                        let step_all = || simulations.par_iter_mut().for_each(|simulation| step(simulation, &now));
                        rayon::join(fill, step_all).0
                    }
                    false => {
                        simulations.iter_mut().for_each(|simulation| step(simulation, &now));
                        next.fill(source, &mut phases, &mut courses)
                    }
                };
                more = filled?;
                guard.check(setups.len(), watch)?;
                done.runs += now.batch.runs.len() as u64;
                std::mem::swap(&mut now, &mut next);
            }
            Ok(())
        })?;
        progress(done);
    }
    let info = source.info().clone();
    let finish = |simulation: Simulation| simulation.finish(&info, complete);
    let mut runs: Vec<(usize, Run)> = workers::with(|threads| match threads {
        true => simulations.into_par_iter().flat_map_iter(finish).collect(),
        false => simulations.into_iter().flat_map(finish).collect(),
    });
    runs.sort_unstable_by_key(|(place, _)| *place);
    let mut runs: Vec<Run> = runs.into_iter().map(|(_, run)| run).collect();
    let digest = source.digest();
    for run in &mut runs {
        run.parts.iter_mut().map(|part| &mut part.row).chain([&mut run.row]).for_each(|row| {
            row.trace_digest.clone_from(&digest);
        });
    }
    compare(&mut runs);
    Ok(runs)
}

/// Whether the stream says which lines caches hold.
///
/// # Errors
/// It has pages and no lines, or is sampled.
pub fn check_stream_lines(info: &Info) -> Result<(), Error> {
    let problem = if !info.lines {
        "has pages and no lines: record or import it with --lines, or leave out --lines here"
    } else if info.sampling.is_some() {
        "is sampled, and what caches hold after a gap is not known: leave out --lines"
    } else {
        return Ok(());
    };
    Err(Error::Usage(format!("{}: {problem}", info.workload)))
}

/// Whether these simulations can run over a stream of this kind.
///
/// # Errors
/// A machine or a model of the kernel needs lines, which the stream has not, or cannot hold those
/// that it has.
pub fn check_setups(setups: &[Setup], info: &Info, lines: bool) -> Result<(), Error> {
    if lines { check_lines(setups, info) } else { check_pages(setups) }
}

/// Whether the machines can hold the lines of the stream in their caches.
fn check_lines(setups: &[Setup], info: &Info) -> Result<(), Error> {
    check_stream_lines(info)?;
    for setup in setups {
        if let Some(problem) = Mmu::refuses_lines(&setup.machine, setup.frames << setup.ladder.base().shift()) {
            return Err(Error::Usage(format!("machine {}: {problem}", setup.machine.name)));
        }
    }
    Ok(())
}

/// Whether the machines can run a stream without lines.
fn check_pages(setups: &[Setup]) -> Result<(), Error> {
    if let Some(kernel) = setups.iter().find_map(|setup| setup.kernel.as_ref()) {
        return Err(Error::Usage(format!(
            "kernel {}: only in a stream with lines is there room for what a kernel touches: give --lines",
            kernel.text
        )));
    }
    match setups.iter().find(|setup| setup.machine.shadow.is_some()) {
        Some(setup) => Err(Error::Usage(format!(
            "machine {}: only lines say what goes to its memory controller: give --lines, and a trace recorded with it",
            setup.machine.name
        ))),
        None => Ok(()),
    }
}

/// Sets every row's figures relative to `base` on the same machine: rows of one stream under one
/// set of conditions, those of a machine next to each other, as [`run_parts`] returns them. It has
/// done that already; this is for runs of several calls put together.
pub fn compare(runs: &mut [Run]) {
    for group in runs.chunk_by_mut(|a, b| a.row.machine == b.row.machine) {
        let bases: Vec<Run> = group.iter().filter(|run| run.row.is_base()).cloned().collect();
        for run in group {
            // The one with the same kernel.
            let Some(base) = bases.iter().find(|base| base.row.kernel == run.row.kernel) else { continue };
            run.row.compare(&base.row);
            estimate::compared_errors(&mut run.row, run.evidence.as_ref(), &base.row, base.evidence.as_ref());
            for (part, base) in run.parts.iter_mut().zip(&base.parts) {
                part.row.compare(&base.row);
            }
        }
    }
}
