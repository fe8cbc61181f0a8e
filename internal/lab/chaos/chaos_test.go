package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/crew"
)

func TestMain(m *testing.M) {
	crew.Main(memberRole, memberMain)
	os.Exit(m.Run())
}

// TestP12_Chaos plays the most important faults and requires that every promise
// is kept. The rest is for make chaos.
func TestP12_Chaos(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 12))
	acts, err := (&program{only: "slow,kill"}).acts()
	require.NoError(t, err)
	for _, act := range acts {
		t.Run(string(act[0].place), func(t *testing.T) {
			accounts, broken := show(t, script{say: t.Output(), mode: "wait", short: true, random: random}, act[0].place, act)
			fmt.Fprintln(t.Output(), head)
			for _, a := range accounts {
				fmt.Fprintln(t.Output(), a.row())
			}
			require.Empty(t, broken)
		})
	}
}

func TestFlags(t *testing.T) {
	names := func(p program) (names []string) {
		acts, err := p.acts()
		require.NoError(t, err)
		for _, act := range acts {
			for _, f := range act {
				names = append(names, f.name)
			}
		}
		return names
	}
	require.Len(t, names(program{long: true}), len(faults()))
	require.Less(t, len(names(program{})), len(faults()))
	require.Equal(t, []string{"slow", "kill"}, names(program{only: "slow,kill"}))

	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"-list"}, 0, "member-kill"},
		{[]string{"-fault", "none"}, 2, `chaos: no fault "none": see -list`},
		{[]string{"-outage", "none"}, 2, `chaos: no outage mode "none"`},
		{[]string{"-what"}, 2, "flag provided but not defined"},
	} {
		var out strings.Builder
		require.Equal(t, c.code, run(c.args, &out, &out), c.args)
		require.Contains(t, out.String(), c.want)
	}
}
