package rowtest

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// A sleepy is a Database of one program, which stands still in every second transaction: then the database ends it.
type sleepy struct {
	rows  map[string][]byte
	calls int
}

// Transact implements [rowstore.Database].
func (s *sleepy) Transact(_ context.Context, _ string, _ []string, do func(rowstore.Tx) error) error {
	s.calls++
	tx := &sleepyTx{s, make(map[string][]byte)}
	if err := do(tx); err != nil {
		return err
	}
	if s.calls%2 == 1 {
		time.Sleep(time.Second + time.Millisecond)
		return fmt.Errorf("%w: the connection was closed", rowstore.ErrAway)
	}
	maps.Copy(s.rows, tx.puts)
	return nil
}

type sleepyTx struct {
	*sleepy
	puts map[string][]byte
}

func (tx *sleepyTx) Now() time.Time { return time.Now() }

func (tx *sleepyTx) Get(keys ...string) ([][]byte, error) {
	values := make([][]byte, len(keys))
	for i, k := range keys {
		values[i] = tx.rows[k]
	}
	return values, nil
}

func (tx *sleepyTx) Put(key string, value []byte, _ time.Duration) { tx.puts[key] = value }

// TestAStandstillIsNoMistake: a machine that is busy may keep a program from going on in a transaction until the database ends it.
// The author of the Database has made no mistake.
func TestAStandstillIsNoMistake(t *testing.T) {
	for name, check := range map[string]func(*group){
		"rows":      (*group).rows,
		"errors":    (*group).errors,
		"names":     (*group).names,
		"many rows": func(g *group) { g.manyRows(3) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := &sleepy{rows: make(map[string][]byte)}
				check(&group{t, db, db, "group"})
			})
		})
	}
}
