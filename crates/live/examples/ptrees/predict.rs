//! Predictions by what a user thought of similar movies: item-based collaborative filtering, on
//! counts over trees alone.

use crate::ratings::{BITS, Rating, Trees};
use crate::store::{Store, Style};
use crate::tree::{Shape, Tree, count, visit};

/// Neighbours that a movie may have.
pub(crate) const MOST: usize = 512;

/// Exact sums over the users who rated both of two movies.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Common {
    pub(crate) users: u64,
    pub(crate) left: u64,
    pub(crate) right: u64,
    pub(crate) left_squares: u64,
    pub(crate) right_squares: u64,
    pub(crate) products: u64,
}

impl Common {
    /// The correlation of the ratings, drawn toward 0 where few users rated both.
    pub(crate) fn similarity(&self) -> f64 {
        let Common { users, left, right, left_squares, right_squares, products } = *self;
        // Whole numbers up to here, so that nothing depends on an order of sums.
        let covariance = (users * products) as f64 - (left * right) as f64;
        let spread = |sum: u64, squares: u64| (users * squares - sum * sum) as f64;
        let spreads = spread(left, left_squares) * spread(right, right_squares);
        if spreads == 0.0 { 0.0 } else { covariance / spreads.sqrt() * (users as f64 / (users as f64 + 25.0)) }
    }
}

/// What is worked out once of a movie that is compared with all others.
pub(crate) struct Target {
    shape: Shape,
    /// Where it is rated at all, and the products of its bits in pairs.
    trees: Store,
    /// Its bits in these pairs, and what each stands for.
    pairs: Vec<(usize, usize, u64)>,
}

/// Pairs of the bits of a rating: its square is the sum of their products.
fn pairs() -> Vec<(usize, usize, u64)> {
    let all = (0..BITS).flat_map(|low| (low..BITS).map(move |high| (low, high)));
    all.map(|(low, high)| (low, high, (1 << (low + high)) * if low == high { 1 } else { 2 })).collect()
}

impl Target {
    pub(crate) fn new(shape: Shape, bits: [Tree; BITS]) -> Target {
        let pairs = pairs();
        let mut trees = Store::new(Style::Objects, shape, 1 + pairs.len());
        rated(shape, bits, &mut trees);
        for (index, (low, high, _)) in pairs.iter().enumerate() {
            trees.tree_mut(1 + index).and(bits[*low], bits[*high]);
        }
        Target { shape, trees, pairs }
    }

    /// The sums over the users whom this movie has in common with another. `scratch` has room for a
    /// tree.
    pub(crate) fn common(&self, own: [Tree; BITS], other: [Tree; BITS], scratch: &mut Store) -> Common {
        debug_assert_eq!(scratch.shape(), self.shape);
        rated(self.shape, other, scratch);
        let (rated, others) = (self.trees.tree(0), scratch.tree(0));
        let mut sums = Common { users: count([rated, others]), ..Common::default() };
        if sums.users == 0 {
            return sums;
        }
        for (bit, tree) in own.iter().enumerate() {
            sums.left += count([*tree, others]) << bit;
            for (second, other) in other.iter().enumerate() {
                sums.products += count([*tree, *other]) << (bit + second);
            }
        }
        for (bit, tree) in other.iter().enumerate() {
            sums.right += count([*tree, rated]) << bit;
        }
        for (index, (low, high, weight)) in self.pairs.iter().enumerate() {
            sums.left_squares += weight * count([self.trees.tree(1 + index), others]);
            sums.right_squares += weight * count([other[*low], other[*high], rated]);
        }
        sums
    }
}

/// Writes into tree 0 where there is a rating: where any bit is set. What lies between is a tree of
/// its own, as operations of the thesis's library make one each.
fn rated(shape: Shape, bits: [Tree; BITS], into: &mut Store) {
    let mut both = vec![0; shape.words()];
    crate::tree::TreeMut::new(shape, &mut both).or(bits[0], bits[1]);
    into.tree_mut(0).or(Tree::new(shape, &both), bits[2]);
}

/// The most similar movies of one, with their similarities.
pub(crate) struct Neighbours {
    pub(crate) movie: usize,
    /// By number of the movie.
    pub(crate) near: Vec<(usize, f64)>,
    /// The same movies as a tree.
    tree: Store,
}

/// Finds the `most` movies that are most similar to one.
pub(crate) fn neighbours(trees: &Trees, movie: usize, most: usize) -> Neighbours {
    assert!(most <= MOST, "at most {MOST} neighbours are looked at");
    let (over_users, over_movies) = trees.shapes();
    let own = trees.movie(movie);
    let target = Target::new(over_users, own);
    let mut scratch = Store::new(Style::Objects, over_users, 1);
    let mut all: Vec<(usize, f64)> = (0..trees.size.movies)
        .filter(|other| *other != movie)
        .map(|other| (other, target.common(own, trees.movie(other), &mut scratch).similarity()))
        .filter(|(_, similarity)| *similarity > 0.0)
        .collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    all.truncate(most);
    all.sort_by_key(|(other, _)| *other);
    let mut tree = Store::new(Style::Objects, over_movies, 1);
    all.iter().for_each(|(other, _)| tree.tree_mut(0).set(*other));
    Neighbours { movie, near: all, tree }
}

/// The mean rating of each movie; of one without ratings, the middle of the scale.
pub(crate) fn means(trees: &Trees) -> Vec<f64> {
    let (shape, _) = trees.shapes();
    let mut scratch = Store::new(Style::Objects, shape, 1);
    let mean = |movie| {
        let bits = trees.movie(movie);
        rated(shape, bits, &mut scratch);
        let sum: u64 = (0..BITS).map(|bit| bits[bit].count() << bit).sum();
        match scratch.tree(0).count() {
            0 => 3.0,
            users => sum as f64 / users as f64,
        }
    };
    (0..trees.size.movies).map(mean).collect()
}

/// What a user would rate a movie: its mean, moved by what the user thought of its neighbours, each
/// against its mean.
pub(crate) fn predict(trees: &Trees, means: &[f64], neighbours: &Neighbours, user: usize) -> f64 {
    let bits = trees.user(user);
    let near = neighbours.tree.tree(0);
    let (mut moved, mut weight) = (0.0, 0.0);
    // Ratings of neighbours, bit by bit where there are any; a movie comes up for each bit that its
    // rating has.
    let mut found = [0_u8; MOST];
    let at = |movie: usize| neighbours.near.binary_search_by_key(&movie, |(other, _)| *other).ok();
    for (bit, tree) in bits.into_iter().enumerate() {
        visit([tree, near], |leaf, mut value| {
            while value != 0 {
                let movie = 64 * leaf + value.trailing_zeros() as usize;
                if let Some(index) = at(movie) {
                    found[index] |= 1 << bit;
                }
                value &= value - 1;
            }
        });
    }
    for (index, stars) in found[..neighbours.near.len()].iter().enumerate().filter(|(_, stars)| **stars > 0) {
        let (other, similarity) = neighbours.near[index];
        moved += similarity * (f64::from(*stars) - means[other]);
        weight += similarity;
    }
    means[neighbours.movie] + if weight > 0.0 { moved / weight } else { 0.0 }
}

/// The root of the mean square of what predictions are off by.
pub(crate) fn error(ratings: &[Rating], predictions: &[f64]) -> f64 {
    let squares = ratings.iter().zip(predictions).map(|(rating, says)| (f64::from(rating.stars) - says).powi(2));
    (squares.sum::<f64>() / ratings.len().max(1) as f64).sqrt()
}
