//! A dry run: the policy's background runs on live processes, and what it would promote is noted.

use super::claims::{Claims, grows};
use super::process::Scope;
use super::{Processes, Promoter};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use superpage_linux::headroom::Headroom;
use superpage_linux::rules::Rules;
use superpage_linux::scan::Kind;
use superpage_linux::why::{Part, Reason, Why};
use superpage_pages::PageSize;
use superpage_vm::{Candidate, Part as Regions, Sample, Scanned, ScannedPart, System};

/// The longest sleep before it checks whether to stop.
const NAP: Duration = Duration::from_millis(20);

/// What would be promoted in a process, and what not and why; in regions.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Finding {
    /// The process.
    pub pid: i32,
    /// Its name.
    pub name: String,
    /// Why nothing in it is promoted, if nothing is.
    pub excluded: Option<&'static str>,
    /// Regions that the policy would promote now, with headroom.
    pub promotable: u64,
    /// Bytes by which that would grow the process: pages of these regions that are not populated.
    pub grown_bytes: u64,
    /// Regions populated to the share that it leaves: under `promote` those that are not yet of the
    /// age.
    pub young: u64,
    /// Regions populated below the share.
    pub sparse: u64,
    /// Regions that are huge pages already.
    pub huge: u64,
    /// Resident bytes of mappings under `MADV_NOHUGEPAGE`, or in static huge pages.
    pub unsuitable_bytes: u64,
    /// Resident memory in which nothing is promoted, by reason, the largest first; this includes
    /// what waits for memory, but not what the policy leaves.
    pub reasons: Vec<Reason>,
    /// Addresses of the first few regions to be promoted, in order.
    pub first: Vec<u64>,
    /// The kinds of shared memory that no promotion can make huge, because of where they lie or of
    /// a setting.
    #[serde(skip)]
    pub stuck: Vec<Kind>,
}

impl Promoter {
    /// Returns what the policy would promote, and what not and why: lets its background look for as
    /// long as [`Options::looks`](super::Options::looks) says, without a budget, and promotes
    /// nothing. Ends early, with less, when `stop` is set.
    pub fn survey(&mut self, stop: &AtomicBool) -> Vec<Finding> {
        let live = &mut self.live;
        live.survey = Some(Survey::default());
        live.spaces();
        let now = live.began.elapsed();
        // Ranges that the kernel would refuse, which a daemon learns of when it does.
        let scope = Scope { options: &live.options, size: live.size, least: live.least };
        for process in live.processes.values_mut() {
            _ = process.scan_if_changed(now, scope, None, &mut |_| {});
            process.learn_flags(now, &live.options);
        }
        self.background = live.with_start_event(live.options.unlimited());
        let until = now.saturating_add(live.options.looks());
        // What is due by then, it may take a while to do.
        let patience = until.saturating_add(live.options.looks());
        loop {
            let called = self.call();
            let now = self.live.began.elapsed();
            if stop.load(Ordering::Relaxed) || now >= patience || now >= until && !called {
                break;
            }
            std::thread::sleep(self.rest().min(NAP));
        }
        self.background = self.live.with_start_event(self.live.options.background());
        let mut findings = self.live.findings();
        findings.sort_by_key(|finding| (std::cmp::Reverse(finding.promotable), finding.pid));
        findings
    }
}

impl Processes {
    /// What came of the survey, with what a last scan finds.
    fn findings(&mut self) -> Vec<Finding> {
        let (now, rules) = (self.began.elapsed(), Rules::read());
        let mut survey = self.survey.take().unwrap_or_default();
        let scope = Scope { options: &self.options, size: self.size, least: self.least };
        let size = PageSize::from_bytes(self.size).expect("a power of two");
        let mut findings = Vec::new();
        for process in self.processes.values_mut() {
            process.measure_again();
            let mut huge = BTreeSet::new();
            let mut see = |sample: Sample| huge.extend(sample.superpage.then_some(sample.region * size.bytes()));
            match process.scan_if_changed(now, scope, Some(Regions::ALL), &mut see) {
                Ok(ScannedPart { scanned: Scanned::Gone, .. }) => continue,
                Err(error) => {
                    tracing::warn!(pid = process.pid, "not in what follows: {error}");
                    continue;
                }
                Ok(_) => {}
            }
            let Asked { mut fit, mut waits, mut kept, .. } = survey.asked.remove(&process.pid).unwrap_or_default();
            // Another promoter, or the program, may have been first.
            let stays = |asked: &Region| !huge.contains(&asked.address);
            fit.retain(stays);
            kept.values_mut().for_each(|regions| regions.retain(stays));
            waits.values_mut().for_each(|waiting| waiting.retain(stays));
            waits.retain(|_, waiting| !waiting.is_empty());
            let kept: Vec<_> = kept.into_iter().map(|(why, regions)| (why, Kind::Anonymous, sum(&regions))).collect();
            let kept_blocks: u64 = kept.iter().map(|(.., part)| part.blocks).sum();
            let waits: Vec<_> = waits.into_iter().map(|(key, waiting)| (key, sum(&waiting))).collect();
            let left = process.left(self.size).chain(kept);
            let left: Vec<(Why, Kind, Part)> = left.filter(|(.., part)| part.bytes > 0).collect();
            let waiting: u64 = waits.iter().map(|(_, part)| part.blocks).sum();
            let counted = fit.len() as u64 + kept_blocks + waiting;
            let waits = waits.into_iter().map(|((why, place), Part { bytes, blocks })| Reason {
                why,
                bytes,
                blocks,
                text: format!("{} in {place}", why.words(size)),
            });
            let mut reasons: Vec<Reason> = left
                .iter()
                .map(|(why, kind, part)| Reason::of(*why, *kind, *part, self.size, &rules))
                .chain(waits)
                .collect();
            reasons.sort_by_key(|reason| std::cmp::Reverse(reason.bytes));
            let unsuitable = process.unsuitable.iter().filter(|unsuitable| matches!(unsuitable.flag, "nh" | "ht"));
            findings.push(Finding {
                pid: process.pid,
                name: process.name.clone(),
                excluded: process.excluded.map(Why::name),
                promotable: fit.len() as u64,
                grown_bytes: sum(&fit).bytes,
                young: process.seen.candidates.saturating_sub(counted),
                sparse: process.seen.sparse,
                huge: process.seen.huge,
                unsuitable_bytes: unsuitable.map(|unsuitable| unsuitable.resident).sum(),
                reasons,
                first: fit.into_iter().take(8).map(|asked| asked.address).collect(),
                stuck: left
                    .iter()
                    .filter(|(why, ..)| matches!(why, Why::Misaligned | Why::Never))
                    .map(|(_, kind, _)| *kind)
                    .collect(),
            });
        }
        findings
    }
}

/// What a background has asked to be promoted, by process.
#[derive(Debug, Default)]
pub(super) struct Survey {
    claims: Claims,
    asked: BTreeMap<i32, Asked>,
}

/// Of one process.
#[derive(Debug, Default)]
struct Asked {
    /// Regions that would be promoted, in order, each with the bytes by which it would grow the
    /// process.
    fit: Vec<Region>,
    /// Those that were asked for before.
    known: BTreeSet<u64>,
    /// Regions that wait for memory, with their populated bytes, and where that is short.
    waits: BTreeMap<(Why, String), Vec<Region>>,
    /// Those with pages that others share, or that the program has given back.
    kept: BTreeMap<Why, Vec<Region>>,
}

/// A region that was asked for: its address, and the bytes that count.
#[derive(Debug)]
struct Region {
    address: u64,
    bytes: u64,
}

impl Survey {
    /// The process has ended, or executes another program.
    pub(super) fn forget(&mut self, pid: i32) {
        self.asked.remove(&pid);
        self.claims.forget(pid);
    }

    /// Notes what would come of promoting regions, each with the outcome of its check, which that
    /// replaces, and as it was asked for. A region that was noted before is left as it is.
    pub(super) fn note_asked<'a>(
        &mut self,
        headroom: &Headroom,
        pid: i32,
        regions: impl Iterator<Item = (&'a mut Result<Candidate, Why>, &'a Candidate)>,
        size: u64,
    ) {
        let page = rustix::param::page_size() as u64;
        let asked = self.asked.entry(pid).or_default();
        // A policy need not say how much is populated.
        let bytes =
            |candidate: &Candidate| if candidate.populated == 0 { size } else { u64::from(candidate.populated) * page };
        let part = |candidate: &Candidate| Region { address: candidate.region * size, bytes: bytes(candidate) };
        let pressed = headroom.pressed(pid);
        for (outcome, candidate) in regions {
            let noted = outcome.is_ok() || matches!(outcome, Err(Why::SharedByFork | Why::GivenBack));
            let new = noted && asked.known.insert(candidate.region);
            let candidate = match *outcome {
                Ok(candidate) => candidate,
                Err(why) => {
                    if new {
                        asked.kept.entry(why).or_default().push(part(candidate));
                    }
                    continue;
                }
            };
            if !new {
                continue;
            }
            let (why, place) = match &pressed {
                Some(place) => (Why::Pressure, place.clone()),
                None => {
                    let grown = grows(&candidate, size, page);
                    match self.claims.admit(headroom, pid, grown, size) {
                        Ok(()) => {
                            asked.fit.push(Region { address: candidate.region * size, bytes: grown });
                            continue;
                        }
                        Err(place) => (Why::NoHeadroom, place),
                    }
                }
            };
            *outcome = Err(why);
            asked.waits.entry((why, place.to_string())).or_default().push(part(&candidate));
        }
    }
}

fn sum(regions: &[Region]) -> Part {
    Part { bytes: regions.iter().map(|region| region.bytes).sum(), blocks: regions.len() as u64 }
}
