package policyfile_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/policyfile"
)

func ExampleFormat() {
	text, err := policyfile.Format([]throttle.Policy{
		{Name: "api", Match: "api.example.com/", Key: throttle.Host, Limit: throttle.PerSecond(20)},
		{Name: "machine", Match: "api.example.com/", Limit: throttle.Concurrency(8), Answer: feedback.LeaveOpen, Scope: throttle.ScopeNode},
	})
	fmt.Printf("%s%v\n", text, err)
	// Output:
	// version: 1
	// policies:
	// - name: api
	//   match: api.example.com/
	//   key: '{host}'
	//   limit: 20/s
	// - name: machine
	//   match: api.example.com/
	//   limit: 8 in flight
	//   penalty: none
	//   scope: node
	// <nil>
}

// TestRoundTrip: a table in Go, written and read, is the same table.
func TestRoundTrip(t *testing.T) {
	zone, err := time.LoadLocation("Asia/Shanghai")
	require.NoError(t, err)
	table := []throttle.Policy{
		{Name: "yes", Match: "GET {shop}.example.com/a/{id}", Limit: throttle.TokenBucket(2, time.Second, 40)},
		{Name: "12: a # b", Match: "/", Limit: throttle.CalendarWindow(5000, throttle.Month, zone), Adaptive: true, Shadow: true},
		{Name: "~", Match: "/", Limit: throttle.LeakyBucket(40, time.Second), Jitter: -1},
		{Name: "d", Match: "/", Limit: throttle.FixedWindow(100, time.Minute), Jitter: 50 * time.Millisecond,
			Headroom: map[throttle.Priority]float64{throttle.PriorityLow: 0.25, throttle.PriorityHigh: 0}},
		{Name: "e", Match: "/", Limit: throttle.Concurrency(20), Scope: throttle.ScopeNode},
		{Name: "f", Match: "/", Limit: throttle.Unlimited()},
		{Name: "g", Limit: throttle.PerHour(1)},
		{Name: "h", Limit: throttle.PerHour(1), Keyed: true},
	}
	text, err := policyfile.Format(table)
	require.NoError(t, err)
	f, err := policyfile.Parse("f", text)
	require.NoError(t, err, "%s", text)
	require.Equal(t, table, f.All(), "%s", text)
	require.Equal(t, table[6:], f.Named)
}

// TestFormatFunctions: what a file cannot say is an error, all at once.
func TestFormatFunctions(t *testing.T) {
	_, err := policyfile.Format([]throttle.Policy{
		{Name: "a", Limit: throttle.PerSecond(1), Key: func(*http.Request) string { return "" }, Cost: func(*http.Request) int { return 1 }},
		{Name: "b", Limit: throttle.PerSecond(1), Answer: func(*http.Response) throttle.Answer { return throttle.Answer{} }},
	})
	require.EqualError(t, err, `throttle: policy "a": Key: a function cannot be written into a file: write the field by hand
throttle: policy "a": Cost: a function cannot be written into a file: write the field by hand
throttle: policy "b": Answer: a function cannot be written into a file: write the field by hand`)
}
