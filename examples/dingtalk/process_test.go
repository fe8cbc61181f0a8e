package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/examples/dingtalk/fake"
	"github.com/fleetthrottle/throttle/internal/redistest"
)

// processes makes four nodes that are processes, and the fake that they pull
// from.
func processes(t *testing.T) (*fake.Server, []*process) {
	t.Helper()
	c := config{nodes: 4, workers: 16, people: 200, edition: "standard", redis: redistest.Single(t).URL()}
	upstream, stop, err := serveFake(&c)
	require.NoError(t, err)
	t.Cleanup(stop)
	fleet := make([]*process, c.nodes)
	for i := range fleet {
		fleet[i] = &process{number: i + 1, setup: c.setup()}
	}
	return upstream, fleet
}

func members(fleet []*process) []member {
	all := make([]member, len(fleet))
	for i, p := range fleet {
		all[i] = p
	}
	return all
}

func TestWorkOfADeadProcessIsDoneByTheOthers(t *testing.T) {
	upstream, fleet := processes(t)
	fleet[0].setup.Redis = "nonsense://" // it ends with the tasks that it was handed
	p := newPull(3)
	err := run(t.Context(), p, members(fleet), func(*pull) {}, time.Second)
	require.EqualError(t, err, "node 1: exit status 1")
	require.Len(t, p.people, 200)
	require.Zero(t, p.lost)
	require.Equal(t, upstream.Company().Departments(), p.departments)
}

// TestWhatFailedIsNotHandedOutAgain: the client has tried it often enough.
func TestWhatFailedIsNotHandedOutAgain(t *testing.T) {
	p := newPull(1)
	first, _ := p.next()
	p.taken(first)
	p.settle(result{Task: first, Err: "its node ended", Returned: true}, time.Now())
	require.Zero(t, p.lost)
	second, _ := p.next()
	p.taken(second)
	p.settle(result{Task: second, Err: "refused with 90018", Refusals: []string{"90018", "90018"}}, time.Now())
	require.Equal(t, 1, p.lost)
	require.Equal(t, 2, p.refused["90018"])
	require.Equal(t, 1, p.open())
}

func TestKilledProcessGivesItsTasksBack(t *testing.T) {
	_, fleet := processes(t)
	calls, over := make(chan string), make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		calls <- "asked for the token"
		<-over
	}))
	defer silent.Close()
	defer close(over)
	p := fleet[0]
	p.setup.Base = silent.URL
	tasks, results, served := make(chan task), make(chan result, 2), make(chan error, 1)
	go func() { served <- p.serve(t.Context(), tasks, results) }()
	tasks <- task{ID: 1, Path: pathPeople, Dept: 7}
	tasks <- task{ID: 2, Path: pathDepartments, Dept: 8}
	<-calls
	require.NoError(t, p.cmd.Process.Kill())
	require.ErrorContains(t, <-served, "node 1: ")
	back := []result{<-results, <-results}
	require.ElementsMatch(t, []result{
		{Task: task{ID: 1, Path: pathPeople, Dept: 7}, Err: "its node ended", Returned: true},
		{Task: task{ID: 2, Path: pathDepartments, Dept: 8}, Err: "its node ended", Returned: true},
	}, back)
}

func TestNoProcessIsLeft(t *testing.T) {
	_, fleet := processes(t)
	for _, p := range fleet {
		p.setup.Redis = "nonsense://"
	}
	p := newPull(1000)
	require.Error(t, run(t.Context(), p, members(fleet), func(*pull) {}, time.Second))
	require.Empty(t, p.people)
	require.Positive(t, p.open(), "what is left is reported, not waited for")
}

func TestInterruptedProcessesStop(t *testing.T) {
	_, fleet := processes(t)
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	err := run(ctx, newPull(3), members(fleet), func(*pull) {}, time.Second)
	require.ErrorIs(t, err, context.Canceled)
}
