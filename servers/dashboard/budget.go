package dashboard

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
	"github.com/fleetthrottle/throttle/store"
)

// idOf returns the id of a budget on the page.
func idOf(b throttle.Budget) string { return b.String() }

// budgetOf returns a budget of a charge as a store describes it. averageCost is what a start cost on the average.
func budgetOf(c *store.Charge, st throttle.Status, averageCost float64, now time.Time) budget {
	kind, capacity := kindOf(c.Limit)
	_, key, _ := cutLast(c.Budget.String(), "/")
	b := budget{
		ID: fleet.Clean(idOf(c.Budget), longestName), Name: fleet.Clean(c.Budget.String(), longestName), Policy: fleet.Clean(c.Budget.Policy, longestName),
		Key: key, Upstream: fleet.Clean(c.Budget.Group, longestName), Limits: []string{c.Limit.String()},
		Kind: kind, Capacity: capacity, Shadow: c.Shadow, Nodes: 1,
		Used: st.Used, Booked: st.Booked, Callers: requestsOf(st.Callers, st.Booked, st.Waiting, averageCost), Wait: st.Wait.Milliseconds(), Repeated: st.Repeated, Ceiling: st.Ceiling, Shares: fleet.StateOf(st).Shares,
	}

	if st.Wait == throttle.Never {
		b.Wait = -1
	} else if st.Wait > 0 {
		b.Wait = max(1, b.Wait)
	}

	if st.Paused > 0 {
		b.Until = now.Add(st.Paused).UnixMilli()
	}

	return b
}

// requestsOf returns how many requests wait: those in line, and those whose start is booked for later. Stores say of the
// latter only what they cost, and some say no more of the former, so the number is an estimate where starts do not all cost the
// same. waiting is what all of them cost.
func requestsOf(inLine, booked, waiting int, averageCost float64) int {
	unknown := booked
	if inLine == 0 {
		unknown = waiting
	}
	if unknown <= 0 {
		return inLine
	}
	return inLine + max(1, int(math.Round(float64(unknown)/max(1, averageCost))))
}

// average returns what a start cost on the average; 1 if there was none.
func average(cost, starts float64) float64 {
	if starts <= 0 {
		return 1
	}
	return cost / starts
}

// cutLast is strings.Cut at the last place.
func cutLast(text, at string) (before, after string, found bool) {
	if i := strings.LastIndex(text, at); i >= 0 {
		return text[:i], text[i+len(at):], true
	}
	return text, "", false
}

// sortBudgets sorts budgets: those that are closed first, then those that hold requests, then those used most.
func sortBudgets(all []budget) {
	weight := func(b *budget) int {
		switch {
		case b.Until > 0:
			return 2
		case b.Callers > 0:
			return 1
		}
		return 0
	}
	slices.SortFunc(all, func(a, b budget) int {
		return cmp.Or(weight(&b)-weight(&a), cmp.Compare(b.Starts, a.Starts), cmp.Compare(b.Used, a.Used), strings.Compare(a.ID, b.ID))
	})
}
