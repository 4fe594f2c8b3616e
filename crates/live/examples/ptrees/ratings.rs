//! Ratings out of a seed, and the trees that hold them: a tree for each bit of the ratings of a
//! movie, over users, and for each bit of the ratings by a user, over movies.

use crate::store::{Store, Style};
use crate::tree::{Shape, Tree};
use fastrand::Rng;

/// Movies: a tree over them has 268 leaves and 10 words of hierarchy above these, 2,224 bytes.
pub(crate) const MOVIES: usize = 17_152;
/// Bits of a rating, which is 1 to 5; 0 is none.
pub(crate) const BITS: usize = 3;
/// Tastes that users differ in.
const TASTES: usize = 6;

/// One rating.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rating {
    pub(crate) user: u32,
    pub(crate) movie: u32,
    pub(crate) stars: u8,
}

/// What is rated by whom.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) users: usize,
    pub(crate) movies: usize,
    /// The mean number of movies that a user rates.
    pub(crate) each: usize,
}

/// Ratings by users who have tastes, of movies that are to some tastes; a few movies are seen by
/// many.
pub(crate) struct Source {
    size: Size,
    rng: Rng,
    /// The movies from the most seen to the least.
    popular: Vec<u32>,
    /// What of each taste a movie has, and how good it is.
    movies: Vec<([f32; TASTES], f32)>,
    seen: Vec<bool>,
}

impl Source {
    /// The ratings of a seed.
    pub(crate) fn new(size: Size, seed: u64) -> Source {
        let mut rng = Rng::with_seed(seed);
        let mut popular: Vec<u32> = (0..size.movies as u32).collect();
        rng.shuffle(&mut popular);
        let movie = |rng: &mut Rng| (std::array::from_fn(|_| bell(rng)), 0.4 * bell(rng));
        let movies = (0..size.movies).map(|_| movie(&mut rng)).collect();
        Source { size, rng, popular, movies, seen: vec![false; size.movies] }
    }

    /// The ratings of the next user.
    pub(crate) fn user(&mut self, user: usize, rated: &mut Vec<Rating>) {
        rated.clear();
        let rng = &mut self.rng;
        let tastes: [f32; TASTES] = std::array::from_fn(|_| bell(rng));
        let mood = 0.3 * bell(rng);
        // Some rate few movies and some rate many: between a fourth and the square of it again,
        // evenly in the square root.
        let some = 0.5 + 1.5 * rng.f64();
        let wanted = ((self.size.each as f64 * some * some / 1.75) as usize).clamp(1, self.size.movies);
        for _ in 0..wanted {
            // The density falls with the rank, so that half of all users see the first.
            let rank = (self.size.movies as f64 * rng.f64().powf(1.75)) as usize;
            let movie = self.popular[rank] as usize;
            if std::mem::replace(&mut self.seen[movie], true) {
                continue;
            }
            let (traits, good) = &self.movies[movie];
            let liking: f32 = tastes.iter().zip(traits).map(|(a, b)| a * b).sum();
            let stars = (3.5 + good + mood + 0.5 * liking + 0.5 * bell(rng)).round().clamp(1.0, 5.0);
            rated.push(Rating { user: user as u32, movie: movie as u32, stars: stars as u8 });
        }
        rated.iter().for_each(|rating| self.seen[rating.movie as usize] = false);
    }

    /// The most seen movies, most first.
    pub(crate) fn popular(&self) -> &[u32] {
        &self.popular
    }
}

/// A number around 0, two thirds of them within 1 of it.
fn bell(rng: &mut Rng) -> f32 {
    // Four even numbers have a sum with a variance of a third.
    (0..4).map(|_| rng.f32() - 0.5).sum::<f32>() * 3.0_f32.sqrt()
}

/// All trees.
pub(crate) struct Trees {
    pub(crate) size: Size,
    by_movie: Store,
    by_user: Store,
}

impl Trees {
    /// Trees with no ratings in them.
    pub(crate) fn new(style: Style, size: Size) -> Trees {
        let by_movie = Store::new(style, Shape::over(size.users), size.movies * BITS);
        let by_user = Store::new(style, Shape::over(size.movies), size.users * BITS);
        Trees { size, by_movie, by_user }
    }

    /// Bytes of all trees over so many users and movies.
    pub(crate) fn bytes(users: usize, movies: usize) -> usize {
        8 * BITS * (movies * Shape::over(users).words() + users * Shape::over(movies).words())
    }

    /// Takes in a rating.
    pub(crate) fn add(&mut self, rating: Rating) {
        let (user, movie) = (rating.user as usize, rating.movie as usize);
        for bit in (0..BITS).filter(|bit| rating.stars >> bit & 1 == 1) {
            self.by_movie.tree_mut(movie * BITS + bit).set(user);
            self.by_user.tree_mut(user * BITS + bit).set(movie);
        }
    }

    /// The trees of a movie, from the lowest bit of its ratings.
    pub(crate) fn movie(&self, movie: usize) -> [Tree<'_>; BITS] {
        std::array::from_fn(|bit| self.by_movie.tree(movie * BITS + bit))
    }

    /// The trees of a user.
    pub(crate) fn user(&self, user: usize) -> [Tree<'_>; BITS] {
        std::array::from_fn(|bit| self.by_user.tree(user * BITS + bit))
    }

    /// The shape of trees over users, and of those over movies.
    pub(crate) fn shapes(&self) -> (Shape, Shape) {
        (self.by_movie.shape(), self.by_user.shape())
    }
}
