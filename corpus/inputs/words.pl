# Counts made-up words, inverts the table, sorts it, and matches patterns: words.pl WORDS
use strict;
use integer;

my $words = shift // 100000;
my $state = 1;
my @syllables = map { my $c = $_; map { "$c$_" } qw(a e i o u an er in or) } qw(b d f g k l m n p r s t);
my (%count, %places);
for my $place (1 .. $words) {
    my $word = '';
    for (0 .. 1 + $place % 3) {
        $state = ($state * 1103515245 + 12345) & 0x7fffffff;
        $word .= $syllables[($state >> 8) % @syllables];
    }
    $count{$word}++;
    push @{ $places{$word} }, $place;
}
my @sorted = sort { $count{$b} <=> $count{$a} || $a cmp $b } keys %count;
my $matching = grep { /an(.)e\1/ || /^(..).*\1$/ } @sorted;
my $far = 0;
$far += $places{$_}[-1] - $places{$_}[0] for @sorted;
print scalar(@sorted), " words, $matching match, $far apart, most often $sorted[0]\n";
