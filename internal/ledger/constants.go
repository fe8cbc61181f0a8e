package ledger

import (
	"fmt"
	"strings"
)

// A Constant is a number, or a list of numbers, that the scripts of redisstore must have as this package has it.
type Constant struct {
	Name  string // in the scripts
	Value any    // of a length of time, its microseconds
}

// Constants are all of them. Both languages decide the same by them, so they stand nowhere else.
func Constants() []Constant {
	return []Constant{
		// What rows keep.
		{"MAX_ENTRIES", MaxEntries},
		{"ENTRY_BYTES", EntryBytes},
		{"TRIPLE", tripleBytes},
		{"WINDOW_PARTS", windowParts},
		{"MAX_COUNT", int64(maxCount)},
		{"MAX_NUMBER", int64(maxNumber)},
		{"MAX_LEVEL", int64(maxLevel)},

		// Clocks that are set back.
		{"STALL", Stall},
		{"MARKED", marked},

		// Penalties and the slow start after them.
		{"LEAST_PROBE", LeastProbe},
		{"LONGEST_PROBE", longestProbe},
		{"LONGEST_GROWN", longestGrown},
		{"LONGEST_STEP", longestStep},
		{"SLOW_STEPS", len(steps)},
		{"STEP_PARTS", "{" + strings.Trim(strings.Join(strings.Fields(fmt.Sprint(steps)), ", "), "[]") + "}"},

		// Ceilings.
		{"RISING_WINDOWS", risingWindows},
		{"RISING_LEAST", risingLeast},
		{"CEILING_FALL", fall},
		{"CEILING_RISEN", risen},

		// What upstreams say is left, and when waiters have their turn.
		{"DOUBT", Doubt},
		{"BUSY_SPANS", busySpans},
		{"FAR_WINDOWS", farWindows},
	}
}
