package crew_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/crew"
	"github.com/fleetthrottle/throttle/internal/lab/leaks"
)

func TestMain(m *testing.M) {
	crew.Main("doubler", func(program *crew.Link) error {
		var name string
		if err := program.Hear(&name); err != nil {
			return err
		}
		if err := program.Tell("ready"); err != nil {
			return err
		}
		for {
			var n int
			if program.Hear(&n) != nil {
				return nil
			}
			if n < 0 {
				return fmt.Errorf("%s doubles no %d", name, n)
			}
			if err := program.Tell(2 * n); err != nil {
				return err
			}
		}
	})
	crew.Main("lonely", func(program *crew.Link) error {
		var orders struct{}
		if err := program.Hear(&orders); err != nil {
			return err
		}
		if err := program.Tell("ready"); err != nil {
			return err
		}
		ctx := program.Alone()
		<-ctx.Done()
		return context.Cause(ctx)
	})
	os.Exit(leaks.Main(m))
}

// TestMembers: members get their own orders, hear what all are told, and one that fails
// says why.
func TestMembers(t *testing.T) {
	members, err := crew.Muster(t.Context(), "doubler", []string{"a", "b"})
	require.NoError(t, err)
	t.Cleanup(members.Kill)
	require.NoError(t, members.Tell(21))
	var n int
	for _, m := range members {
		require.NoError(t, m.Hear(&n))
		require.Equal(t, 42, n)
	}
	require.NoError(t, members[1].Tell(-1))
	require.EqualError(t, members[1].Hear(&n), "crew: a member ended: exit status 1: doubler: b doubles no -1")
	members[0].Dismiss()
	require.Empty(t, members[0].Errors())
}

// TestAlone: a member learns that nobody is there any more.
func TestAlone(t *testing.T) {
	members, err := crew.Muster(t.Context(), "lonely", make([]struct{}, 1))
	require.NoError(t, err)
	members[0].Dismiss()
	require.Equal(t, "lonely: crew: the program that started this one is gone: EOF", members[0].Errors())
}

// TestMuster_Fails if a member is not ready, and leaves none behind.
func TestMuster_Fails(t *testing.T) {
	_, err := crew.Muster(t.Context(), "doubler", []int{1})
	require.ErrorContains(t, err, "crew: a member ended: exit status 1: doubler: json: cannot unmarshal number")
}

// TestMuster_NoOrders: a member that cannot be told its orders does not stay behind. TestMain would find the goroutine that
// awaits its end.
func TestMuster_NoOrders(t *testing.T) {
	_, err := crew.Muster(context.Background(), "doubler", []func(){nil})
	require.ErrorContains(t, err, "json: unsupported type: func()")
}
