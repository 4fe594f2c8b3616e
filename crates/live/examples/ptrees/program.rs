//! The program: reads its arguments, loads, compares, predicts, and says how long each took.

use crate::predict::{self, MOST, Neighbours};
use crate::ratings::{MOVIES, Rating, Size, Source, Trees};
use crate::store::Style;
use std::time::Instant;
use xxhash_rust::xxh3::Xxh3;

/// What was asked for.
struct Asked {
    style: Style,
    memory: u64,
    targets: usize,
    neighbours: usize,
    seed: u64,
}

impl Asked {
    fn read(mut arguments: impl Iterator<Item = String>) -> Result<Asked, String> {
        let mut asked = Asked { style: Style::Objects, memory: 600 << 20, targets: 10, neighbours: 100, seed: 1 };
        while let Some(flag) = arguments.next() {
            let value = arguments.next().ok_or_else(|| format!("{flag} needs a value"))?;
            let number = || value.parse::<usize>().map_err(|_| format!("{flag} {value}: expected a number"));
            match flag.as_str() {
                "--style" => asked.style = value.parse()?,
                "--memory" => asked.memory = superpage_pages::parse_bytes(&value).map_err(|error| error.to_string())?,
                "--targets" => asked.targets = number()?,
                "--neighbours" => asked.neighbours = number()?,
                "--seed" => asked.seed = number()? as u64,
                _ => {
                    return Err(format!(
                        "{flag} is not known; expected --style, --memory, --targets, --neighbours, --seed"
                    ));
                }
            }
        }
        if !(1..=MOST).contains(&asked.neighbours) {
            return Err(format!("--neighbours {}: expected 1 to {MOST}", asked.neighbours));
        }
        if !(1..=MOVIES / SPREAD).contains(&asked.targets) {
            return Err(format!("--targets {}: expected 1 to {}", asked.targets, MOVIES / SPREAD));
        }
        Ok(asked)
    }

    /// As many users as fill the memory.
    fn users(&self) -> Result<usize, String> {
        let most = (1..1 << 16)
            .map(|leaves| leaves * 64)
            .take_while(|users| Trees::bytes(*users, MOVIES) as u64 <= self.memory);
        most.last()
            .ok_or_else(|| format!("--memory {}: expected at least {} bytes", self.memory, Trees::bytes(64, MOVIES)))
    }
}

/// A target is taken from every so many of the most seen movies.
const SPREAD: usize = 20;
/// Movies that a user rates on average: 1.18 % of them, the density of Netflix's ratings.
const EACH: usize = 202;
/// One of so many ratings of a target is withheld.
const WITHHELD: usize = 2;

/// Runs it with the arguments of the process.
pub(crate) fn main() {
    let asked = Asked::read(std::env::args().skip(1)).and_then(|asked| Ok((asked.users()?, asked)));
    match asked {
        Ok((users, asked)) => run(&asked, Size { users, movies: MOVIES, each: EACH }),
        Err(problem) => {
            eprintln!("ptrees: {problem}");
            std::process::exit(2);
        }
    }
}

fn run(asked: &Asked, size: Size) {
    let begun = Instant::now();
    let mut source = Source::new(size, asked.seed);
    let targets: Vec<usize> =
        source.popular().iter().step_by(SPREAD).take(asked.targets).map(|movie| *movie as usize).collect();
    let mut is_target = vec![false; size.movies];
    targets.iter().for_each(|target| is_target[*target] = true);
    let mut trees = Trees::new(asked.style, size);
    let (mut withheld, mut rated, mut ratings): (Vec<Rating>, _, u64) = (Vec::new(), Vec::new(), 0);
    for user in 0..size.users {
        source.user(user, &mut rated);
        for rating in &rated {
            ratings += 1;
            if is_target[rating.movie as usize] && ratings.is_multiple_of(WITHHELD as u64) {
                withheld.push(*rating);
            } else {
                trees.add(*rating);
            }
        }
    }
    // Movie by movie, as they will be predicted.
    withheld.sort_by_key(|rating| (rating.movie, rating.user));
    let loaded = begun.elapsed();

    let begun = Instant::now();
    let means = predict::means(&trees);
    let mut near: Vec<Neighbours> =
        targets.iter().map(|target| predict::neighbours(&trees, *target, asked.neighbours)).collect();
    near.sort_by_key(|neighbours| neighbours.movie);
    let compared = begun.elapsed();

    // Every user's rating of every target; those that were withheld are there to judge by.
    let begun = Instant::now();
    let mut hash = Xxh3::new();
    let (mut predictions, mut judged) = (0_u64, Vec::with_capacity(withheld.len()));
    for neighbours in &near {
        for (movie, similarity) in &neighbours.near {
            hash.update(&movie.to_le_bytes());
            hash.update(&similarity.to_le_bytes());
        }
        for user in 0..size.users {
            let prediction = predict::predict(&trees, &means, neighbours, user);
            hash.update(&prediction.to_le_bytes());
            let next = withheld.get(judged.len());
            if next.is_some_and(|next| (next.movie as usize, next.user as usize) == (neighbours.movie, user)) {
                judged.push(prediction);
            }
            predictions += 1;
        }
    }
    let predicted = begun.elapsed();
    assert_eq!(judged.len(), withheld.len(), "every rating that was withheld is predicted");

    let plain: Vec<f64> = withheld.iter().map(|rating| means[rating.movie as usize]).collect();
    let bytes = Trees::bytes(size.users, size.movies);
    println!(
        "{:?}: {ratings} ratings of {} movies by {} users in {} MB of trees",
        asked.style,
        size.movies,
        size.users,
        bytes >> 20
    );
    println!("predicted {predictions} ratings of {} movies, {} of them withheld", targets.len(), judged.len());
    println!(
        "error {:.4}, by the mean of the movie {:.4}",
        predict::error(&withheld, &judged),
        predict::error(&withheld, &plain)
    );
    println!("checksum {:016x}", hash.digest());
    println!(
        "load {:.3} s, similarity {:.3} s, predict {:.3} s",
        loaded.as_secs_f64(),
        compared.as_secs_f64(),
        predicted.as_secs_f64()
    );
}
