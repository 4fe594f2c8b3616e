# Copies a shared library with its segments aligned to 64 KB, as linkers align those for Arm (on x86-64, to 4 KB), so that the loader
# maps its file at such addresses: perl align.pl FROM TO
use strict;
use warnings;

my ($from, $to) = @ARGV;
open(my $in, '<:raw', $from) or die "$from: $!\n";
my $elf = do { local $/; <$in> };
my $headers = unpack('Q<', substr($elf, 0x20, 8));
my ($size, $count) = unpack('S<2', substr($elf, 0x36, 4));
for my $header (map { $headers + $_ * $size } 0 .. $count - 1) {
    my ($type, undef, $offset, $address) = unpack('L<2 Q<2', substr($elf, $header, 24));
    next if $type != 1;
    die "$from: a segment's address and offset differ modulo 64 KB\n" if ($address - $offset) % 0x10000;
    substr($elf, $header + 0x30, 8) = pack('Q<', 0x10000);
}
open(my $out, '>:raw', $to) or die "$to: $!\n";
print $out $elf;
