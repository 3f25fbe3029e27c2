/* Aligned tables. */
#include "table.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static char *next_cell(struct table *table) {
    if (table->column == table->columns) {
        table->column = 0;
        table->rows++;
    }
    if (table->rows >= table->room) {
        int room = table->room ? 2 * table->room : 16;
        void *cells = realloc(table->cells, (size_t)room * (size_t)table->columns * TABLE_CELL);
        if (!cells) {
            table->failed = 1;
            return NULL;
        }
        table->cells = cells;
        table->room = room;
    }
    return table->cells[table->rows * table->columns + table->column++];
}

void table_cell(struct table *table, const char *format, ...) {
    char *cell = table->failed ? NULL : next_cell(table);
    if (!cell)
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(cell, TABLE_CELL, format, arguments);
    va_end(arguments);
}

void table_start(struct table *table, const char *const *headings) {
    *table = (struct table){0};
    while (table->columns < TABLE_COLUMNS && headings[table->columns])
        table->columns++;
    for (int c = 0; c < table->columns; c++)
        table_cell(table, "%s", headings[c]);
}

static int width_of(const struct table *table, int column) {
    int width = 0;
    for (int r = 0; r <= table->rows; r++) {
        int length = (int)strlen(table->cells[r * table->columns + column]);
        if (length > width)
            width = length;
    }
    return width;
}

void table_print(struct table *table, FILE *file) {
    if (table->failed) {
        fputs("(no memory for a table)\n", file);
    } else {
        while (table->column < table->columns) /* an unfinished row */
            table_cell(table, "%s", "");
        int widths[TABLE_COLUMNS];
        for (int c = 0; c < table->columns; c++)
            widths[c] = width_of(table, c);
        for (int r = 0; r <= table->rows; r++)
            for (int c = 0; c < table->columns; c++)
                fprintf(file, "%*s%s", c ? widths[c] + 2 : -widths[c], table->cells[r * table->columns + c],
                        c + 1 == table->columns ? "\n" : "");
    }
    free(table->cells);
    *table = (struct table){0};
}
