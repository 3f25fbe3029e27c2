/* Records of benchmarks as pictures: of `megamoe bench`, and of the GPU benchmarks of a layer, on one GPU or several.
 */
#ifndef CLI_BENCH_CHART_H
#define CLI_BENCH_CHART_H

/* Draws the record in the file `path` to the file `output`; NULL: beside it, with the ending of a picture. Says what is
 * wrong and returns an exit code. */
int bench_draw(const char *path, const char *output);

#endif
