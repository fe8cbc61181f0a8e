package node

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patient is an op whose call may wait for so long that a test does not end before.
func patient(name string) *op {
	op := reserve(5000, name)
	op.patience = time.Hour
	return op
}

// TestPatientCallersShareACall: with one that cannot wait, and where a call is full.
func TestPatientCallersShareACall(t *testing.T) {
	t.Parallel()
	for name, last := range map[string]func(*Node) []*op{
		"one cannot wait": func(*Node) []*op { return []*op{reserve(5000, "last")} },
		"a call is full": func(*Node) (all []*op) {
			for i := range maxBatch - 3 {
				all = append(all, patient(fmt.Sprint("more ", i)))
			}
			return all
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			qs, _, client := real(t)
			var all []<-chan error
			for i := range 3 {
				all = append(all, do(t.Context(), qs, patient(fmt.Sprint(i))))
				waiting(t, qs, i+1)
			}
			require.Zero(t, scripts(t, client))
			for _, op := range last(qs) {
				all = append(all, do(t.Context(), qs, op))
			}
			for _, done := range all {
				require.NoError(t, <-done)
			}
			require.Equal(t, 1, scripts(t, client))
		})
	}
}

// TestAPatientCallerLeaves: the others of its call wait as long as they would have, and its
// context ends its own wait at once.
func TestAPatientCallerLeaves(t *testing.T) {
	t.Parallel()
	qs, _, client := real(t)
	ctx, leave := context.WithCancel(t.Context())
	first := do(ctx, qs, patient("first"))
	waiting(t, qs, 1)
	second := do(t.Context(), qs, patient("second"))
	waiting(t, qs, 2)
	leave()
	require.ErrorIs(t, <-first, context.Canceled)
	require.Zero(t, scripts(t, client))
	require.NoError(t, <-do(t.Context(), qs, reserve(5000, "third")))
	require.NoError(t, <-second)
	require.Equal(t, 1, scripts(t, client), "nothing was booked for who left")
}
