//! Which regions fit into the room that is left to a process, and what those that would be promoted
//! claim of it.

use std::collections::BTreeMap;
use superpage_linux::headroom::{Headroom, Place, Room};
use superpage_vm::Candidate;

/// What simulated promotions would add, one after the other, by process and place.
#[derive(Debug, Default)]
pub(super) struct Claims(BTreeMap<i32, BTreeMap<Place, u64>>);

impl Claims {
    /// Splits regions of a process as [`admit`] does, with all earlier claims, and claims what the
    /// admitted ones add. Also returns the place with the least room, which refuses the others.
    pub(super) fn admit(
        &mut self,
        headroom: &Headroom,
        pid: i32,
        batch: Vec<Candidate>,
        (size, page): (u64, u64),
    ) -> (Vec<Candidate>, Vec<Candidate>, Option<Place>) {
        let mut rooms = headroom.rooms(pid);
        for room in &mut rooms {
            let claimed: u64 = self.0.values().filter_map(|places| places.get(&room.place)).sum();
            (room.pages, room.copies) = (room.pages.saturating_sub(claimed), room.copies.saturating_sub(claimed));
        }
        let (fit, others) = admit(batch, &Room::of_all(&rooms), size, page);
        let grown: u64 = fit.iter().map(|candidate| grows(candidate, size, page)).sum();
        let places = self.0.entry(pid).or_default();
        for room in &rooms {
            *places.entry(room.place.clone()).or_default() += grown;
        }
        // If not even a copy fits nothing is promoted; otherwise there are too many pages.
        let tightest =
            rooms.into_iter().min_by_key(|room| if room.copies < size { (0, room.copies) } else { (1, room.pages) });
        (fit, others, tightest.map(|room| room.place))
    }

    /// Drops what a process claimed, which has ended.
    pub(super) fn forget(&mut self, pid: i32) {
        self.0.remove(&pid);
    }
}

/// What a region's promotion adds permanently.
pub(super) fn grows(candidate: &Candidate, size: u64, page: u64) -> u64 {
    size - u64::from(candidate.populated) * page
}

/// Splits regions of `size` bytes into those that fit into the room, in their order, and the
/// others.
pub(super) fn admit(batch: Vec<Candidate>, room: &Room, size: u64, page: u64) -> (Vec<Candidate>, Vec<Candidate>) {
    let mut rest = room.pages;
    batch.into_iter().partition(|candidate| {
        let grows = grows(candidate, size, page);
        // One region at a time exists twice, while it is copied.
        let fits = room.copies >= size && grows <= rest;
        rest -= if fits { grows } else { 0 };
        fits
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const MB: u64 = 1 << 20;

    #[test]
    fn what_does_not_fit_is_left_and_what_adds_nothing_is_not() {
        let candidate = |region, populated| Candidate { region, populated, accessed: 0, pieces: 1, since: 0, least: 1 };
        let batch = || vec![candidate(1, 256), candidate(2, 128), candidate(3, 256), candidate(4, 512)];
        let regions = |pages, copies| {
            let room = Room { pages, copies, place: Place::System };
            let (fit, _) = admit(batch(), &room, 2 * MB, 4096);
            fit.iter().map(|candidate| candidate.region).collect::<Vec<_>>()
        };
        assert_eq!(regions(u64::MAX, u64::MAX), [1, 2, 3, 4]);
        // 1 MB each; the second would add 1.5.
        assert_eq!(regions(2 * MB, 2 * MB), [1, 3, 4]);
        assert_eq!(regions(0, 2 * MB), [4]);
        assert_eq!(regions(4 * MB, 2 * MB - 1), [0; 0]);
    }

    #[test]
    fn what_is_only_thought_of_adds_up() {
        let candidate = |region, populated| Candidate { region, populated, accessed: 0, pieces: 1, since: 0, least: 1 };
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("proc/meminfo", "MemTotal:  1048576 kB\nMemAvailable:  134144 kB\n"),
            ("proc/self/mountinfo", "31 23 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
            ("proc/8/cgroup", "0::/a\n"),
            ("sys/fs/cgroup/a/memory.max", "104857600\n"),
            ("sys/fs/cgroup/a/memory.current", "99614720\n"),
        ] {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let headroom = Headroom::of(folder.path());
        let mut claims = Claims::default();
        let mut admit = |pid, batch: &[Candidate]| {
            let (fit, others, place) = claims.admit(&headroom, pid, batch.to_vec(), (2 * MB, 4096));
            (fit.len(), others.len(), place)
        };
        // The system has 131 MB, of which 128 are left to the programs, and the group has none.
        assert_eq!(admit(7, &[candidate(1, 256), candidate(2, 512)]), (2, 0, Some(Place::System)));
        let (fit, others, place) = admit(8, &[candidate(1, 512)]);
        assert_eq!((fit, others), (0, 1));
        assert!(place.is_some_and(|place| place.to_string().contains("/a")));
        assert_eq!(admit(9, &[candidate(3, 256), candidate(4, 256), candidate(5, 256)]), (2, 1, Some(Place::System)));
        assert_eq!(admit(7, &[candidate(6, 256), candidate(7, 512)]), (1, 1, Some(Place::System)));
    }
}
