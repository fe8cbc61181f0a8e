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

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/rowstore"
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

type measuredTx struct {
	rowstore.Tx
	gets int
}

func (tx *measuredTx) Get(keys ...string) ([][]byte, error) {
	tx.gets++
	return tx.Tx.Get(keys...)
}

// slots is a budget of its own for each number.
func slots(i int) throttle.Charge {
	c := slot()
	binary.BigEndian.PutUint32(c.Budget.Key[:], uint32(i+1))
	return c
}

// TestRows: a transaction has so many rows as Options say, and reads them at once: those of many callers, those of a caller with
// several budgets, and those whose leases are renewed.
func TestRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &measured{Database: newMemory()}
		s := rowstore.New(m, &rowstore.Options{Rows: 10})
		var all sync.WaitGroup
		for i := range 200 {
			all.Go(func() {
				b := &throttle.Booking{Charges: []throttle.Charge{slots(2 * i), slots(2*i + 1)}}
				g, err := s.Book(t.Context(), b)
				if err != nil || !g.OK {
					t.Errorf("%v %v", g, err)
				}
			})
		}
		all.Wait()
		require.Equal(t, 12, slices.Max(m.keys), "ten, and two of the store's own")
		require.Equal(t, 1, slices.Max(m.gets))
		m.keys, m.gets = nil, nil
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, 12, slices.Max(m.keys))
		require.Equal(t, 1, slices.Max(m.gets))
		require.Len(t, m.keys, 40, "400 leases are renewed")
		for i := range 200 {
			s.Release(&throttle.Booking{Charges: []throttle.Charge{slots(2 * i), slots(2*i + 1)}}, throttle.Grant{OK: true})
		}
	})
}
