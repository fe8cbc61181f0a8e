package rowstore_test

import (
	"context"
	"encoding/binary"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// A measured is a Database that notes what transactions ask for.
type measured struct {
	rowstore.Database
	mu   sync.Mutex
	keys []int // of each transaction, how many keys were known beforehand
	gets []int // and how often it read
}

func (m *measured) Transact(ctx context.Context, group string, keys []string, do func(rowstore.Tx) error) error {
	var of measuredTx
	err := m.Database.Transact(ctx, group, keys, func(tx rowstore.Tx) error {
		of = measuredTx{Tx: tx}
		return do(&of)
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	m.keys, m.gets = append(m.keys, len(keys)), append(m.gets, of.gets)
	return err
}

// take returns what was noted since the last call.
func (m *measured) take() (keys, gets []int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	keys, gets = m.keys, m.gets
	m.keys, m.gets = nil, nil
	return keys, gets
}

type measuredTx struct {
	rowstore.Tx
	gets int
}

func (tx *measuredTx) Get(keys ...string) ([][]byte, error) {
	tx.gets++
	return tx.Tx.Get(keys...)
}

// slots is a budget of its own for each number.
func slots(i int) store.Charge {
	c := slot()
	binary.BigEndian.PutUint32(c.Budget.Key[:], uint32(i+1))
	return c
}

// TestRows: a transaction has so many rows as Options say, and reads them at once: those of many callers, those of a caller with
// several budgets, and those whose leases are renewed.
func TestRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &measured{Database: newMemory()}
		s := must(rowstore.New(m, rowstore.Options{Rows: 10}))
		var all sync.WaitGroup
		for i := range 200 {
			all.Go(func() {
				b := &store.Booking{Charges: []store.Charge{slots(2 * i), slots(2*i + 1)}}
				g, err := s.Book(t.Context(), b)
				if err != nil || !g.OK {
					t.Errorf("%v %v", g, err)
				}
			})
		}
		all.Wait()
		keys, gets := m.take()
		require.Equal(t, 12, slices.Max(keys), "ten, and two of the store's own")
		require.Equal(t, 1, slices.Max(gets))
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		keys, gets = m.take()
		require.Equal(t, 12, slices.Max(keys))
		require.Equal(t, 1, slices.Max(gets))
		require.Len(t, keys, 40, "400 leases are renewed")
		for i := range 200 {
			s.Release(&store.Booking{Charges: []store.Charge{slots(2 * i), slots(2*i + 1)}}, store.Grant{OK: true})
		}
	})
}

// TestP12_Looks: a look is not awaited for longer than its caller may, and shows nothing to a caller that has left.
func TestP12_Looks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		s := must(rowstore.New(&broken{Database: newMemory(), before: func() error { <-goOn; return nil }}, rowstore.Options{}))
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		began := time.Now()
		_, err := s.Status(ctx, hourly(1))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(began))

		c := hourly(1)
		w := s.Watch(&store.Booking{Charges: []store.Charge{c}}, store.Grant{OK: true}, make(chan struct{}, 1))
		_, err = w.Confirm(t.Context(), time.Second)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 2*time.Second, time.Since(began))
		w.Stop()
		close(goOn)
	})
}
