//! Which regions fit into the room that is left to a process, and what those that would be promoted
//! claim of it.

use std::collections::BTreeMap;
use superpage_linux::headroom::{Headroom, Place, Room};
use superpage_vm::Candidate;

/// What simulated promotions would add, one after the other, by process and place.
#[derive(Debug, Default)]
pub(super) struct Claims(BTreeMap<i32, BTreeMap<Place, u64>>);

impl Claims {
    /// Claims the `grown` bytes that the promotion of a region of `size` bytes adds to a process,
    /// if it has room for them after all earlier claims.
    ///
    /// # Errors
    /// There is no room in this place, which has the least.
    pub(super) fn admit(&mut self, headroom: &Headroom, pid: i32, grown: u64, size: u64) -> Result<(), Place> {
        let mut rooms = headroom.rooms(pid);
        for room in &mut rooms {
            let claimed: u64 = self.0.values().filter_map(|places| places.get(&room.place)).sum();
            (room.pages, room.copies) = (room.pages.saturating_sub(claimed), room.copies.saturating_sub(claimed));
        }
        if !has_room(&Room::of_all(&rooms), grown, size) {
            // If not even a copy fits nothing is promoted; otherwise there are too many pages.
            let room = |room: &Room| if room.copies < size { (0, room.copies) } else { (1, room.pages) };
            return Err(rooms.into_iter().min_by_key(room).map_or(Place::System, |room| room.place));
        }
        let places = self.0.entry(pid).or_default();
        rooms.into_iter().for_each(|room| *places.entry(room.place).or_default() += grown);
        Ok(())
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
    let mut room = room.clone();
    batch.into_iter().partition(|candidate| {
        let grown = grows(candidate, size, page);
        let fits = has_room(&room, grown, size);
        room.pages -= if fits { grown } else { 0 };
        fits
    })
}

/// Whether a region of `size` bytes may grow by `grown` bytes; one region at a time exists twice,
/// while it is copied.
fn has_room(room: &Room, grown: u64, size: u64) -> bool {
    room.copies >= size && grown <= room.pages
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
        let mut admit = |pid, megabytes: u64| claims.admit(&headroom, pid, megabytes * MB, 2 * MB);
        // The system has 131 MB, of which 128 are left to the programs, and the group has none.
        assert_eq!([admit(7, 1), admit(7, 0)], [Ok(()), Ok(())]);
        assert!(admit(8, 0).is_err_and(|place| place.to_string().contains("/a")));
        assert_eq!([admit(9, 1), admit(9, 1), admit(9, 1)], [Ok(()), Ok(()), Err(Place::System)]);
        assert_eq!([admit(7, 1), admit(7, 0)], [Err(Place::System), Ok(())]);
    }
}
