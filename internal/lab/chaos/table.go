package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

const head = `| fault | arrivals | most in 1 s | quota before | during | after | longest gap | back after | late | MaxWait | most in flight | back after | errors | stall | |
|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|---:|---|`

// row is the account as a row of the table.
func (a *account) row() string {
	// A busy machine can break a promise, too: counts are judged there.
	result := "kept"
	switch {
	case len(a.broken()) > 0:
		result = "**BROKEN**"
	case a.busy():
		result = "kept; too busy to judge times"
	}
	return fmt.Sprintf("| %s | %d | %s | %s | %s | %s | %s | %s | %s | %s | %d of %d | %s | %s | %s | %s |",
		a.name, a.arrivals, a.worst, percent(a.before), percent(a.during), percent(a.after),
		brief(a.gap), brief(a.resumed), brief(a.late), brief(a.overdue), a.flying, inFlight, a.backInFlight(),
		counts(a.errors), brief(a.stall), result)
}

// backInFlight says when something was in flight again, or nothing if the scene does not show it.
func (a *account) backInFlight() string {
	if !a.judgesInFlight() {
		return ""
	}
	return brief(a.inFlightAfter)
}

// String says how many requests arrived and how many were allowed to, and why more than the limit.
func (c crowd) String() string {
	text := fmt.Sprintf("%d of %d", c.count, c.limit)
	if c.extra > 0 {
		text += fmt.Sprintf(" + %d lost", c.extra)
	}
	if c.excuse > 0 {
		text += fmt.Sprintf(" + %d for a stall", c.excuse)
	}
	return text
}

// percent writes a share in percent, and nothing for a negative share, which is not known.
func percent(share float64) string {
	if share < 0 {
		return ""
	}
	return fmt.Sprintf("%.0f %%", 100*share)
}

// brief writes a time in ms below a second and in s above, and a negative time as "never".
func brief(d time.Duration) string {
	switch {
	case d < 0:
		return "never"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	}
	return fmt.Sprintf("%.1fs", d.Seconds())
}

// counts returns numbers by kind as a text, such as "2 refused, 3 started".
func counts(of map[string]int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		parts = append(parts, fmt.Sprintf("%d %s", of[name], name))
	}
	return strings.Join(parts, ", ")
}
