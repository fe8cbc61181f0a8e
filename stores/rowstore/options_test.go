package rowstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// TestWrongOptions: what cannot be meant is refused, all of it at once.
func TestWrongOptions(t *testing.T) {
	for _, c := range []struct {
		db    rowstore.Database
		o     rowstore.Options
		wrong []string
	}{
		{newMemory(), rowstore.Options{}, nil},
		{newMemory(), rowstore.Options{Name: "any text, hashed", ManyClocks: true, Rows: 1, Lease: time.Second}, nil},
		{newMemory(), rowstore.Options{Rows: -1}, []string{"Options.Rows: -1 is negative"}},
		{newMemory(), rowstore.Options{Lease: 10}, []string{"Options.Lease: 10ns is too short"}},
		{newMemory(), rowstore.Options{Lease: -time.Second}, []string{"Options.Lease: -1s is too short"}},
		{nil, rowstore.Options{Rows: -5, Lease: time.Millisecond}, []string{"db: is nil", "Options.Rows: -5", "Options.Lease: 1ms"}},
	} {
		s, err := rowstore.New(c.db, c.o)
		require.Equal(t, len(c.wrong) == 0, err == nil, "%v", err)
		require.Equal(t, len(c.wrong) == 0, s != nil)
		for _, wrong := range c.wrong {
			require.ErrorContains(t, err, "rowstore: "+wrong)
			require.ErrorAs(t, err, new(*store.OptionError))
		}
	}
}
