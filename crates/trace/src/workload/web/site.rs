//! What the server serves: how many files, their sizes, and how popular each is.
//!
//! Sizes are lognormal with a Pareto tail, as Barford and Crovella found files of web servers to be
//! ("Generating representative web workloads for network and server performance evaluation",
//! SIGMETRICS 1998); the spread of the body (1.318), the start of the tail (133 KB) and its
//! exponent (1.1) are theirs. Popularity is Zipf's law with exponent 1, theirs too, independent of
//! size. What is left is worked out from three figures of Navarro et al.: a data set of 3.6 GB and
//! a working set of 238 MB (section 6.2), and the pages mapped at peak (table 1: 30623 of 8 KB,
//! which is 239 MB in small files, and 76 MB in superpages of 512 KB and more):
//!
//! - the small files' 162 MB take 239 MB in pages of 8 KB, half a page too many each: about 19000
//!   files of 8.6 KB, which is the body's mean, so that its median is 3.7 KB;
//! - 50000 draws by Zipf's law touch about 18000 of 300000 files;
//! - and then 3.6 GB take 0.8 % of the files in the tail, if that ends at 16 MB (assumed: a Pareto
//!   law with this exponent has no useful mean without an end).

use super::super::permutation::Permutation;
use super::super::zipf::Popularity;
use superpage_pages::Random;

/// The number of files.
pub(super) const FILES: u64 = 300_000;
/// The files of the tail.
const TAIL: u64 = 2_500;
/// The logarithm of the median of the body, in bytes, and the spread of the logarithm.
const MEDIAN: f64 = 8.21;
const SPREAD: f64 = 1.318;
/// Where the tail begins and ends, in bytes, and its exponent.
const TAIL_START: f64 = 133.0 * 1024.0;
const TAIL_END: f64 = 16.0 * 1024.0 * 1024.0;
const EXPONENT: f64 = 1.1;

/// The files of the server.
pub(super) struct Site {
    /// Bytes of each file, at least 1.
    sizes: Vec<u32>,
    popularity: Popularity,
    /// The bytes of a request, on average.
    mean: f64,
    seed: u64,
}

impl Site {
    /// The site for a seed. Cost: about 50 ms and 4 MB.
    pub(super) fn new(seed: u64) -> Site {
        let mut random = Random::new(seed);
        let (sizes_seed, popular_seed, requests_seed) = (random.next(), random.next(), random.next());
        let mut random = Random::new(sizes_seed);
        // The tail is as even as a sample can be, or a handful of files would decide how much all
        // of them are.
        let sizes: Vec<u32> = (0..FILES)
            .map(|file| if file < TAIL { tail((file as f64 + 0.5) / TAIL as f64) } else { body(&mut random) })
            .collect();
        let ranks = Permutation::new(FILES, popular_seed);
        let (mut bytes, mut weights) = (0.0, 0.0);
        for rank in 0..FILES {
            let weight = 1.0 / (rank + 1) as f64;
            bytes += weight * f64::from(sizes[ranks.at(rank) as usize]);
            weights += weight;
        }
        Site { sizes, popularity: Popularity::new(FILES, 1.0, &ranks), mean: bytes / weights, seed: requests_seed }
    }

    /// The file that is asked for by the request with this number: the requests of a site are one
    /// endless sequence.
    pub(super) fn file(&self, request: u64) -> u64 {
        self.popularity.object(Random::at(self.seed, request).next())
    }

    /// The bytes of a file.
    pub(super) fn size(&self, file: u64) -> u64 {
        u64::from(self.sizes[file as usize])
    }

    /// The bytes of a request, on average.
    pub(super) fn mean_request(&self) -> f64 {
        self.mean
    }
}

/// A size of the body: two random numbers make a normal one (Box and Muller 1958). What falls into
/// the tail is drawn again.
fn body(random: &mut Random) -> u32 {
    loop {
        let (radius, angle) = (1.0 - random.fraction(), random.fraction());
        let normal = libm::sqrt(-2.0 * libm::log(radius)) * libm::cos(std::f64::consts::TAU * angle);
        let size = libm::exp(MEDIAN + SPREAD * normal);
        if size < TAIL_START {
            return (size as u32).max(1);
        }
    }
}

/// The size of which `share` of the tail is smaller: the Pareto law, cut off at its end.
fn tail(share: f64) -> u32 {
    let within = 1.0 - libm::pow(TAIL_START / TAIL_END, EXPONENT);
    (TAIL_START * libm::pow(1.0 - share * within, -1.0 / EXPONENT)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Megabytes of the distinct files of 50000 requests, the same in pages of 8 KB, and how many
    /// files they are.
    fn working_set(site: &Site, first: u64) -> (f64, f64, usize) {
        let files: HashSet<u64> = (first..first + 50_000).map(|request| site.file(request)).collect();
        let sum = |size: &dyn Fn(u64) -> u64| files.iter().map(|file| size(*file)).sum::<u64>() as f64 / 1_048_576.0;
        (sum(&|file| site.size(file)), sum(&|file| site.size(file).next_multiple_of(8 << 10)), files.len())
    }

    #[test]
    fn the_data_set_is_of_3_6_gb() {
        for seed in [1, 2, 3] {
            let site = Site::new(seed);
            let data: u64 = (0..FILES).map(|file| site.size(file)).sum();
            let gigabytes = data as f64 / (1_u64 << 30) as f64;
            assert!((3.528..=3.672).contains(&gigabytes), "seed {seed}: {gigabytes}");
        }
    }

    #[test]
    fn the_working_set_of_50000_requests_is_of_238_mb() {
        let site = Site::new(1);
        let (bytes, in_pages, files) = working_set(&site, 0);
        assert!((214.0..=262.0).contains(&bytes), "{bytes} MB");
        // In pages of 8 KB, within a tenth of the paper's 315 MB with the process itself.
        assert!((283.0..=347.0).contains(&in_pages), "{in_pages} MB in pages");
        assert!((17_000..=21_000).contains(&files), "{files} files");
    }
}
