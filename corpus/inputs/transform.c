// FFTW's transform of n x n x n complex numbers, so many times, in place or into another array: transform N TIMES [out].
#include <fftw3.h>
#include <stdlib.h>

int main(int count, char **words) {
    int n = count > 1 ? atoi(words[1]) : 200;
    int times = count > 2 ? atoi(words[2]) : 1;
    long all = (long)n * n * n;
    fftw_complex *numbers = fftw_malloc(sizeof *numbers * all);
    fftw_complex *result = count > 3 ? fftw_malloc(sizeof *result * all) : numbers;
    fftw_plan plan = fftw_plan_dft_3d(n, n, n, numbers, result, FFTW_FORWARD, FFTW_ESTIMATE);
    for (long at = 0; at < all; at++) {
        numbers[at][0] = (double)(at % 1009) / 1009;
        numbers[at][1] = 0;
    }
    while (times-- > 0)
        fftw_execute(plan);
    fftw_destroy_plan(plan);
    if (result != numbers)
        fftw_free(result);
    fftw_free(numbers);
    return 0;
}
