package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	if os.Getenv(memberEnv) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestP12_Chaos plays the most important faults and requires that every promise
// is kept. It takes a minute and a quarter: the rest is for the long form.
func TestP12_Chaos(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 12))
	for _, act := range (&program{}).acts() {
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
