package rowtest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// rows: a row that is put can be got, in the same group and by the same key alone.
func (g *group) rows() {
	large := bytes.Repeat([]byte{0, 0xff, '\'', '\\'}, 2048)
	g.transact(func(tx rowstore.Tx) error {
		tx.Put(g.key("large"), large, time.Hour)
		tx.Put(g.key("small"), []byte{0}, time.Hour)
		return nil
	}, g.key("small"))

	// One key is unknown, so a Database that leaves out missing rows gives the wrong order.
	values := g.get(g.key("small"), g.key("none"), g.key("large"))
	if values[1] != nil {
		g.Errorf("Get of a row that does not exist returned %d bytes that are not nil", len(values[1]))
	}

	if !bytes.Equal(values[0], []byte{0}) || !bytes.Equal(values[2], large) {
		g.Fatalf("a transaction put a row of 1 byte and a row of %d bytes, and returned nil. Get of both, with a row that does not exist between them, returned %d and %d bytes, or other bytes: "+
			"is each Put saved? Does Get return values in the order of its keys?", len(large), len(values[0]), len(values[2]))
	}

	g.transact(func(tx rowstore.Tx) error {
		values, err := tx.Get(g.key("large")) // its key was not known beforehand
		if err == nil && !bytes.Equal(values[0], large) {
			g.Errorf("a key that was not known beforehand: %d bytes", len(values[0]))
		}

		tx.Put(g.key("large"), []byte("shorter"), time.Hour)
		return err
	})

	if v := g.get(g.key("large")); string(v[0]) != "shorter" {
		g.Errorf("a row that was put twice: %d bytes", len(v[0]))
	}
}

// errors: nothing is saved of a transaction that ends with an error.
func (g *group) errors() {
	no := errors.New("no")
	err := g.db.Transact(g.Context(), g.name, []string{g.key("a")}, func(tx rowstore.Tx) error {
		tx.Put(g.key("a"), []byte("a"), time.Hour)
		return no
	})
	if !errors.Is(err, no) {
		g.Errorf("Transact returned %v, and not the error of do", err)
	}
	if v := g.get(g.key("a")); v[0] != nil {
		g.Errorf("a transaction that ended with an error saved %q", v[0])
	}
}

// names: the longest group and keys, of which some differ by the case of a letter alone.
func (g *group) names() {
	g.name += strings.Repeat("-_.Zz9", 11)[:64-len(g.name)]
	var keys []string
	for _, last := range []string{"a", "A", "b", "-", "_", "."} {
		keys = append(keys, g.key(strings.Repeat("k", 126-len(g.name)))+last)
	}

	g.transact(func(tx rowstore.Tx) error {
		for _, k := range keys {
			tx.Put(k, []byte(k), time.Hour)
		}
		return nil
	}, keys...)

	// Values come in the order of the keys that were asked for, and not in the order of the table.
	slices.Reverse(keys)
	for i, v := range g.get(keys...) {
		if string(v) != keys[i] {
			g.Fatalf("six keys of 128 bytes, which differ in the last byte: a, A, b, -, _ and . Get of the key that ends in %q returned the value of the one that ends in %q. "+
				"Are keys compared byte by byte, with the case of letters, and all 128 bytes? Does Get return the values in the order of its keys?", keys[i][127:], v[max(0, len(v)-1):])
		}
	}
}

// manyRows: a transaction reads and puts as many rows as Options allow, each as large as the row of a budget may be.
func (g *group) manyRows(n int) {
	if n <= 0 {
		n = 256
	}

	n += 2 // the small rows of the store
	var keys []string
	for i := range n {
		keys = append(keys, g.key(fmt.Sprint(i)))
	}

	value := bytes.Repeat([]byte("v"), 4096)
	err := g.db.Transact(g.Context(), g.name, keys, func(tx rowstore.Tx) error {
		values, err := tx.Get(keys...)
		if err == nil && len(values) != n {
			return fmt.Errorf("Get of %d keys returned %d values", n, len(values))
		}

		for _, k := range keys {
			tx.Put(k, value, time.Hour)
		}

		return err
	})
	if err != nil {
		g.Fatalf("a transaction that reads and puts %d rows of 4,096 bytes: %v. If the database bounds transactions, set Options.Rows, here and in the programs", n, err)
	}

	for i, v := range g.get(keys...) {
		if !bytes.Equal(v, value) {
			g.Fatalf("of a transaction that put %d rows of 4,096 bytes, row %d has %d bytes", n, i, len(v))
		}
	}
}

// keep: a row is there for as long as keep after it was put last.
func (g *group) keep() {
	const short, long = time.Second, 5 * time.Second
	begun := time.Now()

	for _, keep := range []time.Duration{short, time.Hour} {
		g.transact(func(tx rowstore.Tx) error {
			tx.Put(g.key("again"), []byte("again"), keep)
			if keep == short {
				tx.Put(g.key("once"), []byte("once"), long)
			}
			return nil
		})
	}

	for end := begun.Add(5 * short / 2); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		g.transact(func(tx rowstore.Tx) error { // which may remove rows
			tx.Put(g.key("other"), []byte("other"), time.Hour)
			return nil
		})

		v := g.get(g.key("again"), g.key("once"))
		if v[0] == nil {
			g.Fatalf("a row was put with a keep of %v, put again with an hour, and is gone after %v: does each Put set the time anew?", short, time.Since(begun))
		}
		if v[1] == nil && time.Since(begun) < long {
			g.Fatalf("a row that was put with a keep of %v is gone after %v: is the time taken in the right unit, and by one clock?", long, time.Since(begun))
		}
	}
}
