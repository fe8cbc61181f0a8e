package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/fleetthrottle/throttle/redisstore/fleet"
)

// A table is rows of words below a row of titles.
type table struct {
	titles []string
	rows   [][]string
}

// lines returns the table with its columns below each other, in a terminal's columns: some
// characters are two wide. What somebody may have written into Redis cannot control it.
func (t *table) lines() []string {
	all := append([][]string{t.titles}, t.rows...)
	width := make([]int, len(t.titles))
	for i, row := range all {
		clean := make([]string, len(row))
		for j, cell := range row {
			clean[j] = fleet.Clean(cell, 1000)
			if j < len(row)-1 || j == len(width)-1 {
				width[j] = max(width[j], ansi.StringWidth(clean[j]))
			}
		}

		all[i] = clean
	}

	var lines []string
	for _, row := range all {
		var line strings.Builder
		for j, cell := range row {
			line.WriteString(cell)
			if j < len(row)-1 {
				line.WriteString(strings.Repeat(" ", width[j]-ansi.StringWidth(cell)+2))
			}
		}

		lines = append(lines, strings.TrimRight(line.String(), " "))
	}

	return lines
}

// add adds a row. The last cell of a row that has fewer than there are titles makes no column
// wider.
func (t *table) add(cells ...any) {
	row := make([]string, len(cells))
	for i, cell := range cells {
		row[i] = fmt.Sprint(cell)
	}
	t.rows = append(t.rows, row)
}

// text is the table as it is printed.
func (t *table) text() string { return strings.Join(t.lines(), "\n") + "\n" }

// print writes the table.
func (t *table) print(out io.Writer) error {
	_, err := io.WriteString(out, t.text())
	return err
}
