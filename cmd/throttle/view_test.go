package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/redisstore/fleet"
)

// TestViewOfAPause: what an operator said of a pause is shown, also of a budget that nobody uses.
func TestViewOfAPause(t *testing.T) {
	var s fleet.Snapshot
	s.Budgets = []fleet.Budget{{
		Name: "shop", Err: "no node says what its limit is", Note: &fleet.Note{By: "anna", Reason: "the shop moves"},
		State: fleet.State{Paused: fleet.Millis{Duration: time.Hour}},
	}}
	row := strings.Join(newView(&s, "").budgets.rows[0], " ")
	require.Contains(t, row, `paused by anna: "the shop moves" (1h`)
	require.Contains(t, row, "no node says what its limit is")
}

// TestViewOfAFilter: programs that a filter leaves out are not said to be silent.
func TestViewOfAFilter(t *testing.T) {
	var s fleet.Snapshot
	require.Equal(t, []string{"no program reports itself: see docs/fleet.md"}, newView(&s, "").head)
	require.Equal(t, []string{`no program has "shop"`}, newView(&s, "shop").head)
}

// TestViewOfALostFile: a program that has the last file in force refuses nothing when Redis
// loses that file.
func TestViewOfALostFile(t *testing.T) {
	f := &fleet.FileState{Pushed: true, InForce: "aa", Seen: "aa", Err: fleet.ErrNothingPushed.Error()}
	require.Equal(t, "aa; the next cannot be read: fleet: no file of policies is pushed", fileWords(f, nil))
	f.Seen = "bb"
	require.Contains(t, fileWords(f, nil), "bb is refused")
}

// TestPushNamesTheSilent: a node of which nobody knows what it has in force is not left out.
func TestPushNamesTheSilent(t *testing.T) {
	silent := fleet.Node{Program: "shop", ID: "abcdef", Silent: true, Ago: fleet.Millis{Duration: 20 * time.Second}}
	silent.File = fleet.FileState{Pushed: true, InForce: "aa"}
	list, settled := followers([]fleet.Node{silent}, "bb")
	require.True(t, settled, "nobody waits for it")
	require.Equal(t, []nodeStatus{{Node: "shop/abcdef", Text: "silent for 20s: it is not known what it has in force"}}, list)
}
