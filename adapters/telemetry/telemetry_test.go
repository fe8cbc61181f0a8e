package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/adapters/telemetry"
	"github.com/fleetthrottle/throttle/internal/outage"
	"github.com/fleetthrottle/throttle/memstore"
)

// TestKinds: each kind has a name, and the reference of metrics lists those that adapters count by kind.
func TestKinds(t *testing.T) {
	require.Equal(t, "store_failed", telemetry.Kind(throttle.EventStoreFailed))
	require.Equal(t, "unknown", telemetry.Kind(200))
	page, err := os.ReadFile("../../docs/reference/metrics.md")
	require.NoError(t, err)
	kinds := telemetry.Kinds()
	for k := throttle.EventKind(0); int(k) < len(kinds); k++ {
		switch k {
		case 0, throttle.EventStarted, throttle.EventRefused, throttle.EventGaveUp:
			require.Empty(t, kinds[k])
		default:
			require.Equal(t, telemetry.Kind(k), kinds[k])
			require.Contains(t, string(page), "`"+kinds[k]+"`")
		}
	}
	require.Equal(t, "unknown", throttle.EventKind(len(kinds)).String(), "no kind is left out")
}

// TestErrorType: an error is one of a few words, whatever its text is.
func TestErrorType(t *testing.T) {
	secret := errors.New("secret")
	away := &throttle.StoreError{Err: secret}
	denied := &throttle.StoreError{Err: outage.Because(outage.Denied, secret)}
	for _, c := range []struct {
		kind throttle.EventKind
		err  error
		want string
	}{
		{throttle.EventStarted, nil, ""},
		{throttle.EventRefused, nil, ""},
		{throttle.EventRefused, &throttle.LimitError{}, "limit"},
		{throttle.EventRefused, fmt.Errorf("wrapped: %w", &throttle.LimitError{}), "limit"},
		{throttle.EventRefused, denied, "store"},
		{throttle.EventRefused, &throttle.ConfigError{Err: secret}, "config"},
		{throttle.EventRefused, &throttle.UnmatchedError{}, "unmatched"},
		{throttle.EventRefused, secret, "_OTHER"},
		{throttle.EventUnmatched, nil, ""},
		{throttle.EventUnmatched, &throttle.UnmatchedError{}, "unmatched"},
		{throttle.EventGaveUp, secret, "context"},
		{throttle.EventGaveUp, away, "context"},
		{throttle.EventStoreFailed, away, "away"},
		{throttle.EventStoreFailed, denied, "denied"},
		{throttle.EventStoreFailed, &throttle.StoreError{Err: outage.Because(outage.Failed, secret)}, "failed"},
		{throttle.EventFunctionFailed, &throttle.ConfigError{Err: secret}, "config"},
		{throttle.EventIllegible, secret, "_OTHER"},
	} {
		require.Equal(t, c.want, telemetry.ErrorType(&throttle.Event{Kind: c.kind, Err: c.err}), "%v %v", c.kind, c.err)
	}
	require.Equal(t, []string{"away", "denied", "failed"}, telemetry.Causes())
}

// limiters returns limiters with policies of these names.
func limiters(t *testing.T, names ...string) *throttle.Limiters {
	t.Helper()
	l, err := throttle.NewLimiters(throttle.Config{Store: memstore.New(), Policies: policies(names...)})
	require.NoError(t, err)
	return l
}

func policies(names ...string) (all []throttle.Policy) {
	for _, name := range names {
		all = append(all, throttle.Policy{Name: name, Limit: throttle.PerSecond(1)})
	}
	return all
}

// TestTable binds each policy once: those of sources at once and after they change, and those of others when an event has
// a budget of theirs. All other names are one.
func TestTable(t *testing.T) {
	var bound []string
	table := telemetry.NewTable(func(policy string) *string {
		bound = append(bound, policy)
		return new(strings.Clone(policy))
	})
	of := func(policy, budget string) string {
		return *table.Of(&throttle.Event{Policy: policy, Budget: budget})
	}
	require.Equal(t, []string{"", "other"}, bound)
	require.Equal(t, []string{"", "other", "b"}, []string{of("", ""), of("a", ""), of("b", "b/1")})

	one, two := limiters(t, "a"), limiters(t, "a", "c")
	table.Follow(one, nil, two)
	require.Equal(t, []string{"", "other", "b", "a", "c"}, bound)
	require.NoError(t, one.SetPolicies(policies("d")))
	require.Equal(t, []string{"other", "d", "a", "other"}, []string{of("x", ""), of("d", ""), of("a", ""), of("e", "")})
	require.NoError(t, two.SetPolicies(policies("e")))
	table.Refresh()
	require.Equal(t, []string{"", "other", "b", "a", "c", "d", "e"}, bound)
	require.Equal(t, "other", of("\xff", "\xff/1"), "the name is no text")
	require.Len(t, bound, 7)
}

// TestTable_ManyGoroutines: a policy has one value, whoever asks first.
func TestTable_ManyGoroutines(t *testing.T) {
	table, source := telemetry.NewTable(func(string) *int { return new(int) }), limiters(t, "a")
	found := make([]*int, 16)
	var all sync.WaitGroup
	for i := range found {
		all.Go(func() {
			table.Follow(source)
			found[i] = table.Of(&throttle.Event{Policy: "b", Budget: "b/1"})
			table.Refresh()
		})
	}
	all.Wait()
	for _, f := range found {
		require.Same(t, found[0], f)
	}
}

// TestSummaries: the answers of all sources are added up, and the error of one takes nothing from the others.
func TestSummaries(t *testing.T) {
	l := limiters(t, "a", "b")
	_, err := l.Acquire(t.Context(), throttle.Demand{Policy: "a"})
	require.NoError(t, err)
	all, err := telemetry.Summaries(t.Context(), l, broken{}, l)
	require.ErrorIs(t, err, errBroken)
	require.Len(t, all, 2)
	require.Equal(t, 2, all["a"].Budgets)
	require.Equal(t, 1, all["a"].Used)
	require.Zero(t, all["b"].Used)
	all, err = telemetry.Summaries(t.Context())
	require.NoError(t, err)
	require.Empty(t, all)
}

// TestSummaries_ToldAndUntold: a budget whose limit no answer has told yet has no number, so it hides none that has one,
// in whatever order the two come.
func TestSummaries_ToldAndUntold(t *testing.T) {
	for range 50 {
		all, err := telemetry.Summaries(t.Context(), told{})
		require.NoError(t, err)
		require.True(t, all["p"].Told)
		require.Equal(t, throttle.PerSecond(9), all["p"].Limit)
	}
}

// A told source has two budgets of a policy. Answers have told the limit of one of them.
type told struct{}

func (told) Policies() []throttle.Policy { return nil }

func (told) Statuses(context.Context) (map[throttle.Budget]throttle.Status, error) {
	return map[throttle.Budget]throttle.Status{
		{Policy: "p", Key: [16]byte{1}}: {Limit: throttle.Told()},
		{Policy: "p", Key: [16]byte{2}}: {Limit: throttle.Told(), Told: throttle.PerSecond(9)},
	}, nil
}

var errBroken = errors.New("broken")

// A broken source knows nothing.
type broken struct{}

func (broken) Policies() []throttle.Policy { return nil }

func (broken) Statuses(context.Context) (map[throttle.Budget]throttle.Status, error) {
	return nil, errBroken
}
