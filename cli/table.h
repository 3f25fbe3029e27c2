/* A table of text in aligned columns: the first one to the left, all others to the right. */
#ifndef CLI_TABLE_H
#define CLI_TABLE_H

#include <stdio.h>

#define TABLE_COLUMNS 20
#define TABLE_CELL 48

struct table {
    int columns, rows, room;
    char (*cells)[TABLE_CELL];
    int column; /* where the next cell goes; == columns: a new row is due */
    int failed; /* no memory: printing says so */
};

/* A table with these headings, ended by NULL. */
void table_start(struct table *table, const char *const *headings);

/* The next cell of the table; rows fill from left to right. */
void table_cell(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Prints and frees. */
void table_print(struct table *table, FILE *file);

#endif
