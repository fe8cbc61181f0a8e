//go:build linux || darwin

package filestore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/filestore"
)

// TestWrongOptions: what cannot be meant is refused, all of it at once, and nothing is made.
func TestWrongOptions(t *testing.T) {
	for _, c := range []struct {
		dir   string
		lease time.Duration
		wrong []string
	}{
		{t.TempDir(), 0, nil},
		{t.TempDir(), time.Second, nil},
		{t.TempDir(), 10, []string{"Options.Lease: 10ns is too short"}},
		{t.TempDir(), -time.Minute, []string{"Options.Lease: -1m0s is too short"}},
		{"", 0, []string{"dir: is empty"}},
		{"", time.Second - 1, []string{"dir: is empty", "Options.Lease: 999.999999ms is too short"}},
	} {
		s, err := filestore.New(c.dir, filestore.Options{Lease: c.lease})
		require.Equal(t, len(c.wrong) == 0, err == nil, "%v", err)
		require.Equal(t, len(c.wrong) == 0, s != nil)
		for _, wrong := range c.wrong {
			require.ErrorContains(t, err, "filestore: "+wrong)
			require.ErrorAs(t, err, new(*store.OptionError))
		}
	}
}
