package store_test

import (
	"fmt"
	"go/doc"
	"go/types"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/reference"
	"github.com/fleetthrottle/throttle/store"
)

// A refusedLimit is a limit that Validate refuses, and the call that returns it.
type refusedLimit struct {
	call string
	of   store.Limit
}

// limitKinds are the constructors of limits, each with the text of a limit that it returns, and limits that Validate refuses.
var limitKinds = []struct {
	constructor, text string
	refused           []refusedLimit
}{
	{"SlidingWindow", "10000/20s", []refusedLimit{
		{"SlidingWindow(0, time.Second)", store.SlidingWindow(0, time.Second)},
		{"SlidingWindow(1, 0)", store.SlidingWindow(1, 0)},
		{"SlidingWindow(1, time.Nanosecond)", store.SlidingWindow(1, time.Nanosecond)},
		{"SlidingWindow(1, 367*24*time.Hour)", store.SlidingWindow(1, 367*24*time.Hour)},
	}},
	{"PerSecond", "40/s", nil},
	{"PerMinute", "100/m", nil},
	{"PerHour", "5000/h", nil},
	{"FixedWindow", "100/m fixed", []refusedLimit{
		{"FixedWindow(1, 35*time.Millisecond)", store.FixedWindow(1, 35*time.Millisecond)},
		{"FixedWindow(1, time.Second+1)", store.FixedWindow(1, time.Second+1)},
	}},
	{"CalendarWindow", "5000/month Asia/Shanghai", []refusedLimit{{"CalendarWindow(1, 9, nil)", store.CalendarWindow(1, 9, nil)}}},
	{"LeakyBucket", "40/s paced", nil},
	{"TokenBucket", "2/s burst 40", []refusedLimit{
		{"TokenBucket(2, time.Second, 0)", store.TokenBucket(2, time.Second, 0)},
		{"TokenBucket(2_000_000, time.Second, 1)", store.TokenBucket(2_000_000, time.Second, 1)},
		{"TokenBucket(1, time.Hour, 10_000)", store.TokenBucket(1, time.Hour, 10_000)},
	}},
	{"Concurrency", "20 in flight", []refusedLimit{{"Concurrency(0)", store.Concurrency(0)}}},
	{"Unlimited", "unlimited", nil},
	{"Told", "told", nil},
}

// TestReference: docs/reference/limits.md has each constructor of a limit with its comment, a text, its largest cost and the
// values that it refuses, and the fields of a policy that belong to a limit. $UPDATE writes the page.
func TestReference(t *testing.T) {
	const jitter = 35 * time.Millisecond // the default of throttle.Policy.Jitter
	code := reference.ReadComments(t, "..", "store")
	page := reference.NewPage("Limits: reference", "Each kind of limit: what it counts, its text in a policy file, its bounds. [The guide](../use/guide.md#choosing-a-limit) says which kind fits.")

	page.Table("constructor", "as a text", "largest cost of a start", "window")
	for _, k := range limitKinds {
		limit, err := store.ParseLimit(k.text)
		require.NoError(t, err)
		require.Equal(t, k.text, limit.String())
		page.Row("["+reference.Code(k.constructor)+"](#"+strings.ToLower(k.constructor)+")", reference.Code(k.text), largestCost(limit), windowOf(limit))
	}

	page.Text(fmt.Sprintf("A number is from 1 to %d, a burst from 1 to %d, a period from %v to %v (366 days). The window of a told limit is from %v to %v.",
		store.MaxStarts, store.MaxBurst, store.MinPeriod, store.MaxPeriod, store.MinTold, store.MaxTold))

	constructors := code.Type(t, "Limit").Funcs
	documented := []string{"ParseLimit"} // which has a section below
	for _, k := range limitKinds {
		i := slices.IndexFunc(constructors, func(f *doc.Func) bool { return f.Name == k.constructor })
		require.GreaterOrEqual(t, i, 0, k.constructor)
		f := constructors[i]
		documented = append(documented, f.Name)

		page.Section(f.Name)
		page.Text("```go\n" + f.Name + strings.TrimPrefix(types.ExprString(f.Decl.Type), "func") + "\n```")
		page.Text(code.Markdown(f.Doc))
		if len(k.refused) == 0 {
			continue
		}

		page.Table("refused", "because")
		for _, r := range k.refused {
			err := r.of.Validate(jitter)
			require.Error(t, err, r.call)
			page.Row(reference.Code(r.call), err.Error())
		}
	}

	for _, f := range constructors {
		require.Contains(t, documented, f.Name, "limitKinds lacks a constructor")
	}

	page.Section("Units of CalendarWindow")
	page.Table("unit", "begins")

	for _, u := range code.Constants(t, "Unit") {
		page.Row(reference.Code(u.Name), u.Comment)
	}

	page.Row(reference.Code("WeekFrom(day)"), "on that day, such as `time.Sunday`")

	page.Section("Limits as text")
	i := slices.IndexFunc(constructors, func(f *doc.Func) bool { return f.Name == "ParseLimit" })
	page.Text(code.Markdown(constructors[i].Doc))

	page.Section("Fields of a policy that belong to its limit")
	page.Text("[Policy](https://pkg.go.dev/github.com/fleetthrottle/throttle#Policy) has further fields. In [a policy file](policyfile.md) the names are in lower case.")

	root := reference.ReadComments(t, "..", "")
	for _, f := range root.Fields(t, "Policy") {
		if slices.Contains([]string{"Cost", "Jitter", "Headroom", "Adaptive", "Scope", "Shadow"}, f.Name) {
			page.Text("**" + f.Name + "** " + reference.Code(f.Type) + ": " + root.Markdown(f.Comment))
		}
	}

	page.Compare(t, "..", "limits")
}

// largestCost is the largest cost that one start may have under a limit.
func largestCost(l store.Limit) string {
	if l.Capacity() == store.MaxCost {
		return "no bound"
	}
	return strconv.Itoa(l.Capacity())
}

// windowOf is the window of a limit for readers.
func windowOf(l store.Limit) string {
	switch {
	case l.Per() > 0:
		return l.Per().String()
	case l.Kind() == store.KindFixedWindow:
		return "of the calendar"
	}
	return "none"
}
