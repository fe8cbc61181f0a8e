package fleet_test

import (
	"context"
	"fmt"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/hotpath"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
	"github.com/fleetthrottle/throttle/store"
)

// banned is a policy that an answer of its upstream closes for five minutes.
var banned = throttle.Policy{Name: "banned", Limit: store.PerSecond(20), Jitter: -1}

// refuse has a program's store close the budget of a policy, as an answer of the upstream does.
func refuse(t *testing.T, a *fleet.Reporter, all *fleet.Fleet, p throttle.Policy, d time.Duration) {
	target := find(t, all, fleet.Query{Name: p.Name, Table: []throttle.Policy{p}})
	_, _, err := a.Refuse(t.Context(), target.Charge(), store.Refusal{Length: d, Ago: time.Millisecond})
	require.NoError(t, err)
}

// hold lets callers wait under a limiter until the test ends, and returns when all of them stand in line.
func hold(t *testing.T, a *fleet.Reporter, l *throttle.Limiter, callers int) {
	ctx, leave := context.WithCancel(context.Background())
	gone := make(chan struct{}, callers)
	for range callers {
		go func() {
			_, _ = l.Acquire(throttle.WithMaxWait(ctx, throttle.Forever), "", 1)
			gone <- struct{}{}
		}()
	}
	t.Cleanup(func() {
		leave()
		for range callers {
			<-gone
		}
	})
	require.Eventually(t, func() bool { return fleet.Waiting(a) == callers }, time.Minute, time.Millisecond)
}

// TestP16_BanIsSeenAsLongAsItHolds: while callers wait for the end of a ban, they book nothing, and the budget is reported all the same.
func TestP16_BanIsSeenAsLongAsItHolds(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	a, l, all := used(t, client, banned, "")
	refuse(t, a, all, banned, 5*time.Minute)
	hold(t, a, l, 3)
	a.AwaitExtra()
	for _, later := range []time.Duration{0, 80 * time.Second, 160 * time.Second, 4 * time.Minute} {
		a.ReportAt(later)
		require.NoError(t, a.Err())
		s := snapshot(t, all)
		require.Equal(t, "1 closed, 3 wait", s.Verdict(), later)
		b := budget(t, s, "banned")
		require.Greater(t, b.State.Paused.Duration, 4*time.Minute, later)
		require.Equal(t, 3, b.State.Waiting, later)
		require.Equal(t, fleet.ByAnswer, b.By)
		require.Equal(t, "program", b.Met)
		require.WithinDuration(t, s.At, b.Since, 30*time.Second)
		require.Len(t, b.Programs, 1)
		require.Equal(t, "program", b.Programs[0].Program)
		require.Equal(t, 3, b.Programs[0].Waiting)
		require.GreaterOrEqual(t, b.Oldest.Duration, later)
	}
}

// TestClosedSince: a budget is closed since the first of several bans without a break between them. A ban after the budget was opened
// begins anew.
func TestClosedSince(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	a, l, all := used(t, client, banned, "")
	target := find(t, all, fleet.Query{Name: "banned"})
	seen := func() fleet.Budget {
		t.Helper()
		a.Report()
		require.NoError(t, a.Err())
		return budget(t, snapshot(t, all), "banned")
	}
	refuse(t, a, all, banned, time.Minute)
	first := seen()
	require.Equal(t, fleet.ByAnswer, first.By)

	require.NoError(t, l.Pause(t.Context(), "", 5*time.Minute))
	longer := seen()
	require.Greater(t, longer.State.Paused.Duration, 4*time.Minute)
	require.Equal(t, first.Since, longer.Since)
	require.Greater(t, client.PTTL(t.Context(), all.BanKey(fmt.Sprintf("%x", target.Budget().Key))).Val(), 4*time.Minute)

	require.NoError(t, all.Pause(t.Context(), target, time.Hour, "anna", "moves"))
	byHand := seen()
	require.Equal(t, fleet.ByOperator, byHand.By)
	require.Equal(t, first.Since, byHand.Since)

	for name, open := range []func() error{
		func() error { return l.Resume(t.Context(), "") }, // which leaves the note
		func() error { return all.Reset(t.Context(), target, "anna", "") },
	} {
		before := seen().Since
		require.NoError(t, open(), name)
		opened := seen()
		require.Zero(t, opened.Since, name)
		require.Empty(t, opened.By, name)
		require.Equal(t, "all open", snapshot(t, all).Verdict(), name)
		require.NoError(t, l.Pause(t.Context(), "", time.Minute))
		again := seen()
		require.Equal(t, fleet.ByProgram, again.By, name)
		require.True(t, again.Since.After(before), name)
	}
}

// TestWhoIsHurt: a snapshot says which programs wait for a budget, since when, and how many callers left or were refused.
func TestWhoIsHurt(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	policy := throttle.Policy{Name: "slow", Limit: store.PerHour(1), Jitter: -1}
	a, b := start(t, client, "importer"), start(t, client, "worker")
	all := must(fleet.New(client, fleet.Options{}))
	acquire(t, limiter(t, a, policy), "")

	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := limiter(t, a, policy).Acquire(throttle.WithMaxWait(ctx, throttle.Forever), "", 1)
		left <- err
	}()
	require.Eventually(t, func() bool { return fleet.Waiting(a) == 1 }, time.Minute, time.Millisecond)
	leave()
	require.Error(t, <-left)
	_, err := limiter(t, b, policy).Acquire(throttle.WithMaxWait(t.Context(), lessThanAnHour), "", 1)
	require.Error(t, err)
	hold(t, b, limiter(t, b, policy), 2)

	a.Report()
	b.ReportAt(20 * time.Second)
	slow := budget(t, snapshot(t, all), "slow")
	require.Len(t, slow.Programs, 2)
	worker, importer := slow.Programs[0], slow.Programs[1]
	require.GreaterOrEqual(t, worker.Oldest.Duration, 20*time.Second)
	worker.Oldest = fleet.Millis{}
	require.Equal(t, fleet.Use{Program: "worker", Nodes: 1, Waiting: 2, Refused: 1}, worker)
	require.Equal(t, "importer", importer.Program)
	require.Zero(t, importer.Waiting)
	require.Equal(t, 1, importer.Left)
	require.Equal(t, 1, slow.Left)
	require.Equal(t, 1, slow.Refused)

	a.Report()
	b.ReportAt(90 * time.Second)
	require.Zero(t, budget(t, snapshot(t, all), "slow").Refused, "the last minute is over")
}

// TestP16_BanIsSeenAmongBusierBudgets: a closed budget, which has no starts, is reported before all budgets with starts.
func TestP16_BanIsSeenAmongBusierBudgets(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	a, l, all := used(t, client, banned, "")
	refuse(t, a, all, banned, 5*time.Minute)
	hold(t, a, l, 2)
	a.AwaitExtra()
	tenants := limiter(t, a, throttle.Policy{Name: "tenants", Keyed: true, Limit: store.PerHour(1000)})
	for round := range 4 {
		for i := range 300 {
			acquire(t, tenants, fmt.Sprint("tenant ", i))
		}
		a.ReportAt(time.Duration(round) * 5 * time.Second)
		s := snapshot(t, all)
		require.Equal(t, "banned", s.Budgets[0].Policy, round)
		require.Len(t, s.Budgets, 128)
		require.Len(t, s.Budgets[0].Programs, 1, round)
		require.Equal(t, 2, s.Budgets[0].Programs[0].Waiting, round)
	}
}

// TestP16_WaitersAreSeenInACrowd: a program counts 4,096 budgets at most. A further budget for which callers wait takes the place of one for
// which nobody waits, and keeps the place when more budgets are closed.
func TestP16_WaitersAreSeenInACrowd(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	a := must(fleet.Start(client, memstore.New(), fleet.ReporterOptions{Program: "program", Interval: time.Hour}))
	t.Cleanup(a.Close)
	begun(t, a)
	tenants := limiter(t, a, throttle.Policy{Name: "tenants", Keyed: true, Limit: store.PerHour(1000)})
	crowd := func(name string) {
		for i := range 6000 {
			acquire(t, tenants, fmt.Sprint(name, i))
			acquire(t, tenants, fmt.Sprint(name, i))
		}
	}
	crowd("a")

	slow := limiter(t, a, throttle.Policy{Name: "slow", Limit: store.PerHour(1), Jitter: -1})
	acquire(t, slow, "")
	hold(t, a, slow, 2)
	all := must(fleet.New(client, fleet.Options{}))
	waiting := func() int {
		a.Report()
		require.NoError(t, a.Err())
		b := budget(t, snapshot(t, all), "slow")
		require.Len(t, b.Programs, 1)
		return b.Programs[0].Waiting
	}
	require.Equal(t, 2, waiting())

	for i := range 100 {
		require.NoError(t, tenants.Pause(t.Context(), fmt.Sprint("closed", i), time.Hour))
	}
	require.Equal(t, 2, waiting())
}

// TestP16_BanOutlivesItsPrograms: a ban that holds is seen even if every program that met it has gone: the last program ended right after it
// was refused, or is silent.
func TestP16_BanOutlivesItsPrograms(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	a, _, all := used(t, client, banned, "")
	record := do(t, client, "GET", all.NodeKey(a.ID()))
	refuse(t, a, all, banned, 5*time.Minute)
	a.Close()

	seen := func() fleet.Budget {
		t.Helper()
		s := snapshot(t, all)
		b := budget(t, s, "banned")
		require.Greater(t, b.State.Paused.Duration, 4*time.Minute)
		require.Empty(t, b.Err)
		require.Equal(t, fleet.ByAnswer, b.By)
		require.Zero(t, b.Nodes)
		require.Equal(t, 1, s.Closed)
		return b
	}
	require.Empty(t, snapshot(t, all).Nodes)
	seen()

	do(t, client, "SET", all.NodeKey(a.ID()), record)
	do(t, client, "ZADD", all.NodesKey(), float64(time.Now().Add(-10*time.Hour).UnixMicro()), a.ID())
	require.Equal(t, "1 closed, 1 program silent", snapshot(t, all).Verdict())
	seen()

	require.NoError(t, all.Reset(t.Context(), find(t, all, fleet.Query{Name: "banned"}), "anna", ""))
	require.Empty(t, snapshot(t, all).Budgets, "it is open, and nobody uses it")
}

// A duringStatus is a store that does something else while it is first asked for a state.
type duringStatus struct {
	store.Store
	once sync.Once
	do   func()
}

// Status implements [store.Store].
func (s *duringStatus) Status(ctx context.Context, c store.Charge) (store.Status, error) {
	s.once.Do(s.do)
	return s.Store.Status(ctx, c)
}

// TestP11_PauseInsideABan: a pause that ends before a ban neither hides the ban nor gives resume the power to open it. Resume of a pause that
// ends later opens the budget.
func TestP11_PauseInsideABan(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	a, _, all := used(t, client, banned, "")
	refuse(t, a, all, banned, 5*time.Minute)
	a.Report()
	target := find(t, all, fleet.Query{Name: "banned"})
	require.NoError(t, all.Pause(t.Context(), target, time.Minute, "anna", "moves"))

	for range 2 {
		b := budget(t, snapshot(t, all), "banned")
		require.Equal(t, fleet.ByAnswer, b.By)
		require.Nil(t, b.Note)
		_, note, err := all.State(t.Context(), target)
		require.NoError(t, err)
		require.Nil(t, note)

		var not *fleet.NotPausedError
		require.ErrorAs(t, all.Resume(t.Context(), target, "anna", ""), &not)
		require.Greater(t, not.Closed, 4*time.Minute)
	}

	require.NoError(t, all.Pause(t.Context(), target, time.Hour, "anna", "moves"))
	require.Equal(t, fleet.ByOperator, budget(t, snapshot(t, all), "banned").By)
	require.NoError(t, all.Resume(t.Context(), target, "anna", ""))
	require.Equal(t, "all open", snapshot(t, all).Verdict())
}

// TestP11_BanAfterAPause: a program has ended an operator's pause, and an answer closes the budget anew, for less long. The note in Redis does
// not hold any more: nothing names the operator, resume does not open the ban, and a shorter pause is no longer refused.
func TestP11_BanAfterAPause(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	a, l, all := used(t, client, banned, "")
	target := find(t, all, fleet.Query{Name: "banned"})
	require.NoError(t, all.Pause(t.Context(), target, time.Hour, "anna", "moves"))
	a.Report()

	// The pause of a note that is young may be on its way.
	require.NoError(t, l.Resume(t.Context(), ""))
	moveStart(t, client, all, target, time.Minute)
	var longer *fleet.LongerError
	require.ErrorAs(t, all.Pause(t.Context(), target, 10*time.Minute, "ben", "an audit"), &longer)
	require.Equal(t, "anna", longer.Note.By)
	moveStart(t, client, all, target, -time.Minute)

	isNotPaused := func(closed time.Duration) {
		t.Helper()
		_, note, err := all.State(t.Context(), target)
		require.NoError(t, err)
		require.Nil(t, note)
		_, note, err = all.Describe(t.Context(), target.Charge())
		require.NoError(t, err)
		require.Nil(t, note)
		require.Nil(t, budget(t, snapshot(t, all), "banned").Note)
		require.Empty(t, must(all.Pauses(t.Context())))

		var not *fleet.NotPausedError
		require.ErrorAs(t, all.Resume(t.Context(), target, "ben", ""), &not)
		require.InDelta(t, closed, not.Closed, float64(30*time.Second))
	}
	isNotPaused(0)

	refuse(t, a, all, banned, 5*time.Minute)
	a.Report()
	isNotPaused(5 * time.Minute)
	require.Equal(t, fleet.ByAnswer, budget(t, snapshot(t, all), "banned").By)
	st, err := l.Status(t.Context(), "")
	require.NoError(t, err)
	require.Greater(t, st.Paused, 4*time.Minute, "nothing has opened the ban")

	a.AwaitExtra()

	// Neither a program that has known the note for long, nor one that could ask about the ban at once, names the operator.
	for _, program := range []*fleet.Reporter{a, start(t, client, "another")} {
		for range 2 {
			require.Zero(t, refusal(t, limiter(t, program, banned), "").Note)
		}
	}

	require.NoError(t, all.Pause(t.Context(), target, 10*time.Minute, "ben", "an audit"))
	_, note, err := all.State(t.Context(), target)
	require.NoError(t, err)
	require.NotNil(t, note)
	require.Equal(t, "ben", note.By)
	require.Len(t, must(all.Pauses(t.Context())), 1)
	a.Report()
	require.Equal(t, "ben", refusal(t, l, "").Note.By)
	require.NoError(t, all.Resume(t.Context(), target, "ben", ""))
	require.Equal(t, "all open", snapshot(t, all).Verdict())
}

// TestP11_PauseOverAnIllegibleNote: a pause has its note even if a note that nobody can read, and that ends later, is there already.
func TestP11_PauseOverAnIllegibleNote(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	_, _, all := used(t, client, banned, "")
	target := find(t, all, fleet.Query{Name: "banned"})
	illegible := fmt.Sprintf("%d by hand", time.Now().Add(5*time.Hour).UnixMicro())
	do(t, client, "HSET", all.PausesKey(), fmt.Sprintf("%x", target.Budget().Key), illegible)

	require.NoError(t, all.Pause(t.Context(), target, time.Hour, "anna", "moves"))
	_, note, err := all.State(t.Context(), target)
	require.NoError(t, err)
	require.NotNil(t, note)
	require.Equal(t, "anna", note.By)
	acts, _, err := all.Audit(t.Context(), 5)
	require.NoError(t, err)
	require.Len(t, acts, 1)
	require.NoError(t, all.Resume(t.Context(), target, "anna", ""))
}

// moveStart changes the note of a pause of an hour as if the pause had begun later, or earlier if later is negative. The end of the pause stays.
func moveStart(t *testing.T, client redis.UniversalClient, all *fleet.Fleet, target fleet.Target, later time.Duration) {
	t.Helper()
	field := fmt.Sprintf("%x", target.Budget().Key)
	note := do(t, client, "HGET", all.PausesKey(), field).(string)
	moved := regexp.MustCompile(`"for_ms":\d+`).ReplaceAllString(note, fmt.Sprintf(`"for_ms":%d`, (time.Hour-later).Milliseconds()))
	require.NotEqual(t, note, moved)
	do(t, client, "HSET", all.PausesKey(), field, moved)
}

// TestP16_MoreClosedThanShown: closed budgets that a snapshot does not ask about, or for which a report has no room, count as closed, and
// are counted once as left out.
func TestP16_MoreClosedThanShown(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	keyed := banned
	keyed.Keyed = true
	a, l, all := used(t, client, keyed)
	for i := range 300 {
		require.NoError(t, l.Pause(t.Context(), fmt.Sprint(i), time.Hour))
	}
	for range 3 { // each asks for the ends of 128, and stores as many
		a.Report()
	}
	s := must(all.Snapshot(t.Context(), 200))
	require.Equal(t, []int{200, 100, 100}, []int{s.Closed, s.ClosedLeftOut, s.LeftOut})
	require.Equal(t, "300 closed", s.Verdict())
	require.Equal(t, "300 closed", must(all.Refresh(t.Context(), s)).Verdict())
}

// TestNodesOwnBan: a ban of a budget that each program has for itself has a beginning and a cause, too, and may end between two reports.
func TestNodesOwnBan(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	own := throttle.Policy{Name: "own", Limit: store.PerHour(5), Scope: throttle.ScopeNode}
	paused := own
	paused.Name = "paused"
	a, l, all := used(t, client, own, "")
	permit := must(l.Acquire(t.Context(), "", 1))
	require.NoError(t, permit.Tell(t.Context(), throttle.Refused(5*time.Minute)))
	require.NoError(t, limiter(t, a, paused).Pause(t.Context(), "", 5*time.Minute))
	a.Report()

	s := snapshot(t, all)
	require.Equal(t, 2, s.Closed)
	for policy, by := range map[string]string{"own": fleet.ByAnswer, "paused": fleet.ByProgram} {
		b := budget(t, s, policy)
		require.Equal(t, []string{a.ID(), by, "program"}, []string{b.Node, b.By, b.Met})
		require.WithinDuration(t, s.At, b.Since, 30*time.Second)
	}

	early := *s
	early.At = s.At.Add(-time.Minute)
	later := budget(t, must(all.Refresh(t.Context(), &early)), "own").State
	require.Less(t, later.Paused.Duration, 4*time.Minute+time.Second)
	require.Less(t, later.Wait.Duration, 4*time.Minute+time.Second)
	early.At = s.At.Add(-time.Hour)
	opened := must(all.Refresh(t.Context(), &early))
	require.Zero(t, opened.Closed)
	require.Empty(t, budget(t, opened, "own").By)

	do(t, client, "ZADD", all.NodesKey(), float64(time.Now().Add(-14*time.Second).UnixMicro()), a.ID())
	require.Less(t, budget(t, snapshot(t, all), "own").State.Paused.Duration, 5*time.Minute-13*time.Second, "the report is 14 seconds old")
}

// TestAnOpenedBudgetIsForgotten: a budget that was opened is forgotten when nobody has used it for a while, whether each program has it for
// itself, or the fleet shares it.
func TestAnOpenedBudgetIsForgotten(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	for _, scope := range []throttle.Scope{throttle.ScopeFleet, throttle.ScopeNode} {
		a, l, _ := used(t, client, throttle.Policy{Name: "opened", Limit: store.PerHour(5), Scope: scope}, "")
		require.NoError(t, l.Pause(t.Context(), "", time.Minute))
		require.NoError(t, l.Resume(t.Context(), ""))
		a.AwaitExtra()
		a.Report()
		_, budgets := fleet.Reported(a, false)
		require.Contains(t, budgets, "opened")

		a.ReportAt(2 * time.Minute)
		_, budgets = fleet.Reported(a, false)
		require.NotContains(t, budgets, "opened", scope)
	}
}

// TestOwnBansTakeNoPlaces: bans of budgets that each program has for itself have no place in the index, and take none from the others.
func TestOwnBansTakeNoPlaces(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	a, _, all := used(t, client, banned, "")
	own := limiter(t, a, throttle.Policy{Name: "own", Keyed: true, Limit: store.PerHour(5), Scope: throttle.ScopeNode})
	for i := range 600 {
		require.NoError(t, own.Pause(t.Context(), fmt.Sprint(i), time.Hour))
	}
	refuse(t, a, all, banned, 5*time.Minute)
	for range 5 { // each asks for the ends of 128
		a.Report()
	}
	require.Equal(t, fleet.ByAnswer, budget(t, snapshot(t, all), "banned").By)
}

// TestClosedWhileAReportIsMade: a budget that is closed while a report is on its way is in the next one, which comes soon.
func TestClosedWhileAReportIsMade(t *testing.T) {
	client := redistest.Single(t).Client(t)
	s := &duringStatus{Store: redisstore.New(client, redisstore.Options{})}
	a := must(fleet.Start(client, s, fleet.ReporterOptions{Program: "program", Interval: time.Hour}))
	t.Cleanup(a.Close)
	begun(t, a)
	one, other := limiter(t, a, throttle.Policy{Name: "one", Limit: store.PerHour(5)}), limiter(t, a, throttle.Policy{Name: "other", Limit: store.PerHour(5)})
	s.do = func() { require.NoError(t, other.Pause(t.Context(), "", time.Hour)) }
	require.NoError(t, one.Pause(t.Context(), "", time.Hour))
	require.Eventually(t, func() bool { return len(snapshot(t, must(fleet.New(client, fleet.Options{}))).Budgets) == 2 }, time.Minute, time.Millisecond)
}

// TestClosedByWhomKnows: a program that only met a closed budget may report before the program that closed the budget. The
// fleet says who closed the budget all the same.
func TestClosedByWhomKnows(t *testing.T) {
	for by, shut := range map[string]func(*fleet.Reporter, *throttle.Limiter, *fleet.Fleet){
		fleet.ByProgram: func(_ *fleet.Reporter, l *throttle.Limiter, _ *fleet.Fleet) {
			require.NoError(t, l.Pause(t.Context(), "", 5*time.Minute))
		},
		fleet.ByAnswer: func(a *fleet.Reporter, _ *throttle.Limiter, all *fleet.Fleet) {
			refuse(t, a, all, banned, 5*time.Minute)
		},
	} {
		t.Run(by, func(t *testing.T) {
			client := redistest.Shared(t).Client(t)
			a, l, all := used(t, client, banned, "")
			witness := start(t, client, "witness")
			require.NoError(t, limiter(t, redisstore.New(client, redisstore.Options{}), banned).Pause(t.Context(), "", 4*time.Minute)) // by a program that does not report
			_, err := limiter(t, witness, banned).Acquire(throttle.WithMaxWait(t.Context(), lessThanAnHour), "", 1)
			require.ErrorIs(t, err, throttle.ErrLimited)

			witness.Report()
			met := budget(t, snapshot(t, all), "banned")
			require.Empty(t, met.By)
			require.Equal(t, "witness", met.Met)

			shut(a, l, all)
			a.Report()
			known := budget(t, snapshot(t, all), "banned")
			require.Equal(t, by, known.By)
			require.Equal(t, "program", known.Met)
			require.False(t, known.Since.After(met.Since), "the budget was closed before it was met closed")

			witness.Report()
			require.Equal(t, by, budget(t, snapshot(t, all), "banned").By, "a later report of the witness changes nothing")
		})
	}
}

// TestStartsAreRequestsHandedOn: a request under two policies, at a cost of five, counts as one start
// of the node and one of each budget. A start that is given back does not count.
func TestStartsAreRequestsHandedOn(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	a := start(t, client, "shop")
	limits, err := throttle.NewLimiters(throttle.Config{MaxWait: throttle.Forever, Store: a, Policies: []throttle.Policy{
		{Name: "address", Limit: store.PerHour(1000)}, {Name: "app", Limit: store.PerHour(1000)},
		{Name: "at once", Limit: store.Concurrency(10)},
	}})
	require.NoError(t, err)
	demands := []throttle.Demand{{Policy: "address", Cost: 5}, {Policy: "app"}, {Policy: "at once"}}
	for range 10 {
		permit, err := limits.Acquire(t.Context(), demands...)
		require.NoError(t, err)
		permit.Release()
	}
	b := &store.Booking{Horizon: time.Second, MaxWait: -1, Charges: []store.Charge{{
		Budget: store.Budget{Policy: "other", Group: "other", Key: [16]byte{1}}, Limit: store.PerHour(1000), Cost: 1,
	}}}
	g, err := a.Book(t.Context(), b)
	require.NoError(t, err)
	b.Instead, b.Turn, b.Returns = g.Handle, g.Turn, true // too old
	g, err = a.Book(t.Context(), b)
	require.NoError(t, err)
	a.Cancel(b, g)

	requests, budgets := fleet.Counted(a)
	require.EqualValues(t, 10, requests)
	require.Equal(t, map[string]int64{"address": 10, "app": 10, "at once": 10, "other": 0}, budgets)
}

// TestStartsOfWhatIsHeldAndBookedLater: a request whose slots are booked when its start has come is
// one start of each budget. A request whose start is booked without a horizon counts, too.
func TestStartsOfWhatIsHeldAndBookedLater(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	a := start(t, client, "shop")
	limits, err := throttle.NewLimiters(throttle.Config{MaxWait: throttle.Forever, Store: a, Policies: []throttle.Policy{
		{Name: "paced", Limit: store.LeakyBucket(100, time.Second)}, {Name: "at once", Limit: store.Concurrency(10)},
	}})
	require.NoError(t, err)
	for range 5 { // four of them wait for their start
		permit, err := limits.Acquire(t.Context(), throttle.Demand{Policy: "paced"}, throttle.Demand{Policy: "at once"})
		require.NoError(t, err)
		permit.Release()
	}
	_, err = a.Book(t.Context(), &store.Booking{MaxWait: store.AnyWait, Charges: []store.Charge{hourly(2)}})
	require.NoError(t, err)
	requests, budgets := fleet.Counted(a)
	require.EqualValues(t, 6, requests)
	require.Equal(t, map[string]int64{"paced": 5, "at once": 5, "hourly": 1}, budgets)
}

// TestCostsAreWhatStartsWereCharged: the reported costs are as booked, given back and settled, so that
// the fleet's rate can be compared with a limit.
func TestCostsAreWhatStartsWereCharged(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	a := start(t, client, "shop")
	limits, err := throttle.NewLimiters(throttle.Config{MaxWait: throttle.Forever, Store: a, Policies: []throttle.Policy{
		{Name: "tokens", Limit: store.PerHour(1000)}, {Name: "calls", Limit: store.PerHour(1000)}, {Name: "at once", Limit: store.Concurrency(10)},
	}})
	require.NoError(t, err)
	for _, settled := range []int{5, 3, 9, 0} {
		permit, err := limits.Acquire(t.Context(), throttle.Demand{Policy: "tokens", Cost: 5}, throttle.Demand{Policy: "calls"}, throttle.Demand{Policy: "at once", Cost: 2})
		require.NoError(t, err)
		require.NoError(t, permit.TellBudget(t.Context(), "tokens", "", throttle.Answer{}.WithCost(7)))
		require.NoError(t, permit.TellBudget(t.Context(), "tokens", "", throttle.Answer{}.WithCost(settled)))
		permit.Release()
	}
	b := &store.Booking{Horizon: time.Second, MaxWait: -1, Charges: []store.Charge{hourly(1)}}
	b.Charges[0].Cost = 6
	g, err := a.Book(t.Context(), b)
	require.NoError(t, err)
	a.Cancel(b, g)
	_, err = a.Book(t.Context(), b)
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"tokens": 17, "calls": 4, "at once": 8, "hourly": 6}, fleet.Costs(a))
}

// TestCostsOfAnEarlierVersion: a record that does not tell of costs tells of starts.
func TestCostsOfAnEarlierVersion(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	_, _, all := used(t, client, shop, "acme")
	earlier := `{"version":1,"program":"old","span_ms":2000,"every_ms":2000,
		"policies":[{"policy":"old","limit":"30/h","group":"old","budgets":[{"key":"AAAAAAAAAAAAAAAAAAAAAA","starts":6}]},
			{"policy":"new","limit":"30/h","group":"new","budgets":[{"key":"AAAAAAAAAAAAAAAAAAAAAA","starts":6,"cost":24}]}]}`
	id := snapshot(t, all).Nodes[0].ID
	require.NoError(t, client.Set(t.Context(), all.NodeKey(id), earlier, time.Minute).Err())
	s := snapshot(t, all)
	require.EqualValues(t, 3, budget(t, s, "old").Cost)
	require.EqualValues(t, 3, budget(t, s, "new").Starts)
	require.EqualValues(t, 12, budget(t, s, "new").Cost)
}

// hourly is a charge of a budget with a key.
func hourly(key byte) store.Charge {
	return store.Charge{Budget: store.Budget{Policy: "hourly", Group: "hourly", Key: [16]byte{key}}, Limit: store.PerHour(1000), Cost: 1}
}

// TestReportsOfStarts: a start that was reported and is given back later is subtracted in a later
// report, so together the reports tell what was handed on. A report within an interval also covers the
// interval before.
func TestReportsOfStarts(t *testing.T) {
	a := start(t, redistest.Shared(t).Client(t), "shop")
	b := &store.Booking{Horizon: time.Second, MaxWait: -1, Charges: []store.Charge{hourly(1)}}
	var grants []store.Grant
	book := func(times int) {
		for range times {
			g, err := a.Book(t.Context(), b)
			require.NoError(t, err)
			grants = append(grants, g)
		}
	}
	reports := func(want int64, whole bool) {
		t.Helper()
		requests, budgets := fleet.Reported(a, whole)
		require.Equal(t, want, requests)
		require.Equal(t, map[string]int64{"hourly": want}, budgets)
	}
	book(5)
	reports(5, true)
	for _, g := range grants[:3] {
		a.Cancel(b, g)
	}
	reports(2, false)
	reports(0, true)
	book(2)
	reports(0, true)
	book(2)
	reports(1, false)
	reports(1, true)
	book(4)
	reports(5, false)
	reports(5, false)
	reports(4, true)
	reports(0, true)
}

// BenchmarkBook measures what a reporter adds to a booking, with the fastest store there is.
func BenchmarkBook(b *testing.B) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1}) // nobody is there
	defer client.Close()
	st := memstore.New()
	reporter := must(fleet.Start(client, st, fleet.ReporterOptions{}))
	defer reporter.Close()
	take := func(s store.Store) func() {
		l, err := throttle.NewLimiter(s, throttle.Policy{Name: "a", Limit: store.Unlimited()})
		require.NoError(b, err)
		return func() {
			if _, err := l.Acquire(throttle.WithMaxWait(b.Context(), throttle.NoWait), "", 1); err != nil {
				b.Fatal(err)
			}
		}
	}
	hotpath.Compare(b, take(reporter), take(st))
}
