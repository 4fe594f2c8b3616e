//! Several processes that are one service.

use super::mapping::{Mapping, Pooled};
use super::pool;
use super::process::{Note, Process};
use super::shared;
use crate::promote::Selected;
use std::collections::{BTreeMap, HashMap};
use superpage_linux::Error;
use superpage_linux::proc::State;

/// The processes of a service; at least one.
#[derive(Clone, PartialEq, Debug)]
pub struct Service {
    /// How it was selected.
    pub which: Vec<Selected>,
    /// Its processes, by number.
    pub processes: Vec<Process>,
    /// Bytes of their shared memory that are populated, and in the page table of none of them; 0
    /// where only root sees that.
    pub unmapped_bytes: u64,
    /// What was selected and is not here, and why, as sentences.
    pub notes: Vec<String>,
}

impl Service {
    /// Inspects the processes that are selected. One that ends meanwhile, or that may not be
    /// inspected, is left out if others are there, with a note. Costs what [`Process::read`] does,
    /// for each.
    ///
    /// # Errors
    /// None that is selected is there ([`Error::Usage`]), or may be inspected; with `each`, also if
    /// that holds for one of what is selected, or a process of it.
    pub fn read(which: &[Selected], each: bool) -> Result<Service, Error> {
        let (mut found, mut notes, mut lacking) = (BTreeMap::new(), Vec::new(), Vec::new());
        for selected in which {
            match add(selected, &mut found) {
                Ok(Some(left)) if each => lacking.push(Error::Unable(left)),
                Ok(note) => notes.extend(note),
                Err(error) => lacking.push(error),
            }
        }
        if (each || found.is_empty()) && !lacking.is_empty() {
            return Err(lacking.swap_remove(0));
        }
        notes.extend(lacking.iter().map(Error::to_string));
        let mut processes: Vec<Process> = found.into_values().collect();
        share_pools(&mut processes);
        let unmapped = shared::unmapped(&processes);
        notes.extend(pool::notes(&processes, &unmapped.pooled));
        notes.extend(unmapped.notes);
        Ok(Service { which: which.to_vec(), processes, unmapped_bytes: unmapped.bytes, notes })
    }

    /// What was selected, as it is typed.
    pub fn name(&self) -> String {
        self.which.iter().map(Selected::to_string).collect::<Vec<_>>().join(" ")
    }

    /// All of it as one: each mapping with its proportional share of what several processes map, so
    /// that memory which the processes share among each other is in there once.
    pub fn as_one_process(&self) -> Process {
        let mut notes: Vec<Note> = self.notes.iter().cloned().map(Note::from).collect();
        if let [process] = self.processes.as_slice() {
            notes.extend(process.notes.iter().cloned());
            return Process { notes, ..process.clone() };
        }
        let mappings = self.processes.iter().flat_map(|process| &process.mappings).map(Mapping::proportional).collect();
        let mut known: BTreeMap<&Note, Vec<u32>> = BTreeMap::new();
        for process in &self.processes {
            process.notes.iter().for_each(|note| known.entry(note).or_default().push(process.pid));
        }
        notes.extend(known.into_iter().map(|(note, pids)| {
            if note.own { Note::from(format!("{}: {}", self.some(&pids), note.text)) } else { note.clone() }
        }));
        Process { pid: self.processes[0].pid, command: self.name(), mappings, notes }
    }

    /// Some of its processes, in words.
    fn some(&self, pids: &[u32]) -> String {
        const NAMED: usize = 3;
        let named: Vec<String> = pids.iter().take(NAMED).map(u32::to_string).collect();
        match pids.len() {
            all if all == self.processes.len() => "each process".into(),
            1 => format!("process {}", named[0]),
            some if some > NAMED => format!("processes {} and {} more", named.join(", "), some - NAMED),
            _ => format!("processes {}", named.join(", ")),
        }
    }
}

/// Inspects the processes that are selected and not found yet; returns how many may not be
/// inspected, and why.
///
/// # Errors
/// None is there, or may be inspected.
fn add(selected: &Selected, found: &mut BTreeMap<i32, Process>) -> Result<Option<String>, Error> {
    let (mut any, mut left) = (false, Vec::new());
    for pid in selected.members()? {
        match if found.contains_key(&pid) { Ok(None) } else { Process::read(pid as u32).map(Some) } {
            Ok(process) => {
                found.extend(process.map(|process| (pid, process)));
                any = true;
            }
            Err(error) => left.push((pid, error)),
        }
    }
    // What has ended by now is no loss, if there are others.
    left.retain(|(pid, _)| !any || State::of(*pid).runs());
    let number = left.len();
    match left.into_iter().next() {
        Some((_, error)) if !any => Err(error),
        why => Ok(why.map(|(_, error)| format!("{number} of the processes of {selected} left out: {error}"))),
    }
}

/// Gives each process its part of the pages of hugetlb pools that several of them map.
fn share_pools(processes: &mut [Process]) {
    let mut mapped: HashMap<_, u32> = HashMap::new();
    for Pooled { file, offsets, .. } in processes.iter().flat_map(|it| &it.mappings).map(|mapping| &mapping.pooled) {
        offsets.iter().for_each(|at| *mapped.entry((*file, *at)).or_default() += 1);
    }
    for mapping in processes.iter_mut().flat_map(|process| &mut process.mappings) {
        let Pooled { file, page, offsets, .. } = &mapping.pooled;
        let others: f64 = offsets.iter().map(|at| 1.0 - 1.0 / f64::from(mapped[&(*file, *at)])).sum();
        mapping.proportional_bytes -= (others * *page as f64) as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::super::advice::tests::mapping;
    use super::super::mapping::MappingKind;
    use super::*;
    use superpage_linux::why::Why;

    fn process(pid: u32, mappings: Vec<Mapping>) -> Process {
        Process { pid, command: "server".into(), mappings, notes: Vec::new() }
    }

    #[test]
    fn what_processes_share_is_there_once() {
        let mut buffers = mapping(MappingKind::SharedMemory, "rw-s", "/dev/zero", Why::Never, 100);
        buffers.proportional_bytes = 50 << 20;
        buffers.huge_bytes = 40 << 20;
        let heap = mapping(MappingKind::Anonymous, "rw-p", "", Why::NotAdvised, 10);
        let both = vec![process(1, vec![buffers.clone(), heap.clone()]), process(2, vec![buffers, heap])];
        let which = vec![Selected::Name("server".into())];
        let service = Service { which, processes: both, unmapped_bytes: 0, notes: vec![] };
        let whole = service.as_one_process();
        let sum = |of: fn(&Mapping) -> u64| whole.mappings.iter().map(of).sum::<u64>() >> 20;
        assert_eq!((sum(|mapping| mapping.resident_bytes), sum(|mapping| mapping.huge_bytes)), (120, 40));
        assert_eq!(whole.not_huge_by_reason().iter().map(|part| part.bytes >> 20).collect::<Vec<_>>(), [100, 20]);
        assert_eq!((whole.command.as_str(), whole.notes), ("server", vec![]));
    }

    #[test]
    fn what_one_process_maps_alone_counts_whole() {
        let heap = || Mapping {
            proportional_bytes: 50 << 20,
            ..mapping(MappingKind::Anonymous, "rw-p", "", Why::SharedByFork, 100)
        };
        // It has written half again, as huge pages; the rest is of both.
        let mut child = Mapping { huge_bytes: 50 << 20, proportional_bytes: 75 << 20, ..heap() };
        child.reasons[0].bytes = 50 << 20;
        (child.exclusive.resident, child.exclusive.huge) = (50 << 20, 50 << 20);
        assert_eq!(child.validate(), Ok(()));
        let processes = vec![process(1, vec![heap()]), process(2, vec![child])];
        let service = Service { which: vec![], processes, unmapped_bytes: 0, notes: vec![] };
        let whole = service.as_one_process();
        assert_eq!(whole.mappings.iter().map(|mapping| mapping.huge_bytes >> 20).collect::<Vec<_>>(), [0, 50]);
        assert_eq!(whole.not_huge_by_reason().iter().map(|part| part.bytes >> 20).collect::<Vec<_>>(), [75]);
        // One maps huge pages whole, of which the other has all pages.
        let mut huge = Mapping { huge_bytes: 100 << 20, reasons: vec![], ..heap() };
        (huge.exclusive.resident, huge.exclusive.huge) = (100 << 20, 100 << 20);
        assert_eq!(huge.proportional().huge_bytes >> 20, 50);
    }

    #[test]
    fn a_note_says_whose_it_is() {
        let (disabled, rules) = (Note { text: "it is so".into(), own: true }, Note::from("rules".to_string()));
        let mut processes: Vec<Process> = (1..=6).map(|pid| process(pid, vec![])).collect();
        processes.iter_mut().for_each(|process| process.notes.push(rules.clone()));
        let notes = vec!["1 left out".into()];
        let mut service = Service { which: vec![], processes, unmapped_bytes: 0, notes };
        for (number, whose) in
            [(1, "process 1"), (2, "processes 1, 2"), (5, "processes 1, 2, 3 and 2 more"), (6, "each process")]
        {
            let has = |process: &Process| process.notes.contains(&disabled);
            let new = service.processes.iter_mut().take(number).filter(|process| !has(process));
            new.for_each(|process| process.notes.push(disabled.clone()));
            let mut notes: Vec<String> = service.as_one_process().notes.into_iter().map(|note| note.text).collect();
            notes.sort();
            let mut expected = vec!["1 left out".to_string(), format!("{whose}: it is so"), "rules".into()];
            expected.sort();
            assert_eq!(notes, expected);
        }
    }

    #[test]
    fn pages_of_a_pool_that_processes_share_are_there_once() {
        let mapped = |megabytes: u64, offsets: &[u64]| {
            let mut mapping =
                mapping(MappingKind::Hugetlb, "rw-s", "/anon_hugepage (deleted)", Why::NotCollapsed, megabytes);
            let offsets = offsets.iter().map(|at| at << 20).collect();
            mapping.pooled = Pooled { file: ((0, 15), 7), page: 2 << 20, size: 2 << 20, offsets };
            mapping
        };
        let mut other = mapped(4, &[0, 2]);
        other.pooled.file.1 = 8;
        // One page of the first is of this process alone.
        let all = [mapped(6, &[0, 2]), mapped(4, &[0, 2]), mapped(2, &[2]), other];
        let mut processes: Vec<Process> = all.into_iter().map(|it| process(1, vec![it])).collect();
        share_pools(&mut processes);
        let parts: Vec<u64> =
            processes.iter().map(|it| (it.mappings[0].proportional_bytes + (1 << 19)) >> 20).collect();
        // 2 + 1 + 2/3, 1 + 2/3, 2/3, and all of another file.
        assert_eq!(parts, [4, 2, 1, 4]);
    }
}
