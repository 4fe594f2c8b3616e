// FFTW's transform of n x n x n complex numbers in place, so many times: transform N TIMES.
#include <fftw3.h>
#include <stdlib.h>

int main(int count, char **words) {
    int n = count > 1 ? atoi(words[1]) : 200;
    int times = count > 2 ? atoi(words[2]) : 1;
    long all = (long)n * n * n;
    fftw_complex *numbers = fftw_malloc(sizeof *numbers * all);
    fftw_plan plan = fftw_plan_dft_3d(n, n, n, numbers, numbers, FFTW_FORWARD, FFTW_ESTIMATE);
    for (long at = 0; at < all; at++) {
        numbers[at][0] = (double)(at % 1009) / 1009;
        numbers[at][1] = 0;
    }
    while (times-- > 0)
        fftw_execute(plan);
    fftw_destroy_plan(plan);
    fftw_free(numbers);
    return 0;
}
